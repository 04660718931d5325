"""What the prediction paths mean: from a raw path to a Route. Pure."""

from __future__ import annotations

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
MAX_REMEMBERED: Final = 4096  # paths

_V1_VERBS: Final = {
    "predict": Kind.V1_PREDICT,
    "classify": Kind.V1_CLASSIFY,
    "regress": Kind.V1_REGRESS,
}
_V2_VERBS: Final = {
    (): Kind.V2_METADATA,
    ("config",): Kind.V2_CONFIG,
    ("stats",): Kind.V2_STATISTICS,
    ("ready",): Kind.V2_READY,
    ("infer",): Kind.V2_INFER,
}
_V2_SERVER: Final = {
    (): Kind.V2_SERVER,
    ("health", "live"): Kind.V2_SERVER_LIVE,
    ("health", "ready"): Kind.V2_SERVER_READY,
    ("models", "stats"): Kind.V2_STATISTICS,  # of all; one called "stats" has no metadata
    ("repository", "index"): Kind.V2_INDEX,
}
_V2_REPOSITORY: Final = {"load": Kind.V2_LOAD, "unload": Kind.V2_UNLOAD}
_CLIENT_VERBS: Final = {"predict": Kind.V1_PREDICT, "infer": Kind.V2_INFER}

Words = tuple[str, ...]


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
        return ("GET", "HEAD") if self.kind in READS else ("POST",)


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


def _parse(path: bytes) -> Route | None:
    try:
        root, *words = (unquote_to_bytes(part).decode() for part in path.split(b"/")[1:])
    except ValueError:  # no slash at all, or not UTF-8
        return None
    route = None
    if root == "v1":
        route = _parse_v1(tuple(words))
    elif root == "v2":
        route = _parse_v2(tuple(words))
    elif root == "clients" and len(words) == 2 and words[1] in _CLIENT_VERBS:
        route = Route(_CLIENT_VERBS[words[1]], client=words[0])
    return route if route is not None and _names_are_valid(route) else None


def _parse_v1(words: Words) -> Route | None:
    if len(words) < 2 or words[0] != "models":
        return None
    kind: Kind | None = Kind.V1_STATUS
    if words[-1] == "metadata" and len(words) in (3, 5):
        kind = Kind.V1_METADATA
        words = words[:-1]
    elif ":" in words[-1]:
        last, verb = words[-1].split(":", 1)
        kind = _V1_VERBS.get(verb)
        words = (*words[:-1], last)
    if kind is None:
        return None
    match words[1:]:
        case (model,):
            return Route(kind, model)
        case (model, "versions", version):
            return Route(kind, model, version=version)
        case (model, "labels", label):
            return Route(kind, model, label=label)
    return None


def _parse_v2(words: Words) -> Route | None:
    if words in _V2_SERVER:
        return Route(_V2_SERVER[words])
    match words:
        case ("models", model, "versions", version, *verb) if tuple(verb) in _V2_VERBS:
            return Route(_V2_VERBS[tuple(verb)], model, version=version)
        case ("models", model, *verb) if tuple(verb) in _V2_VERBS:
            return Route(_V2_VERBS[tuple(verb)], model)
        case ("repository", "models", model, verb) if verb in _V2_REPOSITORY:
            return Route(_V2_REPOSITORY[verb], model)
    return None


def _names_are_valid(route: Route) -> bool:
    named = (route.version, route.label, route.model or None, route.client or None)
    if any(name is not None and not NAME.fullmatch(name) for name in named):
        return False
    return bool(route.model or route.client) or route.kind in _V2_SERVER.values()
