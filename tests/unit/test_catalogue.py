"""What a model's options are after they were said again."""

from __future__ import annotations

import pytest
from modelsup.supervisor.domain import Options
from modelsup.supervisor.fleet.catalogue import merged

SAID = Options(pin=True, ttl=60.0, threads=2, priority=5, max_requests=9, recycle_above=10)


def test_what_is_not_said_stays() -> None:
    assert merged(SAID, Options()) == SAID
    assert merged(SAID, Options(threads=4)).pin


def test_false_and_0_undo_what_was_said() -> None:
    """They were taken for what is not said: a pin could not be taken back."""
    undone = Options(
        pin=False, ttl=0.0, threads=2, priority=0, max_requests=0, recycle_above=0, labels={}
    )
    assert merged(SAID, undone) == undone


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Options(gpu_memory=100), Options(gpu_memory_fraction=0.5)),
        (Options(gpu_memory_fraction=0.5), Options(gpu_memory=100)),
    ],
)
def test_a_new_gpu_cap_takes_the_place_of_one_said_the_other_way(
    old: Options, new: Options
) -> None:
    """Both were kept, and the size always won."""
    assert merged(old, new) == new
