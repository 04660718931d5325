"""What supervisor and worker say to each other.

The supervisor imports this file and `http_protocol`, and nothing else of the worker.

Standard library only. The supervisor hands a `LaunchSpec` and four file descriptors to the
forkserver; the worker answers with `StatusMessage` lines on its status pipe.
"""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

SECRET_HEADER: Final = "x-modelsup-secret"  # noqa: S105 - its name; every request carries it

# Exit codes of a worker. 0 is an orderly end after SIGTERM.
EXIT_LOAD_FAILED: Final = 3  # the reason was sent as a "failed" message
EXIT_BAD_LAUNCH: Final = 4  # the spec or the descriptors were unusable

# Sent to a worker with `measure_context` once its GPU context was measured. Blocked in workers.
GO_ON: Final = signal.SIGUSR1

# The form of a prepared model: raise it with any change to the files that one has.
PREPARED_FORMAT: Final = 2
MANIFEST_NAME: Final = "manifest.json"

Stage = Literal["loading", "warming", "ready", "failed", "prepared"]
DeviceKind = Literal["cpu", "gpu"]
Cause = Literal["bad_model", "load_error", "cuda_oom", "host_oom", "unknown"]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One named input or output.

    `dtype` is numpy's name ("float32", "bfloat16", ...) or "string" for bytes objects.
    `shape` holds None for a free dimension; it is None where the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True)
class Signature:
    """One callable of a model. `batchable`: the first dimension of all tensors is free."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    batchable: bool
    method: str = "predict"


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """All that a worker needs to know about itself."""

    uid: str
    model: str
    version: str
    runtime: str
    source: str | None  # absolute path; None where the runtime needs no file
    secret: str
    temp_dir: str
    device: str | None = None  # GPU UUID; None: the CPU
    gpu_memory_limit: int | None = None  # bytes
    measure_context: bool = False  # stand still once the GPU is open, until GO_ON comes
    host_memory_limit: int | None = None  # bytes; whoever launches it holds it to that
    cgroup: str | None = None  # file that it writes itself into before anything else
    threads: int | None = None  # intra-op threads; None: the framework's default
    max_batch_size: int = 64  # rows in one call
    max_delay: float = 0.0  # seconds that a request waits for others to share its call
    preferred_batch_sizes: list[int] = field(default_factory=list)  # rows; empty: what pays
    warm_up_batch: int = 1  # rows of the largest call before it is ready
    max_body_size: int = 256 * 2**20  # bytes of a request's body, unpacked
    image: dict[str, Any] | None = None  # how an image becomes the model's input
    classes: str | None = None  # file with the names of the classes, one a line
    prepared: str | None = None  # folder of the prepared form to load from, where there is one
    prepare_into: str | None = None  # empty folder: write the prepared form there, serve nothing
    prepare_for: DeviceKind = "cpu"  # what the prepared form is to run on
    environment: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the form that travels to the forkserver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> LaunchSpec:
        """Rebuild a spec. Raises TypeError or ValueError on text of another form."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """News from a worker. `uid` lets a reader ignore late news of an older process."""

    uid: str
    stage: Stage
    signatures: tuple[Signature, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)  # by stage: "load", "warm"
    memory: dict[str, int] = field(default_factory=dict)  # private bytes by stage, with "ready"
    framework: str = ""  # name and version, with "ready" and `device_open`
    device_open: bool = False  # with "loading": its GPU is open, and nothing of the model there
    preparable: bool = False  # with "ready": whether a prepared form may be made of the model
    from_prepared: bool = False  # with "ready": whether the prepared form was loaded
    prepared_error: str = ""  # with "ready": why a prepared form that was given was not loaded
    cause: Cause | None = None
    message: str = ""

    def to_line(self) -> bytes:
        """Return one line of JSON, newline included."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> StatusMessage:
        """Rebuild a message. Raises TypeError, KeyError or ValueError on text of another form."""
        data: dict[str, Any] = json.loads(line)
        data["signatures"] = tuple(signature_from(s) for s in data["signatures"])
        return cls(**data)


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """One file of a prepared model."""

    bytes: int
    sha256: str  # hexadecimal


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a prepared model is: written last by the process that made and verified it.

    `refused` says why the model cannot be prepared; then there are no files.
    """

    format: int
    framework: str  # name and version, such as "tensorflow 2.21.0"
    device: DeviceKind  # what it was made for
    model: str  # its name then, for people
    source: str | None  # where it came from, for people
    files: dict[str, PreparedFile] = field(default_factory=dict)  # by name in the folder
    refused: str = ""

    def to_json(self) -> str:
        """Return the form that stands in the file MANIFEST_NAME."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """Rebuild a manifest. Raises TypeError, KeyError or ValueError on another form."""
        data: dict[str, Any] = json.loads(text)
        data["files"] = {name: PreparedFile(**file) for name, file in data["files"].items()}
        return cls(**data)


def signature_from(data: dict[str, Any]) -> Signature:
    """Rebuild a signature from its JSON form. Raises TypeError or KeyError."""
    return Signature(
        name=data["name"],
        inputs=tuple(_tensor_from(t) for t in data["inputs"]),
        outputs=tuple(_tensor_from(t) for t in data["outputs"]),
        batchable=data["batchable"],
        method=data["method"],
    )


def _tensor_from(data: dict[str, Any]) -> TensorInfo:
    shape = data["shape"]
    return TensorInfo(data["name"], data["dtype"], None if shape is None else tuple(shape))
