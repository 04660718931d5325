"""The work all sides do: a model file, a request as bytes, and the answer that is right.

The request carries the input as one binary tensor (KServe V2). Every side gets the same bytes,
and none spends its time on JSON lists of an image.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .processes import ROOT, BenchmarkError
from .reference import reference_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MODELS = ("tiny", "mobilenet", "resnet50")
PREPARE_SECONDS = 600
RELATIVE = 1e-3  # folding constants moves float32 results by less than this
ABSOLUTE = 1e-6
IMAGE_RANK, CHANNELS = 4, 3  # of a batch of RGB images


@dataclass(frozen=True)
class Workload:
    """One model, one input, one right answer."""

    model: str
    file: Path
    batch: np.ndarray[Any, Any]  # float32, first dimension 1
    expected: np.ndarray[Any, Any]
    input_name: str

    @property
    def is_image(self) -> bool:
        """Whether the input is one RGB image."""
        return self.batch.ndim == IMAGE_RANK and self.batch.shape[-1] == CHANNELS

    @property
    def v2_body(self) -> bytes:
        """The input as a V2 request with one binary tensor."""
        return self._v2_head() + self.batch.tobytes()

    @property
    def v2_headers(self) -> dict[str, str]:
        """The headers of `v2_body`."""
        return {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(len(self._v2_head())),
        }

    @property
    def v1_body(self) -> bytes:
        """The input as a V1 request in JSON."""
        return json.dumps({"instances": self.batch.tolist()}).encode()

    def check(self, side: str, answer: bytes) -> None:
        """Raise BenchmarkError where a V1 or V2 answer of `side` is not the right one."""
        data = json.loads(answer)
        values = data["predictions"] if "predictions" in data else data["outputs"][0]["data"]
        got = np.asarray(values, dtype=np.float32).reshape(self.expected.shape)
        if not np.allclose(got, self.expected, rtol=RELATIVE, atol=ABSOLUTE):
            worst = float(np.abs(got - self.expected).max())
            raise BenchmarkError(f"{side} answered {self.model} wrongly: off by up to {worst:g}")

    def _v2_head(self) -> bytes:
        tensor = {
            "name": self.input_name,
            "shape": list(self.batch.shape),
            "datatype": "FP32",
            "parameters": {"binary_data_size": self.batch.nbytes},
        }
        return json.dumps({"inputs": [tensor]}).encode()


def workloads(names: Sequence[str], folder: Path) -> dict[str, Workload]:
    """Make what is missing in `folder` and return the named workloads."""
    _run("benchmarks.models", str(folder), *names)
    files = {name: folder / f"{name}.keras" for name in names}
    stale = [str(file) for file in files.values() if not _is_current(file)]
    if stale:
        _run("benchmarks.reference", *stale)
    return {name: _read(name, file) for name, file in files.items()}


def _is_current(file: Path) -> bool:
    reference = reference_file(file)
    return reference.exists() and reference.stat().st_mtime >= file.stat().st_mtime


def _read(name: str, file: Path) -> Workload:
    with np.load(reference_file(file)) as stored:
        return Workload(name, file, stored["input"], stored["expected"], str(stored["input_name"]))


def _run(module: str, *arguments: str) -> None:
    command = [sys.executable, "-m", module, *arguments]
    subprocess.run(command, cwd=ROOT, check=True, timeout=PREPARE_SECONDS, stdout=sys.stderr)
