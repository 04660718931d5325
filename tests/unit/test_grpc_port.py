"""Whether gRPC is served: its port may be taken, and its packages may not be there."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from modelsup.supervisor import daemon
from modelsup.supervisor.settings import Settings, load_settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a file of settings."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def settings(**flags: str) -> Settings:
    return load_settings(flags, {}, None)


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "_has_grpc", lambda: False)
    assert daemon._grpc_host(settings()) is None
    assert daemon._grpc_host(settings(grpc_port="0")) is None
    with pytest.raises(daemon.StartError, match=r"grpc_port is 8500, .* 'modelsup\[grpc\]'"):
        daemon._grpc_host(settings(grpc_port="8500"))


def test_installed_and_not_wanted() -> None:
    assert daemon._grpc_host(settings(grpc_port="")) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_installed(host: str) -> None:
    assert daemon._grpc_host(settings(grpc_port="0", host=host)) == host


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(daemon.StartError, match=rf":{port}: Address .* another --grpc-port"):
            daemon._grpc_host(settings(grpc_port=str(port)))
