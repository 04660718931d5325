"""The whole of modelsup in a minute: `python -m examples.demo`.

Trains small classifiers, serves them to two clients, swaps the model of one while the other
keeps asking, unloads everything, and checks that the memory is back. Needs no GPU.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from modelsup.client import Client, ModelsupError
from rich.console import Console
from rich.table import Table

from .digits import train_elsewhere
from .local_supervisor import StartError, end_on_sigterm, local_supervisor
from .steps import step
from .tree_memory import NOTHING, ProcessMemory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelsup.client import Receipt, Session

    from .local_supervisor import LocalSupervisor

    Processes = dict[int, ProcessMemory]
    Arrays = dict[str, np.ndarray[Any, Any]]

MB = 10**6  # bytes
ALLOWED_LEFT = 10 * MB  # what may be missing from the memory after everything is unloaded
ROWS = 32  # images in one of alice's requests
QUIET_SECONDS = 1.0

out = Console(highlight=False, width=None if sys.stdout.isatty() else 100)


def main() -> int:
    """Run the demo. Returns the exit code: 0 only if every check held."""
    end_on_sigterm()
    try:
        with tempfile.TemporaryDirectory(prefix="modelsup-demo-") as folder:
            with step("Train three small classifiers on handwritten digits"):
                held_out = train_elsewhere(Path(folder))
            with _started() as supervisor, Client(supervisor.url) as client:
                problems = _show(supervisor, client, Path(folder), held_out)
    except subprocess.CalledProcessError as error:
        problems = [f"The training failed: {error.stdout.strip()[-2000:]}"]
    except (StartError, ModelsupError) as error:
        problems = [f"The demo could not go on: {error}"]
    except KeyboardInterrupt:
        print("interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


@contextmanager
def _started() -> Iterator[LocalSupervisor]:
    with ExitStack() as stack:
        with step("Start modelsup and import TensorFlow once, in the forkserver"):
            # Preparing goes on after an unload, so its process would count as left behind.
            options = ("--preload", "tensorflow", "--prepare", "off")
            supervisor = stack.enter_context(local_supervisor(*options))
        yield supervisor


def _show(supervisor: LocalSupervisor, client: Client, folder: Path, held_out: Arrays) -> list[str]:
    """Walk through the demo; return what did not hold, as sentences."""
    memory = {"before the loads": supervisor.memory()}
    for name in ("dense", "conv"):
        with step(f"Load {name}"):
            loaded = client.load(name, folder / f"{name}.keras")
        out.print(f"{name} is ready in worker {loaded.worker}, {loaded.seconds['total']:.2f} s")
    alice, bob = client.session("alice"), client.session("bob")
    alice.swap("dense")
    bob.swap("conv")
    for session in (alice, bob):
        _print_accuracy(session, held_out)
    memory["two models loaded"] = supervisor.memory()
    problems = _swap_beside(alice, bob, folder, held_out)
    _print_accuracy(bob, held_out)
    memory["bob swapped to deep"] = supervisor.memory()
    with step("Release both clients and unload what is left"):
        _unload_all(client, (alice, bob))
    memory["all unloaded"] = supervisor.memory()
    _print_memory(memory)
    return problems + _memory_problems(memory["before the loads"], memory["all unloaded"])


def _print_accuracy(session: Session, held_out: Arrays) -> None:
    answers = np.asarray(session.predict(held_out["x"]))
    accuracy = float(np.mean(answers.argmax(axis=1) == held_out["y"]))
    count = len(held_out["y"])
    out.print(f"{session.id} asks {session.model}: {accuracy:.1%} of {count} digits right")


def _swap_beside(alice: Session, bob: Session, folder: Path, held_out: Arrays) -> list[str]:
    """Swap bob's model while alice keeps asking hers; report what alice saw."""
    with _Asking(alice, held_out) as asking:
        with step("Let alice ask in a quiet machine"):
            time.sleep(QUIET_SECONDS)
        begin = time.monotonic()
        with step("Swap bob's model while alice asks"):
            receipt = bob.swap("deep", folder / "deep.keras")
        end = time.monotonic()
    out.print(f"bob's swap from conv to deep took {end - begin:.2f} s")
    if receipt is not None:
        _print_receipt(receipt)
    for label, times in (
        ("before the swap", asking.latencies(0.0, begin)),
        ("during the swap", asking.latencies(begin, end)),
    ):
        median = f"p50 {statistics.median(times) * 1000:.1f} ms" if times else "no request ended"
        out.print(f"alice {label}: {len(times)} requests, {median}")
    out.print(f"alice's failed requests: {len(asking.failures)}")
    return [f"A request of alice failed: {failure}" for failure in asking.failures[:3]]


class _Asking:
    """Predicts in a thread for as long as the `with` block lasts."""

    def __init__(self, session: Session, held_out: Arrays) -> None:
        self.failures: list[str] = []
        self._session = session
        self._x = held_out["x"][:ROWS]
        self._expected = held_out[session.model][:ROWS]
        self._ended: list[tuple[float, float]] = []  # (moment of the answer, seconds it took)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def latencies(self, begin: float, end: float) -> list[float]:
        """Return the seconds of each request that was answered between the two moments."""
        return [seconds for moment, seconds in self._ended if begin <= moment < end]

    def _run(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                answer = np.asarray(self._session.predict(self._x))
            except ModelsupError as error:
                self.failures.append(str(error))
                continue
            self._ended.append((time.monotonic(), time.monotonic() - started))
            if not np.allclose(answer, self._expected, atol=1e-4):
                self.failures.append("the answer was not that of her model")


def _unload_all(client: Client, sessions: tuple[Session, ...]) -> None:
    for session in sessions:
        released = session.release()
        if released.receipt is not None:
            _print_receipt(released.receipt)
    for model in client.models():
        if model.workers:
            _print_receipt(client.unload(model.name))


def _print_receipt(receipt: Receipt) -> None:
    seen = "verified" if receipt.verified else "NOT verified"
    out.print(
        f"receipt for {receipt.model}: {receipt.outcome}, {receipt.freed.host_bytes / MB:.0f} MB "
        f"of host memory freed, {seen}, {receipt.seconds.total * 1000:.0f} ms"
    )


def _print_memory(memory: dict[str, Processes]) -> None:
    table = Table(title="Supervisor, forkserver and workers: proportional set size in MB")
    for heading in ("moment", "processes", "all", "anonymous", "against before"):
        table.add_column(heading, justify="left" if heading == "moment" else "right")
    before = _total(memory["before the loads"])
    for moment, processes in memory.items():
        held = _total(processes)
        table.add_row(
            moment,
            str(len(processes)),
            f"{held.pss / MB:.1f}",
            f"{held.anonymous / MB:.1f}",
            f"{(held.anonymous - before.anonymous) / MB:+.1f}",
        )
    out.print(table)
    out.print("What is not anonymous is TensorFlow's library in the page cache, which every other")
    out.print("program with TensorFlow shares; so the last column counts anonymous memory.")


def _total(processes: Processes) -> ProcessMemory:
    return sum(processes.values(), start=NOTHING)


def _memory_problems(before: Processes, after: Processes) -> list[str]:
    problems = []
    if extra := sorted(set(after) - set(before)):
        problems.append(f"Processes {extra} are still there after all models were unloaded.")
    left = _total(after).anonymous - _total(before).anonymous
    if left > ALLOWED_LEFT:
        allowed = f"at most {ALLOWED_LEFT / MB:.0f} MB may be left"
        problems.append(f"{left / MB:.1f} MB are left after all models were unloaded; {allowed}.")
    if not problems:
        out.print(f"All models are gone; memory against before the loads: {left / MB:+.1f} MB.")
    return problems


if __name__ == "__main__":
    sys.exit(main())
