"""The state file: what it gives back, and how it takes full disks, damage and newer releases."""

from __future__ import annotations

import json
import logging
import os
import resource
import sqlite3
import subprocess
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest
from modelsup.supervisor.adapters import host
from modelsup.supervisor.adapters.store import MIGRATIONS, Store, StoreError, WorkerRecord
from modelsup.supervisor.domain import (
    CatalogueEntry,
    Footprint,
    FootprintKey,
    GpuContext,
    Lease,
    Options,
    SlotKey,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESNET = CatalogueEntry("resnet50", "/models/resnet50.keras", "tensorflow", Options(pin=True))
ECHO = CatalogueEntry("echo", None, "echo", Options(ttl=60.0, threads=2))
DAMAGE = b"not a database, " * 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = Store(path)
    yield opened
    opened.close()


def test_everything_survives_a_restart(path: Path, store: Store) -> None:
    shared, private = SlotKey("resnet50", "1"), SlotKey("resnet50", "1", "john")
    lease, other = Lease("john", private, 1700000000.5, 600.0), Lease("ada", shared, 1.0, 2.0)
    store.put_model(RESNET)
    store.put_model(ECHO)
    store.add_wanted(shared)
    store.add_wanted(private)
    store.put_lease(lease)
    store.put_lease(other)
    store.add_worker("w1", "resnet50", os.getpid())
    store.close()

    again = Store(path)
    assert again.models() == [ECHO, RESNET]
    assert again.wanted() == [shared, private]
    assert again.leases() == [other, lease]
    assert again.workers() == [
        WorkerRecord("w1", "resnet50", os.getpid(), host.create_time(os.getpid()))
    ]
    again.close()


def test_a_gpu_context_survives_a_restart_and_the_last_one_counts(path: Path, store: Store) -> None:
    old = GpuContext("tensorflow", "GPU-a", "tensorflow 2.20.0", 300)
    new = GpuContext("tensorflow", "GPU-a", "tensorflow 2.21.0", 400)
    other = GpuContext("tensorflow", "GPU-b", "tensorflow 2.21.0", 500)
    for context in (old, other, new):
        store.put_context(context)
    store.close()
    again = Store(path)
    assert again.contexts() == [other, new]
    again.close()


def test_the_last_put_wins_and_a_removal_removes_one(store: Store) -> None:
    store.put_model(RESNET)
    moved = CatalogueEntry("resnet50", "/other", "tensorflow")
    store.put_model(moved)
    assert store.models() == [moved]

    store.add_wanted(SlotKey("a", "1"))
    store.add_wanted(SlotKey("a", "1"))
    store.add_wanted(SlotKey("a", "1", "john"))
    store.remove_wanted(SlotKey("a", "1"))
    assert store.wanted() == [SlotKey("a", "1", "john")]

    store.put_lease(Lease("john", SlotKey("a", "1"), 1.0, 2.0))
    store.put_lease(Lease("john", SlotKey("b", "2"), 3.0, 4.0))
    assert store.leases() == [Lease("john", SlotKey("b", "2"), 3.0, 4.0)]


def test_removing_what_is_not_there_is_no_error(store: Store) -> None:
    store.delete_model("absent")
    store.remove_wanted(SlotKey("absent", "1"))
    store.delete_lease("absent")
    store.remove_worker("absent")
    assert (store.models(), store.wanted(), store.leases(), store.workers()) == ([], [], [], [])


def test_removals_of_all_kinds(store: Store) -> None:
    store.put_model(RESNET)
    store.put_lease(Lease("john", SlotKey("a", "1"), 1.0, 2.0))
    store.add_worker("w1", "a", os.getpid())
    store.delete_model("resnet50")
    store.delete_lease("john")
    store.remove_worker("w1")
    assert (store.models(), store.leases(), store.workers()) == ([], [], [])


def test_a_worker_that_is_gone_already_has_no_create_time(store: Store) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    store.add_worker("w1", "a", process.pid)
    assert store.workers() == [WorkerRecord("w1", "a", process.pid, None)]


def test_nobody_else_may_read_the_file(path: Path, store: Store) -> None:
    store.put_model(RESNET)
    modes = {entry.name: entry.stat().st_mode & 0o777 for entry in path.parent.iterdir()}
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}


def test_the_write_ahead_log_is_on(path: Path, store: Store) -> None:
    store.put_model(RESNET)
    reader = sqlite3.connect(path)
    assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    reader.close()


def test_a_full_disk_is_told_and_loses_nothing(path: Path, store: Store) -> None:
    """The limit on file sizes makes the kernel refuse the write, as a full disk does."""
    store.put_model(RESNET)
    large = CatalogueEntry("large", "x" * 500_000, "tensorflow")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(StoreError, match="cannot save model large") as caught:
            store.put_model(large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(path) in str(caught.value)
    assert store.models() == [RESNET]
    store.put_model(ECHO)
    assert store.models() == [ECHO, RESNET]


def test_a_full_database_is_told_in_words(path: Path, store: Store) -> None:
    store.put_model(RESNET)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="the disk is full; free some space"):
        store.put_model(CatalogueEntry("large", "x" * 500_000, "tensorflow"))
    assert store.models() == [RESNET]


def test_a_read_only_file_is_told_in_words(store: Store) -> None:
    store._db.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match="is read-only"):
        store.put_model(RESNET)
    assert store.models() == []


def test_a_locked_file_is_told_in_words(path: Path, store: Store) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store._db.execute("PRAGMA busy_timeout = 1")
    with pytest.raises(StoreError, match="another process has locked it"):
        store.put_model(RESNET)
    other.execute("ROLLBACK")
    other.close()
    store.put_model(RESNET)
    assert store.models() == [RESNET]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_told_at_the_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match=r"cannot open the state in .*Permission denied"):
        Store(tmp_path / "state.db")
    tmp_path.chmod(0o700)


def test_a_folder_that_cannot_be_made_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot open the state in .*File exists"):
        Store(tmp_path / "file" / "state.db")
    with pytest.raises(StoreError, match=r"cannot open the state in .*Is a directory"):
        Store(tmp_path)


def test_a_damaged_file_is_moved_aside(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    for number in (1, 2):
        path.write_bytes(DAMAGE)
        with caplog.at_level(logging.WARNING):
            store = Store(path)
        assert store.models() == []
        store.put_model(RESNET)
        store.close()
        aside = path.with_name(f"state.db.corrupt-{number}")
        assert aside.read_bytes() == DAMAGE
        assert str(aside) in caplog.text


def test_damage_in_the_middle_is_found(path: Path) -> None:
    store = Store(path)
    for number in range(200):
        store.put_model(CatalogueEntry(f"model-{number}", "/x" * 100, "echo"))
    store.close()
    content = bytearray(path.read_bytes())
    content[8192:16384] = b"\xff" * 8192
    path.write_bytes(content)

    fresh = Store(path)
    assert fresh.models() == []
    fresh.close()
    assert path.with_name("state.db.corrupt-1").read_bytes() == content


def test_the_file_of_a_newer_release_is_left_alone(path: Path) -> None:
    store = Store(path)
    store.put_model(RESNET)
    store.close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="schema 99, of a newer release"):
        Store(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.glob("*corrupt*")] == []


def test_a_migration_that_fails_leaves_no_half_made_tables(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = ("CREATE TABLE first (x TEXT); CREATE TABLE first (x TEXT);",)
    monkeypatch.setattr("modelsup.supervisor.adapters.store.MIGRATIONS", broken)
    with pytest.raises(StoreError, match="cannot bring the tables up to date"):
        Store(path)
    monkeypatch.undo()
    store = Store(path)
    assert store.models() == []
    store.close()


def test_footprints_of_an_older_release_are_of_unprepared_models(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = FootprintKey("0123", "echo", "cpu")
    prepared = replace(key, prepared=True)
    measured = Footprint({"peak": 5}, None, 1.0, "echo 1")
    monkeypatch.setattr("modelsup.supervisor.adapters.store.MIGRATIONS", MIGRATIONS[:4])
    Store(path).close()
    older = sqlite3.connect(path)
    row = ("0123", "echo", "cpu", json.dumps(asdict(measured)))
    older.execute("INSERT INTO footprints VALUES (?, ?, ?, ?)", row)
    older.commit()
    older.close()
    monkeypatch.undo()
    store = Store(path)
    assert (store.footprint(key), store.footprint(prepared)) == (measured, None)
    store.put_footprint(prepared, replace(measured, seconds=0.1))
    assert store.footprint(key) == measured
    assert store.footprint(prepared) == replace(measured, seconds=0.1)
    store.close()


def test_a_kill_in_the_middle_of_writing_keeps_what_was_told(path: Path) -> None:
    """Each line that the writer prints is a model that must be there after SIGKILL."""
    script = """
import sys
from pathlib import Path
from modelsup.supervisor.adapters.store import Store
from modelsup.supervisor.domain import CatalogueEntry
store = Store(Path(sys.argv[1]))
for number in range(1_000_000):
    store.put_model(CatalogueEntry(f"model-{number}", "/x", "echo"))
    print(number, flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    told = [int(writer.stdout.readline()) for _ in range(200)]
    writer.kill()
    writer.stdout.close()
    writer.wait()
    store = Store(path)
    assert {f"model-{number}" for number in told} <= {entry.name for entry in store.models()}
    store.close()
