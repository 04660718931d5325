"""What the paths of predictions take and answer: one entry for each kind, as many paths it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..errors import (
    DeadlineExceeded,
    DoesNotFit,
    Held,
    Hung,
    LoadFailed,
    QueueFull,
    Restarting,
    SourceConflict,
    Stopping,
    TimedOut,
    TooLarge,
    UnknownClient,
    UnknownModel,
    WorkerDied,
)
from .operations import JSON_SIZE, JSON_TYPE, KEEP_ALIVE, REQUEST_TIMEOUT, Operation
from .problem import BadRequest, Busy
from .protocol_shapes import (
    ProtocolError,
    V1Examples,
    V1Metadata,
    V1Predict,
    V1Predicted,
    V1Results,
    V1Status,
    V2Config,
    V2IndexEntry,
    V2IndexWish,
    V2Infer,
    V2Inferred,
    V2Live,
    V2Metadata,
    V2Nothing,
    V2Ready,
    V2Server,
    V2ServerReady,
    V2Statistics,
)
from .routes import PATHS, WORKER_PATHS, Kind, methods_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..errors import SupervisorError
    from .operations import Header, Raised

NPY: Final = "application/x-npy"
OCTETS: Final = "application/octet-stream"
IMAGES: Final = ("image/jpeg", "image/png")

_LOADING: Final[Raised] = (
    UnknownModel,
    SourceConflict,
    LoadFailed,
    QueueFull,
    DoesNotFit,
    Restarting,
    Stopping,
    TimedOut,
    Busy,
)
_PREDICTING: Final[Raised] = (
    *_LOADING,
    UnknownClient,
    BadRequest,
    TooLarge,
    QueueFull,
    DeadlineExceeded,
    Hung,
    WorkerDied,
)
# What a worker refuses by itself; 500 is a model that failed.
_REFUSED: Final = (400, 406, 413, 415, 500)


@dataclass(frozen=True, slots=True)
class _Told:
    """What an operation says, whatever path leads to it. `bodies` are by media type."""

    name: str
    summary: str
    answers: Mapping[int, Mapping[str, Any]]
    bodies: Mapping[str, Any] = field(default_factory=dict)
    raises: Raised = ()
    refused: tuple[int, ...] = ()
    headers: tuple[Header, ...] = ()


def _asks(name: str, summary: str, answer: Any, *raises: type[SupervisorError]) -> _Told:
    return _Told(name, summary, {200: {JSON_TYPE: answer}}, raises=raises)


def _acts(name: str, summary: str, body: Any, answer: Any, *raises: type[SupervisorError]) -> _Told:
    all_of_it: Raised = (BadRequest, TooLarge, *raises)
    return _Told(name, summary, {200: {JSON_TYPE: answer}}, {JSON_TYPE: body}, all_of_it)


def _predicts(
    name: str,
    summary: str,
    body: Any,
    answer: Any,
    others: tuple[str, ...] = (),
    answered: tuple[str, ...] = (),
    headers: tuple[Header, ...] = (),
) -> _Told:
    """Say what a prediction is; `others` are further media types of bodies, or of answers."""
    return _Told(
        name,
        summary,
        {200: {JSON_TYPE: answer} | dict.fromkeys(answered, bytes)},
        {JSON_TYPE: body} | dict.fromkeys(others, bytes),
        _PREDICTING,
        _REFUSED,
        (REQUEST_TIMEOUT, KEEP_ALIVE, *headers),
    )


_TOLD: Final = {
    Kind.V1_PREDICT: _predicts(
        "v1_predict", "Predict.", V1Predict, V1Predicted, (NPY, *IMAGES), (NPY,)
    ),
    Kind.V1_CLASSIFY: _predicts(
        "v1_classify", "Labels and scores for examples.", V1Examples, V1Results
    ),
    Kind.V1_REGRESS: _predicts("v1_regress", "Values for examples.", V1Examples, V1Results),
    Kind.V2_INFER: _predicts(
        "v2_infer",
        "Predict.",
        V2Infer,
        V2Inferred,
        (OCTETS, NPY, *IMAGES),
        (OCTETS, NPY),
        (JSON_SIZE,),
    ),
    Kind.V1_STATUS: _asks(
        "v1_status", "State of the versions that are loaded.", V1Status, UnknownModel
    ),
    Kind.V1_METADATA: _asks("v1_metadata", "Signatures of a model.", V1Metadata, *_LOADING),
    Kind.V2_METADATA: _asks(
        "v2_metadata", "What a model takes and answers.", V2Metadata, *_LOADING
    ),
    Kind.V2_CONFIG: _asks("v2_config", "The configuration of a model.", V2Config, *_LOADING),
    Kind.V2_STATISTICS: _asks(
        "v2_statistics",
        "What workers counted.",
        V2Statistics,
        UnknownModel,
        TimedOut,
        WorkerDied,
    ),
    Kind.V2_READY: _Told(
        "v2_ready",
        "Whether a model is loaded.",
        {200: {JSON_TYPE: V2Ready}, 503: {JSON_TYPE: V2Ready}},
        raises=(UnknownModel,),
    ),
    Kind.V2_SERVER: _asks("v2_server", "The server.", V2Server),
    Kind.V2_SERVER_LIVE: _asks("v2_live", "Whether the server lives.", V2Live),
    Kind.V2_SERVER_READY: _asks("v2_server_ready", "Whether it takes requests.", V2ServerReady),
    Kind.V2_INDEX: _acts("v2_index", "The catalogue.", V2IndexWish, list[V2IndexEntry]),
    Kind.V2_LOAD: _acts("v2_load", "Load a model.", V2Nothing, V2Nothing, *_LOADING),
    Kind.V2_UNLOAD: _acts(
        "v2_unload", "Unload a model.", V2Nothing, V2Nothing, UnknownModel, Held, Stopping
    ),
}
_WHICH: Final = {  # for the variable of a path, what its operation is called further
    "{version}": "_of_version",
    "{label}": "_of_label",
    "{client}": "_of_client",
    "/v2/models/stats": "_of_all",
}


def prediction_operations() -> Iterator[Operation]:
    """Yield an operation for each path and method of the gateway."""
    for path, kind in PATHS.items():
        told = _TOLD[kind]
        yield Operation(
            method=methods_of(kind)[0],
            path=path,
            name=told.name + "".join(word for part, word in _WHICH.items() if part in path),
            summary=told.summary,
            tag=path.split("/")[1],
            answers=told.answers,
            raises=told.raises,
            refused=told.refused,
            errors={JSON_TYPE: ProtocolError},
            bodies=told.bodies,
            needs_body=kind in WORKER_PATHS,
            headers=told.headers,
        )
