"""Each error answer becomes the exception that says what a caller can do about it."""

from __future__ import annotations

import json

import pytest
from modelsup import client
from modelsup.client.errors import error_from


def _error(status: int, body: dict[str, object], **headers: str) -> client.ModelsupError:
    return error_from(status, headers, json.dumps(body).encode(), "GET http://h/p")


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "bad_request", client.InvalidRequest),
        (404, "unknown_model", client.UnknownModel),
        (404, "unknown_client", client.UnknownClient),
        (404, "unknown_worker", client.UnknownWorker),
        (404, "not_found", client.NotFound),
        (409, "held", client.Held),
        (409, "not_loaded", client.NotLoaded),
        (409, "source_conflict", client.Conflict),
        (413, "too_large", client.InvalidRequest),
        (415, "unsupported_media_type", client.InvalidRequest),
        (422, "invalid", client.InvalidRequest),
        (422, "load_failed", client.LoadFailed),
        (429, "busy", client.Busy),
        (503, "load_failed", client.LoadFailed),
        (503, "worker_died", client.Unavailable),
        (503, "a code of next year", client.Unavailable),
        (504, "hung", client.TimedOut),
        (507, "does_not_fit", client.DoesNotFit),
        (500, "internal", client.ModelsupError),
    ],
)
def test_code_and_status_choose_the_class(
    status: int, code: str, expected: type[client.ModelsupError]
) -> None:
    error = _error(status, {"detail": "why", "code": code})

    assert type(error) is expected
    assert (str(error), error.code, error.status) == ("why", code, status)


def test_what_does_not_fit_brings_its_plan() -> None:
    plan = {"model": "m", "fits": "no", "charges": {"host": 5}}
    error = _error(507, {"detail": "too big", "code": "does_not_fit", "plan": plan})

    assert type(error) is client.DoesNotFit
    assert error.plan == plan


def test_a_header_tells_the_code_that_a_v1_body_has_no_room_for() -> None:
    error = _error(422, {"error": "why"}, **{"X-Modelsup-Error": "load_failed"})

    assert type(error) is client.LoadFailed
    assert (str(error), error.code) == ("why", "load_failed")


def test_all_that_a_problem_says_is_kept() -> None:
    error = _error(
        422,
        {
            "detail": "no",
            "code": "load_failed",
            "model": "m",
            "client": "john",
            "worker": "w1",
            "retry_after": 2.5,
            "cause": "bad_model",
            "log": ["a", "b"],
            "clients": ["john"],
        },
    )

    assert (error.model, error.client, error.worker) == ("m", "john", "w1")
    assert (error.retry_after, error.cause) == (2.5, "bad_model")
    assert (error.log, error.clients) == (("a", "b"), ("john",))


def test_an_error_of_the_inference_protocols_is_one_sentence() -> None:
    error = _error(503, {"error": "loading"}, **{"Retry-After": "3"})

    assert isinstance(error, client.Unavailable)
    assert (error.detail, error.code, error.retry_after) == ("loading", "unavailable", 3.0)


def test_a_retry_after_that_is_a_date_is_no_number() -> None:
    error = _error(503, {"error": "x"}, **{"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"})

    assert error.retry_after is None


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b'{"message": "no such page"}'])
def test_another_servers_404_does_not_mean_that_a_model_is_unknown(body: bytes) -> None:
    error = error_from(404, {}, body, "GET http://h/p")

    assert type(error) is client.ModelsupError
    assert error.code == "bad_answer"
    assert "GET http://h/p" in error.detail
