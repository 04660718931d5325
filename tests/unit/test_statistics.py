"""What a worker counts, in V2's form."""

from __future__ import annotations

from modelsup.worker.statistics import MOST_SIZES, Statistics


def test_steps_are_summed_by_size_and_in_all() -> None:
    statistics = Statistics()
    statistics.executed(4, 0.25, 1.0, 0.5)
    statistics.executed(4, 0.25, 2.0, 0.5)
    statistics.executed(1, 0.0, 0.5, 0.0)
    told = statistics.to_v2("m", "7", waiting=3)
    assert (told["name"], told["version"], told["waiting"]) == ("m", "7", 3)
    assert told["execution_count"] == 3
    assert told["inference_stats"]["compute_infer"] == {"count": 3, "ns": 3_500_000_000}
    assert told["inference_stats"]["compute_input"] == {"count": 3, "ns": 500_000_000}
    assert [size["batch_size"] for size in told["batch_stats"]] == [1, 4]
    assert told["batch_stats"][1]["compute_output"] == {"count": 2, "ns": 1_000_000_000}


def test_nothing_has_happened_yet() -> None:
    told = Statistics().to_v2("m", "1", waiting=0)
    assert (told["inference_count"], told["last_inference"], told["batch_stats"]) == (0, 0, [])
    assert {step["count"] for step in told["inference_stats"].values()} == {0}


def test_sizes_that_a_client_invents_do_not_pile_up() -> None:
    statistics = Statistics()
    for rows in range(3 * MOST_SIZES):
        statistics.executed(rows, 0.0, 1.0, 0.0)
    told = statistics.to_v2("m", "1", waiting=0)
    assert len(told["batch_stats"]) == MOST_SIZES
    assert told["execution_count"] == 3 * MOST_SIZES
