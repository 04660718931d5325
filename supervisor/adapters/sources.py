"""Where models come from: files and folders, their versions, and whether they have changed."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..domain import NAME
from ..errors import BadSource

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

RUNTIME_BY_SUFFIX: Final = {
    ".keras": "tensorflow",
    ".h5": "tensorflow",
    ".hdf5": "tensorflow",
    ".echo": "echo",
}
VERSION_SUFFIXES: Final = (".keras", ".h5", ".echo")  # of the one file of a version folder
SAVED_MODEL: Final = "saved_model.pb"
UNVERSIONED: Final = "1"  # the version of a source without version folders

_VERSION: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_KINDS: Final = (
    "expected a .keras, .h5, .hdf5 or .echo file, a SavedModel folder, or a folder with version "
    "folders 1/, 2/ and so on"
)

Fingerprint = tuple[tuple[str, int, int, int], ...]


class SourceError(BadSource):
    """A source that cannot be a model. The message says which and what was expected."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """One version of a model, found on disk."""

    path: Path  # what the runtime loads
    version: str
    versions: tuple[str, ...]  # all that can be loaded, lowest number first
    runtime: str


def resolve(source: Path, version: str | None) -> Resolved:
    """Find a version of a source, the highest by number if `version` is None.

    A version folder without a model in it, such as one that is still being copied, does not
    count. Raises SourceError.
    """
    try:
        return _resolve(source, version)
    except OSError as error:
        raise SourceError(f"{source} cannot be read: {error.strerror}") from error


def _resolve(source: Path, version: str | None) -> Resolved:
    if not source.exists():
        raise SourceError(f"{source} does not exist")
    if runtime := _runtime_of(source):
        found = {UNVERSIONED: (source, runtime)}
    elif source.is_dir():
        found = _version_folders(source)
    else:
        raise SourceError(f"{source} is of no known kind: {_KINDS}")
    versions = tuple(found)
    wanted = versions[-1] if version is None else version
    if wanted not in found:
        raise SourceError(f"{source} has no version {wanted}; it has {', '.join(versions)}")
    path, runtime = found[wanted]
    return Resolved(path, wanted, versions, runtime)


def _runtime_of(path: Path) -> str | None:
    """Return the runtime for a model file or a SavedModel folder; None for anything else."""
    if path.is_file():
        return RUNTIME_BY_SUFFIX.get(path.suffix.lower())
    return "tensorflow" if (path / SAVED_MODEL).is_file() else None


def _version_folders(source: Path) -> dict[str, tuple[Path, str]]:
    """Return path and runtime by version, lowest number first. Raises SourceError."""
    folders = [entry for entry in source.iterdir() if _VERSION.fullmatch(entry.name)]
    if not folders:
        raise SourceError(f"{source} holds no model: {_KINDS}")
    folders.sort(key=lambda folder: (int(folder.name), folder.name))
    found = {}
    for folder in folders:
        if model := _model_in(folder):
            found[folder.name] = model
    if not found:
        raise SourceError(
            f"{source} has version folders, but none holds a model: expected {SAVED_MODEL}, or "
            f"exactly one {', '.join(VERSION_SUFFIXES)} file, in {folders[-1]}"
        )
    return found


def _model_in(folder: Path) -> tuple[Path, str] | None:
    if not folder.is_dir():
        return None
    if runtime := _runtime_of(folder):
        return folder, runtime
    files = [
        entry
        for entry in folder.iterdir()
        if entry.suffix.lower() in VERSION_SUFFIXES and not entry.name.startswith(".")
    ]
    if len(files) != 1 or not (runtime := _runtime_of(files[0])):
        return None
    return files[0], runtime


def scan(models_dir: Path) -> dict[str, Path]:
    """Return the models of a folder by name: a file's name without its suffix, a folder's name.

    Hidden entries are passed over. So is, with a warning, what cannot be a model, and the later
    one in the alphabet of two that would have the same name. Raises SourceError when the folder
    itself cannot be read.
    """
    try:
        entries = sorted(models_dir.iterdir())
    except OSError as error:
        raise SourceError(
            f"the models folder {models_dir} cannot be read: {error.strerror}"
        ) from error
    found: dict[str, Path] = {}
    for entry in entries:
        if entry.name.startswith("."):
            continue
        name = entry.name if entry.is_dir() else entry.stem
        if problem := _problem_with(name, entry, found):
            log.warning("Passed over %s: %s", entry, problem)
        else:
            found[name] = entry
    return found


def _problem_with(name: str, entry: Path, found: dict[str, Path]) -> str | None:
    if not NAME.fullmatch(name):
        return f"{name!r} is not a model name; use letters, digits, '.', '_' and '-'"
    if name in found:
        return f"{found[name]} has the name {name} already"
    try:
        resolve(entry, None)
    except SourceError as error:
        return str(error)
    return None


def fingerprint(path: Path) -> Fingerprint:
    """Return a value that changes when a file of the model does; empty if there is none.

    For each file and folder: its path, its inode, the time of its last change in ns, and its
    size. Costs one `stat` for each and reads no content.
    """
    if not path.is_dir():
        return tuple(_print_of(str(path)))
    prints: list[tuple[str, int, int, int]] = []
    for folder, folders, files in os.walk(path):
        for name in folders + files:  # a folder may be a link that now leads elsewhere
            prints += _print_of(os.path.join(folder, name))  # noqa: PTH118 - as `walk` gives it
    return tuple(sorted(prints))


def _print_of(path: str) -> Fingerprint:
    try:
        stat = os.stat(path)  # noqa: PTH116 - a folder may hold many files
    except OSError:
        return ()
    return ((path, stat.st_ino, stat.st_mtime_ns, stat.st_size),)
