"""The composition root: settings, adapters, fleet, application, signals, ordered shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import random
import resource
import signal
import socket
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import uvicorn
import uvloop
from modelsup.worker.http_protocol import JoiningProtocol

from .adapters.cgroup import find_cgroups
from .adapters.devices import Gpus
from .adapters.digests import Digests
from .adapters.file_sources import FileSources
from .adapters.guard import Guards
from .adapters.host import become_subreaper
from .adapters.host_budget import LocalHost
from .adapters.instance import AlreadyRunning, StateFolder
from .adapters.launcher import LocalLauncher
from .adapters.logs import LogBook, configure_logging
from .adapters.page_cache import PageCache
from .adapters.parking import CudaParking
from .adapters.prepared_cache import PreparedCache
from .adapters.shared_limit import find_shared_limit
from .adapters.store import Store
from .errors import LaunchFailed, StoreFailed
from .facts import DaemonFacts
from .fleet.events import Events
from .fleet.fleet import Fleet
from .fleet.ledger import Reserve
from .fleet.services import Services, Timeouts
from .fleet.slots import Defaults
from .http.app import create_app
from .http.control import create_control
from .http.event_streams import EventStreams
from .http.gateway import Gateway, Limits
from .http.streams import LogStreams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .adapters.digests import KnownFile
    from .grpc.server import GrpcServer
    from .http.app import App
    from .settings import Settings

    OnReady = Callable[[str, str | None], None]

logger = logging.getLogger(__name__)

BACKLOG: Final = 2048
CLOSE_TIMEOUT: Final = 5  # seconds that open connections get once everything is unloaded


class StartError(Exception):
    """The supervisor cannot start; the message says why and what to do."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def wall(self) -> float:
        """Return UNIX seconds."""
        return time.time()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the daemon has its own order of ending."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(settings: Settings, on_ready: OnReady | None = None) -> int:
    """Run a supervisor until it is told to stop; return an exit code.

    `on_ready` gets the URL, and HOST:PORT of gRPC if there is one, once the forkservers of
    `preload` have imported their frameworks. Raises StartError.
    """
    configure_logging(settings.log_level, settings.log_format)
    _raise_descriptor_limit()
    become_subreaper()
    try:
        folder = StateFolder(settings.state_dir)
    except AlreadyRunning as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise _unusable(settings.state_dir, error) from error
    with contextlib.closing(folder), _listen(settings.host, settings.port, "port") as listener:
        grpc_host = _grpc_host(settings)
        store = _open_store(folder)
        with contextlib.closing(store), asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            try:
                return loop.run(_Daemon(settings, folder, store, listener, grpc_host).run(on_ready))
            except StoreFailed as error:
                raise StartError(str(error)) from error


def _unusable(state_dir: Path, error: OSError) -> StartError:
    return StartError(
        f"the state folder {state_dir} cannot be used: {error.strerror}: {error.filename}"
    )


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _listen(host: str, port: int, flag: str) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        raise StartError(
            f"cannot listen on {host}:{port}: {error.strerror}; "
            f"another supervisor may run there (modelsup status), or choose another --{flag}"
        ) from error


def _grpc_host(settings: Settings) -> str | None:
    """Return where to serve gRPC, as a part of an address; None for nowhere.

    Raises StartError where it is asked for by its port and is not installed, or the port taken.
    """
    port = settings.grpc_port
    if port is None:
        return None
    if not _has_grpc():
        if port == 0 or settings.sources.get("grpc_port", "default") == "default":
            return None
        raise StartError(
            f"grpc_port is {port}, but gRPC is not installed; "
            "pip install 'modelsup[grpc]', or take the setting back"
        )
    # gRPC opens its port itself, but tells nobody why it cannot.
    with _listen(settings.host, port, "grpc-port"):
        pass
    return f"[{settings.host}]" if ":" in settings.host else settings.host


def _has_grpc() -> bool:
    try:
        return all(importlib.util.find_spec(name) for name in ("grpc", "google.protobuf"))
    except ModuleNotFoundError:  # not even the package around it
        return False


def _open_store(folder: StateFolder) -> Store:
    try:
        store = Store(folder.database)
        folder.sweep(store.workers())
        for record in store.workers():
            store.remove_worker(record.uid)
    except StoreFailed as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise _unusable(folder.path, error) from error
    return store


@dataclass(slots=True)
class _Daemon:
    """One run: the parts, and the order in which they begin and end."""

    settings: Settings
    folder: StateFolder
    store: Store
    listener: socket.socket
    grpc_host: str | None

    async def run(self, on_ready: OnReady | None) -> int:
        """Begin, serve until told to stop, end."""
        settings = self.settings
        logs = LogBook(settings.log_lines)
        guards = Guards(find_cgroups() if settings.cgroups == "auto" else None)
        guards.sweep()
        launcher = LocalLauncher(
            self.folder.run, logs, guards, find_shared_limit(), settings.forkserver_ttl
        )
        gpus = Gpus(memory_back_timeout=settings.memory_back_timeout)
        forms = PreparedCache(settings.cache_dir, settings.cache_size)
        pages, parking = PageCache(), CudaParking()
        fleet = self._fleet(launcher, logs, gpus, parking, forms, pages)
        if gpus.all():
            await parking.check()
        told = asyncio.Event()
        facts = DaemonFacts(
            version=version("modelsup"),
            url=self._url(),
            grpc=None,
            state_dir=str(self.folder.path),
            started_at=time.time(),
            launcher=launcher,
            nvml=gpus.nvml,
            request_stop=told.set,
        )
        grpc = await self._start_grpc(fleet, facts)
        app = self._app(fleet, facts, logs)
        server = _Server(_server_config(app))
        serving = asyncio.create_task(server.serve([self.listener]))
        self._watch_signals(told, fleet)
        beginning = asyncio.create_task(self._begin(launcher, fleet, facts, on_ready))
        beginning.add_done_callback(_stop_if_failed(told))
        await told.wait()
        facts.is_stopping = True
        logger.info("stopping; a second signal ends the draining")
        beginning.cancel()
        await fleet.stop_all(settings.drain_timeout)
        launcher.close()
        guards.close()
        forms.close()
        await app.close()
        server.should_exit = True
        if grpc is not None:
            await grpc.close(CLOSE_TIMEOUT)
        await serving
        logger.info("stopped")
        with contextlib.suppress(asyncio.CancelledError):
            await beginning
        return 0

    def _url(self) -> str:
        host, port = self.listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def _fleet(
        self,
        launcher: LocalLauncher,
        logs: LogBook,
        gpus: Gpus,
        parking: CudaParking,
        forms: PreparedCache,
        pages: PageCache,
    ) -> Fleet:
        settings = self.settings
        clock = SystemClock()
        services = Services(
            launcher=launcher,
            logs=logs,
            devices=gpus,
            parking=parking,
            clock=clock,
            timeouts=Timeouts(
                load=settings.load_timeout,
                drain=settings.drain_timeout,
                term=settings.term_timeout,
                kill=settings.kill_timeout,
            ),
            temp_dir=lambda uid: str(self.folder.run / uid),
            events=Events(clock),
        )
        defaults = Defaults(
            autoload=settings.autoload,
            lease_ttl=settings.lease_ttl,
            idle_ttl=settings.idle_ttl,
            request_timeout=settings.request_timeout,
            threads=settings.threads,
            max_batch_size=settings.max_batch_size,
            max_queue=settings.max_queue,
            max_body_size=settings.max_body_size,
            queue_timeout=settings.queue_timeout,
            max_requests=settings.max_requests,
            recycle_above=settings.recycle_above,
            prepare=settings.prepare,
            prepare_timeout=settings.prepare_timeout,
            keep_ram=settings.keep_ram,
        )
        reserve = Reserve(
            share=settings.memory_reserve,
            gpu_context=settings.gpu_context_memory,
            minimum_residence=settings.minimum_residence,
        )
        host = LocalHost(lambda: [forkserver.pid for forkserver in launcher.forkservers()])
        sources = FileSources(settings.models_dir, self._digests())
        rng = random.Random()  # noqa: S311 - for the times of restarts
        return Fleet(services, sources, self.store, forms, host, pages, defaults, reserve, rng)

    def _digests(self) -> Digests:
        """Return what reads models; what it learns is kept, from the event loop's thread."""
        loop = asyncio.get_running_loop()

        def keep(files: list[KnownFile]) -> None:
            try:
                self.store.put_files(files)
            except StoreFailed as error:
                logger.error("these files will be read again: %s", error)  # noqa: TRY400

        known = self.store.files()
        return Digests(known, lambda files: loop.call_soon_threadsafe(keep, files))

    async def _start_grpc(self, fleet: Fleet, facts: DaemonFacts) -> GrpcServer | None:
        if self.grpc_host is None:
            return None
        from .grpc.server import CannotListen, GrpcServer  # takes 15 MB; not all use it

        address = f"{self.grpc_host}:{self.settings.grpc_port}"
        try:
            server = GrpcServer(address, fleet, self._limits(), facts)
        except CannotListen as error:
            raise StartError(f"cannot listen on {address} for gRPC: {error}") from error
        await server.start()
        facts.grpc = f"{self.grpc_host}:{server.port}"
        return server

    def _app(self, fleet: Fleet, facts: DaemonFacts, logs: LogBook) -> App:
        control = create_control(fleet, asyncio.get_running_loop(), facts, logs)
        streams = (LogStreams(fleet, logs), EventStreams(fleet))
        return create_app(Gateway(fleet, self._limits()), control, streams, facts)

    def _limits(self) -> Limits:
        settings = self.settings
        return Limits(
            settings.max_body_size,
            settings.request_timeout,
            settings.autoload,
            settings.max_batch_size,
        )

    def _watch_signals(self, told: asyncio.Event, fleet: Fleet) -> None:
        def on_signal() -> None:
            if told.is_set():
                fleet.hurry()
            told.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)

    async def _begin(
        self,
        launcher: LocalLauncher,
        fleet: Fleet,
        facts: DaemonFacts,
        on_ready: OnReady | None,
    ) -> None:
        """Preload, tell who started us, and load again what was loaded."""
        for runtime in self.settings.preload:
            logger.info("importing the framework", extra={"runtime": runtime})
            try:
                await launcher.preload(runtime)
            except LaunchFailed as error:
                logger.error("not preloaded: %s", error)  # noqa: TRY400
        store = self.store
        loads = fleet.restore(store.models(), store.leases(), store.wanted())
        logger.info("ready", extra={"url": facts.url, "pid": os.getpid(), "restoring": len(loads)})
        if on_ready is not None:
            on_ready(facts.url, facts.grpc)
        if loads:
            await asyncio.wait(loads)
        facts.restoring = False


def _stop_if_failed(told: asyncio.Event) -> Callable[[asyncio.Task[None]], None]:
    def on_done(beginning: asyncio.Task[None]) -> None:
        if not beginning.cancelled() and beginning.exception() is not None:
            told.set()

    return on_done


def _server_config(app: App) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=JoiningProtocol,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=CLOSE_TIMEOUT,
    )
