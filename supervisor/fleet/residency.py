"""Where the weights of each model are, and the holding of those that are to stay in RAM."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from ..policy.residency import Weights, to_hold
from ..states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable

    from ..domain import Place, PreparedForm
    from .ports import Clock, Pages

    Resting = tuple[Place | None, PreparedForm, bool]  # the model's wish, and whether it is loaded

logger = logging.getLogger(__name__)

SETTLE: Final = 0.05  # seconds from a change until what is held follows: changes come in groups


class Residency:
    """Follows what changes, and has the page cache hold what the policy chooses.

    What is held is charged to nobody: it has what the budget leaves, and gives way to any load.
    """

    def __init__(
        self,
        pages: Pages,
        clock: Clock,
        forms: Callable[[], Iterable[Resting]],
        room: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """`forms`: the prepared form of each model that has one. `room`: bytes that may be held."""
        self._pages = pages
        self._clock = clock
        self._forms = forms
        self._room = room
        self._spawn = spawn
        self._held: dict[str, PreparedForm] = {}  # by folder
        self._dropped: dict[str, float] = {}  # folder → when it had been used last by then
        self._following: asyncio.Task[None] | None = None
        self._changed = False
        self._closed = False

    @property
    def held_bytes(self) -> int:
        """How much of the host's memory is held."""
        return sum(form.bytes for form in self._held.values())

    def place(self, form: PreparedForm | None, states: Collection[str]) -> Place:
        """Return where the weights of a model are, with this form, and workers in these states."""
        if State.READY in states:
            return "gpu"
        is_held = form is not None and form.folder in self._held
        return "ram" if is_held or State.PARKED in states else "disk"

    def poke(self) -> None:
        """Look again in a moment: a worker, a form, a wish or the budget has changed."""
        self._changed = True
        if self._following is None and not self._closed:
            self._following = self._spawn(self._follow())

    async def close(self) -> None:
        """Hold nothing any more."""
        self._closed = True
        if self._following is not None:
            await self._following
        await asyncio.to_thread(self._move, dict(self._held), {}, [])
        self._held = {}

    async def _follow(self) -> None:
        try:
            while self._changed and not self._closed:
                await asyncio.sleep(SETTLE)
                self._changed = False
                await self._settle()
        finally:
            self._following = None

    async def _settle(self) -> None:
        forms = list(self._forms())
        wanted = self._wanted(forms)
        dropped = self._to_drop(forms, wanted)
        gone = {k: form for k, form in self._held.items() if not _same(form, wanted.get(k))}
        new = {k: form for k, form in wanted.items() if not _same(form, self._held.get(k))}
        if gone or new or dropped:
            self._held = {k: form for k, form in self._held.items() if k not in gone}
            self._held |= await asyncio.to_thread(self._move, gone, new, dropped)

    def _wanted(self, forms: list[Resting]) -> dict[str, PreparedForm]:
        """Return what to hold, by folder. Models of one content share a form."""
        now, known = self._clock.wall(), {form.folder: form for _, form, _ in forms}
        weights: dict[str, Weights] = {}
        for keep, form, _ in forms:
            idle_for = max(0.0, now - form.used_at)
            if form.folder not in weights or keep == "ram":
                weights[form.folder] = Weights(form.folder, form.bytes, keep, idle_for)
        return {key: known[key] for key in to_hold(weights.values(), self._room())}

    def _to_drop(self, forms: list[Resting], wanted: dict[str, PreparedForm]) -> list[str]:
        """Return the folders that are to be in no memory, each once after it was used."""
        loaded = {form.folder for _, form, is_loaded in forms if is_loaded}
        found = []
        for keep, form, _ in forms:
            folder = form.folder
            is_at_rest = keep == "disk" and folder not in loaded and folder not in wanted
            if is_at_rest and self._dropped.get(folder) != form.used_at:
                self._dropped[folder] = form.used_at
                found.append(folder)
        return found

    def _move(
        self, gone: dict[str, PreparedForm], new: dict[str, PreparedForm], dropped: list[str]
    ) -> dict[str, PreparedForm]:
        """Change what the page cache holds; return what of the new it does. Not on the loop."""
        for folder in gone:
            self._pages.release(folder)
        for folder in dropped:
            self._pages.drop(folder)
        held = {}
        for folder, form in new.items():
            try:
                if not self._pages.hold(folder):
                    logger.debug("not locked, only read ahead: %s", folder)
                held[folder] = form
            except OSError as error:
                logger.warning("a prepared model cannot be kept in RAM: %s", error)
        return held


def _same(one: PreparedForm, other: PreparedForm | None) -> bool:
    return other is not None and one.state == other.state
