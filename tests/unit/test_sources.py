"""Sources: which files are models, which version is meant, and what is said when none is."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest
from modelsup.supervisor.adapters.sources import Resolved, SourceError, fingerprint, resolve, scan

if TYPE_CHECKING:
    from pathlib import Path


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"model")
    return path


@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        ("a.keras", "tensorflow"),
        ("a.h5", "tensorflow"),
        ("a.hdf5", "tensorflow"),
        ("a.KERAS", "tensorflow"),
        ("a.echo", "echo"),
    ],
)
def test_a_file_is_version_1(tmp_path: Path, name: str, runtime: str) -> None:
    path = touch(tmp_path / name)
    expected = Resolved(path, "1", ("1",), runtime)
    assert resolve(path, None) == expected
    assert resolve(path, "1") == expected


def test_a_saved_model_is_version_1(tmp_path: Path) -> None:
    touch(tmp_path / "saved_model.pb")
    touch(tmp_path / "1" / "saved_model.pb")
    assert resolve(tmp_path, None) == Resolved(tmp_path, "1", ("1",), "tensorflow")


def test_the_highest_version_is_the_one_by_number(tmp_path: Path) -> None:
    touch(tmp_path / "9" / "saved_model.pb")
    ten = touch(tmp_path / "10" / "m.keras")
    echo = touch(tmp_path / "2" / "m.echo")
    touch(tmp_path / "latest" / "saved_model.pb")
    touch(tmp_path / "README.md")
    versions = ("2", "9", "10")
    assert resolve(tmp_path, None) == Resolved(ten, "10", versions, "tensorflow")
    assert resolve(tmp_path, "9") == Resolved(tmp_path / "9", "9", versions, "tensorflow")
    assert resolve(tmp_path, "2") == Resolved(echo, "2", versions, "echo")


def test_a_version_folder_that_is_not_complete_does_not_count(tmp_path: Path) -> None:
    one = touch(tmp_path / "1" / "m.keras")
    touch(tmp_path / "1" / "labels.txt")
    touch(tmp_path / "1" / ".m.keras.h5")
    (tmp_path / "2").mkdir()
    touch(tmp_path / "3" / "a.keras")
    touch(tmp_path / "3" / "b.h5")
    touch(tmp_path / "4")
    (tmp_path / "5" / "folder.keras").mkdir(parents=True)
    touch(tmp_path / "6" / "variables" / "variables.index")
    assert resolve(tmp_path, None) == Resolved(one, "1", ("1",), "tensorflow")


@pytest.mark.parametrize("version", ["3", "01", "", "latest", "../1"])
def test_an_unknown_version_is_refused_with_those_there_are(tmp_path: Path, version: str) -> None:
    touch(tmp_path / "1" / "m.keras")
    touch(tmp_path / "2" / "m.keras")
    with pytest.raises(SourceError, match=f"has no version {version}; it has 1, 2"):
        resolve(tmp_path, version)


def test_a_file_has_no_second_version(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no version 2; it has 1"):
        resolve(touch(tmp_path / "a.keras"), "2")


def test_what_cannot_be_a_model_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.keras does not exist"):
        resolve(tmp_path / "absent.keras", None)
    with pytest.raises(SourceError, match=r"a\.onnx is of no known kind: expected a \.keras"):
        resolve(touch(tmp_path / "a.onnx"), None)
    with pytest.raises(SourceError, match="is of no known kind"):
        resolve(touch(tmp_path / "without-suffix"), None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="empty holds no model: expected"):
        resolve(tmp_path / "empty", None)
    (tmp_path / "started" / "1").mkdir(parents=True)
    with pytest.raises(SourceError, match="none holds a model: expected saved_model"):
        resolve(tmp_path / "started", None)


def test_what_the_system_refuses_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read: File name too long"):
        resolve(tmp_path / ("x" * 300), None)
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        scan(tmp_path / "absent")


def test_special_files_are_no_models(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.keras")
    with pytest.raises(SourceError, match="is of no known kind"):
        resolve(tmp_path / "pipe.keras", None)


def test_a_folder_of_models(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keras = touch(tmp_path / "resnet50.keras")
    dotted = touch(tmp_path / "v1.5.h5")
    touch(tmp_path / "saved" / "saved_model.pb")
    touch(tmp_path / "versioned" / "1" / "m.echo")
    touch(tmp_path / ".hidden.keras")
    touch(tmp_path / "README.md")
    touch(tmp_path / "not a name.keras")
    touch(tmp_path / ("x" * 129 + ".keras"))
    touch(tmp_path / "resnet50.zip.d" / "notes")
    with caplog.at_level(logging.WARNING):
        found = scan(tmp_path)
    assert found == {
        "resnet50": keras,
        "v1.5": dotted,
        "saved": tmp_path / "saved",
        "versioned": tmp_path / "versioned",
    }
    warned = sorted(record.getMessage().split(": ")[0] for record in caplog.records)
    skipped = ["README.md", "not a name.keras", "resnet50.zip.d", "x" * 129 + ".keras"]
    assert warned == [f"Passed over {tmp_path / name}" for name in skipped]


def test_two_models_of_one_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = touch(tmp_path / "a.h5")
    touch(tmp_path / "a.keras")
    with caplog.at_level(logging.WARNING):
        assert scan(tmp_path) == {"a": first}
    assert f"{first} has the name a already" in caplog.text


def test_a_fingerprint_changes_with_the_files(tmp_path: Path) -> None:
    weights = touch(tmp_path / "m" / "1" / "variables" / "variables.data")
    touch(tmp_path / "m" / "1" / "saved_model.pb")
    seen = [fingerprint(tmp_path / "m")]
    assert fingerprint(tmp_path / "m") == seen[0]

    weights.write_bytes(b"other model")
    seen.append(fingerprint(tmp_path / "m"))
    os.utime(weights, ns=(0, 0))
    seen.append(fingerprint(tmp_path / "m"))
    touch(tmp_path / "m" / "2" / "m.keras")
    seen.append(fingerprint(tmp_path / "m"))
    weights.unlink()
    seen.append(fingerprint(tmp_path / "m"))
    assert len(set(seen)) == 5


def test_a_replaced_file_of_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    old, new = touch(tmp_path / "m.keras"), touch(tmp_path / "new.keras")
    os.utime(old, ns=(0, 0))
    os.utime(new, ns=(0, 0))
    before = fingerprint(old)
    new.replace(old)
    assert fingerprint(old) != before


def test_a_link_that_leads_elsewhere_is_seen(tmp_path: Path) -> None:
    for release in ("a", "b"):
        touch(tmp_path / "releases" / release / "m.keras")
    model = tmp_path / "m"
    model.mkdir()
    (model / "1").symlink_to(tmp_path / "releases" / "a")
    before = fingerprint(model)
    (model / "1").unlink()
    (model / "1").symlink_to(tmp_path / "releases" / "b")
    assert fingerprint(model) != before


def test_nothing_has_an_empty_fingerprint(tmp_path: Path) -> None:
    assert fingerprint(tmp_path / "absent") == ()
