"""How much memory a worker's model takes, as the worker itself sees it while it starts.

Only private memory counts: what a fork shares with its forkserver, and pages of files that others
map too, cost nothing more. The kernel's exact count (/proc/self/smaps_rollup) walks every page,
10 to 20 ms in a worker of 500 MB. So a mark reads /proc/self/status (below 1 ms), which tells by
how much anonymous memory has grown, and the exact count is made once, at the end. What it finds
beyond the growth are pages of the forkserver that were written to; most of those writes come
right after the fork, so all stages are charged with them.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

PROC_SELF: Final = Path("/proc/self")
RESET_PEAK: Final = "5"  # to clear_refs: the peak resident size starts anew, at the current one

_PRIVATE: Final = frozenset({"Private_Clean", "Private_Dirty", "Private_Hugetlb"})


class Meter:
    """Measures this process from now on, best right after the fork. Never raises.

    Sizes are in bytes, without what was there at the start unless this process wrote to it.
    """

    def __init__(self) -> None:
        _reset_peak()
        self._at_start = _sizes("status").get("RssAnon", 0)
        self._growth: dict[str, int] = {}  # by stage
        self._peak_growth = 0
        self.mark("fork")

    def mark(self, stage: str) -> None:
        """Note what there is at the end of a stage, and the most there was during it."""
        sizes = _sizes("status")
        growth = sizes.get("RssAnon", 0) - self._at_start
        # Files that were mapped meanwhile are in both sizes, so only what was given back is left.
        # What a stage gives back before it maps files of that size is missed.
        given_back = max(0, sizes.get("VmHWM", 0) - sizes.get("VmRSS", 0))
        self._growth[stage] = growth
        self._peak_growth = max(self._peak_growth, growth + given_back)
        _reset_peak()

    def footprint(self) -> dict[str, int]:
        """Return the private bytes by stage, with "steady" for now and "peak" for the most.

        Makes the exact count, so call it when nobody waits. Empty where the kernel has none.
        """
        self.mark("steady")
        exact = _sizes("smaps_rollup")
        if not exact:
            return {}
        steady = sum(exact.get(name, 0) for name in _PRIVATE)
        written = steady - self._growth["steady"]
        sizes = {stage: max(0, growth + written) for stage, growth in self._growth.items()}
        return {**sizes, "peak": max(self._peak_growth + written, *sizes.values())}


def _reset_peak() -> None:
    with suppress(OSError):  # without it a later stage's peak may show an earlier one's
        (PROC_SELF / "clear_refs").write_text(RESET_PEAK)


def _sizes(name: str) -> dict[str, int]:
    """Return the sizes in a file of /proc/self, in bytes by name; none if it cannot be read."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for line in (PROC_SELF / name).read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if value.endswith(" kB"):
                found[key] = int(value.removesuffix(" kB")) * 1024
    return found
