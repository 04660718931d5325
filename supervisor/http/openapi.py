"""/openapi.json: the description of all that this port has, made from what routes declare."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from ..domain import NAME
from .operations import JSON_TYPE
from .problem import PROBLEM_TYPE, NotFound, statuses_of
from .reader_schemas import body_of, matching, parameters_of
from .type_schemas import TypeSchemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .operations import Header, Operation

Json = dict[str, Any]

OPENAPI: Final = "3.1.0"
ERROR_HEADER: Final = "X-Modelsup-Error"
_NAME: Final = matching(NAME)
_WAITS: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_RETRY_AFTER: Final = {
    "description": "seconds to wait before the next try",
    "schema": {"type": "integer", "minimum": 0},
}


_ERROR_CODE: Final = {
    "description": "the code of the error, unless the worker itself refused the request",
    "schema": {"type": "string"},
}


def describe(operations: Iterable[Operation], version: str) -> Json:
    """Return the OpenAPI document of a supervisor of this version."""
    types = TypeSchemas()
    paths: dict[str, Json] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(
            operation, types
        )
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "modelsup",
            "version": version,
            "description": "A supervisor that runs every loaded model in a process of its own.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": types.components},
    }


def _operation(operation: Operation, types: TypeSchemas) -> Json:
    described = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": _parameters(operation),
        "responses": _responses(operation, types),
    }
    body = _body(operation, types)
    return described | ({"requestBody": body} if body else {})


def _parameters(operation: Operation) -> list[Json]:
    names = re.findall(r"{(\w+)}", operation.path)
    query = parameters_of(operation.query) if operation.query else {}
    return [
        *(_parameter("path", name, _NAME) for name in names),
        *(_parameter("query", name, schema) for name, schema in query.items()),
        *(_header(header) for header in operation.headers),
    ]


def _parameter(place: str, name: str, schema: Json) -> Json:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _header(header: Header) -> Json:
    schema = matching(header.rule)
    return _parameter("header", header.name, schema) | {"description": header.meaning}


def _body(operation: Operation, types: TypeSchemas) -> Json | None:
    if operation.reads is not None:
        schema = body_of(operation.reads)
        return {"required": "required" in schema, "content": {JSON_TYPE: {"schema": schema}}}
    if operation.bodies:
        return {
            "required": operation.needs_body,
            "content": _content(operation.bodies, types),
        }
    return None


def _content(kinds: Mapping[str, Any], types: TypeSchemas) -> Json:
    return {media_type: {"schema": types.of(kind)} for media_type, kind in kinds.items()}


def _responses(operation: Operation, types: TypeSchemas) -> Json:
    """Return the responses by status; one status may stand for an answer and for an error."""
    kinds = {status: dict(told) for status, told in operation.answers.items()}
    codes = _error_codes(operation)
    for status in codes:
        told = kinds.setdefault(status, {})
        for media_type, error in operation.errors.items():
            told[media_type] = told[media_type] | error if media_type in told else error
    return {
        str(status): {
            "description": ": ".join([HTTPStatus(status).phrase, *codes.get(status, [])]),
            "headers": _headers(status, status in codes and PROBLEM_TYPE not in operation.errors),
            "content": _content(kinds[status], types),
        }
        for status in sorted(kinds)
    }


def _error_codes(operation: Operation) -> dict[int, list[str]]:
    """Return the statuses of the errors of an operation, with their codes as one text."""
    named = (NotFound,) if "{" in operation.path else ()  # some names cannot exist
    found: dict[int, set[str]] = {status: set() for status in operation.refused}
    for kind in (*operation.raises, *named):
        for status in statuses_of(kind):
            found.setdefault(status, set()).add(kind.code)
    return {status: [", ".join(sorted(codes))] if codes else [] for status, codes in found.items()}


def _headers(status: int, has_code: bool) -> Json:
    retry = {"Retry-After": _RETRY_AFTER} if status in _WAITS else {}
    return retry | ({ERROR_HEADER: _ERROR_CODE} if has_code else {})
