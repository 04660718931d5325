"""The process that makes one prepared form, from its launch to its end."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from modelsup.worker.contract import LaunchSpec

from ..domain import Failure
from ..policy.admission import HOST, Resident
from ..policy.causes import explain_exit

if TYPE_CHECKING:
    from pathlib import Path

    from modelsup.worker.contract import StatusMessage

    from ..domain import CatalogueEntry, DeviceKind, Options
    from .measuring import ModelFiles
    from .ports import Handle
    from .services import Services

LOG_LINES: Final = 20  # of a failure
# What loading, freezing and folding a model takes of host memory beside what any process does.
BASE: Final = 640 * 10**6  # bytes
PER_FILE_BYTE: Final = 10
_LONG: Final = 1e9  # seconds: nothing speaks for leaving its room to it


def memory_for(files: ModelFiles, options: Options) -> int:
    """Return the bytes of host memory that preparing a model is charged, and held to."""
    return max(options.ram or 0, BASE + PER_FILE_BYTE * files.size)


class Preparing:
    """One such process."""

    def __init__(
        self,
        entry: CatalogueEntry,
        files: ModelFiles,
        device: DeviceKind,
        services: Services,
        limit: float,
    ) -> None:
        """`limit`: seconds that it may take."""
        self.uid = f"p-{secrets.token_hex(4)}"
        self.stopped = ""  # why it was told to end
        self._entry = entry
        self._files = files
        self._device = device
        self._services = services
        self._limit = limit
        self._handle: Handle | None = None
        self._told: Failure | None = None
        self._is_made = False

    def resident(self) -> Resident:
        """Return it as what holds memory: the first to go where another needs the room."""
        return Resident(
            worker=self.uid,
            model=self._entry.name,
            charges={HOST: memory_for(self._files, self._entry.options)},
            going_down=bool(self.stopped),
            ready_for=_LONG,
            idle_for=_LONG,
            reload_seconds=0.0,
        )

    def stop(self, reason: str) -> None:
        """End it soon; what it has done is lost."""
        self.stopped = self.stopped or reason
        if self._handle is not None:
            self._handle.kill()

    async def launch(self, into: Path) -> int:
        """Start it, to make the form in an empty folder; return its pid. Raises LaunchFailed."""
        spec = self._spec(into)
        self._handle = await self._services.launcher.spawn(spec, self._on_status)
        if self.stopped:
            self._handle.kill()
        return self._handle.pid

    async def ended(self) -> Failure | None:
        """Wait for its end, once it is launched; return why it did not make the form."""
        handle = self._handle
        assert handle is not None
        try:
            async with asyncio.timeout(self._limit):
                end = await handle.exited()
        except TimeoutError:
            self._told = Failure("timeout", f"it was not prepared within {self._limit:g} s")
            handle.kill()
            end = await handle.exited()
        handle.dispose()
        if self._is_made and end.code == 0:
            return None
        log = self._services.logs.last_lines(self.uid, LOG_LINES)
        return explain_exit(end, "preparing the model", self._told, log)

    def _spec(self, into: Path) -> LaunchSpec:
        return LaunchSpec(
            uid=self.uid,
            model=self._entry.name,
            version=self._files.version,
            runtime=self._entry.runtime,
            source=self._files.path,
            secret=secrets.token_urlsafe(24),
            temp_dir=self._services.temp_dir(self.uid),
            host_memory_limit=memory_for(self._files, self._entry.options),
            threads=self._entry.options.threads,
            prepare_into=str(into),
            prepare_for=self._device,
        )

    def _on_status(self, message: StatusMessage) -> None:
        if message.stage == "prepared":
            self._is_made = True
        elif message.stage == "failed":
            self._told = Failure(message.cause or "unknown", message.message)
