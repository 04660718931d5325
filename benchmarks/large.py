"""What a large tensor costs as JSON lists and in binary, through the supervisor."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import requests
from modelsup.client import Client

from examples.local_supervisor import local_supervisor

from .bodies import body_of
from .report import Report, progress, summary

if TYPE_CHECKING:
    from .workload import Workload

MB = 10**6  # bytes
FORMS = ("json", "binary")


def run(workload: Workload, calls: int) -> Report:
    """Send the same tensor `calls` times in each form, in turns, on one connection."""
    bodies = {form: body_of(workload, form) for form in FORMS}
    samples: dict[str, list[float]] = {form: [] for form in FORMS}
    options = ("--preload", "tensorflow", "--prepare", "off")
    with local_supervisor(*options) as supervisor, Client(supervisor.url) as client:
        client.load(workload.model, workload.file)
        with requests.Session() as session:
            for number in range(calls + 1):
                progress(f"large: call {number} of {calls}")
                for form, body in bodies.items():
                    url = supervisor.url + body.path(workload.model)
                    started = time.perf_counter()
                    answer = session.post(url, body.content, headers=body.headers, timeout=120)
                    taken = time.perf_counter() - started
                    answer.raise_for_status()
                    workload.check(form, answer.content)
                    if number:  # the first call does not count
                        samples[form].append(taken)
    rows = {form: summary(found) for form, found in samples.items()}
    ratio = rows["json"]["median"] / rows["binary"]["median"]
    return Report(
        benchmark="large",
        title=f"A tensor of {workload.batch.nbytes / MB:.0f} MB, one connection",
        columns=("form", "body MB", "p50 ms", "least ms", "most ms"),
        lines=[
            [
                form,
                f"{len(bodies[form].content) / MB:.1f}",
                *(f"{row[key] * 1000:.1f}" for key in ("median", "min", "max")),
            ]
            for form, row in rows.items()
        ],
        notes=[f"binary is {ratio:.0f} times as fast as JSON lists"],
        data={"rows": rows, "ratio": ratio},
    )
