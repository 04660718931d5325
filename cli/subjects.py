"""A model that is measured: loaded under a temporary name, and gone without a trace at the end.

So nobody else's worker is touched.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modelsup.client import Client, Options

    Say = Callable[[str], None]

ATTEMPTS: Final = 3  # to remove the model: a load that was on its way may come in between
# What shapes the memory of a model; what only rules its life, such as a pin, stays out.
_KEPT = ("device", "threads", "gpu_memory", "gpu_memory_fraction")


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to measure. `name` is the temporary one, which begins the clients' ids too."""

    name: str
    source: str | None
    runtime: str | None
    options: Options
    wait: float  # seconds, for each load

    def client_id(self, number: int) -> str:
        """Return the id of the client that holds one of the instances."""
        return f"{self.name}-{number}"


def find_subject(
    client: Client, what: str, model: str, runtime: str | None, given: Options, wait: float
) -> Subject:
    """Return the model of that name in the catalogue, else the source at that path.

    Its temporary name begins with `what` and belongs to this process. Raises UnknownModel.
    """
    from modelsup.client import InvalidRequest, UnknownModel

    name = f"{what}-{os.getpid()}"
    try:
        known = client.model(model)
    except (UnknownModel, InvalidRequest):
        if client.local and not Path(model).exists():
            raise UnknownModel(
                f"{model} is neither a model that the supervisor knows nor a file or folder here; "
                "`modelsup models` lists those it knows",
                code="unknown_model",
                model=model,
            ) from None
        source = str(Path(model).absolute()) if Path(model).exists() else model
        return Subject(name, source, runtime, given, wait)
    kept = {key: known.options[key] for key in _KEPT if known.options.get(key) is not None}
    options: Options = {**kept, **given}  # type: ignore[typeddict-item]  # the names are in _KEPT
    return Subject(name, known.source, runtime or known.runtime, options, wait)


@contextmanager
def released(client: Client, subject: Subject, say: Say) -> Iterator[None]:
    """Unload and forget the subject at the end, after Ctrl-C too."""
    try:
        yield
    finally:
        say("releasing what was loaded")
        _forget(client, subject.name)


def _forget(client: Client, name: str) -> None:
    from modelsup.client import Conflict, UnknownModel

    with suppress(UnknownModel):  # it never came into the catalogue
        for left in reversed(range(ATTEMPTS)):
            unload(client, name)
            try:
                return client.remove_model(name)
            except Conflict:
                if not left:
                    raise
    return None


def unload(client: Client, name: str) -> None:
    """Unload a model if it is loaded, whoever asks it now."""
    from modelsup.client import NotLoaded

    with suppress(NotLoaded):
        client.unload(name, force=True)
