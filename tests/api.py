"""The HTTP API as it describes itself, without a supervisor that runs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from modelsup.supervisor.http.control import Control, create_control


def control() -> Control:
    """Return a control API of no fleet: what it has can be seen, and not called."""

    async def create() -> Control:
        nothing = cast("Any", None)
        facts = cast("Any", SimpleNamespace(version="1.2.3"))
        return create_control(nothing, asyncio.get_running_loop(), facts, nothing)

    return asyncio.run(create())


def description() -> Any:
    """Return /openapi.json."""
    answer = control().wsgi.test_client().get("/openapi.json")
    assert answer.content_type == "application/json"
    return answer.get_json()
