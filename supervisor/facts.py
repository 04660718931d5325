"""What the control API tells of the daemon itself and of its machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .adapters import host
from .http.control_ports import Forkserver, Gpu, GpuProcess, HostMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .adapters.launcher import LocalLauncher
    from .adapters.nvml import GpuInfo, GpuState, Nvml
    from .domain import Memory


@dataclass(slots=True)
class DaemonFacts:
    """The facts of one run of the daemon. `started_at` is in UNIX seconds."""

    version: str
    url: str
    grpc: str | None  # HOST:PORT where gRPC is served
    state_dir: str
    started_at: float
    launcher: LocalLauncher
    nvml: Nvml
    request_stop: Callable[[], None]
    restoring: bool = True
    is_stopping: bool = False
    pid: int = os.getpid()

    def stopping(self) -> bool:
        """Say whether the supervisor shuts down."""
        return self.is_stopping

    def obstacle(self) -> str | None:
        """Return why requests should not be sent here yet, or any more."""
        if self.is_stopping:
            return "stopping"
        return "restoring" if self.restoring else None

    def forkservers(self) -> Sequence[Forkserver]:
        """Return the forkservers."""
        return [Forkserver(f.runtime, f.pid, f.state) for f in self.launcher.forkservers()]

    async def gpus(self) -> Sequence[Gpu]:
        """Read the GPUs, within NVML's deadline."""
        states = await self.nvml.sample()
        found = self.nvml.devices()
        return [_gpu(info, states[info.uuid]) for info in found if info.uuid in states]

    def process_memory(self, pid: int) -> Memory | None:
        """Measure a process; None when it is gone."""
        return host.process_memory(pid)

    def host_memory(self) -> HostMemory:
        """Measure the machine."""
        total, available = host.machine_memory()
        return HostMemory(total, available, host.memory_limit())


def _gpu(info: GpuInfo, state: GpuState) -> Gpu:
    processes = state.processes
    return Gpu(
        uuid=info.uuid,
        name=info.name,
        index=info.index,
        total=state.total,
        used=state.used,
        free=state.free,
        processes=None
        if processes is None
        else tuple(GpuProcess(process.pid, process.memory) for process in processes),
        reason=state.reason,
    )
