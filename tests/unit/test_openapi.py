"""/openapi.json: valid, whole, and made of what is there."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import pytest
from modelsup.supervisor import errors
from modelsup.supervisor.domain import NAME, Failure, Options
from modelsup.supervisor.http.probes import PROBES
from modelsup.supervisor.http.problem import STATUS, MethodNotAllowed, Problem, problem
from modelsup.supervisor.http.reader_schemas import Recorder, body_of, parameters_of
from modelsup.supervisor.http.request_bodies import Fields, model_body, swap_body, tail_of
from modelsup.supervisor.http.routes import PATHS, match, methods_of
from modelsup.supervisor.http.type_schemas import TypeSchemas
from openapi_spec_validator import validate

from tests.api import control, description

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = {"HEAD", "OPTIONS"}  # methods that each GET has, and each path


@pytest.fixture(scope="module")
def document() -> Any:
    return description()


def operations(document: Any) -> Iterator[Any]:
    for methods in document["paths"].values():
        yield from methods.values()


def test_it_is_valid(document: Any) -> None:
    validate(document)
    assert document["info"]["version"] == "1.2.3"


def test_it_has_every_route_and_no_other(document: Any) -> None:
    rules = control().wsgi.url_map.iter_rules()
    there = {
        (method, re.sub(r"<(\w+)>", r"{\1}", rule.rule))
        for rule in rules
        for method in (rule.methods or set()) - OWN
    }
    there |= {(m, path) for path, kind in PATHS.items() for m in set(methods_of(kind)) - OWN}
    there |= {(probe.method, probe.path) for probe in PROBES}
    told = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert told == there


def test_every_path_of_the_gateway_leads_where_it_says() -> None:
    for path, kind in PATHS.items():
        route = match(re.sub(r"{(\w+)}", r"a-\1", path).encode())
        assert route is not None
        assert route.kind == kind
        given = dataclasses.asdict(route)
        for variable in re.findall(r"{(\w+)}", path):
            assert given[variable] == f"a-{variable}"


def test_every_operation_has_a_name_of_its_own_a_summary_and_a_tag(document: Any) -> None:
    names = [operation["operationId"] for operation in operations(document)]
    assert len(set(names)) == len(names)
    for operation in operations(document):
        assert re.fullmatch(r"[A-Z].*\.", operation["summary"]), operation["operationId"]
        assert len(operation["tags"]) == 1


def test_errors_have_the_form_of_their_side(document: Any) -> None:
    for path, methods in document["paths"].items():
        ours = path.startswith("/api") or path == "/openapi.json"
        form = "application/problem+json" if ours else "application/json"
        for operation in methods.values():
            refused = {s: a for s, a in operation["responses"].items() if s in {"404", "409"}}
            assert all(list(answer["content"]) == [form] for answer in refused.values()), path


def test_a_failure_of_the_supervisor_itself_is_never_promised(document: Any) -> None:
    """500 is declared where a model may fail, and nowhere else."""
    failing = {o["operationId"] for o in operations(document) if "500" in o["responses"]}
    assert failing
    assert all(name.startswith(("v1_", "v2_infer")) for name in failing)


def test_a_load_takes_all_options(document: Any) -> None:
    load = document["paths"]["/api/models/{name}/load"]["post"]
    schema = load["requestBody"]["content"]["application/json"]["schema"]
    options = schema["properties"]["options"]["properties"]
    assert sorted(options) == sorted(field.name for field in dataclasses.fields(Options))
    assert {} not in options.values()
    assert [p["name"] for p in load["parameters"]] == ["name", "wait"]


def test_every_way_to_read_a_field_has_a_schema() -> None:
    ways = {
        name
        for name, method in inspect.getmembers(Fields, inspect.isfunction)
        if not name.startswith("_") and "name" in inspect.signature(method).parameters
    }
    made_of_others = {"flag"}
    assert ways - made_of_others <= vars(Recorder).keys()


def test_a_field_that_is_needed_may_not_be_null() -> None:
    schema = body_of(swap_body)
    assert schema["required"] == ["model"]
    assert schema["properties"]["model"]["type"] == "string"
    assert schema["properties"]["source"]["type"] == ["string", "null"]
    assert {"type": "null"} in schema["properties"]["ttl"]["anyOf"]


def test_what_a_reader_takes() -> None:
    assert parameters_of(tail_of) == {
        "tail": {"type": "integer", "minimum": 0, "maximum": 100_000},
        "follow": {"type": "string", "enum": ["0", "1", "false", "true"]},
    }
    assert list(body_of(model_body)["properties"]) == ["source", "runtime", "options"]


@pytest.mark.parametrize(("option", "good"), [("ram", "1.5GiB"), ("ram", "512 mb"), ("ttl", "-1m")])
def test_units_are_written_as_the_reader_takes_them(option: str, good: str) -> None:
    options = body_of(model_body)["properties"]["options"]["properties"]
    (pattern,) = [kind["pattern"] for kind in options[option]["anyOf"] if "pattern" in kind]
    model_body(Fields({"options": {option: good}}))
    assert re.search(pattern, good)
    assert not re.search(pattern, f"{good}x")


class Leaf(TypedDict):
    """A leaf."""

    size: int
    note: NotRequired[str | None]


def test_types() -> None:
    schemas = TypeSchemas()
    assert schemas.of(dict[str, list[float]]) == {
        "type": "object",
        "additionalProperties": {"type": "array", "items": {"type": "number"}},
    }
    assert schemas.of(Leaf | None) == {
        "anyOf": [{"$ref": "#/components/schemas/Leaf"}, {"type": "null"}]
    }
    assert schemas.components["Leaf"] == {
        "type": "object",
        "description": "A leaf.",
        "properties": {
            "size": {"type": "integer"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["size"],
    }


def test_a_type_without_a_schema_is_named() -> None:
    with pytest.raises(TypeError, match=r"re\.Pattern"):
        TypeSchemas().of(type(NAME))


def test_two_classes_of_one_name_are_refused() -> None:
    schemas = TypeSchemas()
    schemas.of(Leaf)
    with pytest.raises(TypeError, match="Leaf"):
        schemas.of(TypedDict("Leaf", {"other": int}))


def kinds(base: type[errors.SupervisorError]) -> set[type[errors.SupervisorError]]:
    return {base}.union(*(kinds(kind) for kind in base.__subclasses__()))


def example(kind: type[errors.SupervisorError]) -> errors.SupervisorError:
    own: dict[Any, dict[str, Any]] = {
        errors.Held: {"clients": ["ann"]},
        errors.LoadFailed: {"failure": Failure("bad_model", "it is bad", ("a line",))},
        errors.DoesNotFit: {"plan": {"fits": "no"}},
    }
    if kind is MethodNotAllowed:
        return MethodNotAllowed("no", allow=("GET",))
    return kind("no", **{"model": "m"} | own.get(kind, {}))


def test_a_problem_has_the_fields_that_its_type_says() -> None:
    shape = {name: str(hint) for name, hint in Problem.__annotations__.items()}
    needed = {name for name, hint in shape.items() if "NotRequired" not in hint}
    told: set[str] = set()
    for kind in kinds(errors.SupervisorError):
        if kind.code in STATUS and kind.__module__.startswith("modelsup.supervisor"):
            body = problem(example(kind))
            assert needed <= body.keys() <= shape.keys(), kind
            told |= body.keys()
    assert told == shape.keys() - {"client"}
    assert "client" in problem(errors.UnknownClient("no", client="ann"))
