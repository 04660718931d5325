"""Who serves a request: the worker for a route, or the error that says why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import Hung, NotSent, WorkerDied

if TYPE_CHECKING:
    from ..domain import Failure
    from .router import Router, Worker
    from .routes import Route

MOST_DEATHS: Final = 2  # of workers, at one request


class Finder:
    """Asks the fleet, whatever protocol the client speaks.

    `request_timeout` is in seconds: how long a worker may give no answer to anything.
    """

    def __init__(self, router: Router, request_timeout: float) -> None:
        self._router = router
        self._request_timeout = request_timeout

    def take(self, route: Route) -> Worker | None:
        """Return a worker at which the request has begun; None: it waits for its `turn`."""
        if route.client:
            return self._router.take_for_client(route.client)
        return self._router.take(route.model, self._version(route))

    async def turn(self, route: Route) -> Worker:
        """Return a worker at which the request has begun, loading the model if need be.

        Cancelling it takes the request back.
        """
        if route.client:
            return await self._router.turn_for_client(route.client)
        return await self._router.turn(route.model, self._version(route))

    async def ensure_ready(self, route: Route) -> Worker:
        """Return a ready worker, loading the model if need be. Cancelling it withdraws the wish."""
        if route.client:
            return await self._router.ensure_ready_for_client(route.client)
        return await self._router.ensure_ready(route.model, self._version(route))

    def _version(self, route: Route) -> str | None:
        if route.label is None:
            return route.version
        return self._router.labelled(route.model, route.label)

    def keep_alive(self, worker: Worker, seconds: float) -> None:
        """Set how long a worker stays after its last request; always, if negative."""
        self._router.keep_alive(worker, seconds)

    def retries(self, worker: Worker) -> bool:
        """Return whether the worker's model wants a request to be sent again if it dies."""
        return self._router.retries(worker)

    def overdue(self, worker: Worker) -> None:
        """Report a worker that gave no answer in the time that the client had."""
        self._router.report_overdue(worker)

    def hung(self, worker: Worker | None) -> Hung:
        """Report a worker that gave no answer in time; return the error for its client."""
        if worker is not None:
            self._router.report_hung(worker)
        return Hung(
            f"the worker gave no answer for {self._request_timeout:g} s; ask for less at once, "
            "or raise the setting request_timeout"
        )


class Tries:
    """Says whether a request may be sent again whose worker has ended before it answered.

    To a worker that died by itself while it had the request: once, for the request may be what
    it died of. To one that had died before: as often as that happens.
    """

    def __init__(self, finder: Finder, *, repeatable: bool) -> None:
        self._finder = finder
        self._repeatable = repeatable
        self._deaths = 0  # of workers that had the request

    async def after(self, error: WorkerDied, worker: Worker) -> None:
        """Return where the request may be sent again; else raise, with why the worker died.

        Waits a moment for that to be known. Raises WorkerDied.
        """
        if not isinstance(error, NotSent):
            self._deaths += 1
        why = await worker.until_explained()
        again = self._repeatable and self._deaths < MOST_DEATHS and self._finder.retries(worker)
        if why is None or not again:
            raise WorkerDied(self._told(str(error), why)) from error

    def _told(self, text: str, why: Failure | None) -> str:
        text = text if why is None else f"{text} ({why.message})"
        return text if self._deaths < MOST_DEATHS else f"at the second try, {text}"
