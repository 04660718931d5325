"""Answer questions about the GPUs, one JSON line each, from a process that NVML may be false to.

reason | devices | sample             what the adapter says
choose DEVICE|-                       a UUID, null for the CPU, or {"refused": text}
hold UUID PID                         the bytes that a process holds; kept for "reclaimed"
reclaimed [EXPECTED]                  what became of it
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Any

from modelsup.supervisor.adapters.devices import Gpus
from modelsup.supervisor.adapters.nvml import Nvml
from modelsup.supervisor.errors import BadDevice


def choose(gpus: Gpus, wanted: str) -> Any:
    try:
        device = gpus.choose(None if wanted == "-" else wanted)
    except BadDevice as error:
        return {"refused": str(error)}
    return device and device.uuid


async def main(deadline: float, start_deadline: float, within: float) -> None:
    nvml = Nvml(deadline, start_deadline)
    gpus = Gpus(nvml, within)
    hold = None
    print(json.dumps("started"), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        answer: Any
        match line.split():
            case ["reason"]:
                answer = nvml.reason
            case ["devices"]:
                answer = [asdict(info) for info in nvml.devices()]
            case ["sample"]:
                answer = {uuid: asdict(state) for uuid, state in (await nvml.sample()).items()}
            case ["choose", wanted]:
                answer = choose(gpus, wanted)
            case ["hold", uuid, pid]:
                hold = await gpus.hold(uuid, int(pid))
                answer = hold.bytes
            case ["reclaimed", *expected]:
                assert hold is not None
                answer = asdict(await gpus.reclaimed(hold, *map(int, expected)))
            case _:
                raise ValueError(f"unknown question {line!r}")
        print(json.dumps(answer), flush=True)


asyncio.run(main(*map(float, sys.argv[1:])))
