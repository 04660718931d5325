"""Measure modelsup against two other ways to serve many models: `python -m benchmarks --help`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import platformdirs

from examples.local_supervisor import StartError, end_on_sigterm

from . import chaos, large, lifecycle, memory, predict, soak, steady, swap
from .processes import BenchmarkError
from .report import Report, publish
from .workload import MODELS, workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CACHE = Path(platformdirs.user_cache_dir("modelsup")) / "benchmark-models"


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what every benchmark takes."""
    for option in (
        click.option("--json", "target", type=click.Path(path_type=Path), help="Result file."),
        click.option("--quick", is_flag=True, help="Fewer rounds: shows that it runs."),
        click.option(
            "--models-dir",
            type=click.Path(file_okay=False, path_type=Path),
            default=CACHE,
            show_default=True,
            help="Where models are kept; what is missing is made.",
        ),
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Measure modelsup and two baselines in one run, on the same work.

    Without a command: all of them, one after the other.
    """
    end_on_sigterm()
    if context.invoked_subcommand is None:
        for command in (swap_command, memory_command, predict_command):
            context.invoke(command)


@main.command("swap")
@_options
@click.option("--models", default=",".join(MODELS), show_default=True, help="Comma-separated.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
def swap_command(
    target: Path | None, quick: bool, models_dir: Path, models: str, rounds: int
) -> None:
    """Seconds from the swap to the first right answer."""
    names = _known(models, MODELS)
    ready = workloads(swap.needed(names), models_dir)
    _measure(target, lambda folder: swap.run(names, ready, 1 if quick else rounds, folder))


@main.command("memory")
@_options
@click.option("--model", type=click.Choice(MODELS), default="resnet50", show_default=True)
@click.option("--cycles", type=click.IntRange(1), default=5, show_default=True)
def memory_command(
    target: Path | None, quick: bool, models_dir: Path, model: str, cycles: int
) -> None:
    """Megabytes left after models were loaded and unloaded."""
    ready = workloads([model], models_dir)[model]
    _measure(target, lambda folder: memory.run(ready, 1 if quick else cycles, folder))


@main.command("predict")
@_options
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1), default=2.0, show_default=True)
@click.option("--models", default="tiny,mobilenet", show_default=True, help="Comma-separated.")
def predict_command(
    target: Path | None, quick: bool, models_dir: Path, rounds: int, seconds: float, models: str
) -> None:
    """Predictions per second and latency, as JSON, binary tensors and JPEG."""
    ready = workloads(_known(models, [model for model, _ in predict.CASES]), models_dir)
    rounds, seconds = (1, 1.0) if quick else (rounds, seconds)
    _measure(target, lambda folder: predict.run(ready, rounds, seconds, folder))


@main.command("large")
@_options
@click.option("--calls", type=click.IntRange(1), default=20, show_default=True)
def large_command(target: Path | None, quick: bool, models_dir: Path, calls: int) -> None:
    """Milliseconds for a tensor of 8 MB, as JSON lists and in binary."""
    ready = workloads(["wide"], models_dir)["wide"]
    _measure(target, lambda _: large.run(ready, 3 if quick else calls))


@main.command("steady")
@_options
@click.option("--calls", type=click.IntRange(1), default=100, show_default=True)
@click.option("--models", default="mobilenet,resnet50", show_default=True, help="Comma-separated.")
def steady_command(
    target: Path | None, quick: bool, models_dir: Path, calls: int, models: str
) -> None:
    """Wall and CPU time of a call, of the prepared form and of the model as it was."""
    ready = workloads(_known(models, MODELS), models_dir)
    _measure(target, lambda folder: steady.run(ready, 10 if quick else calls, folder))


@main.command("soak")
@_options
@click.option("--echo-cycles", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--keras-cycles", type=click.IntRange(1), default=200, show_default=True)
def soak_command(
    target: Path | None, quick: bool, models_dir: Path, echo_cycles: int, keras_cycles: int
) -> None:
    """Growth of supervisor and forkservers over many loads and unloads."""
    model = workloads(["tiny"], models_dir)["tiny"].file
    echo_cycles, keras_cycles = (50, 10) if quick else (echo_cycles, keras_cycles)
    _measure(target, lambda _: soak.run(model, echo_cycles, keras_cycles))


@main.command("lifecycle")
@_options
@click.option("--rounds", type=click.IntRange(1), default=30, show_default=True)
def lifecycle_command(target: Path | None, quick: bool, models_dir: Path, rounds: int) -> None:
    """Milliseconds until a worker is gone, and how well a load time is predicted."""
    ready = workloads(["tiny", "mobilenet"], models_dir)
    _measure(target, lambda _: lifecycle.run(ready, 3 if quick else rounds))


@main.command("chaos")
@_options
@click.option("--clients", type=click.IntRange(1, 500), default=64, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.5), default=120.0, show_default=True)
@click.option("--kill-every", type=click.FloatRange(0.1), default=5.0, show_default=True)
def chaos_command(
    target: Path | None,
    quick: bool,
    models_dir: Path,
    clients: int,
    seconds: float,
    kill_every: float,
) -> None:
    """What clients see while models swap and workers are killed."""
    clients, seconds, kill_every = (16, 5.0, 1.0) if quick else (clients, seconds, kill_every)
    _measure(target, lambda folder: chaos.run(clients, seconds, kill_every, folder))


def _known(models: str, known: Sequence[str]) -> list[str]:
    """Return the names in a list. Raises BadParameter on one that is not among `known`."""
    names = models.split(",")
    if unknown := set(names) - set(known):
        raise click.BadParameter(f"no such model: {', '.join(sorted(unknown))}")
    return names


def _measure(target: Path | None, benchmark: Callable[[Path], Report]) -> None:
    try:
        with tempfile.TemporaryDirectory(prefix="modelsup-benchmark-") as folder:
            report = benchmark(Path(folder))
    except (BenchmarkError, StartError) as problem:
        raise click.ClickException(str(problem)) from problem
    publish(report, target)
    if report.failed:
        raise click.ClickException("something was seen that must not be; see the table")


if __name__ == "__main__":
    main()
