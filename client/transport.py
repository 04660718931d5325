"""One HTTP exchange with the supervisor: connection pool, bounds in time, errors made typed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ReadTimeoutError

from .errors import InvalidRequest, ModelsupError, TimedOut, Unreachable, error_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_URL: Final = "http://127.0.0.1:8501"
CONNECT_SECONDS: Final = 5.0
_LATE: Final = 1.0  # seconds that an answer to a prediction may come late before it is given up
_POOL_SIZE: Final = 64  # connections kept for reuse; more threads than that still work
_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}


class Transport:
    """Sends requests to one supervisor. Threads may share it.

    `timeout` is how many seconds an answer may take where the caller of `send` gives no bound.
    Raises InvalidRequest for a URL that is none.
    """

    def __init__(self, url: str, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidRequest(
                f"{url!r} is not the URL of a supervisor; give one such as {DEFAULT_URL}",
                code="invalid",
            )
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.local = parts.hostname in _LOOPBACK
        self._session = self._new_session()
        self._pid = os.getpid()

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        repeatable: bool = False,
        stream: bool = False,
    ) -> requests.Response:
        """Return the answer, which has a status below 400.

        `repeatable`: the request changes nothing, so it is sent once more when a kept connection
        turns out to have been closed by the supervisor. `stream` leaves the body to the caller,
        without a bound in time. Raises ModelsupError of the fitting class.
        """
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        bound = self.timeout if timeout is None else timeout
        last_try = not (repeatable or method == "GET")
        while True:
            try:
                answer = self._pool().request(
                    method,
                    self.url + path,
                    params=params,
                    data=data,
                    headers=sent,
                    timeout=(min(CONNECT_SECONDS, bound), None if stream else bound),
                    stream=stream,
                    allow_redirects=False,
                )
                break
            except requests.ConnectionError as error:
                if last_try or isinstance(error, requests.Timeout):
                    raise self._failure(error, bound) from error
                last_try = True
            except requests.RequestException as error:
                raise self._failure(error, bound) from error
        if answer.status_code >= 400:
            request = f"{method} {self.url}{path}"
            raise error_from(answer.status_code, answer.headers, answer.content, request)
        return answer

    def json(self, method: str, path: str, **request: Any) -> Any:
        """Send as `send` does and return the parsed JSON of the answer."""
        return parsed(self.send(method, path, **request))

    def predict_json(
        self,
        path: str,
        body: Mapping[str, Any] | bytes,
        content_type: str,
        timeout: float | None,
        keep_alive: float | str | None,
    ) -> Any:
        """Send a body to a V1 predict path and return the parsed JSON of the answer."""
        headers = {"Content-Type": content_type}
        answer = self.predict(path, body, headers, timeout, keep_alive)
        return parsed(answer)

    def predict(
        self,
        path: str,
        body: Mapping[str, Any] | bytes,
        headers: Mapping[str, str],
        timeout: float | None,
        keep_alive: float | str | None,
    ) -> requests.Response:
        """Send a body to a path for predictions and return the answer.

        The supervisor knows of `timeout` and answers in that time, so that it is waited for a
        little longer.
        """
        wishes = {
            "X-Request-Timeout": None if timeout is None else f"{timeout:.3f}",
            "X-Modelsup-Keep-Alive": None if keep_alive is None else str(keep_alive),
        }
        return self.send(
            "POST",
            path,
            body=body,
            headers={
                **headers,
                **{name: text for name, text in wishes.items() if text is not None},
            },
            timeout=None if timeout is None else timeout + _LATE,
            repeatable=True,
        )

    def chunks(self, answer: requests.Response) -> Iterator[bytes]:
        """Yield the body of a streamed answer as it arrives."""
        try:
            yield from answer.iter_content(chunk_size=None)
        except requests.RequestException as error:
            raise self._failure(error, self.timeout) from error

    def close(self) -> None:
        """Close the kept connections."""
        self._session.close()

    def _pool(self) -> requests.Session:
        # After a fork, two processes on one connection would read each other's answers.
        if self._pid != os.getpid():
            self._session = self._new_session()
            self._pid = os.getpid()
        return self._session

    def _new_session(self) -> requests.Session:
        session = requests.Session()
        # A proxy from the environment cannot reach this machine's loopback.
        session.trust_env = not self.local
        # Tensors shrink little, and packing them takes longer than sending them.
        session.headers["Accept-Encoding"] = "identity"
        adapter = HTTPAdapter(pool_connections=1, pool_maxsize=_POOL_SIZE)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        return session

    def _failure(self, error: requests.RequestException, seconds: float) -> ModelsupError:
        reason = error.args[0] if error.args else None
        if isinstance(error, requests.ReadTimeout) or isinstance(reason, ReadTimeoutError):
            return TimedOut(
                f"the supervisor at {self.url} did not answer within {seconds:g} s; "
                "what was asked may still be going on",
                code="timeout",
            )
        if isinstance(error, requests.ConnectionError):
            return Unreachable(
                f"no supervisor answers at {self.url}; start one with `modelsup start`, "
                "or name another with --url or MODELSUP_URL",
                code="unreachable",
            )
        return Unreachable(f"the exchange with {self.url} failed: {error}", code="unreachable")


def parsed(answer: requests.Response) -> Any:
    """Return the JSON of an answer. Raises ModelsupError where it is something else."""
    try:
        return json.loads(answer.content)
    except ValueError as error:
        raise ModelsupError(
            f"{answer.url} did not answer with JSON; is a modelsup supervisor listening there?",
            code="bad_answer",
            status=answer.status_code,
        ) from error
