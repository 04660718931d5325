"""The picture of `modelsup top`: who has how much, from canned answers."""

from __future__ import annotations

import pytest
from modelsup.cli.top import Look, bar, lines
from modelsup.client import ClientInfo, Memory, Status, WorkerInfo
from modelsup.client.decode import decode

GB = 10**9
STATUS = {
    "version": "0.1.0",
    "pid": 5,
    "url": "http://127.0.0.1:8501",
    "state": "running",
    "started_at": 1.0,
    "uptime_seconds": 61.0,
    "models": {"known": 1, "loaded": 1},
    "workers": 1,
    "clients": 1,
}
GPU = {
    "uuid": "GPU-a",
    "name": "H200",
    "index": 0,
    "total_bytes": 8 * GB,
    "budget_bytes": 7 * GB,
    "charged_bytes": 3 * GB,
    "used_bytes": 4 * GB,
    "free_bytes": 4 * GB,
    "workers_bytes": 2 * GB,
    "others_bytes": 2 * GB,
    "processes": [],
    "reason": None,
}
SICK = {"uuid": "GPU-b", "name": "H200", "index": 1, "total_bytes": 8 * GB, "reason": "it is lost"}
MEMORY = {
    "host": {
        "total_bytes": 16 * GB,
        "available_bytes": 8 * GB,
        "limit_bytes": 16 * GB,
        "tree_bytes": 4 * GB,
        "charged_bytes": 5 * GB,
        "budget_bytes": 14 * GB,
    },
    "gpus": [GPU, SICK],
    "queue": ["big"],
}
WORKER = {
    "id": "w1",
    "model": "m",
    "state": "ready",
    "device": "GPU-a",
    "memory": {"pss_bytes": 48_000_000, "uss_bytes": 1, "rss_bytes": 2},
    "charges": {"host": 142_000_000, "GPU-a": 3 * GB},
    "in_flight": 2,
    "requests": 30,
}
LEASE = {"id": "john", "model": "m", "expires_in_seconds": 125.0}


def test_the_whole_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    found = Look(
        decode(Status, STATUS),
        decode(Memory, MEMORY),
        [decode(WorkerInfo, WORKER)],
        [decode(ClientInfo, LEASE)],
    )
    assert "\n".join(lines(found)) == (
        "modelsup at http://127.0.0.1:8501: running, up 1 min 1 s\n"
        "\n"
        "MEMORY                OURS #  OTHERS +  FREE .  TOTAL    CHARGED  BUDGET\n"
        "host    ###+++......  4.0 GB  4.0 GB    8.0 GB  16.0 GB  5.0 GB   14.0 GB\n"
        "gpu:0   ###+++......  2.0 GB  2.0 GB    4.0 GB  8.0 GB   3.0 GB   7.0 GB\n"
        "gpu:1   ????????????  -       -         -       8.0 GB   0 B      -\n"
        "gpu:1: it is lost\n"
        "\n"
        "MODEL  WORKER  STATE  DEVICE  MEMORY   CHARGED             IN FLIGHT  REQUESTS\n"
        "m      w1      ready  gpu:0   48.0 MB  142 MB, GPU 3.0 GB  2          30\n"
        "\n"
        "CLIENT  HOLDS  EXPIRES IN\n"
        "john    m      2 min 5 s\n"
        "\n"
        "waiting for room: big"
    )


@pytest.mark.parametrize(
    ("ours", "others", "expected"),
    [
        (0, 0, "." * 12),
        (100, 0, "#" * 12),
        (90, 90, "#" * 11 + "+"),
        (1, 0, "." * 12),
        (None, 5, "?" * 12),
    ],
)
def test_a_bar_is_never_longer_than_it_may_be(ours: int | None, others: int, expected: str) -> None:
    assert bar(ours, others, 100) == expected
