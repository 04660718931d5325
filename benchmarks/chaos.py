"""Many clients, more models than fit, swaps, and workers that are killed: what do the clients see?

Each request carries a number, and goes to a model whose input has the model's name, so that an
answer shows which request and which model it belongs to.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import psutil
import requests
from modelsup.client import Client, ModelsupError

from examples.local_supervisor import local_supervisor

from .report import Report, progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODELS = 6
FIT = 3
SWAPPERS = FIT - 1  # clients that hold a model: of more, all that fit could be held at once
SWAPS = 0.1  # of what these do; the rest are requests
KILL_SECONDS = 5.0
ANSWER_SECONDS = 120.0  # the most that a client waits; longer than the supervisor may take
PAUSE_SECONDS = 1.0  # the most between a refusal and the next try
RETRYABLE = (429, 503)


@dataclass
class Seen:
    """What one client saw. Times in seconds."""

    answers: list[float] = field(default_factory=list)
    swaps: list[float] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)  # refusals that say when to come again
    problems: list[str] = field(default_factory=list)


def run(clients: int, seconds: float, kill_seconds: float, folder: Path) -> Report:
    """Let so many clients ask for so long, while a worker is killed every `kill_seconds`."""
    options = ("--preload", "echo", "--prepare", "off", "--minimum-residence", "1s")
    with local_supervisor(*options) as supervisor, Client(supervisor.url) as client:
        _add_models(client, folder)
        progress(f"chaos: {clients} clients for {seconds:g} s")
        over = threading.Event()
        seen = [Seen() for _ in range(clients)]
        events: Counter[str] = Counter()
        kills: list[int] = []
        threads = [
            threading.Thread(target=_client, args=(supervisor.url, number, each, over))
            for number, each in enumerate(seen)
        ]
        threads.append(threading.Thread(target=_killer, args=(client, kill_seconds, over, kills)))
        watcher = threading.Thread(target=_watch, args=(supervisor.url, events), daemon=True)
        for thread in (watcher, *threads):
            thread.start()
        over.wait(seconds)
        over.set()
        for thread in threads:
            thread.join()
    return _report(seen, events, len(kills), seconds, kill_seconds)


def _add_models(client: Client, folder: Path) -> None:
    """Add models of which `FIT` fit: by their limits, not by what they take."""
    budget = client.memory().host.budget_bytes or 0
    for name in _names():
        file = folder / f"{name}.echo"
        file.write_text(json.dumps({"inputs": {name: {"dtype": "float64", "shape": [None, 1]}}}))
        client.add_model(name, file, ram=int(budget / (FIT + 0.5)))


def _names() -> list[str]:
    return [f"model-{number}" for number in range(MODELS)]


def _client(url: str, number: int, seen: Seen, over: threading.Event) -> None:
    choose = random.Random(number)
    with requests.Session() as session:
        mine = None  # the model of the last swap
        for count in range(1, 10**9):
            if over.is_set():
                return
            value = float(number * 10**6 + count)
            if number < SWAPPERS and choose.random() < SWAPS:
                wanted = choose.choice(_names())
                if _swap(session, url, number, wanted, seen, over):
                    mine = wanted
            elif mine is not None:
                _ask(session, f"{url}/clients/client-{number}/infer", mine, value, seen, over)
            else:
                model = choose.choice(_names())
                _ask(session, f"{url}/v2/models/{model}/infer", model, value, seen, over)


def _swap(
    session: requests.Session, url: str, number: int, model: str, seen: Seen, over: threading.Event
) -> bool:
    started = time.perf_counter()
    body = {"model": model}
    try:
        answer = session.put(
            f"{url}/api/clients/client-{number}/model", json=body, timeout=ANSWER_SECONDS
        )
    except requests.RequestException as error:
        seen.problems.append(f"swap: {error!r}")
        return False
    if answer.status_code == 200:
        seen.swaps.append(time.perf_counter() - started)
        return True
    _note(answer, "swap", seen, over)
    return False


def _ask(
    session: requests.Session,
    address: str,
    model: str,
    value: float,
    seen: Seen,
    over: threading.Event,
) -> None:
    tensor = {"name": model, "datatype": "FP64", "shape": [1, 1], "data": [value]}
    started = time.perf_counter()
    try:
        answer = session.post(address, json={"inputs": [tensor]}, timeout=ANSWER_SECONDS)
    except requests.RequestException as error:
        seen.problems.append(f"request: {error!r}")
        return
    if answer.status_code != 200:
        _note(answer, "request", seen, over)
        return
    seen.answers.append(time.perf_counter() - started)
    told = answer.json()
    outputs = [(output["name"], output["data"]) for output in told["outputs"]]
    if (told["model_name"], outputs) != (model, [(model, [value])]):
        seen.problems.append(f"wrong answer to {value} of {model}: {told}")


def _note(answer: requests.Response, what: str, seen: Seen, over: threading.Event) -> None:
    """Note a refusal, and wait as it says; one that does not say so is a problem."""
    code = answer.headers.get("X-Modelsup-Error", "")
    if answer.status_code in RETRYABLE and "Retry-After" in answer.headers:
        seen.told[f"{answer.status_code} {code}"] += 1
        over.wait(min(PAUSE_SECONDS, float(answer.headers["Retry-After"])))
    else:
        seen.problems.append(f"{what}: {answer.status_code} {answer.text[:300]}")


def _killer(client: Client, seconds: float, over: threading.Event, kills: list[int]) -> None:
    choose = random.Random(0)
    while not over.wait(seconds):
        with suppress(ModelsupError, psutil.NoSuchProcess, IndexError):
            ready = [w.pid for w in client.workers() if w.state == "ready" and w.pid]
            pid = choose.choice(ready)
            psutil.Process(pid).send_signal(signal.SIGKILL)
            kills.append(pid)


def _watch(url: str, events: Counter[str]) -> None:
    """Count what the supervisor tells of, until it ends."""
    with suppress(ModelsupError), Client(url) as client:
        for event in client.events(follow=True):
            events[f"{event.kind}: {event.message}"] += 1


def _report(
    seen: list[Seen], events: Counter[str], kills: int, seconds: float, kill_seconds: float
) -> Report:
    answers = [taken for each in seen for taken in each.answers]
    swaps = [taken for each in seen for taken in each.swaps]
    told = sum((each.told for each in seen), Counter[str]())
    problems = [problem for each in seen for problem in each.problems]
    rows = list(_rows(answers, swaps, told, problems))
    lived = {name: count for name, count in events.items() if not name.startswith("lease")}
    return Report(
        benchmark="chaos",
        title=f"{len(seen)} clients, {MODELS} models of which {FIT} fit, {seconds:g} s",
        columns=("what", "count", "p50 ms", "p99 ms", "most ms"),
        lines=rows,
        notes=[
            f"a worker was killed every {kill_seconds:g} s: {kills} in all",
            *(f"{count} x {name}" for name, count in sorted(lived.items())),
            *problems[:10],
        ],
        data={
            "clients": len(seen),
            "seconds": seconds,
            "kills": kills,
            "answers": len(answers),
            "swaps": len(swaps),
            "told": dict(told),
            "problems": problems,
            "events": dict(events),
        },
        failed=bool(problems),
    )


def _rows(
    answers: list[float], swaps: list[float], told: Counter[str], problems: list[str]
) -> Iterator[list[str]]:
    for name, samples in (("right answers", answers), ("swaps", swaps)):
        marks = np.quantile(samples, (0.5, 0.99, 1)) if samples else ()
        yield [name, str(len(samples)), *(f"{1000 * mark:.0f}" for mark in marks)]
    for code, count in sorted(told.items()):
        yield [f"refused, to be retried: {code}", str(count)]
    yield ["wrong or untold", str(len(problems))]
