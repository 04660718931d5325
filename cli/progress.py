"""A spinner on stderr while a model loads or is prepared, with what the supervisor says of it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from .output import is_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from modelsup.client import ModelInfo
    from rich.status import Status

    from .context import Context

    _State = Callable[[ModelInfo], str]

_POLL_SECONDS: Final = 0.5


def loading(context: Context, model: str) -> AbstractContextManager[None]:
    """Show that `model` is being loaded, where a person is looking."""
    return _spinning(context, model, lambda found: found.state)


def preparing(context: Context, model: str) -> AbstractContextManager[None]:
    """Show that `model` is being prepared, where a person is looking."""
    return _spinning(context, model, lambda found: found.prepared.state)


@contextmanager
def _spinning(context: Context, model: str, state: _State) -> Iterator[None]:
    if not is_terminal():
        yield
        return
    from rich.console import Console

    done = threading.Event()
    with Console(stderr=True).status(f"{model}: starting") as status:
        watcher = threading.Thread(
            target=_watch, args=(context, model, state, status, done), daemon=True
        )
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _watch(
    context: Context, model: str, state: _State, status: Status, done: threading.Event
) -> None:
    from modelsup.client import ModelsupError

    with context.client(timeout=_POLL_SECONDS) as client:
        while not done.wait(_POLL_SECONDS):
            try:
                status.update(f"{model}: {state(client.model(model))}")
            except ModelsupError:
                continue  # the call itself reports what is wrong
