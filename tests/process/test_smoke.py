"""A worker lives and dies: the first thing that must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import psutil

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def test_load_predict_unload(supervisor: Any, echo_model: Callable[..., str]) -> None:
    loaded = supervisor.client.load("m", echo_model())
    pid = supervisor.client.workers()[0].pid
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(supervisor.client.predict("m", x), x)
    receipt = supervisor.client.unload("m")
    assert receipt.worker == loaded.worker
    assert receipt.outcome == "drained"
    assert receipt.verified
    assert receipt.freed.host_bytes > 0
    assert not psutil.pid_exists(pid)
