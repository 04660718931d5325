"""Strict reading of what control calls send: bodies and query parameters, field by field."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import orjson

from ..domain import NAME, Options, Place, Prepare
from ..errors import Invalid
from ..units import MAX_DURATION, UnitError, parse_duration, parse_keep_alive, parse_size
from .flow_options import (
    MOST_AT_ONCE,
    MOST_ROWS,
    MOST_WAITING,
    max_delay_of,
    preferred_batch_sizes_of,
    replicas_of,
)
from .problem import BadRequest, UnsupportedMediaType
from .protocol_options import classes_of, image_of, labels_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Number = TypeVar("Number", int, float)
Value = TypeVar("Value")

DEFAULT_WAIT: Final = 600.0  # seconds
DEFAULT_TAIL: Final = 100  # lines
MOST_LINES: Final = 100_000
MOST_THREADS: Final = 1024
MOST_PRIORITY: Final = 1000  # and the least is its negative
MOST_REQUESTS: Final = 10**9 - 1
LONGEST_PATH: Final = 4096  # characters, as Linux
_DEVICE: Final = re.compile(r"cpu|gpu:[0-9]{1,3}", re.ASCII)
_COUNT: Final = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_SWITCH: Final = {"1": True, "true": True, "0": False, "false": False}
_NAME_RULE: Final = "1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit"


@dataclass(frozen=True, slots=True)
class ModelBody:
    """What to load: the body of a load, and of adding a model. None: as it was, or the default."""

    source: str | None
    runtime: str | None
    options: Options | None


@dataclass(frozen=True, slots=True)
class UnloadBody:
    """How to unload. `timeout`: seconds to drain."""

    force: bool
    timeout: float | None


@dataclass(frozen=True, slots=True)
class SwapBody:
    """A client's new model."""

    model: str
    what: ModelBody
    private: bool
    ttl: float | None  # seconds


class Fields:
    """The fields of one object, each taken once; `done` raises for those that nobody took.

    All methods raise Invalid with the name of the field and what was expected. null means absent.
    """

    def __init__(self, data: Mapping[str, Any], kind: str = "field", prefix: str = "") -> None:
        self._rest = {name: value for name, value in data.items() if value is not None}
        self._unknown = set(data)
        self._known: list[str] = []
        self._kind = kind
        self._prefix = prefix

    def text(self, name: str, longest: int = 256) -> str | None:
        """Take text that is not empty."""
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise self._error(name, "expected text that is not empty", value)
        if len(value) > longest:
            raise self._error(name, f"expected at most {longest} characters", value)
        return value

    def flag(self, name: str) -> bool:
        """Take true or false; absent is false."""
        return bool(self.optional_flag(name))

    def optional_flag(self, name: str) -> bool | None:
        """Take true or false."""
        value = self._take(name)
        if value is None or isinstance(value, bool):
            return value
        raise self._error(name, "expected true or false", value)

    def switch(self, name: str, *, absent: bool = False) -> bool:
        """Take a flag that is written as text, as in a query."""
        value = self._take(name)
        if value is None:
            return absent
        if value not in _SWITCH:
            raise self._error(name, "expected 1 or 0", value)
        return _SWITCH[value]

    def fraction(self, name: str) -> float | None:
        """Take a number over 0 and up to 1."""
        value = self._take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise self._error(name, "expected a number over 0 and at most 1", value)
        return float(value)

    def count(self, name: str, lowest: int, highest: int) -> int | None:
        """Take a whole number between two bounds, or its text."""
        value = self._take(name)
        if value is None:
            return None
        if isinstance(value, str) and _COUNT.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise self._error(name, f"expected a whole number from {lowest} to {highest}", value)
        return value

    def size(self, name: str, lowest: int = 1) -> int | None:
        """Take a size of at least `lowest` bytes."""
        return self._unit(name, parse_size, lowest)

    def duration(
        self, name: str, lowest: float = 0.0, highest: float = MAX_DURATION
    ) -> float | None:
        """Take a duration between two bounds, in seconds."""
        value = self._unit(name, parse_duration, lowest)
        if value is not None and value > highest:
            raise self._error(name, f"expected at most {highest:g} s", self._rest[name])
        return value

    def keep_alive(self, name: str) -> float | None:
        """Take an idle time in seconds; a negative one stands for "always"."""
        return self._unit(name, parse_keep_alive, -1.0)

    def pattern(self, name: str, rule: re.Pattern[str], expected: str) -> str | None:
        """Take text of a certain form."""
        value = self._take(name)
        if value is not None and not (isinstance(value, str) and rule.fullmatch(value)):
            raise self._error(name, f"expected {expected}", value)
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> Any:
        """Take one of a few words."""
        value = self._take(name)
        if value is not None and value not in choices:
            known = ", ".join(repr(choice) for choice in choices)
            raise self._error(name, f"expected one of {known}", value)
        return value

    def number(self, name: str) -> float | None:
        """Take a finite number."""
        value = self._take(name)
        if value is None:
            return None
        if not _is_number(value):
            raise self._error(name, "expected a number", value)
        return float(value)

    def numbers(
        self,
        name: str,
        lengths: tuple[int, ...],
        *,
        lowest: float = -math.inf,
        highest: float = math.inf,
        whole: bool = False,
    ) -> list[float] | None:
        """Take a list of finite numbers; where it may have one alone, also that number itself."""
        value = self._take(name)
        if value is None:
            return None
        items = [value] if 1 in lengths and not isinstance(value, list) else value
        kind = int if whole else int | float
        if (
            not isinstance(items, list)
            or len(items) not in lengths
            or not all(_is_number(i) and isinstance(i, kind) for i in items)
            or not all(lowest <= i <= highest for i in items)
        ):
            count = " or ".join(map(str, lengths))
            what = f"{count} {'whole ' if whole else ''}numbers of at least {lowest:g}"
            raise self._error(name, f"expected a list of {what}", value)
        return items

    def counts(self, name: str, lowest: int, highest: int, most: int) -> list[int] | None:
        """Take a list of up to `most` whole numbers between two bounds."""
        value = self._take(name)
        if value is None:
            return None
        if (
            not isinstance(value, list)
            or len(value) > most
            or not all(_is_number(i) and isinstance(i, int) for i in value)
            or not all(lowest <= i <= highest for i in value)
        ):
            what = f"at most {most} whole numbers from {lowest} to {highest}"
            raise self._error(name, f"expected a list of {what}", value)
        return value

    def texts(self, name: str, rule: re.Pattern[str], expected: str) -> dict[str, str] | None:
        """Take an object whose names and values are texts of a certain form."""
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, dict) or not all(
            isinstance(text, str) and rule.fullmatch(text) for text in (*value, *value.values())
        ):
            raise self._error(name, f"expected {expected}", value)
        return value

    def inner(self, name: str) -> Fields | None:
        """Take an object inside this one."""
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._error(name, "expected an object", value)
        return Fields(value, self._kind, f"{self._prefix}{name}.")

    def needed(self, name: str, value: Value | None, what: str) -> Value:
        """Return a field that may not be absent, once taken; `what` says what to put there."""
        if value is None:
            raise Invalid(f"{self._kind} '{self._prefix}{name}' is missing: {what}")
        return value

    def done(self) -> None:
        """Raise Invalid where there are fields that have no meaning here."""
        if not self._unknown:
            return
        name = min(self._unknown)
        near = difflib.get_close_matches(name, self._known, n=1)
        known = ", ".join(self._known) or "none"
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {known}"
        raise Invalid(f"unknown {self._kind} '{self._prefix}{_short(name)}'; {hint}")

    def _take(self, name: str) -> Any:
        self._known.append(name)
        self._unknown.discard(name)
        return self._rest.get(name)

    def _unit(self, name: str, parse: Callable[[object], Number], lowest: Number) -> Number | None:
        value = self._take(name)
        if value is None:
            return None
        try:
            amount = parse(value)
        except UnitError as error:
            raise Invalid(f"{self._kind} '{self._prefix}{name}': {error}") from None
        if amount < lowest:
            raise self._error(name, f"expected at least {lowest:g}", value)
        return amount

    def _error(self, name: str, expected: str, value: object) -> Invalid:
        got = _short(repr(value))
        return Invalid(f"{self._kind} '{self._prefix}{name}': {expected}, got {got}")


def read_json(body: bytes, content_type: str | None) -> Fields:
    """Read a JSON object; no body at all is an empty one.

    Raises UnsupportedMediaType, BadRequest for what is not JSON, Invalid for what is no object.
    """
    if not body:
        return Fields({})
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        got = _short(repr(content_type)) if content_type else "none"
        raise UnsupportedMediaType(f"send the header 'Content-Type: application/json', got {got}")
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise Invalid("the body must be a JSON object, {...}")
    return Fields(data)


def model_body(fields: Fields) -> ModelBody:
    """Read the body of a load or of a new model."""
    body = _model(fields)
    fields.done()
    return body


def unload_body(fields: Fields) -> UnloadBody:
    """Read the body of an unload."""
    body = UnloadBody(force=fields.flag("force"), timeout=fields.duration("timeout"))
    fields.done()
    return body


def scale_body(fields: Fields) -> int:
    """Read the body of a change of the number of workers."""
    replicas = fields.needed("replicas", replicas_of(fields), "say how many there are to be")
    fields.done()
    return replicas


def swap_body(fields: Fields) -> SwapBody:
    """Read the body of a swap."""
    model = fields.pattern("model", NAME, _NAME_RULE)
    model = fields.needed("model", model, "name the model that the client wants")
    what = _model(fields)
    body = SwapBody(model, what, fields.flag("private"), fields.duration("ttl", 0.001))
    fields.done()
    return body


def checked_name(kind: str, name: str) -> str:
    """Return a name that may stand for a new model or client. Raises Invalid."""
    if NAME.fullmatch(name):
        return name
    raise Invalid(f"{_short(repr(name))} cannot name a {kind}: expected {_NAME_RULE}")


def query_fields(query: Mapping[str, str]) -> Fields:
    """Return the parameters of a query as fields."""
    return Fields(query, "query parameter")


def nothing(fields: Fields) -> None:
    """Refuse whatever is given."""
    fields.done()


def wait_of(fields: Fields) -> float:
    """Return for how many seconds a call waits; `wait` is its one parameter."""
    wait = fields.duration("wait")
    fields.done()
    return DEFAULT_WAIT if wait is None else wait


def tail_of(fields: Fields) -> tuple[int, bool]:
    """Return how many lines of a log are wanted, and whether it is to be followed."""
    tail = fields.count("tail", 0, MOST_LINES)
    follow = fields.switch("follow")
    fields.done()
    return DEFAULT_TAIL if tail is None else tail, follow


def follows_events(fields: Fields) -> bool:
    """Return whether events are to be followed; `follow` is the one parameter, and means yes."""
    follow = fields.switch("follow", absent=True)
    fields.done()
    return follow


def _model(fields: Fields) -> ModelBody:
    source = fields.text("source", LONGEST_PATH)
    runtime = fields.pattern("runtime", NAME, "the name of a runtime, as 'tensorflow'")
    inner = fields.inner("options")
    return ModelBody(source, runtime, None if inner is None else _options(inner))


def _options(fields: Fields) -> Options:
    options = Options(
        gpu_memory_fraction=fields.fraction("gpu_memory_fraction"),
        gpu_memory=fields.size("gpu_memory"),
        ram=fields.size("ram"),
        device=fields.pattern("device", _DEVICE, "'cpu' or 'gpu:N'"),
        pin=fields.optional_flag("pin"),
        ttl=fields.keep_alive("ttl"),
        threads=fields.count("threads", 1, MOST_THREADS),
        priority=fields.count("priority", -MOST_PRIORITY, MOST_PRIORITY),
        max_requests=fields.count("max_requests", 0, MOST_REQUESTS),
        recycle_above=fields.size("recycle_above", 0),
        warm_up_batch=fields.count("warm_up_batch", 1, MOST_ROWS),
        max_batch_size=fields.count("max_batch_size", 1, MOST_ROWS),
        max_delay=max_delay_of(fields),
        preferred_batch_sizes=preferred_batch_sizes_of(fields),
        max_concurrency=fields.count("max_concurrency", 0, MOST_AT_ONCE),
        max_queue=fields.count("max_queue", 0, MOST_WAITING),
        replicas=replicas_of(fields),
        retry=fields.optional_flag("retry"),
        prepare=fields.choice("prepare", get_args(Prepare)),
        keep=fields.choice("keep", get_args(Place)),
        labels=labels_of(fields),
        image=image_of(fields),
        classes=classes_of(fields),
    )
    fields.done()
    if options.gpu_memory_fraction is not None and options.gpu_memory is not None:
        raise Invalid("give 'options.gpu_memory_fraction' or 'options.gpu_memory', not both")
    return options


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."
