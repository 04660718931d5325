"""Which headers pass between a client and a worker, and how a request's head is written.

Headers of one hop end here. So do the client's credentials: model code has no use for them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from modelsup.worker.contract import SECRET_HEADER

from ..errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    Headers = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
NOT_TO_WORKER: Final = HOP_BY_HOP | {
    SECRET_HEADER.encode(),
    b"authorization",
    b"content-length",  # written anew
    b"cookie",
    b"expect",  # the client's server has answered it
    b"host",
}
NOT_TO_CLIENT: Final = HOP_BY_HOP | {b"date", b"server"}  # the client's server writes its own
USUAL_CONNECTION: Final = frozenset({b"keep-alive", b"close", b"Keep-Alive", b"Close"})

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_KNOWN_NAMES: Final = 1024  # a client that invents names must not make the tables grow


class NameTable(dict[bytes, bytes]):
    """Lower-case form of each header name seen, b"" for one that does not pass.

    A lookup is one step on the hot path; only the first use of a name is examined.
    """

    def __init__(self, dropped: frozenset[bytes], suffix: bytes = b"") -> None:
        super().__init__()
        self._dropped = dropped
        self._suffix = suffix  # what is put behind each name

    def __missing__(self, name: bytes) -> bytes:
        lower = name.lower()
        if lower in self._dropped or lower.startswith(b"proxy-"):
            form = b""
        elif _TOKEN.fullmatch(lower):
            form = lower + self._suffix
        else:
            raise Invalid(f"{name!r} is no header name; use letters, digits and hyphens")
        if len(self) >= _KNOWN_NAMES:
            self.clear()
        self[name] = form
        return form


_to_worker = NameTable(NOT_TO_WORKER, b": ")


def request_head(start: bytes, headers: Headers, length: int | None) -> bytes:
    """Return the head of a request to a worker.

    `start` is the request line and the headers of this side. `length` is that of the body in
    bytes, None for one sent in chunks. Raises Invalid for a header that would break the head.
    """
    parts = [start]
    named: frozenset[bytes] = frozenset()
    for name, value in headers:
        field = _to_worker[name]
        if field:
            parts += (field, value, b"\r\n")
        elif value not in USUAL_CONNECTION and name.lower() == b"connection":
            named |= connection_tokens(value)
    if named:
        rest = [header for header in headers if header[0].lower() not in named | HOP_BY_HOP]
        return request_head(start, rest, length)
    if length is None:
        parts.append(b"transfer-encoding: chunked\r\n\r\n")
    else:
        parts.append(b"content-length: %d\r\n\r\n" % length)
    head = b"".join(parts)
    lines = start.count(b"\r\n") + len(parts) // 3 + 2
    if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
        raise Invalid("a header's value has a line break or a zero byte in it; take it out")
    return head


def declared_length(headers: Headers) -> int | None:
    """Return the length that a request's headers promise, None for a body sent in chunks."""
    found = None
    for name, value in headers:
        lower = name.lower()
        if lower == b"transfer-encoding":
            return None
        if lower == b"content-length":
            if not value.isdigit():
                raise Invalid(f"the content-length {value!r} is no number of bytes")
            found = int(value)
    return found


def connection_tokens(value: bytes) -> frozenset[bytes]:
    """Return the header names that a Connection header lists, in lower case."""
    return frozenset(token.strip().lower() for token in value.split(b","))
