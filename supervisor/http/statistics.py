"""V2's statistics of models: what their workers count."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import orjson

from ..errors import SupervisorError, TimedOut, UnknownModel, WorkerDied

if TYPE_CHECKING:
    from .router import Router, Worker

TIMEOUT: Final = 10.0  # seconds; a worker answers while it computes

Told = dict[str, Any]


async def statistics_of(router: Router, model: str, version: str | None) -> list[Told]:
    """Return the statistics of a model's versions that are loaded, or of one of them.

    Raises UnknownModel where none is loaded, TimedOut, WorkerDied.
    """
    workers = _workers(router, model, version)
    if not workers:
        which = f"model {model!r}" if version is None else f"version {version} of model {model!r}"
        raise UnknownModel(f"{which} is not loaded, so it has no statistics", model=model)
    asked = (_ask(router, worker, model, one) for one, worker in workers.items())
    return list(await asyncio.gather(*asked))


async def statistics_of_all(router: Router) -> list[Told]:
    """Return the statistics of all that is loaded; a worker that does not answer is left out."""
    asked = [
        _ask_or_none(router, worker, view.name, version)
        for view in router.models()
        for version, worker in _workers(router, view.name, None).items()
    ]
    return [told for told in await asyncio.gather(*asked) if told is not None]


def _workers(router: Router, model: str, version: str | None) -> dict[str, Worker]:
    versions = router.model(model).versions if version is None else (version,)
    found = {one: router.ready(model, one) for one in versions}
    return {one: worker for one, worker in found.items() if worker is not None}


async def _ask_or_none(router: Router, worker: Worker, model: str, version: str) -> Told | None:
    with suppress(SupervisorError):
        return await _ask(router, worker, model, version)
    return None


async def _ask(router: Router, worker: Worker, model: str, version: str) -> Told:
    """Ask one worker, and add the requests that wait for it here.

    It does not count as a use of the model, which may be idle.
    """
    try:
        async with asyncio.timeout(TIMEOUT):
            response = await worker.upstream.exchange(b"GET", b"/stats", (), b"", None)
            try:
                body = b"".join([piece async for piece in response.chunks()])
            finally:
                response.close()
    except TimeoutError:
        raise TimedOut(
            f"worker {worker.uid} did not tell its statistics within {TIMEOUT:g} s", model=model
        ) from None
    if response.status != 200:
        raise WorkerDied(f"worker {worker.uid} tells no statistics")
    told: Told = orjson.loads(body)
    told["waiting"] += router.waiting(model, version)
    return told
