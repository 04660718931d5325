"""What TensorFlow Serving and KServe V2 clients are told about models. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modelsup.worker.contract import Signature, TensorInfo

    from ..domain import Options
    from ..fleet.views import ModelView
    from .protocol_shapes import (
        V1Dim,
        V1Metadata,
        V1ModelFacts,
        V1ModelSpec,
        V1Signature,
        V1State,
        V1Status,
        V1Tensor,
        V1Version,
        V2Batching,
        V2Config,
        V2Configured,
        V2IndexEntry,
        V2Metadata,
        V2State,
        V2Tensor,
    )

DEFAULT_SIGNATURE: Final = "serving_default"

_V1_TYPES: Final = {
    "float16": "DT_HALF",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "bfloat16": "DT_BFLOAT16",
    "int8": "DT_INT8",
    "int16": "DT_INT16",
    "int32": "DT_INT32",
    "int64": "DT_INT64",
    "uint8": "DT_UINT8",
    "uint16": "DT_UINT16",
    "uint32": "DT_UINT32",
    "uint64": "DT_UINT64",
    "bool": "DT_BOOL",
    "complex64": "DT_COMPLEX64",
    "complex128": "DT_COMPLEX128",
    "string": "DT_STRING",
}
_V2_TYPES: Final = {
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    "bool": "BOOL",
    "string": "BYTES",
}

# A model that is not loaded but loads by itself is START, not AVAILABLE: its memory is not
# taken yet, and who waits for AVAILABLE after a load must not be told so before.
_V1_STATES: Final[dict[str, V1State]] = {
    "unloaded": "START",
    "parked": "START",
    "queued": "START",
    "starting": "START",
    "loading": "LOADING",
    "warming": "LOADING",
    "restarting": "LOADING",
    "ready": "AVAILABLE",
    "draining": "UNLOADING",
    "stopping": "UNLOADING",
}
_V2_STATES: Final[dict[str, V2State]] = {
    "queued": "LOADING",
    "starting": "LOADING",
    "loading": "LOADING",
    "warming": "LOADING",
    "restarting": "LOADING",
    "ready": "READY",
    "draining": "UNLOADING",
    "stopping": "UNLOADING",
}


def v1_status(views: Mapping[str, ModelView], *, autoload: bool) -> V1Status:
    """Return TensorFlow Serving's model_version_status of a model's views by version.

    The model's state is that of the version its worker serves; others are not loaded.
    """
    return {
        "model_version_status": [
            _v1_version(view, version, autoload=autoload) for version, view in views.items()
        ]
    }


def current_version(view: ModelView) -> str | None:
    """Return the version that is served, else the one that would be; None without versions."""
    return highest(view.versions) if view.version is None else view.version


def highest(versions: Iterable[str]) -> str | None:
    """Return the highest of these versions; None where there is none."""
    return max(versions, key=_version_order, default=None)


def v1_metadata(view: ModelView, version: str, signatures: Iterable[Signature]) -> V1Metadata:
    """Return TensorFlow Serving's answer to /metadata, with how images are read."""
    facts: V1ModelFacts = {
        "signature_def": {"signature_def": {s.name: _v1_signature(s) for s in signatures}}
    }
    if view.options.image is not None:
        facts["image"] = view.options.image
    spec: V1ModelSpec = {"name": view.name, "signature_name": "", "version": version}
    return {"model_spec": spec, "metadata": facts}


def v2_metadata(view: ModelView, signatures: Sequence[Signature]) -> V2Metadata:
    """Return the V2 model metadata, with how images are read."""
    shown = _shown(signatures)
    told: V2Metadata = {
        "name": view.name,
        "versions": list(view.versions),
        "platform": view.runtime,
        "inputs": [_v2_tensor(tensor) for tensor in shown.inputs],
        "outputs": [_v2_tensor(tensor) for tensor in shown.outputs],
    }
    if view.options.image is not None:
        told["image"] = view.options.image
    return told


def v2_config(view: ModelView, signatures: Sequence[Signature], max_batch_size: int) -> V2Config:
    """Return V2's model configuration, as far as there is one.

    Where there are batches, shapes stand without their first dimension. `max_batch_size` is that
    of a model that says nothing else.
    """
    shown = _shown(signatures)
    config: V2Config = {
        "name": view.name,
        "platform": view.runtime,
        "backend": view.runtime,
        "max_batch_size": 0,
        "input": [_v2_configured(tensor, shown.batchable) for tensor in shown.inputs],
        "output": [_v2_configured(tensor, shown.batchable) for tensor in shown.outputs],
        "model_transaction_policy": {"decoupled": False},
    }
    if shown.batchable:
        config["max_batch_size"] = view.options.max_batch_size or max_batch_size
        config["dynamic_batching"] = _v2_batching(view.options)
    return config


def _v2_batching(options: Options) -> V2Batching:
    return {
        "preferred_batch_size": options.preferred_batch_sizes or [],
        "max_queue_delay_microseconds": round((options.max_delay or 0.0) * 1e6),
    }


def _shown(signatures: Sequence[Signature]) -> Signature:
    """Return the signature that V2 knows of: the default one, or the first."""
    return next((s for s in signatures if s.name == DEFAULT_SIGNATURE), signatures[0])


def v2_index(views: Iterable[ModelView], *, ready_only: bool) -> list[V2IndexEntry]:
    """Return the V2 repository index, one entry for each model."""
    entries: list[V2IndexEntry] = []
    for view in views:
        if view.state == "ready" or not ready_only:
            entries.append(
                {
                    "name": view.name,
                    "version": current_version(view) or "",
                    "state": _V2_STATES.get(view.state, "UNAVAILABLE"),
                    "reason": _v2_reason(view),
                }
            )
    return entries


def _v1_version(view: ModelView, version: str, *, autoload: bool) -> V1Version:
    served = view.version is None or version == view.version
    state = view.state if served else "unloaded"
    word: V1State = _V1_STATES.get(state, "END")
    message = ""
    if state == "unloaded":
        word = "START" if autoload else "END"
        message = "not loaded; the first prediction loads it" if autoload else "not loaded"
    failed = served and view.failure is not None and word != "AVAILABLE"
    if failed and view.failure is not None:
        message = view.failure.message
    return {
        "version": version,
        "state": word,
        "status": {"error_code": "UNKNOWN" if failed else "OK", "error_message": message},
    }


def _v2_reason(view: ModelView) -> str:
    if view.state in _V2_STATES:
        return ""
    return view.failure.message if view.failure else view.state


def _v1_signature(signature: Signature) -> V1Signature:
    return {
        "inputs": {tensor.name: _v1_tensor(tensor) for tensor in signature.inputs},
        "outputs": {tensor.name: _v1_tensor(tensor) for tensor in signature.outputs},
        "method_name": f"tensorflow/serving/{signature.method}",
        "defaults": {},
    }


def _v1_tensor(tensor: TensorInfo) -> V1Tensor:
    dims: list[V1Dim] = [{"size": str(_size(dim)), "name": ""} for dim in tensor.shape or ()]
    return {
        "dtype": _V1_TYPES.get(tensor.dtype, "DT_INVALID"),
        "tensor_shape": {"dim": dims, "unknown_rank": tensor.shape is None},
        "name": tensor.name,
    }


def _v2_tensor(tensor: TensorInfo) -> V2Tensor:
    # V2 has no word for an unknown rank; one free dimension comes nearest.
    shape = [-1] if tensor.shape is None else [_size(dim) for dim in tensor.shape]
    datatype = _V2_TYPES.get(tensor.dtype, tensor.dtype.upper())
    return {"name": tensor.name, "datatype": datatype, "shape": shape}


def _v2_configured(tensor: TensorInfo, batchable: bool) -> V2Configured:
    told = _v2_tensor(tensor)
    kind = "STRING" if told["datatype"] == "BYTES" else told["datatype"]
    dims = told["shape"][1:] if batchable else told["shape"]
    return {"name": tensor.name, "data_type": f"TYPE_{kind}", "dims": dims}


def _size(dim: int | None) -> int:
    return -1 if dim is None else dim


def _version_order(version: str) -> tuple[int, str]:
    return (int(version) if version.isdecimal() else -1, version)
