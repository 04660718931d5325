"""Server-sent events: lines to the data of the messages in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .errors import ModelsupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def server_sent(lines: Iterable[str]) -> Iterator[Any]:
    """Yield the parsed data of each message without a name; a named one is of another form.

    Raises ModelsupError where the data is not JSON.
    """
    name, data = "", ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data = value  # always one line: JSON
        elif not line:
            if data and not name:
                yield _parsed(data)
            name, data = "", ""


def _parsed(data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise ModelsupError(f"an event is not JSON: {data[:60]!r}", code="bad_answer") from error
