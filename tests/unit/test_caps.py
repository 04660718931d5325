"""The limits that TensorFlow gets from a launch spec."""

from __future__ import annotations

from dataclasses import replace

import pytest
from modelsup.worker.caps import MEBIBYTE, tensorflow_caps
from modelsup.worker.contract import LaunchSpec

GPU = "GPU-8c5a0e9c-0000-1111-2222-333344445555"
SPEC = LaunchSpec(
    uid="u1",
    model="tiny",
    version="1",
    runtime="tensorflow",
    source="/models/tiny.keras",
    secret="s",
    temp_dir="/tmp/u1",
)


def test_a_cap_and_growth_come_together_on_a_gpu() -> None:
    caps = tensorflow_caps(replace(SPEC, device=GPU, gpu_memory_limit=2048 * MEBIBYTE))
    assert caps.environment == {"CUDA_VISIBLE_DEVICES": GPU, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert caps.memory_limit == 2048


def test_an_allocator_that_ignores_the_cap_is_unset() -> None:
    assert "TF_GPU_ALLOCATOR" in tensorflow_caps(replace(SPEC, device=GPU)).unset


def test_a_fraction_of_a_mebibyte_is_rounded_down_so_that_the_cap_holds() -> None:
    caps = tensorflow_caps(replace(SPEC, device=GPU, gpu_memory_limit=3 * MEBIBYTE - 1))
    assert caps.memory_limit == 2


def test_a_gpu_without_a_limit_still_grows() -> None:
    caps = tensorflow_caps(replace(SPEC, device=GPU))
    assert caps.memory_limit is None
    assert caps.environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_the_cpu_sees_no_gpu_and_has_no_gpu_limit() -> None:
    caps = tensorflow_caps(replace(SPEC, gpu_memory_limit=2048 * MEBIBYTE))
    assert caps.environment == {"CUDA_VISIBLE_DEVICES": "-1"}
    assert caps.memory_limit is None


@pytest.mark.parametrize("threads", [None, 1, 4])
def test_threads_are_passed_on(threads: int | None) -> None:
    assert tensorflow_caps(replace(SPEC, threads=threads)).threads == threads


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"threads": 0}, "threads must be at least 1, not 0"),
        ({"device": GPU, "gpu_memory_limit": MEBIBYTE - 1}, "at least 1048576 bytes, not 1048575"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tensorflow_caps(replace(SPEC, **change))  # type: ignore[arg-type]
