"""The types of answers, found by name: most modules import them for the type checker alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from modelsup.worker import contract

from .. import domain
from ..fleet import events, views
from ..policy import admission
from . import control_ports, control_shapes
from .operations import JSON_TYPE, TEXT_TYPE, Accepted, Created, Text

_NAMES: Final[dict[str, Any]] = {
    name: value
    for module in (contract, domain, views, events, admission, control_ports, control_shapes)
    for name, value in vars(module).items()
    if not name.startswith("_")
} | {"Mapping": Mapping, "Sequence": Sequence}


def fields_of(kind: type) -> dict[str, Any]:
    """Return the types of the fields of a class."""
    return get_type_hints(kind, localns=_NAMES | _of_module(kind), include_extras=True)


def answers_of(view: Any) -> dict[int, dict[str, Any]]:
    """Return the types of a function's answers by status and media type, from what it returns."""
    answers: dict[int, dict[str, Any]] = {}
    for kind in _alternatives(_returned_by(view)):
        wrapper = get_origin(kind)
        if kind is Text:
            answers[200] = {TEXT_TYPE: str}
        elif wrapper in (Created, Accepted):
            answers[wrapper.status] = {JSON_TYPE: get_args(kind)[0]}
        else:
            answers[200] = {JSON_TYPE: kind}
    return answers


def _of_module(kind: type) -> dict[str, Any]:
    return vars(sys.modules[kind.__module__])


def _returned_by(view: Any) -> Any:
    alone = SimpleNamespace(__annotations__={"return": view.__annotations__["return"]})
    return get_type_hints(alone, _NAMES | view.__globals__)["return"]


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
