"""How a model is to be loaded, and the checks of names and paths before they go on the wire."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from .errors import InvalidRequest

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Options(TypedDict, total=False):
    """Options of a load. A size is bytes or "4GB", "512MB", "1.5GiB".

    `gpu_memory_fraction` is a share of the GPU's memory, 0 to 1. `device` is "gpu:0" or "cpu".
    `ttl` unloads the model after so many seconds without use: 0 after each request, a negative
    number never. `threads` bounds the threads of one operation. `priority` is its rank in the queue
    for memory, 0 if not given; higher goes first.
    A worker is replaced, between two requests, once it has served `max_requests` or its own memory
    has grown past `recycle_above`.
    It is ready once it has answered a batch of `warm_up_batch` zeros, 1 if not given.
    A call has `max_batch_size` rows at most. A request waits `max_delay` seconds, 0 if not given,
    for others to share its call, unless that has one of the `preferred_batch_sizes` before.
    A worker gets `max_concurrency` requests at once, any number if that is 0 or not given. Where
    `max_queue` of them wait, further ones are refused: `Busy`. `replicas` workers serve it side by
    side, one if not given.
    `retry=False` sends no request once more whose worker died before it answered.
    `prepare` says when the form of it that loads faster is made: "auto", after its first load,
    "now" or "off". `keep` says where the model is between requests: loaded ("gpu", also without
    one), its prepared weights in RAM ("ram"), or in its files ("disk").

    `labels` gives versions by label, for TensorFlow Serving's paths. `image` says how a JPEG or
    PNG becomes the model's input; `classes` is the path of a file with the names of the classes,
    one a line.
    """

    gpu_memory_fraction: float
    gpu_memory: int | str
    ram: int | str
    device: str
    pin: bool
    ttl: float
    threads: int
    priority: int
    max_requests: int
    recycle_above: int | str
    warm_up_batch: int
    max_batch_size: int
    max_delay: float | str
    preferred_batch_sizes: list[int]
    max_concurrency: int
    max_queue: int
    replicas: int
    retry: bool
    prepare: Literal["auto", "now", "off"]
    keep: Literal["gpu", "ram", "disk"]
    labels: dict[str, str]
    image: dict[str, Any]
    classes: str


def checked(name: str, what: str) -> str:
    """Return the name of a model or client. Raises InvalidRequest if it cannot be one."""
    if _NAME.fullmatch(name):
        return name
    raise InvalidRequest(
        f"{name!r} cannot be the name of a {what}: use 1 to 128 letters, digits, '.', '_' and '-', "
        "with a letter or digit first",
        code="invalid",
    )


def load_body(
    source: str | os.PathLike[str] | None, runtime: str | None, options: Options, *, local: bool
) -> dict[str, Any]:
    """Return the JSON fields that say what to load and how; what was not given is left out.

    `local`: the supervisor sees this machine's files, so that a relative path that exists here
    means that file, whatever the supervisor's working folder is.
    """
    body: dict[str, Any] = {}
    if source is not None:
        body["source"] = _path(source, local=local)
    if runtime is not None:
        body["runtime"] = runtime
    if options:
        body["options"] = dict(options)
    if "classes" in options:
        body["options"]["classes"] = _path(options["classes"], local=local)
    return body


def _path(path: str | os.PathLike[str], *, local: bool) -> str:
    here = Path(path)
    return str(here.absolute()) if local and here.exists() else os.fspath(path)
