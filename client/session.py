"""`Session`: one client's lease, held for the length of a `with` block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from .errors import ModelsupError, UnknownClient
from .options import Options, checked

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from types import TracebackType

    import numpy.typing as npt

    from .answers import Receipt, Released
    from .client import Client
    from .transport import Transport

    Array = npt.NDArray[Any]


class Session:
    """The client `id`: it has one current model, which `swap` changes and use keeps alive.

    As a context manager it releases the lease at the end. Made by `Client.session`.
    """

    def __init__(
        self, client: Client, transport: Transport, client_id: str, lease_ttl: float | None
    ) -> None:
        self.id = checked(client_id, "client")
        self._client = client
        self._transport = transport
        self._lease_ttl = lease_ttl
        self._model: str | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except UnknownClient:
            pass  # never swapped, or the lease ran out
        except ModelsupError:
            if error is None:  # else it would hide what went wrong in the block
                raise

    @property
    def model(self) -> str:
        """The current model. Raises UnknownClient before the first swap."""
        if self._model is None:
            self._model = self._client.client(self.id).model
        return self._model

    def swap(
        self,
        name: str,
        source: str | os.PathLike[str] | None = None,
        *,
        runtime: str | None = None,
        private: bool = False,
        wait: float = 600.0,
        **options: Unpack[Options],
    ) -> Receipt | None:
        """Make `name` the current model; return the receipt of the one that went.

        None means that no model went: there was none, or it stays loaded. Otherwise as
        `Client.swap`.
        """
        swap = self._client.swap(
            self.id,
            name,
            source,
            runtime=runtime,
            private=private,
            lease_ttl=self._lease_ttl,
            wait=wait,
            **options,
        )
        self._model = swap.model
        return swap.receipt

    def predict(
        self,
        x: Array | Mapping[str, Array] | object,
        signature: str | None = None,
        *,
        timeout: float | None = None,
        keep_alive: float | str | None = None,
    ) -> Array | dict[str, Array]:
        """Return the current model's outputs for `x`, as `Client.predict` does."""
        path = f"/clients/{self.id}/infer"
        predictor = self._client.predictor
        return predictor.predict(path, self.model, x, signature, timeout, keep_alive)

    def predict_json(
        self,
        body: Mapping[str, Any] | bytes,
        *,
        content_type: str = "application/json",
        timeout: float | None = None,
        keep_alive: float | str | None = None,
    ) -> Any:
        """Send a TensorFlow Serving `:predict` body to the current model; return the answer.

        With another `content_type`, such as "image/jpeg", the body is of that type.
        """
        path = f"/clients/{self.id}/predict"
        return self._transport.predict_json(path, body, content_type, timeout, keep_alive)

    def release(self) -> Released:
        """End the lease. Raises UnknownClient where there is none."""
        self._model = None
        return self._client.release(self.id)
