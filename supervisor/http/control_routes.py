"""How a call of the control API is added: its readers get the request, its return is the answer.

What is declared here is what happens, so /openapi.json, which is made of it, says the same.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flask import Flask, Response, request

from ..errors import Invalid, Stopping, TooLarge
from .answer_types import answers_of
from .control_answers import answer
from .operations import Accepted, Created, Operation, Text
from .problem import BadRequest, ForbiddenOrigin, UnsupportedMediaType
from .request_bodies import nothing, query_fields, read_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from .operations import Header, Raised, Reader

View = TypeVar("View", bound="Callable[..., Any]")

_ALWAYS: Final[Raised] = (BadRequest, Invalid, TooLarge, Stopping)
_CHANGE: Final[Raised] = (ForbiddenOrigin, UnsupportedMediaType)


class Routes:
    """Adds calls to a Flask application, and notes them in `operations`, under one tag."""

    def __init__(self, app: Flask, operations: list[Operation], tag: str) -> None:
        self._app = app
        self._operations = operations
        self._tag = tag

    def add(
        self,
        method: str,
        path: str,
        *,
        query: Reader | None = None,
        body: Reader | None = None,
        raises: Raised = (),
        headers: tuple[Header, ...] = (),
        streams: str | None = None,
    ) -> Callable[[View], View]:
        """Add a call: a function of the path's variables whose docstring says what it does.

        `query` and `body` read what comes; the function gets what they return by these names.
        Without a reader nothing may come. `raises` are the errors that are its own, `headers`
        those of a request that have a meaning. `streams` is the media type of a stream that the
        same path also has, elsewhere.
        """

        def added(view: View) -> View:
            handle = partial(_handle, view, method != "GET", query, body, headers)
            self._app.add_url_rule(path, view.__name__, handle, methods=[method])
            answers = answers_of(view)
            if streams is not None:
                answers[200][streams] = str
            operation = Operation(
                method=method,
                path=path.replace("<", "{").replace(">", "}"),
                name=view.__name__,
                summary=(view.__doc__ or "").partition("\n")[0],
                tag=self._tag,
                answers=answers,
                raises=(*_ALWAYS, *(_CHANGE if method != "GET" else ()), *raises),
                query=query,
                reads=body,
                headers=headers,
            )
            self._operations.append(operation)
            return view

        return added


def _handle(
    view: Callable[..., Any],
    takes_body: bool,
    query: Reader | None,
    body: Reader | None,
    headers: tuple[Header, ...],
    **variables: str,
) -> Response:
    read = {}
    for header in headers:
        header.checked(request.headers.get(header.name, ""))
    fields = query_fields(request.args)
    if query is not None:
        read["query"] = query(fields)
    else:
        nothing(fields)
    if takes_body:
        fields = read_json(request.get_data(), request.content_type)
        if body is not None:
            read["body"] = body(fields)
        else:
            nothing(fields)
    return _response(view(**variables, **read))


def _response(told: Any) -> Response:
    if isinstance(told, Text):
        return Response(told.body, content_type="text/plain; charset=utf-8")
    if isinstance(told, Created | Accepted):
        return answer(told.body, told.status)
    return answer(told)
