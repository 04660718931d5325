"""What workers need of the outside, in one hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .events import Events
    from .ports import Clock, Devices, Launcher, Logs, Parking


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Every bound on a worker's life, in seconds."""

    load: float = 600.0
    drain: float = 30.0
    term: float = 10.0
    kill: float = 5.0


@dataclass(frozen=True, slots=True)
class Services:
    """What workers need of the outside."""

    launcher: Launcher
    logs: Logs
    devices: Devices
    parking: Parking
    clock: Clock
    timeouts: Timeouts
    temp_dir: Callable[[str], str]  # worker id → its temporary folder
    events: Events
