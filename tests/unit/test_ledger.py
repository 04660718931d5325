"""What a model is charged, and what there is to spend."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from modelsup.supervisor.domain import Device, Footprint, Options
from modelsup.supervisor.errors import BadDevice
from modelsup.supervisor.fleet.contexts import Contexts
from modelsup.supervisor.fleet.ledger import (
    ESTIMATE_FLOOR,
    ESTIMATE_PER_FILE_BYTE,
    Ledger,
    Reserve,
    recharged,
)
from modelsup.supervisor.policy.admission import HOST, Resident
from modelsup.supervisor.policy.caps import GENEROUS, MODEST_FLOOR, MODEST_PER_FILE_BYTE

CONTEXT = 100
LARGE = Device("GPU-a", 100 * 10**9)
GPUS = (Device("GPU-a", 1000), Device("GPU-b", 2000, reserved=300))


class Site:
    """A host and GPUs."""

    def __init__(self, *gpus: Device) -> None:
        self.gpus = gpus

    def all(self) -> tuple[Device, ...]:
        return self.gpus

    def choose(self, wanted: str | None) -> Device | None:
        if wanted == "cpu" or (wanted is None and not self.gpus):
            return None
        number = int(wanted.removeprefix("gpu:")) if wanted else 0
        if number >= len(self.gpus):
            raise BadDevice(f"no {wanted}")
        return self.gpus[number]

    def memory_limit(self) -> int:
        return 10_000

    def own_memory(self) -> int:
        return 1500


def ledger(*gpus: Device) -> Ledger:
    site: Any = Site(*gpus)
    contexts = Contexts(CONTEXT, [], lambda context: None)
    return Ledger(site, site, site, site, Reserve(share=0.1), contexts)


def slot(size: int = 0, **options: Any) -> Any:
    entry = SimpleNamespace(options=Options(**options), runtime="echo")
    return SimpleNamespace(parked=None, entry=entry, files=SimpleNamespace(size=size))


def footprint(host: int, gpu: int | None, context: int = 0) -> Footprint:
    return Footprint({"steady": host - 1, "peak": host}, gpu, 1.0, "echo 1", context)


def charged(charges: Any) -> list[dict[str, int]]:
    return [dict(charge.candidate.charges) for charge in charges]


def test_the_budget_leaves_out_the_reserve_and_what_others_keep() -> None:
    """Of a GPU the larger of our share and what its driver keeps, of the host our own memory."""
    assert ledger(*GPUS).budgets() == {HOST: 7500, "GPU-a": 900, "GPU-b": 1700}


def test_a_cap_is_charged_with_its_context_on_either_gpu() -> None:
    a, b = ledger(*GPUS).charges(slot(gpu_memory=400, ram=50), None)
    assert charged([a, b]) == [{HOST: 50, "GPU-a": 500}, {HOST: 50, "GPU-b": 500}]
    assert (a.gpu_memory_limit, a.device, a.estimated) == (400, GPUS[0], False)


def test_a_fraction_is_of_each_gpu() -> None:
    charges = ledger(*GPUS).charges(slot(gpu_memory_fraction=0.5, ram=50), None)
    assert [c.gpu_memory_limit for c in charges] == [500, 1000]
    assert [c.candidate.charges[c.candidate.device or ""] for c in charges] == [600, 1100]


def test_one_device_is_one_way_to_place_it() -> None:
    book = ledger(*GPUS)
    assert [c.candidate.device for c in book.charges(slot(device="gpu:1"), None)] == ["GPU-b"]
    assert [c.candidate.device for c in book.charges(slot(device="cpu"), None)] == [None]
    assert book.charges(slot(device="gpu:7"), None) == []
    assert [c.candidate.device for c in ledger().charges(slot(), None)] == [None]


@pytest.mark.parametrize("size", [0, 1000])
def test_an_unknown_model_is_charged_by_the_size_of_its_files(size: int) -> None:
    estimate = ESTIMATE_FLOOR + ESTIMATE_PER_FILE_BYTE * size
    modest = MODEST_FLOOR + MODEST_PER_FILE_BYTE * size
    ways = ledger(LARGE).charges(slot(size), None)
    assert [way.gpu_memory_limit for way in ways] == [modest, GENEROUS * modest]
    assert charged(ways) == [
        {HOST: estimate, "GPU-a": modest + CONTEXT},
        {HOST: estimate, "GPU-a": GENEROUS * modest + CONTEXT},
    ]
    assert all(way.estimated for way in ways)


def test_a_known_model_is_capped_at_what_it_took_at_most_with_headroom() -> None:
    (charge,) = ledger(LARGE).charges(slot(10**9), footprint(70, 10**10 + 60, context=60))
    assert not charge.estimated
    assert charge.gpu_memory_limit == 12_500_000_000
    assert charge.candidate.charges == {HOST: 70, "GPU-a": 12_500_000_000 + CONTEXT}


def test_neither_a_cap_nor_a_wish_lowers_what_was_measured() -> None:
    (charge,) = ledger(GPUS[0]).charges(slot(gpu_memory=200, ram=60), footprint(70, 600))
    assert charge.candidate.charges == {HOST: 70, "GPU-a": 600 + CONTEXT}
    assert charge.gpu_memory_limit == 200
    (charge,) = ledger(GPUS[0]).charges(slot(gpu_memory=800, ram=90), footprint(70, 600))
    assert charge.candidate.charges == {HOST: 90, "GPU-a": 900}


def test_where_the_driver_does_not_tell_the_gpu_stays_an_estimate() -> None:
    charge, _ = ledger(LARGE).charges(slot(), footprint(70, None))
    assert charge.estimated
    assert charge.candidate.charges == {HOST: 70, "GPU-a": MODEST_FLOOR + CONTEXT}


@pytest.mark.parametrize(
    ("measured", "charge"),
    [(50, 100), (150, 150), (900, 200)],
    ids=["less than charged", "more, and there is room", "more than is free"],
)
def test_what_a_worker_was_measured_to_take_raises_its_charge(measured: int, charge: int) -> None:
    others = [Resident("w", "m", {HOST: 10, "GPU-a": 100}), Resident("v", "n", {"GPU-a": 700})]
    budgets = {HOST: 100, "GPU-a": 900}
    raised = recharged({HOST: 10, "GPU-a": 100}, footprint(20, measured), "GPU-a", budgets, others)
    assert raised == {HOST: 20, "GPU-a": charge}
