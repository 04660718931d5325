"""Predictions with numpy in and out: which inputs a model has, remembered, and the V2 exchange."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import tensors
from .errors import InvalidRequest, ModelsupError
from .transport import parsed

if TYPE_CHECKING:
    import numpy.typing as npt
    import requests

    from .transport import Transport

    Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Input:
    """The only input of a signature. `dtype` is numpy's name, "string" for bytes."""

    name: str
    dtype: str


class Predictor:
    """Sends arrays to models. Threads may share it.

    What the input of a model is called is asked for once, and again when another worker has
    answered or a request was refused, because the model may have been replaced.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self._inputs: dict[tuple[str, str | None], _Input] = {}  # by model and signature
        self._workers: dict[str, str] = {}  # model -> the worker that answered last

    def predict(
        self,
        path: str,
        model: str,
        x: object,
        signature: str | None = None,
        timeout: float | None = None,
        keep_alive: float | str | None = None,
    ) -> Array | dict[str, Array]:
        """Return the outputs for `x`: one array, or arrays by name where there are several.

        `path` is the V2 `infer` path to ask, `model` the one behind it. Raises ModelsupError.
        """
        if isinstance(x, Mapping):
            inputs = {str(name): tensors.as_array(str(name), value) for name, value in x.items()}
            return self._exchange(path, model, inputs, signature, timeout, keep_alive)
        remembered = self._remembered(model, signature)
        only = remembered or self._ask(model, signature)
        try:
            return self._exchange(path, model, _named(x, only), signature, timeout, keep_alive)
        except InvalidRequest:
            self._forget(model)
            if remembered is None or self._ask(model, signature) == remembered:
                raise
        return self.predict(path, model, x, signature, timeout, keep_alive)

    def _exchange(
        self,
        path: str,
        model: str,
        inputs: Mapping[str, Array],
        signature: str | None,
        timeout: float | None,
        keep_alive: float | str | None,
    ) -> Array | dict[str, Array]:
        body, header_length = tensors.encode(inputs, signature)
        headers = {
            "Content-Type": "application/octet-stream",
            tensors.HEADER_LENGTH: str(header_length),
        }
        answer = self._transport.predict(path, body, headers, timeout, keep_alive)
        self._note_worker(model, answer.headers.get("X-Modelsup-Worker"))
        outputs = _outputs(answer)
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def _remembered(self, model: str, signature: str | None) -> _Input | None:
        with self._lock:
            return self._inputs.get((model, signature))

    def _ask(self, model: str, signature: str | None) -> _Input:
        """Ask the supervisor what the only input is. Raises InvalidRequest if there are several."""
        if signature is None:
            described = self._transport.json("GET", f"/v2/models/{model}")["inputs"]
            inputs = [_Input(t["name"], tensors.numpy_name(t["datatype"])) for t in described]
        else:
            inputs = self._of_signature(model, signature)
        if len(inputs) != 1:
            names = ", ".join(i.name for i in inputs)
            raise _invalid(model, f"has {len(inputs)} inputs ({names}); give arrays by name")
        with self._lock:
            self._inputs[(model, signature)] = inputs[0]
        return inputs[0]

    def _of_signature(self, model: str, signature: str) -> list[_Input]:
        # V2 metadata tells of the default signature alone.
        known = self._transport.json("GET", f"/api/models/{model}")["signatures"] or []
        inputs = {s["name"]: [_Input(t["name"], t["dtype"]) for t in s["inputs"]] for s in known}
        if signature in inputs:
            return inputs[signature]
        has = f"it has {', '.join(sorted(inputs))}" if inputs else "it is not loaded"
        raise _invalid(model, f"has no signature {signature!r}: {has}")

    def _note_worker(self, model: str, worker: str | None) -> None:
        with self._lock:
            changed = self._workers.get(model, worker) != worker
            if worker is not None:
                self._workers[model] = worker
        if changed:
            self._forget(model)

    def _forget(self, model: str) -> None:
        with self._lock:
            for key in [key for key in self._inputs if key[0] == model]:
                del self._inputs[key]


def _named(x: object, only: _Input) -> dict[str, Array]:
    return {only.name: tensors.narrowed(tensors.as_array(only.name, x), only.dtype)}


def _invalid(model: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"model {model!r} {problem}", code="invalid", model=model)


def _outputs(answer: requests.Response) -> dict[str, Array]:
    length = answer.headers.get(tensors.HEADER_LENGTH)
    if length is None:
        return tensors.decode_outputs(parsed(answer), memoryview(b""))
    end = int(length)
    try:
        header = json.loads(answer.content[:end])
    except ValueError as error:
        raise ModelsupError(
            "the answer to the prediction has a header that is not JSON", code="bad_answer"
        ) from error
    return tensors.decode_outputs(header, memoryview(answer.content)[end:])
