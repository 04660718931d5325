"""Many clients do everything at once: whatever comes of each call, nothing may be left over."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from modelsup.client import Busy, Conflict, LoadFailed, NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = {"instances": [[1.0]]}
MODELS = ["a", "b", "c"]
# What may be answered when others load, unload and crash the same models meanwhile.
EXPECTED = (Busy, Conflict, NotFound, Unavailable, LoadFailed)


def one_call(supervisor: Any, rng: random.Random, client_id: str) -> str:
    """Do something at random; return its name."""
    client, model = supervisor.client, rng.choice(MODELS)
    calls: dict[str, Callable[[], object]] = {
        "predict": lambda: client.predict_json(model, BODY),
        "own": lambda: client.session(client_id).predict_json(BODY),
        "load": lambda: client.load(model),
        "load-later": lambda: client.load(model, wait=0),
        "unload": lambda: client.unload(model),
        "force": lambda: client.unload(model, force=True),
        "swap": lambda: client.swap(client_id, model, private=rng.random() < 0.3),
        "release": lambda: client.release(client_id),
        "scale": lambda: client.scale(model, rng.randint(1, 3)),
        "crash": lambda: supervisor.command(model, "crash"),
        "look": lambda: (client.models(), client.workers(), client.clients(), client.memory()),
    }
    name = rng.choices(list(calls), [8, 8, 2, 1, 2, 1, 6, 2, 2, 1, 2])[0]
    try:
        calls[name]()
    except EXPECTED:
        return f"{name} refused"
    return name


def test_storm(
    shared_supervisor: Any, background: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    """Every call is answered, most with success; no error of the supervisor; nothing stays."""
    supervisor, client = shared_supervisor, shared_supervisor.client
    for model in MODELS:
        client.add_model(model, echo_model(model))

    def clients_life(number: int) -> list[str]:
        rng = random.Random(number)
        return [one_call(supervisor, rng, f"client-{number % 4}") for _ in range(25)]

    lives = [background(clients_life, number) for number in range(8)]
    outcomes = Counter(outcome for life in lives for outcome in life.result())
    assert outcomes["predict"] > outcomes["predict refused"], outcomes
    assert outcomes["swap"] > 0, outcomes

    for held in client.clients():
        client.release(held.id)
    for model in client.models():
        if model.state not in {"unloaded", "failed"}:
            client.unload(model.name)
    supervisor.until(lambda: client.workers() == [])
    assert "Traceback" not in supervisor.log()
    assert " ERROR " not in supervisor.log().replace("a model failed for good", "")
