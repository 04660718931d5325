"""Parameters that several commands take: names with completion, durations, options of a load."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelsup.client import Client

F = TypeVar("F", bound="Callable[..., Any]")

_COMPLETION_TIMEOUT: Final = 1.0  # seconds; a shell that waits longer feels broken
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1, None: 1, "m": 60, "h": 3600, "d": 86400}


def duration(value: str) -> float:
    """Read a time such as 30, 30s, 10m or 1.5h as seconds. Raises BadParameter."""
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is not a duration; write 30s, 10m or 1h.")
    return float(found[1]) * _SECONDS[found[2]]


def idle_time(value: str) -> float:
    """Read a duration, or the same with a minus, which stands for "always". Raises BadParameter."""
    text = value.strip()
    return -duration(text[1:]) if text.startswith("-") else duration(text)


def whole_numbers(value: str) -> list[int]:
    """Read numbers such as 4,8; 0 alone is none. Raises BadParameter."""
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise click.BadParameter(f"{value!r} is not a list of whole numbers; write 4,8.")
    return [] if parts == ["0"] else [int(part) for part in parts]


def json_object(value: str) -> dict[str, Any]:
    """Read a JSON object. Raises BadParameter."""
    try:
        found = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise click.BadParameter(f"{value!r} is not a JSON object.")
    return found


def labels(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str] | None:
    """Read LABEL=VERSION, given any number of times. Raises BadParameter."""
    pairs = [value.partition("=") for value in values]
    for (label, _, version), value in zip(pairs, values, strict=True):
        if not label or not version:
            raise click.BadParameter(f"{value!r} is not LABEL=VERSION, such as stable=2.")
    return {label: version for label, _, version in pairs} or None


def complete_models(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the models that begin so; none where no supervisor answers."""
    return _completions(ctx, incomplete, lambda client: [model.name for model in client.models()])


def complete_clients(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the clients that begin so; none where no supervisor answers."""
    return _completions(ctx, incomplete, lambda client: [lease.id for lease in client.clients()])


def _completions(
    ctx: click.Context, incomplete: str, known: Callable[[Client], list[str]]
) -> list[CompletionItem]:
    from modelsup.client import Client, ModelsupError

    try:
        with Client(ctx.find_root().params["url"], timeout=_COMPLETION_TIMEOUT) as client:
            names = known(client)
    except ModelsupError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_forms(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the prepared models in the cache that begin so; none where no supervisor answers."""
    return _completions(ctx, incomplete, lambda client: [form.name for form in client.cache()])


model_argument = click.argument("name", shell_complete=complete_models)
client_argument = click.argument("client_id", metavar="CLIENT", shell_complete=complete_clients)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
wait_option = click.option(
    "--wait",
    type=duration,
    default="10m",
    show_default=True,
    help="Longest wait until the model is ready. Its load goes on after that.",
)

_LOAD_OPTIONS: Final = (
    click.option("--runtime", help="What loads the model: tensorflow, echo.", metavar="NAME"),
    click.option(
        "--gpu-memory-fraction",
        type=click.FloatRange(0, 1, min_open=True),
        help="Hard cap: this share of the GPU's memory.",
    ),
    click.option("--gpu-memory", metavar="SIZE", help="Hard cap: this much, such as 4GB."),
    click.option("--ram", metavar="SIZE", help="Hard cap on its own host memory, such as 2GB."),
    click.option("--device", metavar="DEVICE", help="gpu:0, gpu:1, ... or cpu."),
    click.option("--pin/--no-pin", default=None, help="Never evict it, or take that back."),
    click.option(
        "--ttl",
        type=idle_time,
        help="Unload it after so long without use; 0: after each request; -1: never.",
    ),
    click.option(
        "--threads", type=click.IntRange(1), help="Most threads that one operation may use."
    ),
    click.option(
        "--priority", type=int, help="Its rank in the queue for memory; higher goes first."
    ),
    click.option(
        "--max-requests",
        type=click.IntRange(0),
        metavar="N",
        help="Replace its worker once that has served so many requests; 0: never.",
    ),
    click.option(
        "--warm-up-batch",
        type=click.IntRange(1),
        metavar="ROWS",
        help="Call it with so many rows before it is ready: its first large batch is slow too.",
    ),
    click.option(
        "--max-batch-size",
        type=click.IntRange(1),
        metavar="ROWS",
        help="Most rows of one call. Fewer where more do not pay.",
    ),
    click.option(
        "--max-delay",
        type=duration,
        metavar="DURATION",
        help="How long a request waits for others to share its call, such as 5ms; 0: not at all.",
    ),
    click.option(
        "--preferred-batch-sizes",
        type=whole_numbers,
        metavar="ROWS,...",
        help="Rows of a call that need not wait for more, such as 4,8; 0: those that pay.",
    ),
    click.option(
        "--max-concurrency",
        type=click.IntRange(0),
        metavar="N",
        help="Most requests that its worker gets at once; 0: any number.",
    ),
    click.option(
        "--max-queue",
        type=click.IntRange(0),
        metavar="N",
        help="Most requests that wait for it; further ones are refused.",
    ),
    click.option(
        "--replicas",
        type=click.IntRange(1, 64),
        metavar="N",
        help="Workers that serve it side by side.",
    ),
    click.option(
        "--retry/--no-retry",
        default=None,
        help="Send a request once more whose worker died before it answered, or do not.",
    ),
    click.option(
        "--label",
        "labels",
        multiple=True,
        callback=labels,
        metavar="LABEL=VERSION",
        help="Give a version a label; may be given several times.",
    ),
    click.option(
        "--image",
        type=json_object,
        metavar="JSON",
        help='How a JPEG or PNG becomes its input, such as {"size": [224, 224]}.',
    ),
    click.option(
        "--classes",
        type=click.Path(),
        metavar="FILE",
        help="Names of its classes, one on each line.",
    ),
    click.option(
        "--keep",
        type=click.Choice(["gpu", "ram", "disk"]),
        help="Where it is between requests: loaded, its prepared weights in RAM, or in its files.",
    ),
    click.option(
        "--prepare",
        type=click.Choice(["auto", "now", "off"]),
        help="Make a form that loads faster: after the first load, at once, or never.",
    ),
    click.option(
        "--recycle-above",
        metavar="SIZE",
        help="Replace its worker once its own host memory has grown past this, such as 2GB.",
    ),
)
_OPTION_NAMES: Final = (
    "gpu_memory_fraction",
    "gpu_memory",
    "ram",
    "device",
    "pin",
    "ttl",
    "threads",
    "priority",
    "max_requests",
    "recycle_above",
    "warm_up_batch",
    "max_batch_size",
    "max_delay",
    "preferred_batch_sizes",
    "max_concurrency",
    "max_queue",
    "replicas",
    "retry",
    "prepare",
    "keep",
    "labels",
    "image",
    "classes",
)


def load_options(command: F) -> F:
    """Add the options of a load; the command gets them as `runtime` and as `options`."""

    @functools.wraps(command)
    def collected(*args: Any, **parameters: Any) -> Any:
        given = {name: parameters.pop(name) for name in _OPTION_NAMES}
        if given["gpu_memory"] is not None and given["gpu_memory_fraction"] is not None:
            raise click.UsageError("Give one of --gpu-memory-fraction and --gpu-memory, not both.")
        options = {name: value for name, value in given.items() if value is not None}
        return command(*args, **parameters, options=options)

    decorated: Any = collected
    for option in reversed(_LOAD_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # the decorators keep the function's type
