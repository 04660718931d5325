"""The calls that a model gets before a client's first one."""

from __future__ import annotations

from typing import Any

from modelsup.worker.contract import Signature, TensorInfo
from modelsup.worker.warmup import warm_up

PAIR = (TensorInfo("x", "float32", (None, 2)), TensorInfo("s", "string", None))


class Model:
    """Keeps the shapes that it is called with."""

    def __init__(self, *, batchable: bool) -> None:
        self.signatures = {"serving_default": Signature("serving_default", PAIR, (), batchable)}
        self.shapes: list[tuple[tuple[int, ...], ...]] = []

    def call(self, signature: str, inputs: Any) -> dict[str, Any]:
        assert signature in self.signatures
        self.shapes.append(tuple(inputs[info.name].shape for info in PAIR))
        return {}


def test_the_smallest_batch_comes_first_and_then_the_one_asked_for() -> None:
    model = Model(batchable=True)
    warm_up(model, 8)
    assert model.shapes == [((1, 2), (1,)), ((8, 2), (8,))]


def test_what_takes_no_batches_is_called_once() -> None:
    model = Model(batchable=False)
    warm_up(model, 8)
    assert model.shapes == [((1, 2), (1,))]
