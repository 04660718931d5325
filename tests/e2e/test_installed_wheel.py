"""The wheel, installed as users install it, works without the source tree."""

from __future__ import annotations

import json
import shutil
import site
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.conftest import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FOLDERS = ("supervisor", "worker", "client", "cli")
FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
# Prints where each package comes from, and what Python knows of the installed project.
WHERE = """
import importlib, importlib.metadata, json
names = ["modelsup." + name for name in ("supervisor", "worker", "client", "cli")]
print(json.dumps({
    "files": [importlib.import_module(name).__file__ for name in names],
    "version": importlib.metadata.version("modelsup"),
    "editable": importlib.metadata.distribution("modelsup").read_text("direct_url.json"),
}))
"""


def run(*command: str | Path, **options: Any) -> str:
    """Run a command that must succeed; return its stdout."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that has the wheel, and the dependencies of this one."""
    base = tmp_path_factory.mktemp("wheel")
    source = base / "source"
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", base]
    run(*build, ".", cwd=source)
    (wheel,) = base.glob("*.whl")
    environment = base / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install"]
    run(*pip, "--no-deps", "--no-index", "--quiet", wheel)
    (packages,) = environment.glob("lib/python*/site-packages")
    # A path in a .pth file gives the dependencies, but not their own .pth files: so not the
    # editable install, which is one.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    shutil.rmtree(source)
    return python.parent


@pytest.fixture
def command(installed: Path, tmp_path: Path) -> Iterator[Any]:
    """Run the installed `modelsup` from another folder; a supervisor is stopped in the end."""
    environment = clean_environment(tmp_path) | {
        "MODELSUP_STATE_DIR": str(tmp_path / "state"),
        "MODELSUP_PORT": "0",
    }
    environment.pop("PYTHONPATH", None)

    def modelsup(*arguments: str) -> str:
        out = run(installed / "modelsup", *arguments, cwd=tmp_path, env=environment)
        if arguments[0] == "start":
            environment["MODELSUP_URL"] = json.loads(out)["url"]
        return out

    yield modelsup
    if "MODELSUP_URL" in environment:
        modelsup("stop")


def test_the_packages_are_the_installed_ones(installed: Path, tmp_path: Path) -> None:
    facts = json.loads(run(installed / "python", "-c", WHERE, cwd=tmp_path))
    assert all(Path(file).is_relative_to(installed.parent) for file in facts["files"])
    assert facts["version"]
    assert '"editable": true' not in (facts["editable"] or "")


def test_load_predict_unload(command: Any, installed: Path, tmp_path: Path) -> None:
    (tmp_path / "m.echo").write_text("{}")

    started = json.loads(command("start", "--detach", "--json"))
    loaded = json.loads(command("load", "m", "m.echo", "--json"))
    answer = json.loads(command("predict", "m", "[[1, 2]]"))
    (worker,) = json.loads(command("ps", "--json"))
    programs = [psutil.Process(pid).cmdline()[0] for pid in (started["pid"], worker["pid"])]
    receipt = json.loads(command("unload", "m", "--json"))

    assert (loaded["state"], loaded["worker"]) == ("ready", worker["id"])
    assert answer == {"predictions": [[1.0, 2.0]]}
    assert (receipt["outcome"], receipt["verified"]) == ("drained", True)
    assert all(Path(program).parent == installed for program in programs)
    assert not psutil.pid_exists(worker["pid"])
