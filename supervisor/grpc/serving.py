"""The services of TensorFlow Serving: predictions, metadata and the state of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf import json_format

from ..errors import Invalid
from ..http.problem import MethodNotAllowed
from ..http.routes import Kind
from . import examples, predict
from .calls import route_to
from .worker_body import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..http.model_info import ModelInfo
    from ..http.routes import Route
    from .calls import Call, Handler
    from .worker_body import Answer
    from .workers import Workers

PREDICTIONS: Final = "tensorflow.serving.PredictionService"
MODELS: Final = "tensorflow.serving.ModelService"

_PATH: Final = b"/v2/infer"  # the worker's way for tensors in binary
_METADATA_FIELD: Final = "signature_def"
_TYPE_URL: Final = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
_messages: Final = predict.SCHEMA.messages


class _Verb(NamedTuple):
    """Classify or Regress: what differs between the two."""

    kind: Kind
    method: str  # as signatures name it
    result: Callable[[Answer], Any]
    response: Any
    field: str  # of an InferenceResult


_CLASSIFY: Final = _Verb(
    Kind.V1_CLASSIFY,
    examples.CLASSIFY,
    examples.classified,
    _messages.ClassificationResponse,
    "classification_result",
)
_REGRESS: Final = _Verb(
    Kind.V1_REGRESS,
    examples.REGRESS,
    examples.regressed,
    _messages.RegressionResponse,
    "regression_result",
)


class Serving:
    """Handlers by service and name of the method. `limit`: bytes of one request."""

    def __init__(self, workers: Workers, info: ModelInfo, limit: int) -> None:
        self._workers = workers
        self._info = info
        self._limit = limit
        self.handlers: Mapping[str, Mapping[str, Handler]] = {
            PREDICTIONS: {
                "Predict": self._predict,
                "Classify": self._of_examples(_CLASSIFY),
                "Regress": self._of_examples(_REGRESS),
                "MultiInference": self._multi_inference,
                "GetModelMetadata": self._metadata,
            },
            MODELS: {
                "GetModelStatus": self._status,
                "HandleReloadConfigRequest": _no_reload,
            },
        }

    async def _predict(self, request: Any, call: Call) -> Any:
        route = call.route_to(Kind.V1_PREDICT, *_wanted(request.model_spec))
        headers, body = predict.to_worker(request, self._limit)
        answer = await self._post(route, headers, body, call)
        response = predict.from_worker(answer)
        _fill_spec(response.model_spec, request.model_spec, answer)
        return response

    def _of_examples(self, verb: _Verb) -> Handler:
        """Return the handler of Classify or Regress."""

        async def handle(request: Any, call: Call) -> Any:
            spec = request.model_spec
            answer = await self._ask(verb, spec, request.input, call)
            response = verb.response(result=verb.result(answer))
            _fill_spec(response.model_spec, spec, answer)
            return response

        return handle

    async def _multi_inference(self, request: Any, call: Call) -> Any:
        response = _messages.MultiInferenceResponse()
        for task in request.tasks:
            verb = _verb_of(task.method_name)
            answer = await self._ask(verb, task.model_spec, request.input, call)
            result = response.results.add(**{verb.field: verb.result(answer)})
            _fill_spec(result.model_spec, task.model_spec, answer)
        return response

    async def _ask(self, verb: _Verb, spec: Any, given: Any, call: Call) -> Answer:
        route = call.route_to(verb.kind, *_wanted(spec))
        signatures = await self._workers.signatures(route)
        headers, body = examples.to_worker(given, verb.method, spec.signature_name, signatures)
        return await self._post(route, headers, body, call)

    async def _post(
        self, route: Route, headers: list[tuple[bytes, bytes]], body: bytes, call: Call
    ) -> Answer:
        reply = await self._workers.post(route, _PATH, [*headers, *call.headers], body)
        call.note(reply)
        return decode(reply.headers, reply.body)

    async def _metadata(self, request: Any, call: Call) -> Any:
        wanted = list(request.metadata_field)
        if wanted != [_METADATA_FIELD]:
            raise Invalid(f"metadata_field must be {_METADATA_FIELD!r} alone, not {wanted}")
        route = route_to(Kind.V1_METADATA, *_wanted(request.model_spec))
        _, payload = await self._info.answer(route, call)
        signatures = _messages.SignatureDefMap()
        json_format.ParseDict(payload["metadata"][_METADATA_FIELD], signatures)
        response = _messages.GetModelMetadataResponse()
        entry = response.metadata[_METADATA_FIELD]
        entry.type_url, entry.value = _TYPE_URL, signatures.SerializeToString()
        response.model_spec.name = request.model_spec.name
        _fill_version(response.model_spec, payload["model_spec"]["version"])
        return response

    async def _status(self, request: Any, call: Call) -> Any:
        route = route_to(Kind.V1_STATUS, *_wanted(request.model_spec))
        _, payload = await self._info.answer(route, call)
        return json_format.ParseDict(payload, _messages.GetModelStatusResponse())


async def _no_reload(request: Any, call: Call) -> Any:
    raise MethodNotAllowed(
        "the models are not those of a configuration file; use modelsup load and modelsup unload",
        allow=(),
    )


def _wanted(spec: Any) -> tuple[str, str | None, str | None]:
    """Return the name, the version and the label of a ModelSpec."""
    choice = spec.WhichOneof("version_choice")
    version = str(spec.version.value) if choice == "version" else None
    return spec.name, version, spec.version_label if choice == "version_label" else None


def _verb_of(name: str) -> _Verb:
    """Return the verb of a task. Raises Invalid."""
    for verb in (_CLASSIFY, _REGRESS):
        if name == f"tensorflow/serving/{verb.method}":
            return verb
    raise Invalid(
        f"method_name {name!r} is neither 'tensorflow/serving/classify' "
        "nor 'tensorflow/serving/regress'"
    )


def _fill_spec(spec: Any, asked: Any, answer: Answer) -> None:
    spec.name = answer.model
    spec.signature_name = asked.signature_name or "serving_default"
    _fill_version(spec, answer.version)


def _fill_version(spec: Any, version: str) -> None:
    if version.isdecimal():
        spec.version.value = int(version)
