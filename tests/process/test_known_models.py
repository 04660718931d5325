"""What was measured of a model is known again by the content of its files."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.client import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_copy_of_a_model_is_known_after_a_restart(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str], tmp_path: Path
) -> None:
    source = echo_model("first", on_load=["leak:1000000"])
    first = start_supervisor()
    first.client.add_model("m", source)
    assert first.client.plan("m").estimated
    first.client.load("m")
    first.client.unload("m")
    assert not first.client.plan("m").estimated
    os.utime(source, (1, 1))
    assert not first.client.plan("m").estimated
    first.stop()

    again = start_supervisor()
    assert not again.client.plan("m").estimated
    copy = shutil.copyfile(source, tmp_path / "copy.echo")
    again.client.add_model("copy", str(copy))
    assert not again.client.plan("copy").estimated
    copy.write_text(copy.read_text() + "\n")
    assert again.client.plan("copy").estimated


def test_a_model_whose_files_cannot_be_read_is_refused_with_the_reason(
    supervisor: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"graph")
    supervisor.client.add_model("m", str(folder))
    (folder / "variables").symlink_to(folder / "variables")  # leads to itself
    with pytest.raises(LoadFailed, match=r"saved/variables cannot be read: .*symbolic links"):
        supervisor.client.load("m")
