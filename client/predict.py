"""Predictions with numpy in and out: which inputs a model has, remembered, and the V2 exchange."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import tensors
from .errors import InvalidRequest, ModelsupError, NotFound
from .transport import parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import requests

    from .transport import Transport

    Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs of a signature: numpy dtype by name."""

    dtypes: dict[str, str]


class Predictor:
    """Sends arrays to models. Threads may share it.

    The names and dtypes of a model's inputs are asked for once, and again when another worker has
    answered or a request was refused, because the model may have been replaced.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str | None], _Inputs] = {}
        self._workers: dict[str, str] = {}  # model -> the worker that answered last

    def predict(
        self,
        path: str,
        model: str,
        x: object,
        signature: str | None = None,
        timeout: float | None = None,
    ) -> Array | dict[str, Array]:
        """Return the outputs for `x`: one array, or arrays by name where there are several.

        `path` is the V2 `infer` path to ask, `model` the one behind it. Raises ModelsupError.
        """
        described, fresh = self._inputs_of(model, signature)
        try:
            return self._exchange(path, model, _named(x, described, model), signature, timeout)
        except (InvalidRequest, NotFound):
            self._forget(model)
            if fresh:
                raise
        described, _ = self._inputs_of(model, signature)
        return self._exchange(path, model, _named(x, described, model), signature, timeout)

    def _exchange(
        self,
        path: str,
        model: str,
        inputs: Mapping[str, Array],
        signature: str | None,
        timeout: float | None,
    ) -> Array | dict[str, Array]:
        body, header_length = tensors.encode(inputs, signature)
        answer = self._transport.send(
            "POST",
            path,
            body=body,
            headers={
                "Content-Type": "application/octet-stream",
                tensors.HEADER_LENGTH: str(header_length),
            },
            timeout=timeout,
            repeatable=True,
        )
        self._note_worker(model, answer.headers.get("X-Modelsup-Worker"))
        outputs = _outputs(answer)
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def _inputs_of(self, model: str, signature: str | None) -> tuple[_Inputs, bool]:
        """Return the inputs of a model, and whether they were asked for just now."""
        key = (model, signature)
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known, False
        known = self._ask(model, signature)
        with self._lock:
            self._known[key] = known
        return known, True

    def _ask(self, model: str, signature: str | None) -> _Inputs:
        if signature is None:
            described = self._transport.json("GET", f"/v2/models/{model}")
            return _Inputs(
                {t["name"]: tensors.numpy_name(t["datatype"]) for t in described["inputs"]}
            )
        # V2 metadata tells of the default signature alone.
        signatures = self._transport.json("GET", f"/api/models/{model}")["signatures"] or []
        inputs = {s["name"]: {t["name"]: t["dtype"] for t in s["inputs"]} for s in signatures}
        if signature in inputs:
            return _Inputs(inputs[signature])
        has = f"it has {', '.join(sorted(inputs))}" if inputs else "load the model first"
        raise InvalidRequest(
            f"model {model!r} has no signature {signature!r}; {has}", code="invalid", model=model
        )

    def _note_worker(self, model: str, worker: str | None) -> None:
        with self._lock:
            changed = self._workers.get(model, worker) != worker
            if worker is not None:
                self._workers[model] = worker
        if changed:
            self._forget(model)

    def _forget(self, model: str) -> None:
        with self._lock:
            for key in [key for key in self._known if key[0] == model]:
                del self._known[key]


def _named(x: object, described: _Inputs, model: str) -> dict[str, Array]:
    """Return the arrays by input name, in the dtypes that the model takes."""
    names = list(described.dtypes)
    if not isinstance(x, dict):
        if len(names) != 1:
            raise InvalidRequest(
                f"model {model!r} has {len(names)} inputs ({', '.join(names)}); give a dict of "
                "arrays by name",
                code="invalid",
                model=model,
            )
        x = {names[0]: x}
    unknown = [str(name) for name in x if name not in described.dtypes]
    if unknown:
        raise InvalidRequest(
            f"model {model!r} has no input {unknown[0]!r}; its inputs are {', '.join(names)}",
            code="invalid",
            model=model,
        )
    return {name: tensors.conform(x[name], described.dtypes[name], name) for name in x}


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
