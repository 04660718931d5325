"""Tell on standard error which long step is running: a spinner, or plain lines to a file."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

_talk = Console(stderr=True, highlight=False)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Show `text` while the block runs, and how long it took when it succeeded."""
    started = time.monotonic()
    if _talk.is_terminal:
        with _talk.status(text):
            yield
    else:
        _talk.print(f"{text} ...")
        yield
    _talk.print(f"{text}: {time.monotonic() - started:.1f} s")
