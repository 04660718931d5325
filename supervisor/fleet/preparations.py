"""Which models have a prepared form, and the making of those that have none: one at a time.

One that is being made gives way to any model that needs its room, and begins only in room that
nobody waits for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ..errors import (
    CacheFailed,
    DoesNotFit,
    FormDamaged,
    LaunchFailed,
    NotPreparable,
    PrepareFailed,
    Stopping,
    SupervisorError,
)
from ..policy.admission import HOST, Admit, Refuse
from .preparing import Preparing, memory_for
from .views import FormView, Plan, PreparedView

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..domain import CatalogueEntry, Prepare, PreparedForm, PreparedKey
    from ..policy.admission import Decision, Resident
    from .measuring import ModelFiles
    from .ports import FormCache, Store
    from .services import Services
    from .views import PreparedState
    from .worker import Worker

logger = logging.getLogger(__name__)

MOST_TRIES: Final = 3  # that nobody asks for; then somebody has to
_UNDER_WAY: Final = frozenset({"waiting", "preparing"})


@dataclass(slots=True)
class Preparation:
    """What is known of the prepared form of one model for one kind of device."""

    state: PreparedState = "none"
    reason: str = ""  # of a refusal or failure
    form: PreparedForm | None = None  # while it is ready
    framework: str = ""  # what made the form, or refused
    unusable: tuple[str, ...] = ()  # state of a form that could not be loaded
    tries: int = 0  # that nobody asked for

    def take(self, form: PreparedForm | None) -> None:
        """Take what is in the cache; why the last try failed stays known."""
        if form is None or form.state == self.unusable:
            self.state, self.form = "failed" if self.state == "failed" else "none", None
        elif form.refused:
            self.state, self.reason, self.form = "refused", form.refused, None
            self.framework = form.framework
        else:
            self.state, self.reason, self.form = "ready", "", form
            self.framework = form.framework


@dataclass(eq=False, slots=True)
class _Job:
    entry: CatalogueEntry
    key: PreparedKey
    files: ModelFiles
    preparation: Preparation
    done: asyncio.Future[None]  # fails with what went wrong; a refusal is none
    process: Preparing | None = None  # while it is being made
    withdrawn: SupervisorError | None = None  # nobody wants it any more

    @property
    def memory(self) -> int:
        """What it takes of host memory, in bytes."""
        return memory_for(self.files, self.entry.options)


class Preparations:
    """What is known by key, and the line of those that are to be made."""

    def __init__(
        self,
        services: Services,
        cache: FormCache,
        mode: Prepare,
        limit: float,
        room: Callable[[int], Decision],
        store: Store,
        persist: Callable[..., None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        changed: Callable[[], None],
    ) -> None:
        """`limit`: seconds that one may take. `room` decides on so many bytes of host memory.

        `changed` is called when a model has another form, or has used the one that it has.
        """
        self._services = services
        self._cache = cache
        self._mode = mode
        self._limit = limit
        self._room = room
        self._store = store
        self._persist = persist
        self._spawn = spawn
        self._changed = changed
        self._known: dict[PreparedKey, Preparation] = {}
        self._keys: dict[str, PreparedKey] = {}  # model → what was looked at last
        self._frameworks: dict[str, str] = {}  # runtime → what its workers run on
        self._line: deque[_Job] = deque()
        self._running: _Job | None = None
        self._closed = False

    # --- what there is ---

    def mode(self, entry: CatalogueEntry) -> Prepare:
        """Return whether and when a model is prepared."""
        return entry.options.prepare or self._mode

    def view(self, entry: CatalogueEntry) -> PreparedView:
        """Return what is known of a model's form."""
        if self.mode(entry) == "off":
            return PreparedView("off")
        key = self._keys.get(entry.name)
        found = self._known[key] if key is not None else Preparation()
        form = found.form
        size = form.bytes if form else 0
        return PreparedView(found.state, found.reason, form.name if form else None, size)

    def form(self, entry: CatalogueEntry) -> PreparedForm | None:
        """Return the form that the next worker of a model is to load, as far as is known."""
        key = self._keys.get(entry.name)
        return None if key is None or self.mode(entry) == "off" else self._known[key].form

    async def look(self, entry: CatalogueEntry, key: PreparedKey) -> Preparation:
        """Find out whether the cache has the form of a model that is about to be loaded."""
        self._keys[entry.name] = key
        found = self._known.setdefault(key, Preparation())
        if self.mode(entry) == "off" or found.state in _UNDER_WAY:
            return found
        if found.form is not None and self._cache.is_intact(found.form):
            return found
        form, framework = None, self._frameworks.get(key.runtime)
        try:
            form = await asyncio.to_thread(self._cache.find, key, framework)
        except FormDamaged as damage:
            self._tell(entry, "a damaged prepared model was removed", reason=str(damage))
        except CacheFailed as error:
            logger.warning("%s", error)
        if found.state not in _UNDER_WAY:
            found.take(form)
            self._changed()
        return found

    def has_form(self, entry: CatalogueEntry, key: PreparedKey) -> bool:
        """Return whether the next worker of a model is going to load its form."""
        found = self._known.get(key)
        return self.mode(entry) != "off" and found is not None and found.form is not None

    def use(self, entry: CatalogueEntry, key: PreparedKey) -> PreparedForm | None:
        """Return the form that a worker is to load, if there is one and it is as it was found."""
        found = self._known.get(key)
        if self.mode(entry) == "off" or found is None or found.form is None:
            return None
        form = found.form
        if not self._cache.is_intact(form):
            self._tell(entry, "a prepared model has changed on the disk", form=form.name)
            found.take(None)
            self._changed()
            return None
        self._cache.touch(form)
        found.form = replace(form, used_at=self._services.clock.wall())
        self._changed()
        return form

    def forget(self, model: str) -> None:
        """Drop what is known of a model that has left the catalogue."""
        key = self._keys.pop(model, None)
        if key is None or key in self._keys.values():
            return
        del self._known[key]
        self._changed()
        for job in [job for job in self._jobs() if job.key == key]:
            self._withdraw(job, Stopping(f"model {model} was removed", model=model))

    # --- what is in the cache ---

    async def forms(self) -> list[FormView]:
        """Return all forms, the one used last first. Raises CacheFailed."""
        return [_shown(form) for form in await asyncio.to_thread(self._cache.all)]

    async def remove(self, name: str) -> FormView:
        """Remove a form; workers that have it keep it. Raises UnknownForm, CacheFailed."""
        form = await asyncio.to_thread(self._cache.remove, name)
        for found in self._known.values():
            if found.form is not None and found.form.name == name:
                found.take(None)
        self._changed()
        return _shown(form)

    # --- what workers tell ---

    async def on_ready(
        self, entry: CatalogueEntry, key: PreparedKey, files: ModelFiles, worker: Worker
    ) -> None:
        """Take note of a ready worker: what it runs on, how it was loaded, what to make next."""
        self._frameworks[key.runtime] = worker.framework
        if worker.prepared_error:
            self._on_unusable(entry, key, worker, worker.prepared_error)
        found = self._known.setdefault(key, Preparation())
        if found.framework not in {"", worker.framework} and found.state not in _UNDER_WAY:
            found.state, found.form, found.framework = "none", None, ""
            await self.look(entry, key)
        wanted = self.mode(entry) != "off" and worker.preparable and not self._closed
        if wanted and found.state in {"none", "failed"} and found.tries < MOST_TRIES:
            found.tries += 1
            self._enqueue(entry, key, files)

    def on_failed(self, entry: CatalogueEntry, key: PreparedKey, worker: Worker) -> None:
        """Take note of a worker that died while it loaded a form: the next one does without."""
        assert worker.failure is not None
        self._on_unusable(entry, key, worker, worker.failure.message)

    def _on_unusable(
        self, entry: CatalogueEntry, key: PreparedKey, worker: Worker, reason: str
    ) -> None:
        found = self._known.setdefault(key, Preparation())
        form = found.form
        if form is None or form.folder != worker.spec.prepared:
            return
        self._tell(entry, "a prepared model was not loaded", form=form.name, reason=reason)
        found.state, found.reason, found.form, found.unusable = "failed", reason, None, form.state
        self._changed()
        if worker.framework in {"", form.framework}:  # it is not there for some other version
            self._spawn(self._discard(form.name))

    async def _discard(self, name: str) -> None:
        with suppress(SupervisorError):  # it is gone, or stays and is known to be unusable
            await asyncio.to_thread(self._cache.remove, name)

    # --- making them ---

    async def prepare(self, entry: CatalogueEntry, key: PreparedKey, files: ModelFiles) -> None:
        """Make a model's form, if it has none, and wait for that.

        Raises NotPreparable, PrepareFailed, CacheFailed, DoesNotFit or Stopping.
        """
        name = entry.name
        if self.mode(entry) == "off":
            raise NotPreparable(f"preparing is off for model {name}", model=name)
        found = await self.look(entry, key)
        if found.state not in {"ready", "refused"}:
            await asyncio.shield(self._enqueue(entry, key, files).done)
        if found.state == "refused":
            raise NotPreparable(f"model {name} cannot be prepared: {found.reason}", model=name)

    async def prepare_soon(
        self, entry: CatalogueEntry, key: PreparedKey, files: ModelFiles
    ) -> None:
        """Have a model's form made, if nothing is known of it yet."""
        found = await self.look(entry, key)
        if found.state == "none" and not self._closed:
            self._enqueue(entry, key, files)

    def _enqueue(self, entry: CatalogueEntry, key: PreparedKey, files: ModelFiles) -> _Job:
        if self._closed:
            raise Stopping("the supervisor is shutting down")
        job = next((job for job in self._jobs() if job.key == key and not job.withdrawn), None)
        if job is None:
            done = asyncio.get_running_loop().create_future()
            done.add_done_callback(_forget_outcome)
            job = _Job(entry, key, files, self._known[key], done)
            self._wait_in_line(job)
        self.poke()
        return job

    def _jobs(self) -> list[_Job]:
        return [*self._line, *([self._running] if self._running else [])]

    def _wait_in_line(self, job: _Job) -> None:
        job.preparation.state, job.preparation.reason = "waiting", ""
        self._line.append(job)

    def poke(self) -> None:
        """Begin the first in line for which there is room, if none is being made."""
        for job in list(self._line):
            if self._running is not None:
                return
            decision = self._room(job.memory)
            if isinstance(decision, Admit):
                self._line.remove(job)
                self._running = job
                job.process = Preparing(
                    job.entry, job.files, job.key.device, self._services, self._limit
                )
                self._spawn(self._run(job, job.process))
            elif isinstance(decision, Refuse):
                self._line.remove(job)
                self._end(job, _does_not_fit(job, decision))

    async def _run(self, job: _Job, process: Preparing) -> None:
        job.preparation.state = "preparing"
        self._tell(job.entry, "preparing a model")
        error: SupervisorError | None = None
        try:
            job.preparation.take(await self._make(job, process))
        except SupervisorError as problem:
            error = problem
        except Exception:
            logger.exception("preparing a model failed", extra={"model": job.entry.name})
            error = PrepareFailed("the supervisor made a mistake", model=job.entry.name)
        job.process = self._running = None
        if error is not None and process.stopped and not job.withdrawn:
            self._wait_in_line(job)
        else:
            self._end(job, job.withdrawn or error)
        self.poke()

    async def _make(self, job: _Job, process: Preparing) -> PreparedForm:
        """Make one form. Raises PrepareFailed or CacheFailed."""
        name = job.entry.name
        folder = await asyncio.to_thread(self._cache.begin)
        try:
            pid = await process.launch(folder)
            self._persist(self._store.add_worker, process.uid, name, pid)
            failure = await process.ended()
            self._persist(self._store.remove_worker, process.uid)
            if failure is None:
                return await asyncio.to_thread(self._cache.finish, folder, job.key)
            why = failure.message
        except (LaunchFailed, FormDamaged) as error:
            why = str(error)
        finally:
            await asyncio.to_thread(self._cache.discard, folder)
        raise PrepareFailed(f"model {name} was not prepared: {why}", model=name)

    def _end(self, job: _Job, error: SupervisorError | None) -> None:
        found, took = job.preparation, job.preparation.form
        self._changed()
        if error is not None:
            found.state, found.reason, found.form = "failed", str(error), None
            self._tell(job.entry, "a model was not prepared", logging.WARNING, reason=str(error))
            job.done.set_exception(error)
            return
        if took is not None:
            self._tell(job.entry, "a model is prepared", form=took.name, bytes=took.bytes)
        else:
            self._tell(job.entry, "a model cannot be prepared", reason=found.reason)
        job.done.set_result(None)

    def _withdraw(self, job: _Job, error: SupervisorError) -> None:
        job.withdrawn = error
        if job.process is not None:
            job.process.stop(str(error))
        elif job in self._line:
            self._line.remove(job)
            self._end(job, error)

    def _tell(
        self, entry: CatalogueEntry, message: str, level: int = logging.INFO, **facts: object
    ) -> None:
        self._services.events.tell("prepare", message, level, model=entry.name, **facts)

    # --- what the ledger sees of it ---

    def residents(self) -> list[Resident]:
        """Return what holds memory to make a form."""
        process = self._running.process if self._running is not None else None
        return [process.resident()] if process is not None else []

    def evict(self, uid: str, reason: str) -> bool:
        """Let the process of this id give way, if it is one of these; it is done again later."""
        job = self._running
        if job is None or job.process is None or job.process.uid != uid:
            return False
        self._tell(job.entry, "preparing gives way", reason=reason)
        job.process.stop(reason)
        return True

    async def close(self) -> None:
        """Make no more, and wait for the end of the one that is being made."""
        self._closed = True
        jobs = self._jobs()
        for job in jobs:
            self._withdraw(job, Stopping("the supervisor is shutting down"))
        if jobs:
            await asyncio.wait([job.done for job in jobs])


def _shown(form: PreparedForm) -> FormView:
    return FormView(
        form.name,
        form.model,
        form.source,
        form.framework,
        form.device,
        form.bytes,
        form.used_at,
        form.refused,
    )


def _does_not_fit(job: _Job, decision: Refuse) -> DoesNotFit:
    model = job.entry.name
    plan = Plan(
        model=model,
        fits="no",
        device=None,
        charges={HOST: job.memory},
        estimated=True,
        victims=(),
        blockers=decision.blockers,
        reason=decision.reason,
        seconds=None,
    )
    text = f"model {model} cannot be prepared here: {decision.reason}"
    return DoesNotFit(text, model=model, plan=asdict(plan))


def _forget_outcome(done: asyncio.Future[None]) -> None:
    """Take the outcome: often nobody waits for it."""
    if not done.cancelled():
        done.exception()
