"""The slots that there are, by crew: the replicas of one version of a model stand together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..domain import SlotKey
    from .slot import Slot

_AT_REST: Final = frozenset({"unloaded", "failed"})


class Roster:
    """Slots by key. Which of them exist is all that it knows."""

    def __init__(self) -> None:
        self._crews: dict[SlotKey, dict[int, Slot]] = {}

    def find(self, key: SlotKey) -> Slot | None:
        """Return the slot of this key, if there is one."""
        return self._crews.get(key.crew, {}).get(key.replica)

    def all(self) -> list[Slot]:
        """Return all slots."""
        return [slot for crew in self._crews.values() for slot in crew.values()]

    def crew(self, key: SlotKey) -> list[Slot]:
        """Return the slots of a crew, the one that is nearest to serving first."""
        crew = self._crews.get(key.crew, {})
        return sorted(crew.values(), key=lambda slot: (slot.standing, slot.key.replica))

    def crews(self) -> list[SlotKey]:
        """Return the keys of all crews."""
        return list(self._crews)

    def best(self, key: SlotKey) -> Slot | None:
        """Return the slot of a crew that is nearest to serving, if there is one."""
        return next(iter(self.crew(key)), None)

    def of_model(self, model: str, latest: Mapping[str, str]) -> list[Slot]:
        """Return the slots of a model, first those of requests that name no version."""
        keys = [key for key in self._crews if key.model == model]
        keys.sort(key=lambda key: bool(key.client) or key.version != latest.get(model))
        return [slot for key in keys for slot in self.crew(key)]

    def loaded(self, model: str) -> list[Slot]:
        """Return the slots of a model that hold, or are about to hold, a worker."""
        return [s for s in self.all() if s.key.model == model and s.state not in _AT_REST]

    def is_loaded(self, key: SlotKey) -> bool:
        """Return whether a slot of a crew holds, or is about to hold, a worker."""
        return any(slot.state not in _AT_REST for slot in self.crew(key))

    def put(self, slot: Slot) -> None:
        """Add a slot."""
        self._crews.setdefault(slot.key.crew, {})[slot.key.replica] = slot

    def remove(self, slot: Slot) -> None:
        """Remove a slot that is there."""
        crew = self._crews[slot.key.crew]
        del crew[slot.key.replica]
        if not crew:
            del self._crews[slot.key.crew]
