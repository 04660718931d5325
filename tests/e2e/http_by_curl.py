"""Ask as a client does that has never heard of modelsup: with curl."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    type: str
    text: str

    @property
    def body(self) -> Any:
        """The JSON."""
        return json.loads(self.text)

    def __eq__(self, other: object) -> bool:
        return (self.status, self.type, self.body) == other

    __hash__ = None  # type: ignore[assignment]


def curl(url: str, body: object = None, *flags: str) -> Answer:
    """Ask with curl's defaults and these flags; a body is text or becomes JSON."""
    if not shutil.which("curl"):
        pytest.skip("no curl here")
    command = ["curl", "-sS", "-w", "\n%{http_code} %{content_type}", *flags, url]
    if body is not None:
        command += ["-d", body if isinstance(body, str) else json.dumps(body)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    text, _, tail = done.stdout.rpartition("\n")
    status, _, kind = tail.partition(" ")
    return Answer(int(status), kind, text)
