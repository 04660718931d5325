"""JSON schemas of answers, from the types that they are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

from .answer_types import fields_of

Schema = dict[str, Any]

_PLAIN: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: {"type": "null"},
    bytes: {},
    object: {},
    Any: {},
}


class TypeSchemas:
    """Makes schemas, and collects those of classes by name, each once, in `components`."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._kinds: dict[str, type] = {}

    def of(self, kind: Any) -> Schema:
        """Return the schema of a type: a plain one, a class with fields, or made of such.

        Raises TypeError for a type that has none, or a class whose name another class has.
        """
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if dataclasses.is_dataclass(kind) or is_typeddict(kind):
            return self._of_class(kind)
        origin, parts = get_origin(kind), get_args(kind)
        if origin is Literal:
            return {"enum": list(parts)}
        if origin in (Union, UnionType):
            return {"anyOf": [self.of(part) for part in parts]}
        if origin in (list, tuple, Sequence):
            return {"type": "array", "items": self.of(parts[0])}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.of(parts[1])}
        raise TypeError(f"an answer of the type {kind!r} has no JSON schema")

    def _of_class(self, kind: Any) -> Schema:
        name = kind.__name__
        if self._kinds.setdefault(name, kind) is not kind:
            raise TypeError(f"two classes of answers have the name {name}")
        if name not in self.components:
            self.components[name] = {}  # it may hold itself
            self.components[name] = self._with_fields(kind)
        return {"$ref": f"#/components/schemas/{name}"}

    def _with_fields(self, kind: Any) -> Schema:
        fields = fields_of(kind)
        optional = {name for name, hint in fields.items() if get_origin(hint) is NotRequired}
        return {
            "type": "object",
            "description": " ".join((kind.__doc__ or "").split()),
            "properties": {name: self.of(_bare(hint)) for name, hint in fields.items()},
            "required": [name for name in fields if name not in optional],
        }


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is NotRequired else hint
