"""What the project's files say: commands that exist, links that lead somewhere, no leftovers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {"build", "dist", "_build", "__pycache__", "results"}
# Written so that no pattern matches its own text.
LEFTOVERS = {
    "a path of one machine": r"(?<![\w.~}])/(?:home|root|work|workspace|Users)/",
    "the host of a package registry": r"py[p]i\.org|pythonhoste[d]\.org|np[m]js\.(?:com|org)",
    "the number of an issue": r"(?i)\bissues?\s+#?\d",
    "a note to come back": r"\b(?:TOD[O]|FIXM[E]|XX[X])\b",
}


def texts() -> list[tuple[Path, str]]:
    """All text files of the project, hidden tool folders and build results left out."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name == ".ci" or not (name.startswith(".") or name in SKIPPED or "egg-info" in name)
        ]
        for name in files:
            path = Path(folder, name)
            try:
                found.append((path, path.read_text(encoding="utf-8")))
            except UnicodeDecodeError:
                continue
    return found


PAGES = sorted(p.relative_to(ROOT).as_posix() for p, _ in texts() if p.suffix == ".md")


@pytest.mark.parametrize("what", LEFTOVERS)
def test_no_file_has(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:100]}"
        for path, text in texts()
        for line in text.splitlines()
        if re.search(LEFTOVERS[what], line)
    ]
    assert found == []


def test_no_link_or_path_leaves_the_project() -> None:
    """Tests are left out: they try such paths on purpose."""
    found = [
        f"{path.relative_to(ROOT)}: {step}"
        for path, text in texts()
        if path.relative_to(ROOT).parts[0] != "tests"
        for step in re.findall(r"(?:\.\./)+", text)
        if step.count("../") > len(path.relative_to(ROOT).parts) - 1
    ]
    assert found == []


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE))


def test_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert set(phony.split()) == make_targets()
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"make ([a-z]+)", shown.stdout)) == make_targets()


@pytest.mark.parametrize("page", [*PAGES, ".ci/run", ".pre-commit-config.yaml"])
def test_make_commands_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    # In prose "make" is a verb; a command stands in backticks or starts a line of a code block.
    named = re.findall(r"(?:`|^(?:\$ |exec )?)make ([a-z]+)", text, re.MULTILINE)
    assert set(named) <= make_targets()


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^make ([a-z]+)", text, re.MULTILINE) == ["demo", "test"]


@pytest.mark.parametrize("page", PAGES)
def test_links_between_files_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    local = [target for target in targets if target and "://" not in target]
    assert [t for t in local if not ((ROOT / page).parent / t).exists()] == []


def test_the_readme_lists_every_page_of_the_documentation() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\((docs/[^)]+)\)", text))
    assert linked == {page for page in PAGES if page.startswith("docs/")} - {"docs/index.md"}


def test_the_build_script_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
