"""What a worker takes of a GPU beside its cap: the context that the driver makes for a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..domain import GpuContext


class Contexts:
    """Measured contexts by runtime and GPU; a default where there is none."""

    def __init__(
        self, default: int, known: Iterable[GpuContext], keep: Callable[[GpuContext], None]
    ) -> None:
        self._default = default  # bytes
        self._known = {(each.runtime, each.device): each for each in known}
        self._stale: set[tuple[str, str]] = set()  # measured with another version
        self._keep = keep

    def of(self, runtime: str, device: str) -> int:
        """Return the bytes that are counted for a worker of a runtime on a GPU."""
        return self.measured(runtime, device) or self._default

    def measured(self, runtime: str, device: str) -> int:
        """Return the bytes that were measured; 0 where nobody has: nothing may be left out then."""
        known = self._known.get((runtime, device))
        return 0 if known is None else known.bytes

    def is_wanted(self, runtime: str, device: str) -> bool:
        """Return whether the next worker there is to be measured."""
        return (runtime, device) not in self._known or (runtime, device) in self._stale

    def learn(self, context: GpuContext) -> None:
        """Count this from now on, and keep it."""
        key = (context.runtime, context.device)
        self._known[key] = context
        self._stale.discard(key)
        self._keep(context)

    def see(self, runtime: str, framework: str, device: str) -> None:
        """Take note of a framework's version: what was measured with another is measured anew."""
        known = self._known.get((runtime, device))
        if known is not None and known.framework != framework:
            self._stale.add((runtime, device))
