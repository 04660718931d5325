"""The shapes of V1 (TensorFlow Serving) and V2 (KServe): what predictions and questions carry.

Bodies of predictions pass through the supervisor unread; these are the shapes that workers read.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

V1State = Literal["START", "LOADING", "AVAILABLE", "UNLOADING", "END"]
V2State = Literal["LOADING", "READY", "UNLOADING", "UNAVAILABLE"]


class ProtocolError(TypedDict):
    """An error of V1 and V2."""

    error: str


class V1Predict(TypedDict):
    """Rows in `instances`, or columns in `inputs`."""

    instances: NotRequired[list[Any]]
    inputs: NotRequired[Any]
    signature_name: NotRequired[str | None]


class V1Predicted(TypedDict):
    """Outputs in the form of the request: rows in `predictions`, or columns in `outputs`."""

    predictions: NotRequired[list[Any]]
    outputs: NotRequired[Any]
    top_k: NotRequired[list[list[dict[str, Any]]]]


class V1Examples(TypedDict):
    """Examples as objects of features, and the features that all of them share."""

    examples: list[dict[str, Any]]
    context: NotRequired[dict[str, Any] | None]
    signature_name: NotRequired[str | None]


class V1Results(TypedDict):
    """For each example a value, or a list of labels with scores."""

    results: list[Any]


class V1ErrorStatus(TypedDict):
    """What is wrong with a version."""

    error_code: Literal["OK", "UNKNOWN"]
    error_message: str


class V1Version(TypedDict):
    """The state of one version."""

    version: str
    state: V1State
    status: V1ErrorStatus


class V1Status(TypedDict):
    """The versions of a model."""

    model_version_status: list[V1Version]


class V1Dim(TypedDict):
    """One dimension; size "-1" is any."""

    size: str
    name: str


class V1Shape(TypedDict):
    """The shape of a tensor."""

    dim: list[V1Dim]
    unknown_rank: bool


class V1Tensor(TypedDict):
    """One input or output."""

    dtype: str
    tensor_shape: V1Shape
    name: str


class V1Signature(TypedDict):
    """One callable of a model."""

    inputs: dict[str, V1Tensor]
    outputs: dict[str, V1Tensor]
    method_name: str
    defaults: dict[str, Any]


class V1ModelSpec(TypedDict):
    """Which model."""

    name: str
    signature_name: str
    version: str


class V1Signatures(TypedDict):
    """Signatures by name."""

    signature_def: dict[str, V1Signature]


class V1ModelFacts(TypedDict):
    """What is known of a model."""

    signature_def: V1Signatures
    image: NotRequired[dict[str, Any]]


class V1Metadata(TypedDict):
    """Signatures of a model."""

    model_spec: V1ModelSpec
    metadata: V1ModelFacts


class V2Input(TypedDict):
    """One input of a request; its data may follow the JSON as raw bytes."""

    name: str
    datatype: str
    shape: list[int]
    data: NotRequired[list[Any]]
    parameters: NotRequired[dict[str, Any] | None]


class V2Wanted(TypedDict):
    """One output to answer."""

    name: str
    parameters: NotRequired[dict[str, Any] | None]


class V2Infer(TypedDict):
    """Tensors by name."""

    inputs: list[V2Input]
    outputs: NotRequired[list[V2Wanted] | None]
    id: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any] | None]


class V2Output(TypedDict):
    """One output."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any]


class V2Inferred(TypedDict):
    """The outputs of a prediction."""

    model_name: str
    model_version: str
    id: NotRequired[str]
    outputs: list[V2Output]


class V2Server(TypedDict):
    """The server."""

    name: str
    version: str
    extensions: list[str]


class V2Live(TypedDict):
    """That the server lives."""

    live: bool


class V2ServerReady(TypedDict):
    """That the server takes requests."""

    ready: bool


class V2Ready(TypedDict):
    """Whether a model is loaded."""

    name: str
    ready: bool


class V2Tensor(TypedDict):
    """One input or output of a model; -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


class V2Metadata(TypedDict):
    """What a model takes and answers."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[V2Tensor]
    outputs: list[V2Tensor]
    image: NotRequired[dict[str, Any]]


class V2Configured(TypedDict):
    """One input or output, without the dimension of batches."""

    name: str
    data_type: str
    dims: list[int]


class V2Policy(TypedDict):
    """How answers follow requests."""

    decoupled: bool


class V2Batching(TypedDict):
    """How requests come to share a call. Without preferred sizes, what pays is learned."""

    preferred_batch_size: list[int]
    max_queue_delay_microseconds: int


class V2Config(TypedDict):
    """The configuration of a model."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[V2Configured]
    output: list[V2Configured]
    model_transaction_policy: V2Policy
    dynamic_batching: NotRequired[V2Batching]


class V2Duration(TypedDict):
    """How often, and for how many nanoseconds in sum."""

    count: int
    ns: int


class V2Times(TypedDict):
    """Where the time of requests went."""

    success: V2Duration
    fail: V2Duration
    queue: V2Duration
    compute_input: V2Duration
    compute_infer: V2Duration
    compute_output: V2Duration
    cache_hit: V2Duration
    cache_miss: V2Duration


class V2Batch(TypedDict):
    """Calls with batches of one size."""

    batch_size: int
    compute_input: V2Duration
    compute_infer: V2Duration
    compute_output: V2Duration


class V2ModelStatistics(TypedDict):
    """What one worker counted; `waiting` requests wait for a call."""

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: V2Times
    batch_stats: list[V2Batch]
    waiting: int


class V2Statistics(TypedDict):
    """What the workers counted."""

    model_stats: list[V2ModelStatistics]


class V2IndexEntry(TypedDict):
    """One model of the catalogue."""

    name: str
    version: str
    state: V2State
    reason: str


class V2IndexWish(TypedDict):
    """Which models to show."""

    ready: NotRequired[bool | None]


class V2Nothing(TypedDict):
    """Nothing to tell."""
