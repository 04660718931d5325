"""The four ways to one model that `predict` measures."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelsup.client import Client
from modelsup.worker.contract import SECRET_HEADER

from examples.local_supervisor import local_supervisor

from .baselines import direct_worker
from .bodies import IMAGE
from .processes import Server
from .report import progress
from .sides import WITH_TENSORFLOW, InProcess

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from .bodies import Body
    from .workload import Workload

SIDES = ("direct", "modelsup", "flask-proxy", "in-process")
MODEL = "model"


@dataclass(frozen=True)
class Target:
    """One way to the model. `front`: the process whose CPU time is charged to the way."""

    name: str
    url: str
    headers: dict[str, str]
    front: int | None


class Sides:
    """All four with the model of one workload loaded, until the block ends."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        self._workload = workload
        self._folder = folder
        self._stack = ExitStack()
        self._urls: dict[str, str] = {}
        self._fronts: dict[str, int] = {}
        self._secret = ""

    def __enter__(self) -> Sides:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def target(self, side: str, body: Body) -> Target:
        """Return where one of SIDES takes such a body."""
        if side == "direct":
            headers = {**body.headers, SECRET_HEADER: self._secret}
            return Target(side, self._urls[side] + body.worker_path, headers, None)
        return Target(side, self._urls[side] + body.path(MODEL), body.headers, self._fronts[side])

    def _start(self) -> None:
        workload, folder = self._workload, self._folder
        folder.mkdir()
        image = IMAGE if workload.is_image else None
        progress(f"predict: {workload.model}: start the worker alone")
        worker, self._secret = direct_worker.start(workload.file, folder, image)
        self._stack.callback(worker.stop)
        self._urls["direct"] = worker.wait_for_url()
        progress(f"predict: {workload.model}: start Flask and requests in front of it")
        proxy = Server(
            "benchmarks.baselines.flask_proxy",
            self._urls["direct"],
            self._secret,
            log=folder / "proxy.log",
        )
        self._stack.callback(proxy.stop)
        self._add("flask-proxy", proxy.wait_for_url(), proxy.pid)
        progress(f"predict: {workload.model}: start the model in a Flask process")
        in_process = InProcess(folder)
        self._stack.callback(in_process.stop)
        in_process.load(MODEL, workload)
        self._add("in-process", in_process.url, in_process.pids()[0])
        progress(f"predict: {workload.model}: start modelsup")
        supervisor = self._stack.enter_context(
            local_supervisor(*WITH_TENSORFLOW, "--prepare", "off")
        )
        with Client(supervisor.url) as client:
            if image:
                client.load(MODEL, workload.file, image=image)
            else:
                client.load(MODEL, workload.file)
        self._add("modelsup", supervisor.url, supervisor.pid)

    def _add(self, side: str, url: str, front: int) -> None:
        self._urls[side], self._fronts[side] = url, front
