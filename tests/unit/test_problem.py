"""The table of statuses is whole, and a problem tells what a client may know and no more."""

from __future__ import annotations

import pytest
from modelsup.supervisor import errors
from modelsup.supervisor.domain import Failure
from modelsup.supervisor.http import problem as http
from modelsup.supervisor.http.problem import problem, problem_headers, retry_after_of, status_of


def _all_kinds() -> list[type[errors.SupervisorError]]:
    kinds, rest = [], [errors.SupervisorError]
    while rest:
        kinds.append(rest.pop())
        rest.extend(kinds[-1].__subclasses__())
    return kinds


def _load_failed(cause: str) -> errors.LoadFailed:
    failure = Failure(cause=cause, message="no such op", log=("line 1", "line 2"))
    return errors.LoadFailed("m: no such op", model="m", failure=failure)


@pytest.mark.parametrize("kind", _all_kinds(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_status(kind: type[errors.SupervisorError]) -> None:
    assert http.STATUS[kind.code] >= 400


def test_a_problem_names_what_it_is_about() -> None:
    error = errors.UnknownModel("no model 'm'; add it with PUT /api/models/m", model="m")
    assert problem(error) == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "no model 'm'; add it with PUT /api/models/m",
        "code": "unknown_model",
        "model": "m",
    }


def test_a_held_model_names_its_clients() -> None:
    body = problem(errors.Held("m is held by 2 clients", model="m", clients=["john", "ann"]))
    assert (body["status"], body["clients"]) == (409, ["john", "ann"])


def test_what_does_not_fit_carries_its_plan() -> None:
    plan = {"model": "m", "fits": "no", "charges": {"host": 5}}
    body = problem(errors.DoesNotFit("m does not fit", model="m", plan=plan))
    assert (body["status"], body["code"], body["plan"]) == (507, "does_not_fit", plan)


@pytest.mark.parametrize(
    ("cause", "status"),
    [("bad_model", 422), ("load_error", 422), ("host_oom", 503), ("timeout", 503)],
)
def test_a_failed_load_is_the_models_fault_or_not(cause: str, status: int) -> None:
    error = _load_failed(cause)
    body = problem(error)
    assert (status_of(error), body["status"]) == (status, status)
    assert (body["cause"], body["log"]) == (cause, ["line 1", "line 2"])
    assert ("Retry-After" in problem_headers(error)) == (status == 503)


def test_retry_after_is_rounded_up_to_whole_seconds_in_the_header() -> None:
    error = errors.Restarting("m restarts", model="m")
    error.retry_after = 0.3
    assert problem(error)["retry_after"] == 0.3
    assert problem_headers(error)["Retry-After"] == "1"


@pytest.mark.parametrize("kind", [errors.Stopping, errors.WorkerDied, http.Busy])
def test_what_may_be_tried_again_says_when(kind: type[errors.SupervisorError]) -> None:
    after = retry_after_of(kind("wait"))
    assert after is not None
    assert after > 0


def test_an_unexpected_error_tells_nothing_of_itself() -> None:
    body = problem(KeyError("secret-path"))
    assert (body["status"], body["code"]) == (500, "internal")
    assert "secret-path" not in str(body)


def test_a_wrong_method_lists_the_right_ones() -> None:
    error = http.MethodNotAllowed("GET does not load", allow=("POST", "OPTIONS"))
    assert status_of(error) == 405
    assert problem_headers(error)["Allow"] == "POST, OPTIONS"
