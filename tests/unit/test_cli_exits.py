"""The exit codes that scripts rely on, for every error of the client library."""

from __future__ import annotations

import pytest
from modelsup import client
from modelsup.cli.exits import Exit, exit_of

EXPECTED = {
    client.ModelsupError: 1,
    client.Conflict: 1,
    client.Held: 1,
    client.NotLoaded: 1,
    client.Unavailable: 1,
    client.Busy: 1,
    client.NotPreparable: 1,
    client.PrepareFailed: 1,
    client.InvalidRequest: 2,
    client.Unreachable: 3,
    client.NotFound: 4,
    client.UnknownModel: 4,
    client.UnknownClient: 4,
    client.UnknownWorker: 4,
    client.DoesNotFit: 5,
    client.LoadFailed: 6,
    client.TimedOut: 7,
}


def test_the_table() -> None:
    assert {code.name: int(code) for code in Exit} == {
        "DONE": 0,
        "FAILED": 1,
        "USAGE": 2,
        "UNREACHABLE": 3,
        "NOT_FOUND": 4,
        "DOES_NOT_FIT": 5,
        "LOAD_FAILED": 6,
        "TIMED_OUT": 7,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize(("kind", "code"), EXPECTED.items())
def test_each_error_has_its_code(kind: type[client.ModelsupError], code: int) -> None:
    assert exit_of(kind("why", code="x")) == code


def test_no_error_is_forgotten() -> None:
    public = (getattr(client, name) for name in client.__all__)

    assert set(EXPECTED) == {
        kind for kind in public if isinstance(kind, type) and issubclass(kind, client.ModelsupError)
    }
