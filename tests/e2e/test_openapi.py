"""A real supervisor does what /openapi.json says, whatever it is sent: schemathesis tries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from tests.api import description

if TYPE_CHECKING:
    from schemathesis import Case

    from tests.conftest import Supervisor

CHECKS: Final = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
JSON: Final = "application/json"
EXAMPLES: Final = 30
SECONDS: Final = 30.0  # for one answer
DESCRIPTION: Final = description()
LEFT_OUT: Final = {"stop"}  # it ends the supervisor
TENSOR: Final = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
GOOD: Final = {  # bodies that nobody would find by chance, by the end of the path
    "predict": {"instances": [[1.0, 2.0], [3.0, 4.0]]},
    "infer": {"id": "a", "inputs": [TENSOR]},
}
NAMES: Final = [
    operation["operationId"]
    for methods in DESCRIPTION["paths"].values()
    for operation in methods.values()
    if operation["operationId"] not in LEFT_OUT
]


OPERATIONS: Final = {
    result.ok().definition.raw["operationId"]: result.ok()
    for result in schemathesis.openapi.from_dict(DESCRIPTION).get_all_operations()
}


@pytest.fixture
def there(shared_supervisor: Supervisor) -> list[dict[str, str]]:
    """Load two models, of which a client holds one; return what paths may name, for each."""
    client = shared_supervisor.client
    loaded = [client.load(name, runtime="echo", labels={"new": "1"}) for name in ("hello", "held")]
    client.swap("john", "held")
    fixed = {"client": "john", "version": "1", "label": "new"}
    return [{**fixed, "name": x.model, "model": x.model, "uid": x.worker} for x in loaded]


def requests_for(operation: Any, there: list[dict[str, str]]) -> st.SearchStrategy[Case]:
    """Return requests as they should be and as they should not, for what is there and is not."""
    any_case = st.one_of(operation.as_strategy(generation_mode=mode) for mode in GenerationMode)
    good = [
        operation.as_strategy(body=body, media_type=JSON)
        for verb, body in GOOD.items()
        if operation.path.endswith(verb)
    ]
    aimed = [st.builds(aim, case, st.sampled_from(there)) for case in (any_case, *good)]
    return st.one_of(any_case, *aimed).map(without_end)


def aim(case: Case, there: dict[str, str]) -> Case:
    """Ask for what is there."""
    case.path_parameters.update({name: there[name] for name in case.path_parameters})
    if isinstance(case.body, dict) and "model" in case.body:
        case.body["model"] = there["model"]
    return case


def without_end(case: Case) -> Case:
    """Ask for what is there, in place of a stream that goes on."""
    if case.path == "/api/events" and case.query.get("follow") in (None, "1", "true"):
        case.query["follow"] = "0"
    if case.path.endswith("/logs") and case.query.get("follow") in ("1", "true"):
        case.query["follow"] = "0"
    return case


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_what_is_described(
    name: str, shared_supervisor: Supervisor, there: list[dict[str, str]]
) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(requests_for(OPERATIONS[name], there))
    def answers_conform(case: Case) -> None:
        case.call_and_validate(base_url=shared_supervisor.url, checks=CHECKS, timeout=SECONDS)

    answers_conform()
