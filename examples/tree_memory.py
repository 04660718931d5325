"""How much memory a tree of processes holds, by the kernel's own count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

KIB = 1024  # bytes; the unit of smaps_rollup, which calls it kB


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of one process in bytes.

    `pss`: proportional set size; a page that n processes share counts 1/n in each.
    `anonymous`: the part of it that no file backs. The rest is page cache, and its share moves
    whenever another program that maps the same files starts or ends: two programs with
    TensorFlow each count half of its library.
    `private`: unique set size, the pages that no other process has.
    """

    pss: int
    anonymous: int
    private: int

    def __add__(self, other: ProcessMemory) -> ProcessMemory:
        return ProcessMemory(
            self.pss + other.pss, self.anonymous + other.anonymous, self.private + other.private
        )


NOTHING = ProcessMemory(0, 0, 0)


def memory_by_pid(roots: Sequence[int]) -> dict[int, ProcessMemory]:
    """Return the memory of each process in the trees below `roots`, those included.

    A process that ends meanwhile is left out. Source: proc(5), /proc/PID/smaps_rollup.
    """
    found = {}
    for root in roots:
        for pid in _tree(root):
            try:
                found[pid] = _read(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def tree_memory(roots: Sequence[int]) -> ProcessMemory:
    """Return the memory of the trees below `roots` together."""
    return sum(memory_by_pid(roots).values(), start=NOTHING)


def _tree(root: int) -> list[int]:
    try:
        process = psutil.Process(root)
        return [root, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _read(pid: int) -> ProcessMemory:
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, value = line.partition(":")
        fields[name] = int(value.split()[0]) * KIB
    return ProcessMemory(
        pss=fields["Pss"],
        anonymous=fields["Pss_Anon"] + fields["Pss_Shmem"],
        private=fields["Private_Clean"] + fields["Private_Dirty"],
    )
