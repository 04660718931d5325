"""The cache of prepared models: what is in it is whole, and others may use it meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.supervisor.adapters.prepared_cache import PreparedCache
from modelsup.supervisor.domain import PreparedKey
from modelsup.supervisor.errors import CacheFailed, FormDamaged, UnknownForm
from modelsup.worker.contract import MANIFEST_NAME, LaunchSpec
from modelsup.worker.preparing import write_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelsup.supervisor.domain import PreparedForm

FRAMEWORK = "echo 1"
KEY = PreparedKey("0123", "echo", "cpu")
MB = 10**6

Make = Any


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a cache, and a form in it as a preparing process does."""

    def make_form(
        cache: PreparedCache,
        key: PreparedKey = KEY,
        framework: str = FRAMEWORK,
        refused: str = "",
        **files: bytes,
    ) -> PreparedForm:
        folder = cache.begin()
        for name, content in ({"graph": b"graph"} | files).items():
            (folder / name).write_bytes(content)
        spec = LaunchSpec("p-1", "digits", "1", key.runtime, "/m/digits.keras", "", "")
        write_manifest(folder, spec, framework, refused)
        return cache.finish(folder, key)

    return make_form


@pytest.fixture
def cache(tmp_path: Path) -> PreparedCache:
    """Return an empty cache."""
    return PreparedCache(tmp_path / "cache", 10 * MB)


def left(cache_folder: Path) -> list[str]:
    """Return the names of what lies in the cache, forms and unfinished."""
    return sorted(str(p.relative_to(cache_folder)) for p in cache_folder.glob("*/*"))


def test_a_form_is_found_by_what_it_is_of(cache: PreparedCache, make: Make) -> None:
    made = make(cache)
    assert cache.find(KEY, FRAMEWORK) == made
    assert cache.find(KEY, None) == made
    assert (made.model, made.source, made.bytes, made.refused) == (
        "digits",
        "/m/digits.keras",
        5,
        "",
    )
    others = (
        PreparedKey("4567", "echo", "cpu"),
        PreparedKey("0123", "other", "cpu"),
        PreparedKey("0123", "echo", "gpu"),
    )
    assert [cache.find(key, FRAMEWORK) for key in others] == [None] * 3
    assert cache.find(KEY, "echo 2") is None


def test_of_several_frameworks_forms_the_one_used_last_is_found(
    cache: PreparedCache, make: Make
) -> None:
    old, new = make(cache), make(cache, framework="echo 2")
    os.utime(old.folder, (1, 1))
    found = cache.find(KEY, None)
    assert found is not None
    assert found.framework == "echo 2"
    os.utime(new.folder, (0, 0))
    assert [form.framework for form in cache.all()] == ["echo 1", "echo 2"]
    cache.touch(new)
    assert [form.framework for form in cache.all()] == ["echo 2", "echo 1"]


def test_an_empty_cache_that_is_not_there(cache: PreparedCache, tmp_path: Path) -> None:
    assert cache.find(KEY, None) is None
    assert cache.all() == []
    with pytest.raises(UnknownForm, match="no prepared form 'x'"):
        cache.remove("x")
    assert not (tmp_path / "cache").exists()


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit": lambda folder: flip(folder / "graph"),
    "cut": lambda folder: os.truncate(folder / "graph", 3),
    "longer": lambda folder: os.truncate(folder / "graph", 30),
    "gone": lambda folder: (folder / "graph").unlink(),
    "manifest cut": lambda folder: os.truncate(folder / MANIFEST_NAME, 30),
    "manifest empty": lambda folder: os.truncate(folder / MANIFEST_NAME, 0),
}


@pytest.mark.parametrize("again", [False, True], ids=["found before", "new supervisor"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_form_is_noticed_and_removed(
    cache: PreparedCache,
    make: Make,
    tmp_path: Path,
    damage: Callable[[Path], object],
    again: bool,
) -> None:
    made = make(cache)
    assert cache.find(KEY, FRAMEWORK) == made
    damage(Path(made.folder))
    assert not cache.is_intact(made)
    if again:
        cache = PreparedCache(tmp_path / "cache", 10 * MB)
    with pytest.raises(FormDamaged, match=f"{made.name} is damaged"):
        cache.find(KEY, FRAMEWORK)
    assert cache.find(KEY, FRAMEWORK) is None
    assert make(cache).name == made.name
    assert cache.find(KEY, FRAMEWORK) is not None


def test_a_damaged_form_is_not_finished(cache: PreparedCache, tmp_path: Path) -> None:
    folder = cache.begin()
    (folder / "graph").write_bytes(b"graph")
    write_manifest(folder, LaunchSpec("p-1", "m", "1", "echo", None, "", ""), FRAMEWORK, "")
    flip(folder / "graph")
    with pytest.raises(FormDamaged, match="graph does not have the checksum"):
        cache.finish(folder, KEY)
    without = cache.begin()
    with pytest.raises(FormDamaged, match="No such file"):
        cache.finish(without, KEY)
    assert left(tmp_path / "cache") == []


def test_a_manifest_cannot_name_a_file_elsewhere(cache: PreparedCache, make: Make) -> None:
    made = make(cache)
    manifest = Path(made.folder) / MANIFEST_NAME
    manifest.write_text(manifest.read_text().replace('"graph"', '"../graph"'))
    assert not cache.is_intact(made)
    with pytest.raises(FormDamaged, match="not its own"):
        cache.find(KEY, FRAMEWORK)


def test_a_refusal_is_remembered(cache: PreparedCache, make: Make) -> None:
    folder = cache.begin()
    spec = LaunchSpec("p-1", "m", "1", "echo", None, "", "")
    write_manifest(folder, spec, FRAMEWORK, "it draws numbers at random")
    cache.finish(folder, KEY)
    found = cache.find(KEY, FRAMEWORK)
    assert found is not None
    assert (found.refused, found.bytes) == ("it draws numbers at random", 0)


def test_over_the_limit_those_used_longest_ago_go(tmp_path: Path, make: Make) -> None:
    cache = PreparedCache(tmp_path / "cache", 2 * MB)
    keys = [PreparedKey(str(n), "echo", "cpu") for n in range(3)]
    for time, key in enumerate(keys[:2]):
        os.utime(make(cache, key, weights=bytes(MB - 1000)).folder, (time, time))
    found = cache.find(keys[0], None)
    assert found is not None
    cache.touch(found)
    make(cache, keys[2], weights=bytes(MB - 1000))
    assert [cache.find(key, None) is not None for key in keys] == [True, False, True]


def test_one_form_over_the_limit_is_refused(tmp_path: Path, make: Make) -> None:
    cache = PreparedCache(tmp_path / "cache", 2 * MB)
    small = make(cache)
    with pytest.raises(CacheFailed, match=r"3\.0 MB, and all of them may take 2\.0 MB"):
        make(cache, PreparedKey("large", "echo", "cpu"), weights=bytes(3 * MB))
    assert left(tmp_path / "cache") == [f"forms/{small.name}"]


def test_two_supervisors_make_the_same(cache: PreparedCache, make: Make, tmp_path: Path) -> None:
    other = PreparedCache(tmp_path / "cache", 10 * MB)
    first = make(cache)
    second = make(other)
    assert second == first
    assert cache.is_intact(first)
    assert left(tmp_path / "cache") == [f"forms/{first.name}"]


def test_a_form_takes_the_place_of_a_damaged_one(
    cache: PreparedCache, make: Make, tmp_path: Path
) -> None:
    flip(Path(make(cache).folder) / "graph")
    made = make(PreparedCache(tmp_path / "cache", 10 * MB))
    assert cache.find(KEY, FRAMEWORK) == made


def test_what_a_dead_supervisor_left_is_swept_and_what_a_live_one_makes_stays(
    cache: PreparedCache, tmp_path: Path
) -> None:
    dead = tmp_path / "cache" / "making" / "dead"
    live = cache.begin()
    dead.mkdir()
    (dead / "weights").write_bytes(b"half")
    new = PreparedCache(tmp_path / "cache", MB).begin()
    assert not dead.exists()
    assert live.exists()
    cache.close()
    assert left(tmp_path / "cache") == [f"making/{new.name}"]


def test_removal_leaves_the_files_that_somebody_has_open(cache: PreparedCache, make: Make) -> None:
    made = make(cache)
    with (Path(made.folder) / "graph").open("rb") as graph:
        assert cache.remove(made.name) == made
        assert graph.read() == b"graph"
    assert cache.find(KEY, None) is None


def test_discarded_folders_are_gone(cache: PreparedCache, tmp_path: Path) -> None:
    folder = cache.begin()
    (folder / "half").write_bytes(b"half")
    cache.discard(folder)
    assert left(tmp_path / "cache") == []


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    cache = PreparedCache(tmp_path / "cache", MB)
    with pytest.raises(CacheFailed, match=r"cannot be used: Not a directory: .*cache/"):
        cache.begin()
    with pytest.raises(CacheFailed, match="Not a directory"):
        cache.all()


def test_no_descriptor_stays_open(cache: PreparedCache, make: Make) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    make(cache)
    cache.discard(cache.begin())
    cache.begin()
    cache.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
