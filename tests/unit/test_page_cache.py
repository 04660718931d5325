"""Files that are held in the page cache: really locked, really released."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from modelsup.supervisor.adapters.host import process_memory
from modelsup.supervisor.adapters.page_cache import PageCache

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 3_000_000  # bytes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "weights.bin").write_bytes(bytes(SIZE))
    (tmp_path / "empty").touch()
    return tmp_path


@pytest.fixture
def cache() -> Iterator[PageCache]:
    cache = PageCache()
    yield cache
    cache.close()


def locked() -> int:
    memory = process_memory(os.getpid())
    assert memory is not None
    return memory.locked


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lock as much as it likes")
def test_held_files_are_locked_until_released(cache: PageCache, folder: Path) -> None:
    before, open_files = locked(), descriptors()
    assert cache.hold(str(folder))
    assert locked() - before >= SIZE
    cache.release(str(folder))
    assert locked() == before
    assert descriptors() == open_files


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lock as much as it likes")
def test_holding_twice_locks_once(cache: PageCache, folder: Path) -> None:
    before = locked()
    cache.hold(str(folder))
    cache.hold(str(folder))
    assert locked() - before < 2 * SIZE
    cache.drop(str(folder))
    assert locked() == before


def test_a_folder_that_is_not_there_is_an_error_and_releasing_it_is_not(
    cache: PageCache, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        cache.hold(str(tmp_path / "none"))
    cache.release(str(tmp_path / "none"))
    cache.drop(str(tmp_path / "none"))


def test_where_locking_is_not_allowed_files_are_read_ahead(folder: Path) -> None:
    program = (
        "import os, resource, sys\n"
        "from modelsup.supervisor.adapters.page_cache import PageCache\n"
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "cache = PageCache()\n"
        "print(cache.hold(sys.argv[1]))\n"
        "cache.close()\n"
    )
    folder.chmod(0o755)
    for parent in list(folder.parents)[:3]:
        parent.chmod(parent.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n", done.stderr


def test_a_supervisor_that_holds_weights_does_not_count_them_as_its_own(
    cache: PageCache, folder: Path
) -> None:
    cache.hold(str(folder))
    memory = process_memory(os.getpid())
    assert memory is not None
    assert 0 <= memory.locked <= memory.pss
