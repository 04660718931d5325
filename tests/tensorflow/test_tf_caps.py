"""The caps, as TensorFlow understood them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from modelsup.worker.runtimes.base import LoadFailed
from modelsup.worker.runtimes.tensorflow_device import apply_caps

if TYPE_CHECKING:
    from modelsup.worker.contract import LaunchSpec

pytestmark = pytest.mark.tensorflow

PROGRAM = Path(__file__).with_name("cap_fake_gpu.py")


def test_a_cap_becomes_one_virtual_device_and_growth_stays_forced() -> None:
    """Growth must come from the environment alone: TensorFlow drops it beside a virtual device."""
    result = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert json.loads(result.stdout) == {
        "limits": [[1536.0]],
        "fraction": 0.0,
        "growth_map": [None],
        "forced_growth": "true",
        "visible": "GPU-1234",
        "allocator": None,
        "threads": [3, 3],
    }


def test_a_gpu_that_tensorflow_does_not_see_is_named(
    spec: LaunchSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    with pytest.raises(LoadFailed, match=r"sees no GPU GPU-none.*tensorflow-gpu") as failure:
        apply_caps(replace(spec, device="GPU-none"))
    assert failure.value.cause == "load_error"
