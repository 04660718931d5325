"""`Client`: every call that a supervisor answers, as a method with types."""

from __future__ import annotations

import codecs
import os
import threading
from contextlib import closing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Unpack

from .answers import Loaded, Prepared, Receipt, Released, Scaled, Stopping, Swap
from .decode import decode
from .errors import TimedOut
from .event_stream import server_sent
from .options import Options, checked, load_body
from .session import Session
from .transport import DEFAULT_URL, Transport, parsed
from .views import ClientInfo, Event, EventList, Form, Memory, ModelInfo, Plan, Status, WorkerInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    import numpy.typing as npt

    from .predict import Predictor

    Array = npt.NDArray[Any]

URL_VARIABLE: Final = "MODELSUP_URL"
DEFAULT_TIMEOUT: Final = 300.0  # seconds; a first prediction may have to load its model
LOAD_WAIT: Final = 600.0  # seconds
PREPARE_WAIT: Final = 900.0  # seconds
# What the supervisor may add to the time it was told to wait: to stop a worker that does not
# want to stop, and to see its memory back.
_GRACE: Final = 60.0  # seconds
_DRAIN: Final = 30.0  # seconds: the supervisor's default


class Client:
    """A connection to the supervisor at `url`. Threads may share it.

    `url` defaults to the environment's MODELSUP_URL, else http://127.0.0.1:8501. `timeout` is how
    many seconds an answer may take where a method has no bound of its own. All methods raise
    ModelsupError of a fitting class; Unreachable where no supervisor answers.
    """

    def __init__(self, url: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._transport = Transport(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL, timeout)
        self._predictor_lock = threading.Lock()
        self._predictor: Predictor | None = None

    @property
    def url(self) -> str:
        """Where the supervisor is."""
        return self._transport.url

    @property
    def local(self) -> bool:
        """Whether the URL is of this machine's loopback."""
        return self._transport.local

    def close(self) -> None:
        """Close the kept connections."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Models

    def load(
        self,
        name: str,
        source: str | os.PathLike[str] | None = None,
        *,
        runtime: str | None = None,
        wait: float = LOAD_WAIT,
        **options: Unpack[Options],
    ) -> Loaded:
        """Load a model and wait, at most `wait` seconds, until it is ready, with all its workers.

        With `wait=0` the answer comes at once and its state tells how far the load is. Where only
        some of its `replicas` can be loaded, these stay, and serve. Raises
        LoadFailed, DoesNotFit, UnknownModel without a source, Conflict for another source than
        that of the catalogue, TimedOut after `wait` seconds; the load goes on then.
        """
        answer = self._transport.send(
            "POST",
            f"{_model(name)}/load",
            params={"wait": str(wait)},
            body=load_body(source, runtime, options, local=self.local),
            timeout=wait + _GRACE,
        )
        if answer.status_code == HTTPStatus.ACCEPTED and wait > 0:
            raise _still_loading(name, wait)
        return decode(Loaded, parsed(answer))

    def unload(self, name: str, *, force: bool = False, timeout: float | None = None) -> Receipt:
        """Unload a model; return when its process is gone and its memory is back.

        `timeout` is how many seconds running predictions get to end. `force` ends them, and
        overrides the leases of clients. Raises NotLoaded, Held, UnknownModel.
        """
        body: dict[str, Any] = {"force": force}
        if timeout is not None:
            body["timeout"] = timeout
        bound = (_DRAIN if timeout is None else timeout) + _GRACE
        return decode(
            Receipt,
            self._transport.json("POST", f"{_model(name)}/unload", body=body, timeout=bound),
        )

    def scale(self, name: str, replicas: int, *, wait: float = LOAD_WAIT) -> Scaled:
        """Change how many workers a model has; return when it has as many.

        New ones start while the others serve. Those that are too many first answer the requests
        that they have. A model that is not loaded has the number once it is. Raises as `load`;
        what could be started stays.
        """
        answer = self._transport.send(
            "POST",
            f"{_model(name)}/scale",
            params={"wait": str(wait)},
            body={"replicas": replicas},
            timeout=wait + _GRACE,
        )
        if answer.status_code == HTTPStatus.ACCEPTED:
            raise _still_loading(name, wait)
        return decode(Scaled, parsed(answer))

    def prepare(
        self,
        name: str,
        source: str | os.PathLike[str] | None = None,
        *,
        runtime: str | None = None,
        wait: float = PREPARE_WAIT,
        **options: Unpack[Options],
    ) -> Prepared:
        """Make the form of a model that loads faster, if it has none, and keep it in the cache.

        Raises NotPreparable, PrepareFailed, DoesNotFit, UnknownModel without a source, TimedOut
        after `wait` seconds; the work goes on then.
        """
        answer = self._transport.send(
            "POST",
            f"{_model(name)}/prepare",
            params={"wait": str(wait)},
            body=load_body(source, runtime, options, local=self.local),
            timeout=wait + _GRACE,
        )
        if answer.status_code == HTTPStatus.ACCEPTED and wait > 0:
            raise TimedOut(
                f"model {name!r} was not prepared within {wait:g} s; the work goes on",
                code="timeout",
                model=name,
            )
        return decode(Prepared, parsed(answer))

    def cache(self) -> list[Form]:
        """Return the prepared models, the one used last first."""
        return [decode(Form, f) for f in self._transport.json("GET", "/api/cache")["forms"]]

    def remove_form(self, name: str) -> Form:
        """Remove a prepared model; workers that have it loaded keep it. Raises NotFound."""
        path = f"/api/cache/{checked(name, 'prepared model')}"
        return decode(Form, self._transport.json("DELETE", path)["removed"][0])

    def clear_cache(self) -> list[Form]:
        """Remove all prepared models and return them."""
        removed = self._transport.json("DELETE", "/api/cache")["removed"]
        return [decode(Form, form) for form in removed]

    def models(self) -> list[ModelInfo]:
        """Return the catalogue."""
        return [decode(ModelInfo, m) for m in self._transport.json("GET", "/api/models")["models"]]

    def model(self, name: str) -> ModelInfo:
        """Return one model of the catalogue. Raises UnknownModel."""
        return decode(ModelInfo, self._transport.json("GET", _model(name)))

    def plan(self, name: str) -> Plan:
        """Return what a load of a model would do now, without doing it.

        Raises UnknownModel, LoadFailed where its files are no model.
        """
        return decode(Plan, self._transport.json("GET", f"{_model(name)}/plan"))

    def add_model(
        self,
        name: str,
        source: str | os.PathLike[str] | None = None,
        *,
        runtime: str | None = None,
        **options: Unpack[Options],
    ) -> ModelInfo:
        """Add a model to the catalogue, or change one, without loading it.

        What is not given stays as it was. Raises Conflict while it is loaded from another source,
        UnknownModel for a new one without a source.
        """
        body = load_body(source, runtime, options, local=self.local)
        return decode(ModelInfo, self._transport.json("PUT", _model(name), body=body))

    def remove_model(self, name: str) -> None:
        """Take a model out of the catalogue. Raises Conflict while it is loaded."""
        self._transport.send("DELETE", _model(name))

    def logs(self, name: str, *, tail: int = 100, follow: bool = False) -> Iterator[str]:
        """Yield the last `tail` lines of a model's workers, without line ends.

        With `follow` it then goes on with each new line until the supervisor ends. Raises
        UnknownModel before the first line.
        """
        params = {"tail": str(tail)} | ({"follow": "1"} if follow else {})
        answer = self._transport.send("GET", f"{_model(name)}/logs", params=params, stream=True)
        with closing(answer):
            yield from _lines(self._transport.chunks(answer))

    # Predictions

    def predict(
        self,
        name: str,
        x: Array | Mapping[str, Array] | object,
        signature: str | None = None,
        *,
        timeout: float | None = None,
        keep_alive: float | str | None = None,
    ) -> Array | dict[str, Array]:
        """Return the model's outputs: one array, or arrays by name where it has several.

        `x` is an array, or what numpy makes one of, for a model with one input; a dict by input
        name for several. Shapes and dtypes are the model's; the worker converts numbers to its
        dtype where that keeps their values. Tensors travel in binary. Raises InvalidRequest,
        NotFound, Busy, Unavailable, LoadFailed, DoesNotFit, TimedOut after `timeout` seconds, in
        which a load or a wait for its turn count; nothing is computed for it after that.

        `keep_alive` is how long the model stays without a request from now on, in seconds or as
        "10m": 0 unloads it after this request, a negative number keeps it.
        """
        path = f"/v2/models/{checked(name, 'model')}/infer"
        return self.predictor.predict(path, name, x, signature, timeout, keep_alive)

    def predict_json(
        self,
        name: str,
        body: Mapping[str, Any] | bytes,
        *,
        content_type: str = "application/json",
        timeout: float | None = None,
        keep_alive: float | str | None = None,
    ) -> Any:
        """Send a TensorFlow Serving `:predict` body as it is; return the parsed answer.

        With another `content_type`, such as "image/jpeg", the body is of that type.
        """
        path = f"/v1/models/{checked(name, 'model')}:predict"
        return self._transport.predict_json(path, body, content_type, timeout, keep_alive)

    @property
    def predictor(self) -> Predictor:
        """What sends arrays; made at the first use, because it imports numpy."""
        with self._predictor_lock:
            if self._predictor is None:
                from .predict import Predictor

                self._predictor = Predictor(self._transport)
            return self._predictor

    # Clients

    def session(self, client_id: str, *, lease_ttl: float | None = None) -> Session:
        """Return the client of that id, as a context manager that releases its lease at the end.

        `lease_ttl` is how many seconds the lease lives without use.
        """
        return Session(self, self._transport, client_id, lease_ttl)

    def swap(
        self,
        client_id: str,
        name: str,
        source: str | os.PathLike[str] | None = None,
        *,
        runtime: str | None = None,
        private: bool = False,
        lease_ttl: float | None = None,
        wait: float = LOAD_WAIT,
        **options: Unpack[Options],
    ) -> Swap:
        """Make `name` the client's current model; only this client's model changes.

        Returns when the new model is ready and the old one, if nobody else holds it and it is not
        pinned, is gone with its memory back. `private`: a worker that no other client shares.
        Raises what `load` raises.
        """
        body = {"model": checked(name, "model"), "private": private}
        if lease_ttl is not None:
            body["ttl"] = lease_ttl
        answer = self._transport.send(
            "PUT",
            f"{_client(client_id)}/model",
            params={"wait": str(wait)},
            body=body | load_body(source, runtime, options, local=self.local),
            timeout=wait + _DRAIN + _GRACE,
        )
        if answer.status_code == HTTPStatus.ACCEPTED:
            raise _still_loading(name, wait)
        return decode(Swap, parsed(answer))

    def release(self, client_id: str) -> Released:
        """End the client's lease; its model is unloaded if nobody else needs it.

        Raises UnknownClient.
        """
        return decode(
            Released,
            self._transport.json("DELETE", _client(client_id), timeout=_DRAIN + _GRACE),
        )

    def clients(self) -> list[ClientInfo]:
        """Return the clients with a lease."""
        return [
            decode(ClientInfo, c) for c in self._transport.json("GET", "/api/clients")["clients"]
        ]

    def client(self, client_id: str) -> ClientInfo:
        """Return one client. Raises UnknownClient."""
        return decode(ClientInfo, self._transport.json("GET", _client(client_id)))

    # The supervisor

    def workers(self) -> list[WorkerInfo]:
        """Return the workers: one process each."""
        return [
            decode(WorkerInfo, w) for w in self._transport.json("GET", "/api/workers")["workers"]
        ]

    def memory(self) -> Memory:
        """Return who uses how much memory."""
        return decode(Memory, self._transport.json("GET", "/api/memory"))

    def events(self, *, follow: bool = False) -> Iterator[Event]:
        """Yield what happened lately, oldest first: the last 1000 events at most.

        With `follow` it then goes on with each new event until the supervisor ends. One who takes
        them so slowly that some are forgotten misses those.
        """
        params = {"follow": "0"}
        known = decode(EventList, self._transport.json("GET", "/api/events", params=params))
        yield from known.events
        if not follow:
            return
        headers = {"Last-Event-ID": str(known.last_id)}
        answer = self._transport.send("GET", "/api/events", headers=headers, stream=True)
        with closing(answer):
            for data in server_sent(_lines(self._transport.chunks(answer))):
                yield decode(Event, data)

    def status(self) -> Status:
        """Return the state of the supervisor itself."""
        return decode(Status, self._transport.json("GET", "/api/status"))

    def stop(self) -> Stopping:
        """Tell the supervisor to end its workers and itself; return at once."""
        return decode(Stopping, self._transport.json("POST", "/api/stop"))


def _model(name: str) -> str:
    return f"/api/models/{checked(name, 'model')}"


def _client(client_id: str) -> str:
    return f"/api/clients/{checked(client_id, 'client')}"


def _still_loading(name: str, wait: float) -> TimedOut:
    return TimedOut(
        f"model {name!r} was not ready within {wait:g} s; its load goes on",
        code="timeout",
        model=name,
    )


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for chunk in chunks:
        *whole, rest = (rest + decoder.decode(chunk)).split("\n")
        yield from whole
    if rest:
        yield rest
