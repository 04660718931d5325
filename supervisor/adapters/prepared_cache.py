"""Prepared forms on the disk: each in a folder of its own, made aside and renamed into its place.

    forms/NAME/     one form: its files, and the manifest that names and checks them
    making/NAME/    one that is being made; its maker holds a lock on the folder

Several supervisors may share a cache. What one of them left unfinished when it ended has no lock
any more, and is removed by the next that begins one. A form's folder has the time of its last use.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from modelsup.worker.contract import MANIFEST_NAME, PREPARED_FORMAT, Manifest

from ..domain import PreparedForm
from ..errors import CacheFailed, FormDamaged, UnknownForm
from ..units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..domain import PreparedKey

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.]+")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_UNREADABLE: Final = (OSError, ValueError, TypeError, KeyError)  # of a manifest
_IN_THE_WAY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})


class PreparedCache:
    """The forms below a folder that is made at need. May be asked from several threads."""

    def __init__(self, root: Path, limit: int) -> None:
        """`limit`: bytes of all forms together; those that were used longest ago go first."""
        self._forms = root / "forms"
        self._making = root / "making"
        self._limit = limit
        self._lock = threading.Lock()
        self._locks: dict[Path, int] = {}  # descriptors of the folders that are being made
        self._checked: dict[str, tuple[str, ...]] = {}  # state of each form whose sums were right

    def begin(self) -> Path:
        """Return an empty folder to make a form in. Raises CacheFailed."""
        with self._lock, _told():
            for folder in (self._forms, self._making):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sweep()
            while True:  # until no other supervisor sweeps it before it is locked
                folder = self._making / secrets.token_hex(8)
                folder.mkdir(mode=0o700)
                lock = _locked(folder)
                if lock is not None and folder.exists():
                    self._locks[folder] = lock
                    return folder
                if lock is not None:
                    os.close(lock)

    def finish(self, folder: Path, key: PreparedKey) -> PreparedForm:
        """Give a form that was made its place. Raises CacheFailed, or FormDamaged; it is gone then.

        Another supervisor may have made the same meanwhile: then its form stays, and is returned.
        """
        with self._lock, _told():
            try:
                form = self._checked_form(folder)
                if form.bytes > self._limit:
                    raise CacheFailed(
                        f"the prepared form takes {format_bytes(form.bytes)}, and all of them may "
                        f"take {format_bytes(self._limit)} (cache_size)"
                    )
                place = self._forms / _name(key, form.framework)
                try:
                    folder.rename(place)
                except OSError as error:
                    if error.errno not in _IN_THE_WAY:
                        raise
                    with suppress(FormDamaged):
                        return self._checked_form(place)
                    folder.rename(place)
                self._checked[place.name] = form.state
            finally:
                self._checked.pop(folder.name, None)
                self._drop(folder)
            self._make_room(place.name)
            return self._checked_form(place)

    def discard(self, folder: Path) -> None:
        """Remove a form that is not going to be finished."""
        with self._lock:
            self._drop(folder)

    def find(self, key: PreparedKey, framework: str | None) -> PreparedForm | None:
        """Return the form of a model that a framework made; None: the one that was used last.

        Its checksums are computed once, and again when its files have changed. Raises CacheFailed,
        or FormDamaged once it has removed one.
        """
        with self._lock, _told():
            folders = [p for p in self._folders() if p.name.startswith(_name(key, ""))]
            forms = [
                form for form in map(self._read, folders) if framework in {None, form.framework}
            ]
            if not forms:
                return None
            return self._checked_form(Path(max(forms, key=lambda form: form.used_at).folder))

    def is_intact(self, form: PreparedForm) -> bool:
        """Return whether no file of the form has changed since it was returned. Is quick."""
        with suppress(OSError):
            return _state(Path(form.folder)) == form.state
        return False

    def touch(self, form: PreparedForm) -> None:
        """Note that a form is used now."""
        with suppress(OSError):  # then it is only sooner the one to go
            os.utime(form.folder)

    def all(self) -> list[PreparedForm]:
        """Return all forms, the one used last first; they are not checked. Raises CacheFailed."""
        with self._lock, _told():
            return sorted(self._all(), key=lambda form: -form.used_at)

    def remove(self, name: str) -> PreparedForm:
        """Remove a form; workers that have it loaded keep it. Raises UnknownForm, CacheFailed."""
        with self._lock, _told():
            form = next((form for form in self._all() if form.name == name), None)
            if form is None:
                raise UnknownForm(f"the cache has no prepared form {name!r}")
            self._remove(self._forms / name)
            return form

    def close(self) -> None:
        """Remove what is not finished."""
        with self._lock:
            for folder in list(self._locks):
                self._drop(folder)

    # --- with the lock held ---

    def _folders(self) -> list[Path]:
        with suppress(FileNotFoundError):
            return list(self._forms.iterdir())
        return []

    def _all(self) -> list[PreparedForm]:
        forms = []
        for folder in self._folders():
            with suppress(*_UNREADABLE):
                forms.append(_form(folder))
        return forms

    def _read(self, folder: Path) -> PreparedForm:
        with self._removing_damaged(folder):
            return _form(folder)

    def _checked_form(self, folder: Path) -> PreparedForm:
        with self._removing_damaged(folder):
            form = _form(folder)
            if self._checked.get(form.name) != form.state:
                _check_sums(folder)
            self._checked[form.name] = form.state
            return form

    @contextmanager
    def _removing_damaged(self, folder: Path) -> Iterator[None]:
        """Raise FormDamaged, once it is removed, for what cannot be read or is not as made."""
        try:
            yield
        except _UNREADABLE as error:
            self._remove(folder)
            raise FormDamaged(f"the prepared form {folder.name} is damaged: {error}") from error

    def _make_room(self, keep: str) -> None:
        forms = sorted(self._all(), key=lambda form: form.used_at)
        size = sum(form.bytes for form in forms)
        for form in forms:
            if size > self._limit and form.name != keep:
                self._remove(self._forms / form.name)
                size -= form.bytes

    def _remove(self, folder: Path) -> None:
        """Remove a form in one step, as others see it."""
        self._checked.pop(folder.name, None)
        self._making.mkdir(mode=0o700, parents=True, exist_ok=True)
        trash = self._making / secrets.token_hex(8)
        with suppress(FileNotFoundError):  # another supervisor was first
            folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def _drop(self, folder: Path) -> None:
        lock = self._locks.pop(folder, None)
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)

    def _sweep(self) -> None:
        for folder in self._making.iterdir():
            if folder in self._locks:
                continue
            with suppress(FileNotFoundError):
                lock = _locked(folder)
                if lock is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(lock)


def _name(key: PreparedKey, framework: str) -> str:
    """Return the name of a form; without a framework what the names of all of them begin with."""
    what = "\0".join((str(PREPARED_FORMAT), key.digest, key.runtime, key.device))
    return f"{hashlib.sha256(what.encode()).hexdigest()[:32]}-{_UNSAFE.sub('-', framework)}"


def _locked(folder: Path) -> int | None:
    """Return a descriptor that locks a folder; None where somebody else has locked it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _manifest(folder: Path) -> Manifest:
    """Read a manifest. Raises OSError, ValueError, TypeError or KeyError."""
    manifest = Manifest.from_json((folder / MANIFEST_NAME).read_bytes())
    if manifest.format != PREPARED_FORMAT:
        raise ValueError(f"it has the format {manifest.format}, not {PREPARED_FORMAT}")
    if not all(_NAME.fullmatch(name) for name in manifest.files):
        raise ValueError("its manifest names files that are not its own")
    return manifest


def _form(folder: Path) -> PreparedForm:
    manifest = _manifest(folder)
    return PreparedForm(
        name=folder.name,
        folder=str(folder),
        framework=manifest.framework,
        device=manifest.device,
        model=manifest.model,
        source=manifest.source,
        bytes=sum(file.bytes for file in manifest.files.values()),
        used_at=folder.stat().st_mtime,
        refused=manifest.refused,
        state=_state(folder),
    )


def _state(folder: Path) -> tuple[str, ...]:
    """Return what changes when a file of the folder does."""
    with os.scandir(folder) as entries:
        files = sorted((entry.name, entry.stat()) for entry in entries)
    return tuple(f"{name} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}" for name, s in files)


def _check_sums(folder: Path) -> None:
    """Raise ValueError or OSError where a file is not what the manifest says."""
    for name, expected in _manifest(folder).files.items():
        with (folder / name).open("rb") as file:
            if os.fstat(file.fileno()).st_size != expected.bytes:
                raise ValueError(f"{name} does not have its {expected.bytes} bytes")
            if hashlib.file_digest(file, "sha256").hexdigest() != expected.sha256:
                raise ValueError(f"{name} does not have the checksum that it was made with")


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise CacheFailed(
            f"the cache of prepared models cannot be used: {error.strerror}{where}"
        ) from error
