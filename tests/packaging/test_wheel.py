"""What is in the wheel: all of the code, its type markers, its entry points, and nothing else."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FOLDERS = ("supervisor", "worker", "client", "cli")
FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """Built from a copy, so that an old build/ folder cannot hide what is missing."""
    source = tmp_path_factory.mktemp("source")
    for folder in FOLDERS:
        shutil.copytree(
            ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in FILES:
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "out", "."]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = (source / "out").glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def metadata(wheel: zipfile.ZipFile, ending: str) -> str:
    """Return the text of the one file of the dist-info folder with this ending."""
    (name,) = (n for n in wheel.namelist() if ".dist-info/" in n and n.endswith("/" + ending))
    return wheel.read(name).decode()


def test_holds_every_file_of_the_packages(wheel: zipfile.ZipFile) -> None:
    expected = {
        "modelsup/" + path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected


def test_modelsup_stays_a_namespace(wheel: zipfile.ZipFile) -> None:
    assert "modelsup/__init__.py" not in wheel.namelist()


def test_carries_the_messages_of_grpc(wheel: zipfile.ZipFile) -> None:
    files = {f"modelsup/supervisor/grpc/{p.name}" for p in ROOT.glob("supervisor/grpc/*.proto")}
    assert files
    assert files <= set(wheel.namelist())


def test_has_the_entry_points(wheel: zipfile.ZipFile) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(metadata(wheel, "entry_points.txt"))
    assert dict(parser["console_scripts"]) == {"modelsup": "modelsup.cli.main:main"}
    assert set(parser["modelsup.runtimes"]) == {"tensorflow", "echo"}


def test_carries_the_licence_and_the_readme(wheel: zipfile.ZipFile) -> None:
    assert metadata(wheel, "LICENSE") == (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert metadata(wheel, "METADATA").endswith((ROOT / "README.md").read_text(encoding="utf-8"))


def test_the_base_install_needs_no_ml_framework(wheel: zipfile.ZipFile) -> None:
    needs = [
        line.removeprefix("Requires-Dist: ")
        for line in metadata(wheel, "METADATA").splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    assert needs
    assert not [need for need in needs if need.startswith(("tensorflow", "keras", "torch", "jax"))]
