"""The fleet's view of the files that models come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import sources
from .sources import SourceError, scan

if TYPE_CHECKING:
    from ..domain import CatalogueEntry
    from .digests import Digests


class FileSources:
    """Sources on this machine's disk; `models_dir` is looked through for models without asking."""

    def __init__(self, models_dir: Path | None, digests: Digests) -> None:
        self._models_dir = models_dir
        self._digests = digests

    def identify(self, source: str) -> tuple[str, str]:
        """Return (absolute path, runtime) of a source. Raises SourceError."""
        path = Path(source).expanduser().resolve()
        return str(path), sources.resolve(path, None).runtime

    def resolve(self, entry: CatalogueEntry, version: str | None) -> tuple[str, str | None]:
        """Return (version, path) of what is to be loaded; without a source there is version 1.

        Raises SourceError.
        """
        if entry.source is not None:
            found = sources.resolve(Path(entry.source), version)
            return found.version, str(found.path)
        if version not in {None, sources.UNVERSIONED}:
            raise SourceError(f"model {entry.name} has no version {version}")
        return sources.UNVERSIONED, None

    def versions(self, entry: CatalogueEntry) -> tuple[str, ...]:
        """Return the versions there are, lowest first; empty when the source is unusable."""
        if entry.source is None:
            return (sources.UNVERSIONED,)
        try:
            return sources.resolve(Path(entry.source), None).versions
        except SourceError:
            return ()

    def discover(self) -> dict[str, str]:
        """Return name → path of what lies in the models folder; nothing if it cannot be read."""
        if self._models_dir is None:
            return {}
        try:
            return {name: str(path) for name, path in scan(self._models_dir).items()}
        except SourceError:
            return {}

    def measure(self, path: str | None) -> tuple[int, str]:
        """Return (size in bytes, digest) of the content of a model's files. Raises SourceError.

        Files that were not read before are read to the end.
        """
        return (0, "") if path is None else self._digests.measure(Path(path))

    def fingerprint(self, entry: CatalogueEntry) -> object:
        """Return a value that changes when the files of the model do."""
        return sources.fingerprint(Path(entry.source)) if entry.source else ()
