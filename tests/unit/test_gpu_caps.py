"""The cap of a model for which nobody chose one, and the context that is counted beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.supervisor.domain import Footprint, GpuContext
from modelsup.supervisor.fleet.contexts import Contexts
from modelsup.supervisor.policy.caps import MODEST_FLOOR, automatic_caps

GB = 10**9


@pytest.mark.parametrize(
    ("measured", "room", "caps"),
    [
        (None, 100 * GB, [MODEST_FLOOR + 3 * GB, 4 * (MODEST_FLOOR + 3 * GB)]),
        (None, 5 * GB, [MODEST_FLOOR + 3 * GB, 5 * GB]),
        (None, 1 * GB, [MODEST_FLOOR + 3 * GB]),
        (8 * GB, 100 * GB, [10 * GB]),
        (8 * GB, 9 * GB, [9 * GB]),
        (8 * GB, 5 * GB, [8 * GB]),
        (0, 5 * GB, [128 * 2**20]),
    ],
    ids=["unknown", "less room", "no room", "known", "known, less room", "too large", "nothing"],
)
def test_the_cap_that_nobody_chose(measured: int | None, room: int, caps: list[int]) -> None:
    assert automatic_caps(measured, GB, room) == caps


sizes = st.integers(0, 10**13)


@given(st.none() | sizes, sizes, st.integers(-(10**10), 10**13))
def test_a_cap_is_positive_rising_and_no_less_than_what_was_taken(
    measured: int | None, files: int, room: int
) -> None:
    caps = automatic_caps(measured, files, room)
    assert caps == sorted(set(caps))
    assert caps[0] >= (measured or 0)
    assert all(cap <= room for cap in caps[1:])


def test_a_context_counts_from_its_measurement_until_the_framework_changes() -> None:
    kept: list[GpuContext] = []
    contexts = Contexts(450, [], kept.append)
    assert (contexts.of("r", "GPU-a"), contexts.is_wanted("r", "GPU-a")) == (450, True)
    assert contexts.measured("r", "GPU-a") == 0
    contexts.see("r", "r 1", "GPU-a")
    first = GpuContext("r", "GPU-a", "r 1", 300)
    contexts.learn(first)
    contexts.see("r", "r 1", "GPU-a")
    assert (contexts.of("r", "GPU-a"), contexts.is_wanted("r", "GPU-a")) == (300, False)
    assert (contexts.of("r", "GPU-b"), contexts.of("s", "GPU-a")) == (450, 450)

    again = Contexts(450, kept, kept.append)
    assert again.of("r", "GPU-a") == 300
    again.see("r", "r 2", "GPU-a")
    assert (again.of("r", "GPU-a"), again.is_wanted("r", "GPU-a")) == (300, True)
    second = GpuContext("r", "GPU-a", "r 2", 500)
    again.learn(second)
    assert (again.of("r", "GPU-a"), again.is_wanted("r", "GPU-a")) == (500, False)
    assert kept == [first, second]


def test_a_context_is_no_part_of_what_a_cap_bounds() -> None:
    assert Footprint({}, 700, 1.0, "r 1", gpu_context=300).under_cap == 400
    assert Footprint({}, 200, 1.0, "r 1", gpu_context=300).under_cap == 0
    assert Footprint({}, None, 1.0, "r 1").under_cap is None
