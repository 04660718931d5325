"""Fill a GPU under a cap until the framework refuses, say how much that was, and wait.

    python fill_gpu.py FRAMEWORK UUID LIMIT

Prints one JSON line: {"allocated": bytes} or {"unusable": reason}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 64 * 2**20  # bytes


class Unusable(Exception):
    """The framework has no use for this GPU."""


def with_tensorflow(uuid: str, limit: int) -> Callable[[], Any]:
    """The worker's own caps; one chunk by TensorFlow."""
    import tensorflow as tf
    from modelsup.worker.contract import LaunchSpec
    from modelsup.worker.runtimes.base import LoadFailed
    from modelsup.worker.runtimes.tensorflow_device import apply_caps

    spec = LaunchSpec(
        uid="u",
        model="m",
        version="1",
        runtime="tensorflow",
        source=None,
        secret="s",
        temp_dir="/tmp",
        device=uuid,
        gpu_memory_limit=limit,
    )
    try:
        apply_caps(spec)
    except LoadFailed as error:
        raise Unusable(str(error)) from error
    return lambda: tf.Variable(tf.ones(CHUNK // 4))


def with_torch(uuid: str, limit: int) -> Callable[[], Any]:
    """PyTorch's own cap; one chunk by PyTorch."""
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    import torch

    if not torch.cuda.is_available():
        raise Unusable("PyTorch sees no GPU")
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(limit / total)
    return lambda: torch.ones(CHUNK // 4, device="cuda")


def with_jax(uuid: str, limit: int) -> Callable[[], Any]:
    """XLA's own cap; one chunk by JAX."""
    from modelsup.supervisor.adapters.nvml import Nvml

    (total,) = [gpu.total for gpu in Nvml().devices() if gpu.uuid == uuid]
    os.environ |= {
        "CUDA_VISIBLE_DEVICES": uuid,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": str(limit / total),
    }
    import jax

    if jax.default_backend() != "gpu":
        raise Unusable("JAX sees no GPU")
    return lambda: jax.numpy.ones(CHUNK // 4).block_until_ready()


def fill(allocate: Callable[[], Any], limit: int) -> list[Any]:
    """Allocate chunks until one is refused, or twice the limit is reached and so is no limit."""
    kept: list[Any] = []
    while len(kept) * CHUNK < 2 * limit:
        try:
            kept.append(allocate())
        except Exception as error:  # each framework has a class of its own for it
            print(error, file=sys.stderr)
            break
    return kept


def main(framework: str, uuid: str, limit: int) -> None:
    """Fill, say, and wait for the end of the input."""
    start = {"tensorflow": with_tensorflow, "torch": with_torch, "jax": with_jax}[framework]
    try:
        allocate = start(uuid, limit)
    except Unusable as error:
        print(json.dumps({"unusable": str(error)}), flush=True)
        return
    kept = fill(allocate, limit)
    print(json.dumps({"allocated": len(kept) * CHUNK}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
