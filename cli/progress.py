"""A spinner on stderr while a model loads, with the state that the supervisor reports."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from .output import is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.status import Status

    from .context import Context

_POLL_SECONDS: Final = 0.5


@contextmanager
def loading(context: Context, model: str) -> Iterator[None]:
    """Show that `model` is being loaded, where a person is looking."""
    if not is_terminal():
        yield
        return
    from rich.console import Console

    done = threading.Event()
    with Console(stderr=True).status(f"{model}: starting") as status:
        watcher = threading.Thread(target=_watch, args=(context, model, status, done), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _watch(context: Context, model: str, status: Status, done: threading.Event) -> None:
    from modelsup.client import ModelsupError

    with context.client(timeout=_POLL_SECONDS) as client:
        while not done.wait(_POLL_SECONDS):
            try:
                status.update(f"{model}: {client.model(model).state}")
            except ModelsupError:
                continue  # the load itself reports what is wrong
