"""What process tests share beyond a supervisor: calls that go on while the test does something."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def background() -> Iterator[Callable[..., Future[Any]]]:
    """Run a call in a thread; its future has the outcome."""
    with ThreadPoolExecutor(32) as pool:
        yield pool.submit
