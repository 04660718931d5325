"""The models that the supervisor knows, from `load`, from the API and from the models folder."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from ..domain import NAME, CatalogueEntry, Options
from ..errors import BadSource, Invalid, UnknownModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ports import Sources

logger = logging.getLogger(__name__)


class Catalogue:
    """Entries by name. `save` and `forget` make a change survive a restart."""

    def __init__(
        self,
        sources: Sources,
        save: Callable[[CatalogueEntry], None],
        forget: Callable[[str], None],
    ) -> None:
        self._sources = sources
        self._save = save
        self._forget = forget
        self._entries: dict[str, CatalogueEntry] = {}

    def entries(self) -> list[CatalogueEntry]:
        """Return all, by name."""
        self._discover()
        return [self._entries[name] for name in sorted(self._entries)]

    def find(self, name: str) -> CatalogueEntry | None:
        """Return the entry, looking into the models folder for a name that is new."""
        if name not in self._entries:
            self._discover()
        return self._entries.get(name)

    def get(self, name: str) -> CatalogueEntry:
        """Return the entry. Raises UnknownModel."""
        entry = self.find(name)
        if entry is None:
            raise UnknownModel(
                f"there is no model {name!r}; load it with its source, "
                "or put it into the models folder",
                model=name,
            )
        return entry

    def restore(self, entry: CatalogueEntry) -> None:
        """Take an entry that an earlier supervisor knew."""
        self._entries[entry.name] = entry

    def amended(
        self, name: str, source: str | None, runtime: str | None, options: Options | None
    ) -> CatalogueEntry:
        """Return what the entry would be with this added to it; nothing is changed yet.

        Raises Invalid for a bad name or source, and for a new name that comes without either a
        source or a runtime.
        """
        known = self.find(name)
        if known is None and not NAME.fullmatch(name):
            raise Invalid(
                f"{name!r} cannot name a model: up to 128 letters, digits, '.', '_' and '-', "
                "beginning with a letter or digit",
                model=name,
            )
        if source is not None:
            try:
                source, found = self._sources.identify(source)
            except BadSource as error:
                raise Invalid(f"source of model {name}: {error}", model=name) from error
            runtime = runtime or found
        if known is None:
            if runtime is None:
                raise UnknownModel(
                    f"there is no model {name!r}; give a source to load it from", model=name
                )
            return CatalogueEntry(name, source, runtime, options or Options())
        return CatalogueEntry(
            name,
            source or known.source,
            runtime or known.runtime,
            merged(known.options, options or Options()),
        )

    def put(self, entry: CatalogueEntry) -> None:
        """Add or replace an entry."""
        self._entries[entry.name] = entry
        self._save(entry)

    def remove(self, name: str) -> None:
        """Remove an entry; one from the models folder comes back for as long as it lies there."""
        del self._entries[name]
        self._forget(name)

    def _discover(self) -> None:
        for name, path in self._sources.discover().items():
            if name in self._entries:
                continue
            try:
                source, runtime = self._sources.identify(path)
            except BadSource as error:
                logger.debug("skipped in the models folder: %s", error)
                continue
            self._entries[name] = CatalogueEntry(name, source, runtime)


def merged(old: Options, new: Options) -> Options:
    """Return `old` with all that `new` says, be it false or 0.

    Of the two ways to say a GPU cap the one that is given takes the place of the other.
    """
    if new.gpu_memory is not None or new.gpu_memory_fraction is not None:
        old = replace(old, gpu_memory=None, gpu_memory_fraction=None)
    values = {field.name: getattr(new, field.name) for field in fields(new)}
    return replace(old, **{name: v for name, v in values.items() if v is not None})
