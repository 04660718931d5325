"""Where models are between requests: loaded, in RAM, or on the disk, as their options say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.client import Client
from modelsup.supervisor.adapters.host import process_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Supervisor

BODY = {"instances": [[1.0]]}
ANSWER = {"predictions": [[1.0]]}
SIZE = 2_000_000  # bytes; of a form
PREPARABLE: dict[str, Any] = {"on_prepare": [], "padding": "x" * SIZE}


@pytest.fixture
def start(start_supervisor: Callable[..., Any]) -> Callable[..., Any]:
    """Start a supervisor that prepares models after their first load."""
    return lambda *flags, **options: start_supervisor("--prepare", "auto", *flags, **options)


def place(supervisor: Supervisor, model: str = "m") -> str:
    return supervisor.client.model(model).residency


def kept(supervisor: Supervisor) -> int:
    size = supervisor.client.memory().host.kept_bytes
    assert size is not None
    return size


def locked(supervisor: Supervisor) -> int:
    """Return how much is locked; who is not root may lock little or nothing."""
    memory = process_memory(supervisor.pid)
    assert memory is not None
    return memory.locked


def prepared(supervisor: Supervisor, source: str, model: str = "m", **options: Any) -> None:
    supervisor.client.prepare(model, source, **options)


def test_a_model_kept_in_ram_is_unloaded_after_a_request_and_its_weights_stay(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    before = locked(supervisor)
    prepared(supervisor, echo_model(**PREPARABLE), keep="ram")
    supervisor.until(lambda: place(supervisor) == "ram")
    for _ in range(2):
        assert supervisor.client.predict_json("m", BODY) == ANSWER
        supervisor.until(lambda: supervisor.client.workers() == [])
    assert place(supervisor) == "ram"
    assert kept(supervisor) >= SIZE
    if os.geteuid() == 0:
        assert locked(supervisor) - before >= SIZE
    assert "weights kept in RAM: 2." in supervisor.run("top", "--once").stdout


def test_a_model_kept_on_the_disk_leaves_nothing_in_memory(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    prepared(supervisor, echo_model(**PREPARABLE), keep="disk")
    assert supervisor.client.predict_json("m", BODY) == ANSWER
    supervisor.until(lambda: supervisor.client.workers() == [])
    assert (place(supervisor), kept(supervisor)) == ("disk", 0)


def test_a_model_kept_loaded_stays_whatever_the_idle_time(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start("--idle-ttl", "10ms")
    supervisor.client.load("kept", echo_model(), keep="gpu")
    supervisor.client.load("other", echo_model())
    supervisor.until(lambda: place(supervisor, "other") == "disk")
    assert place(supervisor, "kept") == "gpu"


def test_a_ttl_keeps_a_model_loaded_that_rests_in_ram(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    prepared(supervisor, echo_model(**PREPARABLE), keep="ram", ttl="1h")
    assert supervisor.client.predict_json("m", BODY) == ANSWER
    assert place(supervisor) == "gpu"
    supervisor.client.unload("m")
    supervisor.until(lambda: place(supervisor) == "ram")


def test_by_use_the_last_used_stays_and_a_wish_comes_first(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start("--keep-ram", "3MB")  # for one
    for name in ("a", "b"):
        prepared(supervisor, echo_model(name, **PREPARABLE, other=name), name)
        supervisor.until(lambda name=name: place(supervisor, name) == "ram")
    assert place(supervisor, "a") == "disk"
    supervisor.client.add_model("a", keep="ram")
    supervisor.until(lambda: place(supervisor, "a") == "ram")
    assert place(supervisor, "b") == "disk"


def test_nothing_is_kept_where_none_may_be(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start("--keep-ram", "0")
    prepared(supervisor, echo_model(**PREPARABLE), keep="ram")
    assert supervisor.client.predict_json("m", BODY) == ANSWER
    supervisor.until(lambda: supervisor.client.workers() == [])
    assert (place(supervisor), kept(supervisor)) == ("disk", 0)


def test_weights_give_way_to_a_load(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    prepared(supervisor, echo_model(**PREPARABLE), keep="ram")
    supervisor.until(lambda: place(supervisor) == "ram")
    host = supervisor.client.memory().host
    assert host.budget_bytes is not None
    supervisor.client.load("large", echo_model("large"), ram=host.budget_bytes - SIZE // 2)
    supervisor.until(lambda: kept(supervisor) == 0)
    supervisor.client.unload("large")
    supervisor.until(lambda: place(supervisor) == "ram")


def test_a_form_that_is_removed_is_kept_no_longer(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    before = locked(supervisor)
    prepared(supervisor, echo_model(**PREPARABLE), keep="ram")
    supervisor.until(lambda: place(supervisor) == "ram")
    supervisor.client.clear_cache()
    supervisor.until(lambda: place(supervisor) == "disk" and locked(supervisor) == before)


def test_after_a_restart_what_is_to_be_kept_is_read_in_again(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    first = start()
    prepared(first, echo_model(**PREPARABLE), keep="ram")
    assert first.stop() == 0
    second = start()
    second.until(lambda: place(second) == "ram")


def test_the_command_line_says_and_shows_it(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    supervisor.run("load", "m", echo_model(), "--keep", "gpu")
    header, row = supervisor.run("models").stdout.splitlines()
    assert row[header.index("RESIDENCY") :].split()[0] == "gpu"
    with Client(supervisor.url) as client:
        assert client.model("m").options["keep"] == "gpu"
