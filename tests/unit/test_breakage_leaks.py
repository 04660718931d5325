"""What clients ask for in vain must not stay in the supervisor's memory."""

from __future__ import annotations

from typing import Any

import pytest
from modelsup.supervisor.errors import DoesNotFit


def test_a_slot_that_found_no_room_tells_its_owner_that_it_is_empty(
    machine: Any, workshop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker's end will tell, and each client with a private worker has a slot of its own."""
    told: list[bool] = []

    async def refuse(slot: Any) -> None:
        raise DoesNotFit("no room", model="m", plan={})

    async def story() -> None:
        monkeypatch.setattr(workshop, "admit", refuse)
        monkeypatch.setattr(workshop, "slot_changed", lambda slot: told.append(slot.empty))
        with pytest.raises(DoesNotFit):
            await workshop.slot.ensure_ready()

    machine.run(story())
    assert told == [True]
