"""Which weights are held in RAM, and how long an idle model stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.supervisor.policy.residency import Weights, idle_time, to_hold

weights = st.builds(
    Weights,
    key=st.uuids().map(str),
    size=st.integers(0, 100),
    keep=st.sampled_from([None, "gpu", "ram", "disk"]),
    idle_for=st.floats(0, 1e6),
)


@given(st.lists(weights, max_size=12), st.integers(0, 300))
def test_what_is_held_fits_and_nothing_that_fits_beside_it_is_left_out(
    found: list[Weights], room: int
) -> None:
    held = to_hold(found, room)
    sizes = {w.key: w.size for w in found}
    left = room - sum(sizes[key] for key in held)
    assert left >= 0
    for each in found:
        if each.keep in {"disk", "gpu"}:
            assert each.key not in held
        elif each.key not in held:
            assert each.size > left


def test_a_model_to_keep_in_ram_comes_before_one_that_was_used_a_moment_ago() -> None:
    wished, used = Weights("wished", 60, "ram", 9.0), Weights("used", 60, None, 0.1)
    assert to_hold([used, wished], 100) == ("wished",)


def test_of_models_without_a_wish_the_last_used_come_first() -> None:
    found = [Weights(str(n), 40, None, float(n)) for n in (3, 1, 2)]
    assert to_hold(found, 100) == ("1", "2")


@pytest.mark.parametrize(
    ("keep", "ttl", "expected"),
    [
        (None, None, 7.0),
        (None, 3.0, 3.0),
        (None, -1.0, None),
        ("gpu", None, None),
        ("gpu", 3.0, 3.0),
        ("ram", None, 0.0),
        ("disk", None, 0.0),
        ("disk", 3.0, 3.0),
    ],
)
def test_idle_time(keep: str | None, ttl: float | None, expected: float | None) -> None:
    assert idle_time(keep, ttl, default=7.0) == expected  # type: ignore[arg-type]
