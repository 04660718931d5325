"""JSON schemas of requests, from the functions that read them: no second list of fields."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from ..units import DURATION_UNITS, MAX_DURATION, MAX_SIZE, SIZE_UNITS
from .request_bodies import Fields

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from .operations import Reader

Schema = dict[str, Any]

_AMOUNT: Final = r"[0-9]{1,30}(\.[0-9]{1,30})?\s*"


def body_of(reader: Reader) -> Schema:
    """Return the schema of the JSON objects that a reader of fields takes; null is absent."""
    recorder = Recorder()
    reader(recorder)
    return recorder.schema()


def parameters_of(reader: Reader) -> dict[str, Schema]:
    """Return the schemas of the query parameters that a reader of fields takes."""
    recorder = Recorder()
    reader(recorder)
    return recorder.taken


class Recorder(Fields):
    """Notes what a reader asks for. It finds every field absent."""

    def __init__(self) -> None:
        super().__init__({})
        self.taken: dict[str, Schema] = {}  # by name, in the order of their taking
        self._needed: list[str] = []
        self._inner: dict[str, Recorder] = {}

    def schema(self) -> Schema:
        """Return the schema of what the reader takes."""
        taken = self.taken | {name: inner.schema() for name, inner in self._inner.items()}
        properties = {
            name: schema if name in self._needed else _or_null(schema)
            for name, schema in taken.items()
        }
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        return schema | ({"required": self._needed} if self._needed else {})

    def needed(self, name: str, value: Any, what: str) -> Any:
        """Note that a field may not be absent."""
        self._needed.append(name)
        return value

    def text(self, name: str, longest: int = 256) -> None:
        """Note text that is not empty."""
        self._note(name, {"type": "string", "pattern": r"\S", "maxLength": longest})

    def optional_flag(self, name: str) -> None:
        """Note true or false."""
        self._note(name, {"type": "boolean"})

    def switch(self, name: str, *, absent: bool = False) -> bool:
        """Note a flag of a query."""
        self._note(name, {"type": "string", "enum": ["0", "1", "false", "true"]})
        return absent

    def fraction(self, name: str) -> None:
        """Note a number over 0 and up to 1."""
        self._note(name, {"type": "number", "exclusiveMinimum": 0, "maximum": 1})

    def count(self, name: str, lowest: int, highest: int) -> None:
        """Note a whole number."""
        self._note(name, {"type": "integer", "minimum": lowest, "maximum": highest})

    def size(self, name: str, lowest: int = 1) -> None:
        """Note a size in bytes."""
        number = {"type": "integer", "minimum": lowest, "maximum": MAX_SIZE}
        self._note(name, _with_unit(number, map(_in_any_case, SIZE_UNITS)))

    def duration(self, name: str, lowest: float = 0.0, highest: float = MAX_DURATION) -> None:
        """Note a duration in seconds."""
        number = {"type": "number", "minimum": lowest, "maximum": highest}
        self._note(name, _with_unit(number, DURATION_UNITS))

    def keep_alive(self, name: str) -> None:
        """Note an idle time in seconds."""
        number = {"type": "number", "minimum": -MAX_DURATION, "maximum": MAX_DURATION}
        self._note(name, _with_unit(number, DURATION_UNITS, r"-?\s*"))

    def pattern(self, name: str, rule: re.Pattern[str], expected: str) -> None:
        """Note text of a certain form."""
        self._note(name, matching(rule) | {"description": expected})

    def choice(self, name: str, choices: tuple[str, ...]) -> None:
        """Note one of a few words."""
        self._note(name, {"anyOf": [{"type": "string", "enum": list(choices)}]})

    def number(self, name: str) -> None:
        """Note a number."""
        self._note(name, {"type": "number"})

    def numbers(
        self,
        name: str,
        lengths: tuple[int, ...],
        *,
        lowest: float = -math.inf,
        highest: float = math.inf,
        whole: bool = False,
    ) -> None:
        """Note a list of numbers, or one alone."""
        bounds = {"minimum": lowest, "maximum": highest}
        number = {"type": "integer" if whole else "number"} | {
            bound: value for bound, value in bounds.items() if math.isfinite(value)
        }
        lists = [
            {"type": "array", "items": number, "minItems": length, "maxItems": length}
            for length in lengths
        ]
        self._note(name, {"anyOf": [*([number] if 1 in lengths else []), *lists]})

    def counts(self, name: str, lowest: int, highest: int, most: int) -> None:
        """Note a list of whole numbers."""
        number = {"type": "integer", "minimum": lowest, "maximum": highest}
        self._note(name, {"type": "array", "items": number, "maxItems": most})

    def texts(self, name: str, rule: re.Pattern[str], expected: str) -> None:
        """Note an object of texts of a certain form."""
        text = matching(rule)
        schema = {"type": "object", "propertyNames": text, "additionalProperties": text}
        self._note(name, schema | {"description": expected})

    def inner(self, name: str) -> Fields:
        """Note an object inside this one."""
        self._note(name, {})  # keeps its place
        return self._inner.setdefault(name, Recorder())

    def _take(self, name: str) -> None:
        self._note(name, {})  # by a way of reading that has no schema here

    def _note(self, name: str, schema: Schema) -> None:
        self.taken[name] = schema


def _or_null(schema: Schema) -> Schema:
    if "anyOf" in schema:
        return {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    return schema | ({"type": [schema["type"], "null"]} if "type" in schema else {})


def _with_unit(number: Schema, units: Iterable[str], sign: str = "") -> Schema:
    pattern = rf"^\s*{sign}{_AMOUNT}({'|'.join(units)})\s*$"
    return {"anyOf": [number, {"type": "string", "pattern": pattern}]}


def _in_any_case(unit: str) -> str:
    return "".join(f"[{letter}{letter.lower()}]" for letter in unit)


def matching(rule: re.Pattern[str]) -> Schema:
    """Return the schema of text of a certain form."""
    return {"type": "string", "pattern": f"^({rule.pattern})$"}
