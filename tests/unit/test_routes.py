"""What the prediction paths mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.supervisor.domain import NAME
from modelsup.supervisor.http.routes import MAX_REMEMBERED, Kind, Route, match


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/models/m:predict", Route(Kind.V1_PREDICT, "m")),
        ("/v1/models/m%3Apredict", Route(Kind.V1_PREDICT, "m")),
        ("/v1/models/m/versions/7:predict", Route(Kind.V1_PREDICT, "m", version="7")),
        ("/v1/models/m/labels/new:predict", Route(Kind.V1_PREDICT, "m", label="new")),
        ("/v1/models/m:classify", Route(Kind.V1_CLASSIFY, "m")),
        ("/v1/models/m:regress", Route(Kind.V1_REGRESS, "m")),
        ("/v1/models/m", Route(Kind.V1_STATUS, "m")),
        ("/v1/models/metadata", Route(Kind.V1_STATUS, "metadata")),
        ("/v1/models/m/versions/7", Route(Kind.V1_STATUS, "m", version="7")),
        ("/v1/models/m/versions/metadata", Route(Kind.V1_STATUS, "m", version="metadata")),
        ("/v1/models/m/metadata", Route(Kind.V1_METADATA, "m")),
        ("/v1/models/m/versions/7/metadata", Route(Kind.V1_METADATA, "m", version="7")),
        ("/v1/models/m/labels/new/metadata", Route(Kind.V1_METADATA, "m", label="new")),
        ("/v2", Route(Kind.V2_SERVER)),
        ("/v2/health/live", Route(Kind.V2_SERVER_LIVE)),
        ("/v2/health/ready", Route(Kind.V2_SERVER_READY)),
        ("/v2/models/m", Route(Kind.V2_METADATA, "m")),
        ("/v2/models/m/ready", Route(Kind.V2_READY, "m")),
        ("/v2/models/m/infer", Route(Kind.V2_INFER, "m")),
        ("/v2/models/%6D/infer", Route(Kind.V2_INFER, "m")),
        ("/v2/models/m/versions/7", Route(Kind.V2_METADATA, "m", version="7")),
        ("/v2/models/m/versions/7/ready", Route(Kind.V2_READY, "m", version="7")),
        ("/v2/models/m/versions/7/infer", Route(Kind.V2_INFER, "m", version="7")),
        ("/v2/repository/index", Route(Kind.V2_INDEX)),
        ("/v2/repository/models/m/load", Route(Kind.V2_LOAD, "m")),
        ("/v2/repository/models/m/unload", Route(Kind.V2_UNLOAD, "m")),
        ("/clients/john/predict", Route(Kind.V1_PREDICT, client="john")),
        ("/clients/john/infer", Route(Kind.V2_INFER, client="john")),
    ],
)
def test_paths(path: str, route: Route) -> None:
    assert match(path.encode()) == route
    assert match(path.encode()) == route  # also when it is remembered


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1",
        "/v1/models",
        "/v1/models/",
        "/v1/models/:predict",
        "/v1/models/m:",
        "/v1/models/m:explain",
        "/v1/models/m:predict:predict",
        "/v1/models/m/:predict",
        "/v1/models/m/versions",
        "/v1/models/m/versions/:predict",
        "/v1/models/m/versions/7/8",
        "/v1/models/m/else/7",
        "/v1/models/..%2F..%2Fetc:predict",
        "/v1/models/%2e%2e:predict",
        "/v1/models/m%00:predict",
        "/v1/models/m%0d%0a:predict",
        "/v1/models/%ff:predict",
        "/v1/models/" + "m" * 129 + ":predict",
        "/v2/",
        "/v2/models",
        "/v2/models//infer",
        "/v2/models/m/explain",
        "/v2/models/m/versions",
        "/v2/models/m/versions//infer",
        "/v2/models/m/ready/infer",
        "/v2/repository/models/m",
        "/v2/repository/models//load",
        "/v3/models/m/infer",
        "/clients/john",
        "/clients//predict",
        "/clients/john/explain",
        "/clients/jo hn/predict",
    ],
)
def test_paths_that_are_none(path: str) -> None:
    assert match(path.encode()) is None


@given(st.binary(max_size=80))
def test_any_path_is_understood_or_refused(tail: bytes) -> None:
    for root in (b"/v1/models/", b"/v2/models/", b"/clients/", b""):
        route = match(root + tail)
        if route is not None:
            named = (route.model, route.client, route.version, route.label)
            assert all(NAME.fullmatch(name) for name in named if name)


def test_what_is_remembered_is_bounded() -> None:
    for number in range(2 * MAX_REMEMBERED):
        route = match(b"/v1/models/m%d:predict" % number)
        assert route is not None
        assert route.model == f"m{number}"


def test_methods() -> None:
    assert Route(Kind.V1_PREDICT, "m").methods == ("POST",)
    assert Route(Kind.V1_STATUS, "m").methods == ("GET", "HEAD")
