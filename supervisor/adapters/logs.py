"""What workers print, kept within bounds; and the supervisor's own log."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pythonjsonlogger.json import JsonFormatter

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

LONGEST_LINE: Final = 8192  # bytes; a longer one is cut into several
FOLLOWER_LINES: Final = 1000  # lines that wait for one slow reader
READ_SIZE: Final = 65536  # bytes for one pipe in one turn of the event loop
DRAIN_SIZE: Final = 1 << 20  # bytes: more than a pipe holds, unless its writer goes on


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a worker's output, without its end."""

    time: float  # UNIX seconds
    worker: str  # uid; "" for a remark of the supervisor
    text: str


class Follower:
    """The lines of one model from now on, for one reader: `async for line in follower`.

    A reader that is too slow loses the oldest lines and finds a remark in their place. Leave
    the `with` block, or call `close`, when done.
    """

    def __init__(self, on_close: Callable[[Follower], None], clock: Callable[[], float]) -> None:
        self._on_close = on_close
        self._clock = clock
        self._lines: deque[LogLine] = deque()
        self._lost = 0
        self._closed = False
        self._changed = asyncio.Event()

    def put(self, line: LogLine) -> None:
        """Hand over a line; only the log book calls this."""
        if len(self._lines) >= FOLLOWER_LINES:
            self._lines.popleft()
            self._lost += 1
        self._lines.append(line)
        self._changed.set()

    def close(self) -> None:
        """End the iteration once the lines that are here have been read. May be called twice."""
        if not self._closed:
            self._closed = True
            self._changed.set()
            self._on_close(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogLine:
        while not self._lines:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return LogLine(self._clock(), "", f"[{lost} lines left out: the reader is too slow]")
        return self._lines.popleft()


class LogBook:
    """The last lines of each model. All calls come from the event loop's thread."""

    def __init__(self, max_lines: int, clock: Callable[[], float] = time.time) -> None:
        """Keep `max_lines` lines for each model; `clock` gives UNIX seconds."""
        self._max_lines = max_lines
        self._clock = clock
        self._lines: dict[str, deque[LogLine]] = {}
        self._partial: dict[tuple[str, str], bytes] = {}
        self._followers: dict[str, list[Follower]] = {}

    def append(self, model: str, worker: str, data: bytes) -> None:
        """Add what a worker printed; the end of a line may come with a later call."""
        *whole, rest = (self._partial.pop((model, worker), b"") + data).split(b"\n")
        for line in whole:
            self._add_pieces(model, worker, line)
        if len(rest) > LONGEST_LINE:
            end = len(rest) - len(rest) % LONGEST_LINE
            self._add_pieces(model, worker, rest[:end])
            rest = rest[end:]
        if rest:
            self._partial[model, worker] = rest

    def finish(self, model: str, worker: str) -> None:
        """Add the line that a worker left without an end; it prints no more."""
        if rest := self._partial.pop((model, worker), b""):
            self._add_pieces(model, worker, rest)

    def tail(self, model: str, count: int, worker: str | None = None) -> list[LogLine]:
        """Return the last `count` lines of a model, or of one of its workers, oldest first.

        Raises ValueError for a negative count.
        """
        lines = reversed(self._lines.get(model, ()))
        wanted = (line for line in lines if worker is None or line.worker == worker)
        return list(itertools.islice(wanted, count))[::-1]

    def last_lines(self, worker: str, count: int) -> tuple[str, ...]:
        """Return the last lines of one worker, the one without an end included."""
        texts: deque[str] = deque(maxlen=count)
        for model in self._lines:
            texts += [line.text for line in self.tail(model, count, worker)]
        texts += [_text(rest) for (_, uid), rest in self._partial.items() if uid == worker]
        return tuple(texts)

    def subscribe(self, model: str) -> Follower:
        """Return a follower of the lines that come after this call."""
        followers = self._followers.setdefault(model, [])
        follower = Follower(lambda closed: self._unsubscribe(model, closed), self._clock)
        followers.append(follower)
        return follower

    def forget(self, model: str) -> None:
        """Drop all lines of a model, and end its followers."""
        for follower in self._followers.get(model, [])[:]:
            follower.close()
        self._lines.pop(model, None)
        for key in [key for key in self._partial if key[0] == model]:
            del self._partial[key]

    def close(self) -> None:
        """End all followers."""
        for follower in [f for followers in self._followers.values() for f in followers]:
            follower.close()

    def _unsubscribe(self, model: str, follower: Follower) -> None:
        self._followers[model].remove(follower)
        if not self._followers[model]:
            del self._followers[model]

    def _add_pieces(self, model: str, worker: str, line: bytes) -> None:
        for start in range(0, max(len(line), 1), LONGEST_LINE):
            piece = _text(line[start : start + LONGEST_LINE])
            self._add(model, LogLine(self._clock(), worker, piece))

    def _add(self, model: str, line: LogLine) -> None:
        if model not in self._lines:
            self._lines[model] = deque(maxlen=self._max_lines)
        self._lines[model].append(line)
        for follower in self._followers.get(model, ()):
            follower.put(line)


def _text(line: bytes) -> str:
    """Return what a terminal would show in the end: a progress bar rewrites its line."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")


class PipeReader:
    """Reads a pipe on the event loop, a bounded piece at each turn. Owns the descriptor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_bytes: Callable[[bytes], None],
        on_eof: Callable[[], None],
    ) -> None:
        """Begin to read. `on_eof` is called once, when all writers have closed the pipe."""
        os.set_blocking(fd, False)
        self._loop = loop
        self._fd = fd
        self._on_bytes = on_bytes
        self._on_eof = on_eof
        self._closed = False
        loop.add_reader(fd, self._read)

    def drain(self) -> None:
        """Read what is in the pipe now, so that a dead worker's last words are here.

        Reads DRAIN_SIZE bytes at most: a grandchild may hold the pipe open and go on writing.
        """
        left = DRAIN_SIZE
        while not self._closed and left > 0 and (size := self._read()):
            left -= size

    def close(self) -> None:
        """Stop reading, without `on_eof`, and close the descriptor. May be called twice."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._fd)
            os.close(self._fd)

    def _read(self) -> int:
        """Read once and return how many bytes came."""
        try:
            data = os.read(self._fd, READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # as good as its end: nothing can be read from it any more
            data = b""
        if data:
            self._on_bytes(data)
        else:
            self.close()
            self._on_eof()
        return len(data)


_RECORD_FIELDS: Final = frozenset(
    [*vars(logging.makeLogRecord({})), "message", "asctime", "color_message", "taskName"]
)


class TextFormatter(logging.Formatter):
    """One line for people: time, level, logger, message, then the extras as key=value."""

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Append the extras to the message, before any traceback."""
        extras = [f"{k}={_shown(v)}" for k, v in vars(record).items() if k not in _RECORD_FIELDS]
        return " ".join([super().formatMessage(record), *extras])


def _shown(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else repr(text)


def configure_logging(level: str, log_format: str) -> None:
    """Send the log of this process to stderr, as "text" or as "json" lines, from `level` up.

    Takes the place of what was configured before.
    """
    formatter: logging.Formatter = TextFormatter()
    if log_format == "json":
        formatter = JsonFormatter(
            "%(asctime)s %(levelname)s %(name)s %(message)s",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
