"""Turn a launch spec into a framework's own limits: pure, so that it is tested without a GPU.

A hard cap and memory growth together need two settings, one of each kind below. TensorFlow's
`set_memory_growth` must stay unused: beside a logical device it raises, or growth is dropped
without a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .contract import LaunchSpec

MEBIBYTE: Final = 1024 * 1024  # TensorFlow's memory_limit counts in these

# `cuda_malloc_async` and `cuda_malloc` allocate past TensorFlow's allocator and so past the cap.
# TF_GPU_ALLOCATOR is how a user would choose one.
UNSET_FOR_TENSORFLOW: Final = ("TF_GPU_ALLOCATOR",)


@dataclass(frozen=True, slots=True)
class Caps:
    """What to apply before the framework opens a device."""

    environment: dict[str, str]  # to set
    unset: tuple[str, ...]  # variables to remove
    memory_limit: int | None  # MiB of GPU memory; None: no cap
    threads: int | None  # intra-op threads; None: the framework's default


def tensorflow_caps(spec: LaunchSpec) -> Caps:
    """Return TensorFlow's limits for `spec`.

    The environment must be in place before TensorFlow lists its devices; TensorFlow itself may
    be imported already. Raises ValueError on a GPU limit under 1 MiB or on no thread at all.
    """
    if spec.threads is not None and spec.threads < 1:
        raise ValueError(f"threads must be at least 1, not {spec.threads}")
    if spec.device is None:
        return Caps({"CUDA_VISIBLE_DEVICES": "-1"}, UNSET_FOR_TENSORFLOW, None, spec.threads)
    environment = {
        "CUDA_VISIBLE_DEVICES": spec.device,
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # exactly this spelling; others are ignored
    }
    limit = None if spec.gpu_memory_limit is None else _mebibytes(spec.gpu_memory_limit)
    return Caps(environment, UNSET_FOR_TENSORFLOW, limit, spec.threads)


def _mebibytes(limit: int) -> int:
    if limit < MEBIBYTE:
        raise ValueError(f"a GPU memory limit must be at least {MEBIBYTE} bytes, not {limit}")
    return limit // MEBIBYTE
