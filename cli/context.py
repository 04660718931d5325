"""What all commands share: where the supervisor is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from modelsup.client import Client


@dataclass(frozen=True, slots=True)
class Context:
    """The options given before the command's name."""

    url: str

    def client(self, timeout: float | None = None) -> Client:
        """Return a client; `timeout` is in seconds. Raises InvalidRequest for a bad URL."""
        from modelsup.client import Client

        return Client(self.url) if timeout is None else Client(self.url, timeout)


pass_context = click.make_pass_decorator(Context)
