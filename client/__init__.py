"""The Python client library of modelsup: `Client`, its answers and its errors."""

from .answers import Loaded, Receipt, Released, Swap
from .client import Client
from .errors import (
    Busy,
    Conflict,
    DoesNotFit,
    Held,
    InvalidRequest,
    LoadFailed,
    ModelsupError,
    NotFound,
    NotLoaded,
    TimedOut,
    Unavailable,
    UnknownClient,
    UnknownModel,
    UnknownWorker,
    Unreachable,
)
from .options import Options
from .session import Session
from .views import ClientInfo, Event, Memory, ModelInfo, Plan, Status, WorkerInfo

__all__ = [
    "Busy",
    "Client",
    "ClientInfo",
    "Conflict",
    "DoesNotFit",
    "Event",
    "Held",
    "InvalidRequest",
    "LoadFailed",
    "Loaded",
    "Memory",
    "ModelInfo",
    "ModelsupError",
    "NotFound",
    "NotLoaded",
    "Options",
    "Plan",
    "Receipt",
    "Released",
    "Session",
    "Status",
    "Swap",
    "TimedOut",
    "Unavailable",
    "UnknownClient",
    "UnknownModel",
    "UnknownWorker",
    "Unreachable",
    "WorkerInfo",
]
