"""What must survive a restart of the supervisor, in one SQLite file."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any, Final

from ..domain import CatalogueEntry, Footprint, FootprintKey, GpuContext, Lease, Options, SlotKey
from ..errors import StoreFailed
from .digests import MOST_FILES, KnownFile
from .host import create_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

log = logging.getLogger(__name__)

BUSY_TIMEOUT: Final = 1000  # milliseconds; the event loop waits for it, and nobody else writes

# Each entry leads from the schema version that is its index to the next one.
MIGRATIONS: Final = (
    """
    CREATE TABLE models (
        name TEXT PRIMARY KEY, source TEXT, runtime TEXT NOT NULL, options TEXT NOT NULL
    ) STRICT;
    CREATE TABLE wanted (
        model TEXT NOT NULL, version TEXT NOT NULL, client TEXT NOT NULL,
        PRIMARY KEY (model, version, client)
    ) STRICT;
    CREATE TABLE clients (
        id TEXT PRIMARY KEY, model TEXT NOT NULL, version TEXT NOT NULL,
        private INTEGER NOT NULL, ttl REAL NOT NULL, since REAL NOT NULL
    ) STRICT;
    CREATE TABLE workers (
        uid TEXT PRIMARY KEY, model TEXT NOT NULL, pid INTEGER NOT NULL, create_time REAL
    ) STRICT;
    """,
    """
    CREATE TABLE footprints (
        digest TEXT NOT NULL, runtime TEXT NOT NULL, device TEXT NOT NULL, footprint TEXT NOT NULL,
        PRIMARY KEY (digest, runtime, device)
    ) STRICT;
    """,
    """
    CREATE TABLE files (path BLOB PRIMARY KEY, state TEXT NOT NULL, sha256 TEXT NOT NULL) STRICT;
    """,
    """
    CREATE TABLE contexts (
        runtime TEXT NOT NULL, device TEXT NOT NULL, framework TEXT NOT NULL,
        bytes INTEGER NOT NULL, PRIMARY KEY (runtime, device)
    ) STRICT;
    """,
    """
    ALTER TABLE footprints RENAME TO older_footprints;
    CREATE TABLE footprints (
        digest TEXT NOT NULL, runtime TEXT NOT NULL, device TEXT NOT NULL,
        prepared INTEGER NOT NULL, footprint TEXT NOT NULL,
        PRIMARY KEY (digest, runtime, device, prepared)
    ) STRICT;
    INSERT INTO footprints SELECT digest, runtime, device, 0, footprint FROM older_footprints;
    DROP TABLE older_footprints;
    """,
)

_WHAT_WENT_WRONG: Final = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check the folder and its permissions",
    sqlite3.SQLITE_PERM: "permission was denied",
    sqlite3.SQLITE_BUSY: "another process has locked it",
    sqlite3.SQLITE_LOCKED: "another process has locked it",
    sqlite3.SQLITE_IOERR: "the disk reported an error, or is full",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restart to begin with a fresh one",
    sqlite3.SQLITE_NOTADB: "the file is damaged; restart to begin with a fresh one",
}
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class StoreError(StoreFailed):
    """The database could not be read or written. What it held before is still there."""

    def __init__(self, path: Path, what: str, why: str) -> None:
        super().__init__(f"cannot {what} in {path}: {why}")
        self.path = path


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker process that an earlier supervisor, or this one, has started."""

    uid: str
    model: str
    pid: int
    create_time: float | None  # seconds from boot; None if it was gone, or not of this machine


class Store:
    """The database. All calls are short, and come from the thread that made the store."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. A damaged one is moved aside. Raises StoreError."""
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            why = f"{error.strerror}: {error.filename}"
            raise StoreError(path, "open the state", why) from error
        with self._told("open the state"):
            try:
                self._db = _open(path)
            except sqlite3.DatabaseError as error:
                if _primary_code(error) not in _DAMAGED:
                    raise
                aside = _move_aside(path)
                log.warning(
                    "The state file was damaged (%s). It is now %s, and a fresh one takes its "
                    "place: models that were added by hand are to be added again.",
                    error,
                    aside,
                )
                self._db = _open(path)
        try:
            self._migrate()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._db.close()

    def put_model(self, entry: CatalogueEntry) -> None:
        """Add or replace a model of the catalogue. Raises StoreError, as all that follow."""
        self._write(
            f"save model {entry.name}",
            "INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?)",
            (entry.name, entry.source, entry.runtime, json.dumps(asdict(entry.options))),
        )

    def delete_model(self, name: str) -> None:
        """Remove a model of the catalogue, if it is there."""
        self._write(f"remove model {name}", "DELETE FROM models WHERE name = ?", (name,))

    def models(self) -> list[CatalogueEntry]:
        """Return the catalogue, by name."""
        rows = self._read("models", "SELECT name, source, runtime, options FROM models ORDER BY 1")
        return [
            CatalogueEntry(name, source, runtime, self._options(name, options))
            for name, source, runtime, options in rows
        ]

    def _options(self, name: str, text: str) -> Options:
        try:
            return Options(**json.loads(text))
        except (TypeError, ValueError) as error:
            why = f"its options are not of this release ({error}); remove that row, or the file"
            raise StoreError(self._path, f"read model {name}", why) from error

    def add_wanted(self, key: SlotKey) -> None:
        """Note that this is to be loaded again after a restart."""
        self._write(
            f"note model {key.model} as wanted",
            "INSERT OR REPLACE INTO wanted VALUES (?, ?, ?)",
            (key.model, key.version, key.client),
        )

    def remove_wanted(self, key: SlotKey) -> None:
        """Forget that this is to be loaded again."""
        self._write(
            f"note model {key.model} as no longer wanted",
            "DELETE FROM wanted WHERE model = ? AND version = ? AND client = ?",
            (key.model, key.version, key.client),
        )

    def wanted(self) -> list[SlotKey]:
        """Return what is to be loaded again, in the order in which it was first wanted."""
        rows = self._read("wanted set", "SELECT model, version, client FROM wanted ORDER BY rowid")
        return [SlotKey(*row) for row in rows]

    def put_lease(self, lease: Lease) -> None:
        """Add or replace a client's lease."""
        key = lease.key
        self._write(
            f"save the lease of client {lease.client}",
            "INSERT OR REPLACE INTO clients VALUES (?, ?, ?, ?, ?, ?)",
            (lease.client, key.model, key.version, bool(key.client), lease.ttl, lease.since),
        )

    def delete_lease(self, client: str) -> None:
        """Remove a client's lease, if it is there."""
        self._write(
            f"remove the lease of client {client}", "DELETE FROM clients WHERE id = ?", (client,)
        )

    def leases(self) -> list[Lease]:
        """Return all leases, by client."""
        rows = self._read(
            "leases", "SELECT id, model, version, private, ttl, since FROM clients ORDER BY id"
        )
        return [
            Lease(client, SlotKey(model, version, client if private else ""), since, ttl)
            for client, model, version, private, ttl, since in rows
        ]

    def put_footprint(self, key: FootprintKey, footprint: Footprint) -> None:
        """Keep what was measured of a model."""
        self._write(
            f"save a footprint of {key.runtime}",
            "INSERT OR REPLACE INTO footprints VALUES (?, ?, ?, ?, ?)",
            (*astuple(key), json.dumps(asdict(footprint))),
        )

    def footprint(self, key: FootprintKey) -> Footprint | None:
        """Return what was measured of a model before."""
        rows = self._read(
            "footprints",
            "SELECT footprint FROM footprints "
            "WHERE digest = ? AND runtime = ? AND device = ? AND prepared = ?",
            astuple(key),
        )
        return Footprint(**json.loads(rows[0][0])) if rows else None

    def put_context(self, context: GpuContext) -> None:
        """Keep what a process of a runtime takes of a GPU before it loads a model."""
        self._write(
            f"save the GPU context of {context.runtime}",
            "INSERT OR REPLACE INTO contexts VALUES (?, ?, ?, ?)",
            (context.runtime, context.device, context.framework, context.bytes),
        )

    def contexts(self) -> list[GpuContext]:
        """Return all that was kept of these."""
        rows = self._read(
            "contexts", "SELECT runtime, device, framework, bytes FROM contexts ORDER BY rowid"
        )
        return [GpuContext(*row) for row in rows]

    def put_files(self, files: list[KnownFile]) -> None:
        """Keep the digests of files; of all, those that were put last stay."""
        rows = [(os.fsencode(file.path), file.state, file.sha256) for file in files]
        with self._told("save the digests of files"), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", rows)
            self._db.execute(
                "DELETE FROM files WHERE rowid <= "
                "(SELECT rowid FROM files ORDER BY rowid DESC LIMIT 1 OFFSET ?)",
                (MOST_FILES,),
            )

    def files(self) -> list[KnownFile]:
        """Return the files whose digests are known, the oldest first."""
        rows = self._read("files", "SELECT path, state, sha256 FROM files ORDER BY rowid")
        return [KnownFile(os.fsdecode(path), state, sha256) for path, state, sha256 in rows]

    def add_worker(self, uid: str, model: str, pid: int) -> None:
        """Note a running worker, so that a later supervisor can look for it."""
        self._write(
            f"note worker {uid}",
            "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?)",
            (uid, model, pid, create_time(pid)),
        )

    def remove_worker(self, uid: str) -> None:
        """Forget a worker, if it is there."""
        self._write(f"forget worker {uid}", "DELETE FROM workers WHERE uid = ?", (uid,))

    def workers(self) -> list[WorkerRecord]:
        """Return the workers that were noted and not forgotten."""
        rows = self._read(
            "workers", "SELECT uid, model, pid, create_time FROM workers ORDER BY rowid"
        )
        return [WorkerRecord(*row) for row in rows]

    def _write(self, what: str, statement: str, values: tuple[object, ...]) -> None:
        with self._told(what):
            self._db.execute(statement, values)

    def _read(self, what: str, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        with self._told(f"read the {what}"):
            return self._db.execute(statement, values).fetchall()

    def _migrate(self) -> None:
        with self._told("bring the tables up to date"):
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version > len(MIGRATIONS):
                raise StoreError(
                    self._path,
                    "use the state",
                    f"it has schema {version}, of a newer release that knows more than schema "
                    f"{len(MIGRATIONS)}; upgrade, or choose another --state-dir",
                )
            for number in range(version, len(MIGRATIONS)):
                script = f"BEGIN IMMEDIATE; {MIGRATIONS[number]} PRAGMA user_version = {number + 1}"
                try:
                    self._db.executescript(f"{script}; COMMIT")
                except sqlite3.Error:
                    with suppress(sqlite3.Error):  # some errors have ended the transaction
                        self._db.execute("ROLLBACK")
                    raise

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Turn SQLite's errors into a StoreError that says what failed and why."""
        try:
            yield
        except sqlite3.Error as error:
            why = _WHAT_WENT_WRONG.get(_primary_code(error), "SQLite refused it")
            raise StoreError(self._path, what, f"{why} ({error})") from error


def _open(path: Path) -> sqlite3.Connection:
    """Connect in autocommit mode, so that each statement is a transaction of its own."""
    db = sqlite3.connect(path, timeout=BUSY_TIMEOUT / 1000, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA foreign_keys = ON")
        _check(db)
    except BaseException:
        db.close()
        raise
    return db


def _check(db: sqlite3.Connection) -> None:
    """Raise DatabaseError if the file is damaged in a part that opening it does not read."""
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        damage = sqlite3.DatabaseError(verdict)
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage


def _move_aside(path: Path) -> Path:
    """Rename the file, and the write-ahead log that belongs to it, to the first free name."""
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's result code without its extension; 0 where Python made the error."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
