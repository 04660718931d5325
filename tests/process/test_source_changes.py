"""The files of a model change under it: a loaded model serves on, the next load sees the change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from modelsup.client import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.ones((1, 2), np.float32)


def test_a_file_that_is_replaced_truncated_and_deleted_while_its_model_is_loaded(
    supervisor: Any, echo_model: Callable[..., str]
) -> None:
    client, path = supervisor.client, Path(echo_model())
    first = client.load("m", str(path)).worker
    for change in (lambda: path.write_text("{"), lambda: path.write_text(""), path.unlink):
        change()
        assert np.array_equal(client.predict("m", X), X)
    assert [worker.id for worker in client.workers()] == [first]
    client.unload("m")
    with pytest.raises(LoadFailed, match="does not exist"):
        client.load("m")
    path.write_text("{}")
    assert client.load("m").worker != first


def test_a_file_that_is_deleted_while_its_model_loads(
    supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[..., Path],
    background: Callable[..., Any],
) -> None:
    client, gate = supervisor.client, fifo()
    path = Path(echo_model(on_load=[f"gate:{gate}"]))
    load = background(client.load, "m", str(path))
    with gate.open("wb"):
        path.unlink()
    assert load.result().worker == client.workers()[0].id
    assert np.array_equal(client.predict("m", X), X)
