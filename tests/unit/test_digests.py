"""Digests of models: of the content alone, and no file is read twice without need."""

from __future__ import annotations

import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.supervisor.adapters import digests as module
from modelsup.supervisor.adapters.digests import Digests, KnownFile
from modelsup.supervisor.adapters.file_sources import FileSources
from modelsup.supervisor.adapters.sources import SourceError
from modelsup.supervisor.adapters.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LATER = 3_600 * 10**9  # ns after now; by then every file has settled


class Reader:
    """Digests that count what they read, by default an hour from now."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, known: Any = (), after: int = LATER
    ) -> None:
        self.read: list[str] = []
        self.kept: list[KnownFile] = []
        self.meanwhile: Callable[[], object] = lambda: None  # done after each read
        self._read = module._read
        monkeypatch.setattr(module, "_read", self._count)
        self.digests = Digests(known, self.kept.extend, lambda: time.time_ns() + after)

    def _count(self, path: str) -> str:
        self.read.append(os.path.basename(path))  # noqa: PTH119
        found = self._read(path)
        self.meanwhile()
        return found

    def of(self, path: Path) -> str:
        return self.digests.measure(path)[1]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Digests that know nothing yet."""
    return Reader(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A SavedModel folder, as far as its names go."""
    path = tmp_path / "saved"
    for name in ("saved_model.pb", "variables/variables.index", "assets/words.txt"):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(name.encode())
    return path


@pytest.mark.parametrize("name", ["m.keras", "m.h5"])
def test_a_copy_and_a_touch_change_nothing(tmp_path: Path, reader: Reader, name: str) -> None:
    path, copy = tmp_path / name, tmp_path / "copy" / f"other-{name}"
    path.write_bytes(b"weights" * 1000)
    size, digest = reader.digests.measure(path)
    assert (size, len(digest)) == (7000, 64)
    copy.parent.mkdir()
    shutil.copyfile(path, copy)
    os.utime(path, (1, 1))
    assert reader.of(copy) == reader.of(path) == digest
    path.write_bytes(b"weightz" * 1000)
    assert reader.of(path) != digest


def test_a_copied_folder_is_the_same_and_a_changed_one_is_not(
    tmp_path: Path, folder: Path, reader: Reader
) -> None:
    size, digest = reader.digests.measure(folder)
    assert size == len("saved_model.pb" + "variables/variables.index" + "assets/words.txt")
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    assert reader.of(copy) == digest
    words = copy / "assets" / "words.txt"
    words.rename(words.with_name("worlds.txt"))
    assert reader.of(copy) != digest


def test_bytes_that_move_from_one_file_to_the_next_count(tmp_path: Path, reader: Reader) -> None:
    found = set()
    for number, (one, two) in enumerate([(b"ab", b"c"), (b"a", b"bc"), (b"abc", b"")]):
        path = tmp_path / str(number)
        path.mkdir()
        (path / "1").write_bytes(one)
        (path / "2").write_bytes(two)
        found.add(reader.of(path))
    assert len(found) == 3


def test_what_is_known_is_not_read_again(folder: Path, reader: Reader) -> None:
    digest = reader.of(folder)
    assert len(reader.read) == 3
    assert reader.of(folder) == digest
    assert len(reader.read) == 3
    (folder / "saved_model.pb").write_bytes(b"another graph.")  # of the same size
    assert reader.of(folder) != digest
    assert reader.read[3:] == ["saved_model.pb"]


def test_what_is_known_survives_a_restart(
    tmp_path: Path, folder: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = folder / os.fsdecode(b"\xff.bin")  # not of any encoding
    strange.write_bytes(b"")
    digest = reader.of(folder)
    store = Store(tmp_path / "state.db")
    store.put_files(reader.kept)
    store.close()
    store = Store(tmp_path / "state.db")
    again = Reader(monkeypatch, store.files())
    store.close()
    assert again.of(folder) == digest
    assert again.read == []
    assert again.kept == []


def test_a_file_that_has_just_changed_is_not_remembered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change again within the same tick of the file system's clock."""
    reader = Reader(monkeypatch, after=0)
    reader.of(folder)
    reader.of(folder)
    assert len(reader.read) == 6
    assert reader.kept == []


def test_a_file_that_changes_while_it_is_read_is_read_again(
    folder: Path, reader: Reader, tmp_path: Path
) -> None:
    changes = iter([b"first", b"second"])

    def change() -> None:
        for content in changes:
            (folder / "saved_model.pb").write_bytes(content)
            return

    reader.meanwhile = change
    digest = reader.of(folder)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert (copy / "saved_model.pb").read_bytes() == b"second"
    assert reader.of(copy) == digest


@pytest.mark.parametrize("how", ["grows", "is replaced by another name"])
def test_files_that_never_stop_changing(folder: Path, reader: Reader, how: str) -> None:
    def change() -> None:
        graph = folder / "saved_model.pb"
        if how == "grows":
            graph.write_bytes(graph.read_bytes() + b".")
        else:
            next(folder.glob("saved_model*")).rename(folder / f"saved_model{len(reader.read)}")

    reader.meanwhile = change
    with pytest.raises(SourceError, match=r"saved changes while it is read; load it again once"):
        reader.of(folder)
    assert reader.kept == []


def test_links_and_what_is_no_file(tmp_path: Path, folder: Path, reader: Reader) -> None:
    """Links count as what they lead to; a loop of them, a pipe or a lost link must not hang it."""
    plain = reader.of(folder)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "saved_model.pb").symlink_to(folder / "saved_model.pb")
    for name in ("variables", "assets"):
        (linked / name).symlink_to(folder / name)
    (linked / "loop").symlink_to(linked)
    (linked / "lost").symlink_to(tmp_path / "nothing")
    os.mkfifo(linked / "pipe")
    assert reader.of(linked) == plain


def test_a_file_that_cannot_be_read(folder: Path, reader: Reader) -> None:
    def refuse() -> None:
        raise PermissionError(13, "Permission denied", str(folder / "saved_model.pb"))

    reader.meanwhile = refuse
    with pytest.raises(SourceError, match=r"saved_model\.pb cannot be read: Permission denied"):
        reader.of(folder)


def test_the_oldest_are_forgotten(
    tmp_path: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 2)
    paths = [tmp_path / f"{number}.keras" for number in range(3)]
    for path in paths:
        path.write_bytes(b"x")
        reader.of(path)
    reader.of(paths[2])
    reader.of(paths[0])
    assert reader.read == ["0.keras", "1.keras", "2.keras", "0.keras"]


def test_the_store_is_bounded_too(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    files = [KnownFile(f"/m/{number}", "1 2 3 4", "ab") for number in range(module.MOST_FILES + 9)]
    store.put_files(files[:-1])
    store.put_files([files[20], files[-1]])
    kept = store.files()
    store.close()
    assert len(kept) == module.MOST_FILES
    assert kept[-2:] == [files[20], files[-1]]
    assert files[0] not in kept


def test_several_threads_at_a_time(folder: Path, reader: Reader) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(reader.of(folder))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_model_without_files(reader: Reader) -> None:
    assert FileSources(None, reader.digests).measure(None) == (0, "")
