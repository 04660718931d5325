"""The package list in setup.cfg is written by hand; a forgotten line is missing in the wheel."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("supervisor", "worker", "client", "cli")


@pytest.fixture(scope="module")
def config() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_each_folder_with_an_init_file_is_listed(config: configparser.ConfigParser) -> None:
    found = {
        "modelsup." + ".".join(init.parent.relative_to(ROOT).parts)
        for folder in FOLDERS
        for init in (ROOT / folder).rglob("__init__.py")
    }
    listed = lines(config["options"]["packages"])
    assert len(listed) == len(set(listed))
    assert set(listed) == found


def test_each_python_file_is_in_a_package() -> None:
    homeless = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if not (path.parent / "__init__.py").exists()
    ]
    assert homeless == []


def test_the_top_packages_are_mapped_and_typed(config: configparser.ConfigParser) -> None:
    mapped = dict(line.split(" = ") for line in lines(config["options"]["package_dir"]))
    assert mapped == {f"modelsup.{folder}": folder for folder in FOLDERS}
    for folder in FOLDERS:
        assert (ROOT / folder / "py.typed").exists()
        assert "py.typed" in config["options.package_data"][f"modelsup.{folder}"]


def test_type_checkers_see_the_same_packages() -> None:
    links = ROOT / "tests" / "typing" / "modelsup"
    assert {link.name for link in links.iterdir()} == set(FOLDERS)
    for folder in FOLDERS:
        assert (links / folder).resolve() == ROOT / folder
