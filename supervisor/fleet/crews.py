"""All crews, and the routes of the hot path to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .crew import Crew, Flow, Queue

if TYPE_CHECKING:
    from ..domain import CatalogueEntry, SlotKey
    from .slot import Slot
    from .worker import Worker


class Crews:
    """Crews by key, one queue for each model, and the versions that stand for models.

    `max_queue` is that of a model that says nothing else.
    """

    def __init__(self, max_queue: int) -> None:
        self.latest: dict[str, str] = {}  # model → version that stands for it
        self._max_queue = max_queue
        self._queues: dict[str, Queue] = {}
        self._crews: dict[SlotKey, Crew] = {}
        self._ready: dict[SlotKey, dict[int, Worker]] = {}  # by replica
        self._routes: dict[tuple[str, str | None], Crew] = {}  # shared, with a ready worker
        self._closed = False

    def route(self, model: str, version: str | None) -> Crew | None:
        """Return the crew of shared workers if one of them is ready."""
        return self._routes.get((model, version))

    def find(self, key: SlotKey) -> Crew | None:
        """Return the crew with this key, if there is one."""
        return self._crews.get(key)

    def of(self, slot: Slot) -> Crew:
        """Return the crew that the worker of a slot belongs to."""
        key = slot.key.crew
        crew = self._crews.get(key)
        if crew is None:
            crew = self._crews[key] = Crew(self.queue(key.model), self.flow(slot.entry))
        return crew

    def queue(self, model: str) -> Queue:
        """Return the queue of a model."""
        return self._queues.setdefault(model, Queue(model))

    def flow(self, entry: CatalogueEntry) -> Flow:
        """Return how many requests of a model there may be."""
        return Flow.of(entry.options, self._max_queue)

    def update(self, slot: Slot) -> None:
        """Keep the crew of a slot, and the routes to it, true to the slot."""
        crew, key, worker = self.of(slot), slot.key.crew, slot.current
        ready = self._ready.setdefault(key, {})
        if worker is not None and worker.serves:
            ready[slot.key.replica] = worker
        else:
            ready.pop(slot.key.replica, None)
        if self._closed:
            ready.clear()
        crew.flow = self.flow(slot.entry)
        crew.refresh(tuple(ready.values()))
        if key.client:
            return
        routes: list[tuple[str, str | None]] = [(key.model, key.version)]
        if self.latest.get(key.model) == key.version:
            routes.append((key.model, None))
        for route in routes:
            if ready:
                self._routes[route] = crew
            else:
                self._routes.pop(route, None)

    def forget(self, key: SlotKey) -> None:
        """Drop a crew that is no more."""
        self._ready.pop(key, None)
        crew = self._crews.pop(key, None)
        if crew is not None:
            crew.refresh(())

    def close(self) -> None:
        """Route nothing any more."""
        self._closed = True
        self._routes.clear()
