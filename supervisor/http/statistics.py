"""V2's statistics of models: what their workers count."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import orjson

from ..errors import SupervisorError, TimedOut, UnknownModel, WorkerDied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .router import Router, Worker

TIMEOUT: Final = 10.0  # seconds; a worker answers while it computes

Told = dict[str, Any]


async def statistics_of(router: Router, model: str, version: str | None) -> list[Told]:
    """Return the statistics of a model's versions that are loaded, or of one of them.

    Raises UnknownModel where none is loaded, TimedOut, WorkerDied.
    """
    crews = _crews(router, model, version)
    if not crews:
        which = f"model {model!r}" if version is None else f"version {version} of model {model!r}"
        raise UnknownModel(f"{which} is not loaded, so it has no statistics", model=model)
    asked = (_ask_all(router, workers, model, one) for one, workers in crews.items())
    return list(await asyncio.gather(*asked))


async def statistics_of_all(router: Router) -> list[Told]:
    """Return the statistics of all that is loaded; where a worker does not answer, none."""
    asked = [
        _ask_or_none(router, workers, view.name, version)
        for view in router.models()
        for version, workers in _crews(router, view.name, None).items()
    ]
    return [told for told in await asyncio.gather(*asked) if told is not None]


def _crews(router: Router, model: str, version: str | None) -> dict[str, Sequence[Worker]]:
    """Return the workers that serve, by version."""
    versions = router.model(model).versions if version is None else (version,)
    found = {one: tuple(router.serving(model, one)) for one in versions}
    return {one: workers for one, workers in found.items() if workers}


async def _ask_or_none(
    router: Router, workers: Sequence[Worker], model: str, version: str
) -> Told | None:
    with suppress(SupervisorError):
        return await _ask_all(router, workers, model, version)
    return None


async def _ask_all(router: Router, workers: Sequence[Worker], model: str, version: str) -> Told:
    """Ask the workers of a version, and add the requests that wait for them here."""
    told = together(await asyncio.gather(*(_ask(worker, model) for worker in workers)))
    told["waiting"] += router.waiting(model, version)
    return told


async def _ask(worker: Worker, model: str) -> Told:
    """Ask one worker. It does not count as a use of the model, which may be idle."""
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
    return told


def together(each: Sequence[Told]) -> Told:
    """Return the statistics of several workers of one version as one: sums, and the last time."""
    if len(each) == 1:
        return each[0]
    whole = _sum(each)
    whole["last_inference"] = max(told["last_inference"] for told in each)
    by_rows: dict[int, list[Told]] = {}
    for size in (size for told in each for size in told["batch_stats"]):
        by_rows.setdefault(size["batch_size"], []).append(size)
    whole["batch_stats"] = [
        {**_sum(sizes), "batch_size": rows} for rows, sizes in sorted(by_rows.items())
    ]
    return whole


def _sum(each: Sequence[Told]) -> Told:
    """Return one object with the sums of all numbers, also inside; texts are those of the first."""
    whole: Told = {}
    for name, value in each[0].items():
        values = [told[name] for told in each]
        if isinstance(value, dict):
            whole[name] = _sum(values)
        else:
            whole[name] = sum(values) if isinstance(value, int) else value
    return whole
