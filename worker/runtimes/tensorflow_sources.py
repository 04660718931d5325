"""Say which kind of TensorFlow model a path holds, before any loader fails with its own words.

Standard library only.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from .base import LoadFailed

Kind = Literal["keras", "hdf5", "saved_model"]

SUFFIXES: Final[dict[str, Kind]] = {".keras": "keras", ".h5": "hdf5", ".hdf5": "hdf5"}
GRAPH_FILES: Final = ("saved_model.pb", "saved_model.pbtxt")
HDF5_MAGIC: Final = b"\x89HDF\r\n\x1a\n"
LFS_MAGIC: Final = b"version https://git-lfs"
SUPPORTED: Final = "a .keras file, a .h5 file or a SavedModel folder"


@dataclass(frozen=True, slots=True)
class Source:
    """A model on disk: `path` is the file, or the folder of a SavedModel."""

    kind: Kind
    path: Path


def find_source(source: str | None) -> Source:
    """Return what is at `source`. Raises LoadFailed when it cannot be a TensorFlow model.

    A folder is a SavedModel, or holds one single .keras or .h5 file.
    """
    if not source:
        raise LoadFailed("load_error", f"The tensorflow runtime needs a source: {SUPPORTED}.")
    path = Path(source)
    if not path.exists():
        raise LoadFailed("load_error", f"There is no file or folder {path}. Check the source.")
    if not os.access(path, os.R_OK):
        raise LoadFailed(
            "load_error", f"{path} may not be read by user {os.geteuid()}. Change its permissions."
        )
    return _folder(path) if path.is_dir() else _file(path)


def _folder(folder: Path) -> Source:
    if any((folder / name).is_file() for name in GRAPH_FILES):
        return Source("saved_model", folder)
    files = sorted(entry for entry in folder.iterdir() if entry.suffix.lower() in SUFFIXES)
    if len(files) == 1:
        return find_source(str(files[0]))
    if files:
        names = ", ".join(entry.name for entry in files)
        raise LoadFailed(
            "load_error", f"{folder} holds several models: {names}. Name one of them as the source."
        )
    raise LoadFailed(
        "bad_model",
        f"{folder} holds no {GRAPH_FILES[0]} and no .keras or .h5 file. A source is {SUPPORTED}.",
    )


def _file(path: Path) -> Source:
    kind = SUFFIXES.get(path.suffix.lower())
    if path.name in GRAPH_FILES:
        raise LoadFailed(
            "load_error", f"{path} is one file of a SavedModel. Name its folder {path.parent}."
        )
    if kind is None:
        raise LoadFailed(
            "load_error",
            f"{path} is not a kind of model that the tensorflow runtime loads. Give {SUPPORTED}.",
        )
    _check_content(path, kind)
    return Source(kind, path)


def _check_content(path: Path, kind: Kind) -> None:
    with path.open("rb") as stream:
        start = stream.read(len(LFS_MAGIC))
    if not start:
        raise LoadFailed("bad_model", f"{path} is empty. Save or copy the model again.")
    if start == LFS_MAGIC:
        raise LoadFailed(
            "bad_model", f"{path} is a Git LFS pointer, not the model. Run `git lfs pull` first."
        )
    if kind == "keras":
        _check_keras(path, start)
    elif not start.startswith(HDF5_MAGIC):
        raise LoadFailed("bad_model", f"{path} is not an HDF5 file, whatever its name says.")


def _check_keras(path: Path, start: bytes) -> None:
    if start.startswith(HDF5_MAGIC):
        raise LoadFailed(
            "bad_model", f"{path} is an HDF5 file with a .keras name. Rename it to .h5."
        )
    if not zipfile.is_zipfile(path):
        raise LoadFailed(
            "bad_model",
            f"{path} is not a complete .keras file: it is no whole zip archive. "
            "It may be truncated; save or copy it again.",
        )
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if "config.json" not in names:
        raise LoadFailed(
            "bad_model", f"{path} is a zip archive but not a Keras model: it has no config.json."
        )
