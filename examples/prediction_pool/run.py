"""100 users of one image classifier: a pool of predictors in the application, or modelsup.

    python -m examples.prediction_pool.run [--model small] [--predictors 4] [--html FILE] [--json]

Two small web applications answer the same question. One holds a pool of predictor processes,
each with a copy of the model. The other holds no model: its users share one worker of modelsup.
Users arrive in steps, and all processes of an application are weighed together.
"""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import platformdirs
import requests
from modelsup.client import Client, ModelsupError
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine, versions
from benchmarks.processes import BenchmarkError, Server
from benchmarks.workload import workloads

from ..digits import train_elsewhere
from ..local_supervisor import StartError, end_on_sigterm, local_supervisor
from ..steps import step
from .crowd import STEPS, Step, arrive, at_rest
from .plots import MB, NoPlotly, require_plotly, write_page
from .web import PIXEL_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Array = np.ndarray[Any, Any]

BAR = 1.15  # memory on modelsup with the most users, over that with one user
SAME = 1e-3  # relative: what folding constants may move a float32 probability
MODEL = "classifier"
CACHE = Path(platformdirs.user_cache_dir("modelsup")) / "benchmark-models"
ANSWER_SECONDS = 60
TABLE_WIDTH = 110  # columns where the output is not a terminal


@dataclass(frozen=True)
class Settings:
    """What the command line asks for.

    `predictors`: processes in the pool. `threads`: requests that either application works on at
    once. `seconds`: the length of a step.
    """

    model: str
    predictors: int
    threads: int
    seconds: float


@dataclass(frozen=True)
class Task:
    """The classifier, and the image that every user sends as a `.npy` file."""

    file: Path
    image: bytes


@dataclass(frozen=True)
class Running:
    """An application that serves: its address, and the roots of all that belongs to it."""

    url: str
    roots: Sequence[int]


@contextmanager
def pool_application(task: Task, settings: Settings, folder: Path) -> Iterator[Running]:
    """Run the application with a pool of predictors until the block ends."""
    numbers = (str(settings.predictors), str(settings.threads))
    with _application("pool_app", str(task.file), *numbers, folder=folder) as app:
        yield app


@contextmanager
def modelsup_application(task: Task, settings: Settings, folder: Path) -> Iterator[Running]:
    """Run a supervisor with the model, and the application in front, until the block ends."""
    # The pool's model is not prepared either, and preparing takes memory meanwhile.
    with local_supervisor("--preload", "tensorflow", "--prepare", "off") as supervisor:
        with Client(supervisor.url) as client:
            # On a CPU calls for more images bring no more answers, and take more memory.
            client.load(MODEL, task.file, max_batch_size=2)
        arguments = (supervisor.url, MODEL, str(settings.threads))
        with _application("modelsup_app", *arguments, folder=folder) as app:
            yield Running(app.url, [*app.roots, supervisor.pid])


@contextmanager
def _application(module: str, *arguments: str, folder: Path) -> Iterator[Running]:
    server = Server(f"{__package__}.{module}", *arguments, log=folder / f"{module}.log")
    try:
        yield Running(server.wait_for_url(), [server.pid])
    finally:
        server.stop()


def weigh(name: str, app: Running, image: bytes, seconds: float) -> tuple[list[Step], Any]:
    """Weigh the application at rest and at each step; return that, and its answer at last.

    Raises BenchmarkError or RequestException where it does not answer.
    """
    steps = [at_rest(name, app.roots)]
    for users in STEPS:
        with step(f"{name}: {users} users for {seconds:g} s"):
            steps.append(arrive(name, app.url, image, users, seconds, app.roots))
    answer = requests.post(f"{app.url}/classify", data=image, timeout=ANSWER_SECONDS)
    answer.raise_for_status()
    return steps, answer.json()


def growth(steps: Sequence[Step], name: str) -> float:
    """Return the memory with the most users over the memory with one.

    The page cache's share is that of one user in both. It moves with other programs that map the
    same files, and users do not add to it.
    """
    by_users = {step.users: step.memory for step in steps if step.application == name}
    one, most = by_users[STEPS[0]], by_users[STEPS[-1]]
    return (one.pss + most.anonymous - one.anonymous) / one.pss


def problems(steps: Sequence[Step], answers: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence for each thing that must not be."""
    found = [
        f"{row.application} gave {row.load.errors} errors to {row.users} users"
        for row in steps
        if row.load is not None and row.load.errors
    ]
    pool, ours = answers
    same = math.isclose(pool["probability"], ours["probability"], rel_tol=SAME)
    if pool["label"] != ours["label"] or not same:
        found.append(f"the same image got two answers: pool {pool}, modelsup {ours}")
    if (ratio := growth(steps, "modelsup")) > BAR:
        found.append(f"{_sentence(ratio)}; the bar of {BAR} is NOT held")
    return found


def _sentence(ratio: float) -> str:
    return f"{STEPS[-1]} users hold {ratio:.2f} times the memory of one user on modelsup"


def _task(model: str, folder: Path) -> Task:
    if model == "small":
        image = train_elsewhere(folder)["x"][0]
        return Task(folder / "conv.keras", _upload(image))
    work = workloads([model], CACHE)[model]
    return Task(work.file, _upload(work.batch[0]))


def _upload(image: Array) -> bytes:
    """Return an image of 0 to 1 as a `.npy` file of uint8."""
    file = io.BytesIO()
    np.save(file, np.rint(image * PIXEL_MAX).astype(np.uint8))
    return file.getvalue()


def _print(steps: Sequence[Step]) -> None:
    table = Table(title="One image classifier, more and more users")
    for column in ("application", "users", "memory MB", "of it anonymous"):
        table.add_column(column, justify="left" if column == "application" else "right")
    for column in ("p50 ms", "p99 ms", "requests/s", "errors"):
        table.add_column(column, justify="right")
    for row in steps:
        table.add_row(
            row.application,
            str(row.users) if row.users else "at rest",
            f"{row.memory.pss / MB:.0f}",
            f"{row.memory.anonymous / MB:.0f}",
            *_shown(row),
        )
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH, highlight=False)
    console.print(table)
    if (ratio := growth(steps, "modelsup")) <= BAR:
        console.print(f"{_sentence(ratio)}: the bar of {BAR} is held.")


def _shown(row: Step) -> list[str]:
    if row.load is None:
        return ["-"] * 4
    load = row.load
    return [
        f"{load.p50_ms:.1f}",
        f"{load.p99_ms:.1f}",
        f"{load.per_second:.1f}",
        str(load.errors),
    ]


def _as_json(steps: Sequence[Step], settings: Settings) -> str:
    data = {
        **asdict(settings),
        "machine": machine(),
        "versions": versions(),
        "bar": BAR,
        "growth": {name: growth(steps, name) for name in ("pool", "modelsup")},
        "steps": [asdict(row) for row in steps],
    }
    return json.dumps(data, indent=2)


def _run(settings: Settings) -> tuple[list[Step], list[dict[str, Any]]]:
    """Weigh one application, end it, and weigh the other."""
    with tempfile.TemporaryDirectory(prefix="modelsup-prediction-pool-") as name:
        folder = Path(name)
        with step(f"Make the model {settings.model}, if it is not there"):
            task = _task(settings.model, folder)
        with pool_application(task, settings, folder) as app:
            pool_steps, pool_answer = weigh("pool", app, task.image, settings.seconds)
        with modelsup_application(task, settings, folder) as app:
            our_steps, our_answer = weigh("modelsup", app, task.image, settings.seconds)
    return [*pool_steps, *our_steps], [pool_answer, our_answer]


@click.command()
@click.option(
    "--model", type=click.Choice(["mobilenet", "small"]), default="mobilenet", show_default=True
)
@click.option(
    "--predictors",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Processes in the pool, each with the model.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="Requests that each application works on at once.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.5, 600),
    default=4.0,
    show_default=True,
    help="Length of each step.",
)
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Draw the figures to a file."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(html: Path | None, as_json: bool, **options: Any) -> None:
    """Weigh 100 users of one image classifier, with predictors in the application and without."""
    end_on_sigterm()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # both applications compute on the CPU
    settings = Settings(**options)
    try:
        if html is not None:
            require_plotly()
        steps, answers = _run(settings)
        if as_json:
            print(_as_json(steps, settings))
        else:
            _print(steps)
        if html is not None:
            write_page(steps, html)
    except subprocess.CalledProcessError as error:
        raise click.ClickException(f"{error.cmd} failed: {(error.stdout or '')[-2000:]}") from error
    except (
        BenchmarkError,
        ModelsupError,
        NoPlotly,
        OSError,  # of --html, and of requests
        StartError,
        subprocess.TimeoutExpired,
    ) as error:
        raise click.ClickException(str(error)) from error
    if found := problems(steps, answers):
        raise click.ClickException("\n".join(found))


if __name__ == "__main__":
    main()
