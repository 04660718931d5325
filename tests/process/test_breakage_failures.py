"""What has failed must not outlive the model that it was about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from modelsup.client import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Callable


def test_models_that_failed_are_forgotten_when_they_are_removed(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    """A model of the same name that is added later does not inherit the failure."""
    client = shared_supervisor.client
    client.add_model("m", echo_model(on_load=["fail"]))
    with pytest.raises(LoadFailed):
        client.load("m")
    assert client.model("m").state == "failed"
    client.remove_model("m")
    client.add_model("m", echo_model())
    assert client.model("m").state == "unloaded"
