"""JSON answers become dataclasses: tolerant of newer supervisors, exact about wrong ones."""

from __future__ import annotations

import pytest
from modelsup.client import ModelInfo, ModelsupError, Receipt, Swap, WorkerInfo
from modelsup.client.decode import decode

RECEIPT = {
    "model": "resnet50",
    "worker": "w1",
    "outcome": "drained",
    "in_flight_completed": 2,
    "in_flight_aborted": 0,
    "freed": {"host_bytes": 142_000_000, "gpu_bytes": {"GPU-1": 7}},
    "verified": True,
    "seconds": {"drain": 0, "exit": 0.01, "memory_back": 0.02, "total": 0.03},
}


def test_a_receipt_with_receipts_inside() -> None:
    receipt = decode(Receipt, {**RECEIPT, "workers": [RECEIPT, RECEIPT]})

    assert receipt.freed.gpu_bytes == {"GPU-1": 7}
    assert [inner.worker for inner in receipt.workers] == ["w1", "w1"]
    assert isinstance(receipt.seconds.drain, float)


def test_unknown_fields_are_ignored_and_absent_ones_get_their_default() -> None:
    worker = decode(WorkerInfo, {"id": "w1", "model": "m", "state": "ready", "colour": "blue"})

    assert worker.memory is None
    assert worker.clients == ()


def test_shapes_keep_free_dimensions_and_unknown_ranks() -> None:
    tensor = {"name": "x", "dtype": "float32", "shape": [None, 224, 224, 3]}
    any_rank = {"name": "y", "dtype": "string", "shape": None}
    signature = {"name": "serving_default", "inputs": [tensor, any_rank], "outputs": []}
    model = decode(ModelInfo, {"name": "m", "state": "ready", "signatures": [signature]})

    assert model.signatures is not None
    assert [i.shape for i in model.signatures[0].inputs] == [(None, 224, 224, 3), None]


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ([], "Swap is list"),
        ({"client": "a", "model": "m", "version": "1"}, "no 'worker'"),
        ({"client": 3, "model": "m", "version": "1", "worker": "w"}, "Swap.client is int"),
        (
            {"client": "a", "model": "m", "version": "1", "worker": "w", "receipt": {"model": "m"}},
            "Swap.receipt has no 'worker'",
        ),
        (
            {"client": "a", "model": "m", "version": None, "worker": "w"},
            "Swap.version is null, not str",
        ),
    ],
)
def test_an_answer_of_another_form_names_the_field(answer: object, named: str) -> None:
    with pytest.raises(ModelsupError, match=named) as caught:
        decode(Swap, answer)

    assert caught.value.code == "bad_answer"
