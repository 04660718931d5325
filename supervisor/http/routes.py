"""What the prediction paths mean: from a raw path to a Route. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Final
from urllib.parse import unquote_to_bytes

from ..domain import NAME


class Kind(IntEnum):  # an int for its hash, which is looked up for each request
    """What a path asks for."""

    V1_PREDICT = auto()
    V1_CLASSIFY = auto()
    V1_REGRESS = auto()
    V1_STATUS = auto()
    V1_METADATA = auto()
    V2_INFER = auto()
    V2_METADATA = auto()
    V2_CONFIG = auto()
    V2_STATISTICS = auto()
    V2_READY = auto()
    V2_SERVER = auto()
    V2_SERVER_LIVE = auto()
    V2_SERVER_READY = auto()
    V2_INDEX = auto()
    V2_LOAD = auto()
    V2_UNLOAD = auto()


READS: Final = frozenset(
    {
        Kind.V1_STATUS,
        Kind.V1_METADATA,
        Kind.V2_METADATA,
        Kind.V2_CONFIG,
        Kind.V2_STATISTICS,
        Kind.V2_READY,
        Kind.V2_SERVER,
        Kind.V2_SERVER_LIVE,
        Kind.V2_SERVER_READY,
    }
)
WORKER_PATHS: Final = {  # for predictions, the path at the worker
    Kind.V1_PREDICT: b"/v1/predict",
    Kind.V1_CLASSIFY: b"/v1/classify",
    Kind.V1_REGRESS: b"/v1/regress",
    Kind.V2_INFER: b"/v2/infer",
}
MAX_REMEMBERED: Final = 4096  # paths

_V1: Final = {
    "": Kind.V1_STATUS,
    "/metadata": Kind.V1_METADATA,
    ":predict": Kind.V1_PREDICT,
    ":classify": Kind.V1_CLASSIFY,
    ":regress": Kind.V1_REGRESS,
}
_V2: Final = {
    "": Kind.V2_METADATA,
    "/config": Kind.V2_CONFIG,
    "/stats": Kind.V2_STATISTICS,
    "/ready": Kind.V2_READY,
    "/infer": Kind.V2_INFER,
}
_V1_MODELS: Final = tuple(
    f"/v1/models/{{model}}{which}" for which in ("", "/versions/{version}", "/labels/{label}")
)
_V2_MODELS: Final = tuple(f"/v2/models/{{model}}{which}" for which in ("", "/versions/{version}"))

# Every path there is, the first that matches first. Variables are fields of a Route.
PATHS: Final = {
    "/clients/{client}/predict": Kind.V1_PREDICT,
    "/clients/{client}/infer": Kind.V2_INFER,
    **{f"{model}{end}": kind for model in _V1_MODELS for end, kind in _V1.items()},
    "/v2": Kind.V2_SERVER,
    "/v2/health/live": Kind.V2_SERVER_LIVE,
    "/v2/health/ready": Kind.V2_SERVER_READY,
    "/v2/models/stats": Kind.V2_STATISTICS,  # of all; a model called "stats" has no metadata
    **{f"{model}{end}": kind for model in _V2_MODELS for end, kind in _V2.items()},
    "/v2/repository/index": Kind.V2_INDEX,
    "/v2/repository/models/{model}/load": Kind.V2_LOAD,
    "/v2/repository/models/{model}/unload": Kind.V2_UNLOAD,
}
_PATTERNS: Final = [
    (re.compile(re.sub(r"{(\w+)}", rf"(?P<\1>{NAME.pattern})", path)), kind)
    for path, kind in PATHS.items()
]


@dataclass(frozen=True, slots=True)
class Route:
    """One path, understood. `model` or `client` is empty where the path names none."""

    kind: Kind
    model: str = ""
    version: str | None = None
    label: str | None = None
    client: str = ""

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that the path has."""
        return methods_of(self.kind)


_remembered: dict[bytes, Route] = {}


def match(path: bytes) -> Route | None:
    """Return what a raw (percent-encoded) path asks for; None where there is no such path.

    A path with a model, version or client name that cannot exist is no path.
    """
    route = _remembered.get(path)
    if route is None:
        route = _parse(path)
        if route is not None:
            if len(_remembered) >= MAX_REMEMBERED:
                _remembered.clear()
            _remembered[path] = route
    return route


def methods_of(kind: Kind) -> tuple[str, ...]:
    """Return the methods of the paths that ask for this."""
    return ("GET", "HEAD") if kind in READS else ("POST",)


def _parse(path: bytes) -> Route | None:
    try:
        words = [unquote_to_bytes(word).decode() for word in path.split(b"/")]
    except ValueError:  # not UTF-8
        return None
    if any("/" in word for word in words):  # a slash that is encoded is part of a name
        return None
    plain = "/".join(words)
    for pattern, kind in _PATTERNS:
        found = pattern.fullmatch(plain)
        if found is not None:
            return Route(kind, **found.groupdict())
    return None
