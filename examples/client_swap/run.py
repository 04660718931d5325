"""Several clients swap their own models at will and none disturbs another.

    python -m examples.client_swap.run [--clients 4] [--rounds 5] [--runtime echo] [--json]

Each client is a thread: it asks its current model every few milliseconds, checks every answer,
and now and then swaps to another model. Afterwards each answer is counted as one that came while
another client was swapping, or as a quiet one, and the two are compared.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from modelsup.client import Client, ModelsupError
from rich.console import Console
from rich.table import Table

from ..digits import MODELS, train_elsewhere
from ..local_supervisor import StartError, end_on_sigterm, local_supervisor
from ..steps import step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelsup.client import Session

    Array = np.ndarray[Any, Any]

ASK_EVERY = 0.01  # seconds between the requests of a client
PAUSE = (1.0, 3.0)  # seconds between two swaps of a client, drawn from this range
ROWS = 8  # images in one request
BOUND = 2.0  # p50 beside swaps over quiet p50: what two cores that also load models can hold
TABLE_WIDTH = 110  # columns where the output is not a terminal


@dataclass(frozen=True)
class Served:
    """A model to swap to, one request for it and the right answer."""

    name: str
    source: Path | None
    x: Array  # (rows, ...)
    expected: Array


@dataclass
class Record:
    """What one client did and saw. Times are (begin, end) on the monotonic clock, seconds."""

    client: str
    answers: list[tuple[float, float]] = field(default_factory=list)
    swaps: list[tuple[float, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """One client's figures. A median is None where there was no such answer."""

    client: str
    swaps: int
    swap_median_seconds: float | None
    quiet_answers: int
    quiet_p50_ms: float | None
    answers_during_swaps: int
    during_p50_ms: float | None
    ratio: float | None  # during / quiet
    errors: list[str]


class _Swapper(threading.Thread):
    """One client: asks, and swaps `rounds` times."""

    def __init__(
        self,
        client: Client,
        number: int,
        models: Sequence[Served],
        runtime: str,
        rounds: int,
        stop: threading.Event,
    ) -> None:
        super().__init__(name=f"client-{number}")
        self.record = Record(self.name)
        self._session = client.session(self.name)
        self._models = models
        self._runtime = runtime
        self._rounds = rounds
        self._stop_asked = stop
        self._random = random.Random(number)
        self._at = number  # index of the current model, modulo their number

    def begin(self) -> None:
        """Take the first model."""
        self._take(self._session)

    def run(self) -> None:
        try:
            for _ in range(self._rounds):
                self._ask_until(time.monotonic() + self._random.uniform(*PAUSE))
                if self._stop_asked.is_set():
                    return
                started = time.monotonic()
                self._at += 1
                self._take(self._session)
                self.record.swaps.append((started, time.monotonic()))
            self._ask_until(time.monotonic() + PAUSE[0])
        except ModelsupError as error:
            self.record.errors.append(f"swap to {self._current.name}: {error}")

    def finish(self) -> None:
        """Give the model back."""
        self._session.release()

    @property
    def _current(self) -> Served:
        return self._models[self._at % len(self._models)]

    def _take(self, session: Session) -> None:
        session.swap(self._current.name, self._current.source, runtime=self._runtime)

    def _ask_until(self, end: float) -> None:
        while time.monotonic() < end and not self._stop_asked.wait(ASK_EVERY):
            started = time.monotonic()
            try:
                answer = np.asarray(self._session.predict(self._current.x))
            except ModelsupError as error:
                self.record.errors.append(f"{self._current.name}: {error}")
            else:
                self.record.answers.append((started, time.monotonic()))
                if not np.allclose(answer, self._current.expected, atol=1e-4):
                    self.record.errors.append(f"not the answer of {self._current.name}")


def outcomes_of(records: Sequence[Record]) -> tuple[list[Outcome], float | None]:
    """Compare each client's answers beside other clients' swaps with its quiet ones.

    Returns the clients' figures and the ratio of the two medians over all clients, None where
    there were no answers of one kind.
    """
    grouped = [_grouped(record, records) for record in records]
    found = [
        Outcome(
            client=record.client,
            swaps=len(record.swaps),
            swap_median_seconds=_median([end - begin for begin, end in record.swaps]),
            quiet_answers=len(quiet),
            quiet_p50_ms=_median(quiet),
            answers_during_swaps=len(during),
            during_p50_ms=_median(during),
            ratio=_ratio(during, quiet),
            errors=record.errors,
        )
        for record, (quiet, during) in zip(records, grouped, strict=True)
    ]
    all_quiet = [ms for quiet, _ in grouped for ms in quiet]
    all_during = [ms for _, during in grouped for ms in during]
    return found, _ratio(all_during, all_quiet)


def _grouped(record: Record, records: Sequence[Record]) -> tuple[list[float], list[float]]:
    """Return the latencies in ms of a client's quiet answers, and of those beside swaps."""
    others = [swap for other in records if other is not record for swap in other.swaps]
    quiet: list[float] = []
    during: list[float] = []
    for begin, end in record.answers:
        beside = any(begin < swap_end and swap_begin < end for swap_begin, swap_end in others)
        (during if beside else quiet).append((end - begin) * 1000)
    return quiet, during


def _ratio(during: Sequence[float], quiet: Sequence[float]) -> float | None:
    if not during or not quiet:
        return None
    return statistics.median(during) / statistics.median(quiet)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def swap_at_will(
    client: Client, models: Sequence[Served], runtime: str, clients: int, rounds: int
) -> list[Record]:
    """Run all clients to their end and return what each of them did and saw."""
    stop = threading.Event()
    threads = [
        _Swapper(client, number, models, runtime, rounds, stop) for number in range(1, clients + 1)
    ]
    for thread in threads:
        thread.begin()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stop.set()
    for thread in threads:
        thread.finish()
    return [thread.record for thread in threads]


def _digit_models(folder: Path) -> list[Served]:
    held_out = train_elsewhere(folder)
    x = held_out["x"][:ROWS]
    return [Served(name, folder / f"{name}.keras", x, held_out[name][:ROWS]) for name in MODELS]


def _echo_models() -> list[Served]:
    x = np.arange(ROWS, dtype=np.float32)[:, np.newaxis]
    return [Served(f"echo-{name}", None, x, x) for name in MODELS]


def _print(outcomes: Sequence[Outcome], ratio: float | None) -> None:
    table = Table(
        "client",
        "swaps",
        "median swap s",
        "quiet answers",
        "p50 ms",
        "while others swap",
        "p50 ms",
        "ratio",
        "errors",
        title="Each client against the swaps of the others",
    )
    for row in outcomes:
        table.add_row(
            row.client,
            str(row.swaps),
            _shown(row.swap_median_seconds),
            str(row.quiet_answers),
            _shown(row.quiet_p50_ms),
            str(row.answers_during_swaps),
            _shown(row.during_p50_ms),
            _shown(row.ratio),
            str(len(row.errors)),
        )
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH, highlight=False)
    console.print(table)
    if ratio is not None:
        held = "held" if ratio <= BOUND else "NOT held"
        console.print(f"Over all clients, p50 beside swaps is {ratio:.2f} times the quiet p50:")
        console.print(f"the bound of {BOUND} is {held}. Latency is reported, errors are refused.")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _problems(outcomes: Sequence[Outcome]) -> list[str]:
    return [
        f"{row.client} saw {len(row.errors)} errors, the first: {row.errors[0]}"
        for row in outcomes
        if row.errors
    ]


@click.command()
@click.option("--clients", type=click.IntRange(2, 32), default=4, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option(
    "--runtime", type=click.Choice(["tensorflow", "echo"]), default="tensorflow", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(clients: int, rounds: int, runtime: str, as_json: bool) -> None:
    """Let clients swap their models independently, and show that none disturbs another."""
    end_on_sigterm()
    try:
        with tempfile.TemporaryDirectory(prefix="modelsup-client-swap-") as folder:
            if runtime == "echo":
                models = _echo_models()
            else:
                with step("Train three small classifiers on handwritten digits"):
                    models = _digit_models(Path(folder))
            with (
                local_supervisor("--preload", runtime) as supervisor,
                Client(supervisor.url) as client,
                step(f"{clients} clients ask, and swap {rounds} times each"),
            ):
                records = swap_at_will(client, models, runtime, clients, rounds)
    except subprocess.CalledProcessError as error:
        raise click.ClickException(f"the training failed: {error.stdout[-2000:]}") from error
    except (StartError, ModelsupError) as error:
        raise click.ClickException(str(error)) from error
    outcomes, ratio = outcomes_of(records)
    if as_json:
        data = {"bound": BOUND, "ratio": ratio, "clients": [asdict(row) for row in outcomes]}
        print(json.dumps(data, indent=2))
    else:
        _print(outcomes, ratio)
    if problems := _problems(outcomes):
        raise click.ClickException("\n".join(problems))


if __name__ == "__main__":
    main()
