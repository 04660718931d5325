"""Bad input to a control call is refused with the field's name and what was expected."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.supervisor.domain import Options
from modelsup.supervisor.errors import Invalid
from modelsup.supervisor.http import request_bodies as bodies
from modelsup.supervisor.http.problem import BadRequest, UnsupportedMediaType

JSON = "application/json"


def _read(data: Any) -> bodies.Fields:
    return bodies.read_json(orjson.dumps(data), JSON)


def test_a_whole_load_body_is_read() -> None:
    options = {
        "gpu_memory_fraction": 0.3,
        "ram": "1.5GiB",
        "device": "gpu:0",
        "pin": True,
        "ttl": "10m",
        "threads": 2,
        "priority": -5,
        "max_requests": 1000,
        "recycle_above": "1GB",
        "warm_up_batch": 8,
        "max_batch_size": 16,
        "max_delay": "5ms",
        "preferred_batch_sizes": [4, 16],
        "max_concurrency": 4,
        "max_queue": 0,
        "replicas": 3,
        "retry": False,
        "prepare": "now",
        "keep": "ram",
        "labels": {"stable": "1"},
        "image": {"size": [224, 192], "mean": 0.5, "channels": "bgr", "top_k": 3},
        "classes": "/names.txt",
    }
    body = bodies.model_body(_read({"source": "/m", "runtime": "echo", "options": options}))
    assert body == bodies.ModelBody(
        "/m",
        "echo",
        Options(
            0.3,
            None,
            3 * 2**29,
            "gpu:0",
            pin=True,
            ttl=600.0,
            threads=2,
            priority=-5,
            max_requests=1000,
            recycle_above=10**9,
            warm_up_batch=8,
            max_batch_size=16,
            max_delay=0.005,
            preferred_batch_sizes=[4, 16],
            max_concurrency=4,
            max_queue=0,
            replicas=3,
            retry=False,
            prepare="now",
            keep="ram",
            labels={"stable": "1"},
            image={"size": [224, 192], "mean": [0.5], "channels": "bgr", "top_k": 3},
            classes="/names.txt",
        ),
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"labels": {"new": 2}}, "'options.labels': expected an object of labels"),
        ({"labels": {"a b": "2"}}, "'options.labels'"),
        ({"labels": ["new"]}, "'options.labels'"),
        ({"classes": "names.txt"}, "'options.classes': expected an absolute path"),
        ({"max_batch_size": 0}, "'options.max_batch_size': expected a whole number from 1"),
        ({"max_delay": "11s"}, "'options.max_delay': expected at most 10 s, got '11s'"),
        ({"preferred_batch_sizes": 4}, "'options.preferred_batch_sizes': expected a list of at"),
        ({"preferred_batch_sizes": [0]}, "'options.preferred_batch_sizes'"),
        ({"preferred_batch_sizes": [True]}, "'options.preferred_batch_sizes'"),
        ({"preferred_batch_sizes": [4.0]}, "'options.preferred_batch_sizes'"),
        ({"preferred_batch_sizes": [1] * 65}, "'options.preferred_batch_sizes'"),
        ({"image": {"size": [224]}}, "'options.image.size': expected a list of 2 whole numbers"),
        ({"image": {"size": [0, 5]}}, "'options.image.size'"),
        ({"image": {"size": [1.5, 5]}}, "'options.image.size'"),
        ({"image": {"mean": [1, 2]}}, "'options.image.mean': expected a list of 1 or 3 numbers"),
        ({"image": {"std": 0}}, "'options.image.std'"),
        ({"image": {"scale": True}}, "'options.image.scale': expected a number"),
        ({"image": {"layout": "HWC"}}, "'options.image.layout': expected 'NHWC' or 'NCHW'"),
        ({"image": {"top_k": 0}}, "'options.image.top_k'"),
        ({"image": {"sizes": [1, 2]}}, "did you mean 'size'"),
    ],
)
def test_options_that_cannot_be(option: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        bodies.model_body(_read({"options": option}))


def test_no_body_and_null_mean_what_was_before() -> None:
    nothing = bodies.ModelBody(None, None, None)
    assert bodies.model_body(bodies.read_json(b"", None)) == nothing
    assert bodies.model_body(_read({"source": None, "options": None})) == nothing
    assert bodies.model_body(_read({"options": {}})).options == Options()


@pytest.mark.parametrize(
    ("body", "name", "expected"),
    [
        ({"source": 3}, "'source'", "text"),
        ({"source": " "}, "'source'", "not empty"),
        ({"source": "a\0b"}, "'source'", "text"),
        ({"source": "a" * 5000}, "'source'", "4096"),
        ({"runtime": "../x"}, "'runtime'", "name of a runtime"),
        ({"options": []}, "'options'", "object"),
        ({"option": {}}, "'option'", "did you mean 'options'"),
        ({"zzz": 1}, "'zzz'", "known here: source, runtime, options"),
        ({"zzz": None}, "'zzz'", "known here"),
        ({"options": {"gpu_memory_fraction": 1.5}}, "'options.gpu_memory_fraction'", "at most 1"),
        ({"options": {"gpu_memory_fraction": True}}, "'options.gpu_memory_fraction'", "number"),
        ({"options": {"gpu_memory": "4 parsecs"}}, "'options.gpu_memory'", "4GB"),
        ({"options": {"gpu_memory": 0}}, "'options.gpu_memory'", "at least 1"),
        ({"options": {"ram": -1}}, "'options.ram'", "size"),
        ({"options": {"device": "tpu"}}, "'options.device'", "'cpu' or 'gpu:N'"),
        ({"options": {"pin": "yes"}}, "'options.pin'", "true or false"),
        ({"options": {"ttl": "soon"}}, "'options.ttl'", "30s"),
        ({"options": {"threads": 0}}, "'options.threads'", "1 to 1024"),
        ({"options": {"threads": 1.5}}, "'options.threads'", "whole number"),
        ({"options": {"threads": False}}, "'options.threads'", "whole number"),
        ({"options": {"max_requests": -1}}, "'options.max_requests'", "from 0 to"),
        ({"options": {"priority": 1001}}, "'options.priority'", "-1000 to 1000"),
        ({"options": {"priority": "high"}}, "'options.priority'", "whole number"),
        ({"options": {"pim": True}}, "'options.pim'", "did you mean 'pin'"),
        ({"options": {"gpu_memory": 1, "gpu_memory_fraction": 1}}, "gpu_memory", "not both"),
    ],
)
def test_a_bad_load_body_names_the_field(body: Any, name: str, expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        bodies.model_body(_read(body))
    assert name in str(caught.value)
    assert expected in str(caught.value)


def test_a_long_wrong_value_is_not_repeated_whole() -> None:
    with pytest.raises(Invalid) as caught:
        bodies.model_body(_read({"options": {"device": "x" * 10_000}}))
    assert len(str(caught.value)) < 200


def test_unload_and_swap_bodies() -> None:
    unload = bodies.unload_body(_read({"force": True, "timeout": "5s"}))
    assert unload == bodies.UnloadBody(force=True, timeout=5.0)
    swap = bodies.swap_body(_read({"model": "m", "private": True, "ttl": 60, "source": "/m"}))
    what = bodies.ModelBody("/m", None, None)
    assert swap == bodies.SwapBody("m", what, private=True, ttl=60.0)


@pytest.mark.parametrize("body", [{}, {"model": None}, {"model": "a/b"}, {"model": 7}])
def test_a_swap_needs_a_model(body: Any) -> None:
    with pytest.raises(Invalid, match="'model'"):
        bodies.swap_body(_read(body))


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_of_another_type_is_refused(content_type: str | None) -> None:
    with pytest.raises(UnsupportedMediaType, match="application/json"):
        bodies.read_json(b"{}", content_type)


def test_a_type_may_have_parameters() -> None:
    bodies.read_json(b"{}", "Application/JSON; charset=utf-8").done()


@pytest.mark.parametrize("body", [b"{", b"nan", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest, match="not JSON"):
        bodies.read_json(body, JSON)


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"x"'])
def test_json_that_is_no_object_is_invalid(body: bytes) -> None:
    with pytest.raises(Invalid, match="object"):
        bodies.read_json(body, JSON)


def test_queries() -> None:
    assert bodies.wait_of(bodies.query_fields({})) == 600.0
    assert bodies.wait_of(bodies.query_fields({"wait": "60s"})) == 60.0
    assert bodies.wait_of(bodies.query_fields({"wait": "0"})) == 0.0
    assert bodies.tail_of(bodies.query_fields({})) == (100, False)
    assert bodies.tail_of(bodies.query_fields({"tail": "5", "follow": "1"})) == (5, True)
    bodies.nothing(bodies.query_fields({}))


@pytest.mark.parametrize(
    "query", [{"wait": "soon"}, {"wait": "-1"}, {"wait": ""}, {"wiat": "1s"}, {"wait": "inf"}]
)
def test_a_bad_wait_is_named(query: dict[str, str]) -> None:
    with pytest.raises(Invalid, match=f"query parameter '{next(iter(query))}'"):
        bodies.wait_of(bodies.query_fields(query))


@pytest.mark.parametrize("query", [{"tail": "-1"}, {"tail": "x"}, {"follow": "maybe"}, {"a": "1"}])
def test_a_bad_log_query_is_named(query: dict[str, str]) -> None:
    with pytest.raises(Invalid, match=f"'{next(iter(query))}'"):
        bodies.tail_of(bodies.query_fields(query))


@pytest.mark.parametrize("name", ["", ".a", "a b", "a" * 129, "ä", "a\n"])
def test_a_bad_name_says_the_rule(name: str) -> None:
    with pytest.raises(Invalid, match="cannot name a client: expected 1 to 128"):
        bodies.checked_name("client", name)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_OPTION = st.sampled_from([*Options.__dataclass_fields__, "other"])


@given(st.dictionaries(_OPTION, _JSON, max_size=4))
def test_any_options_give_options_or_invalid(options: dict[str, Any]) -> None:
    with contextlib.suppress(Invalid):
        assert isinstance(
            bodies.model_body(bodies.Fields({"options": options})).options, Options | None
        )
