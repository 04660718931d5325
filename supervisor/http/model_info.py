"""The V1 and V2 paths that ask about models or load them, beside the predictions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..errors import NotLoaded, UnknownModel
from ..states import State
from . import metadata
from .problem import BadRequest
from .routes import Kind
from .statistics import statistics_of, statistics_of_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..fleet.views import ModelView
    from .router import Router
    from .routes import Route

    EnsureReady = Callable[[Route, Any], Awaitable[None]]

V2_EXTENSIONS: Final = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "statistics",
)


class Asker(Protocol):
    """Who asks, by whatever protocol."""

    async def read_json(self) -> dict[str, Any]:
        """Return what came with the question. Raises BadRequest."""
        ...


class ModelInfo:
    """Answers all paths but the predictions. `ensure_ready` loads a model for an asker."""

    def __init__(
        self,
        router: Router,
        ensure_ready: EnsureReady,
        *,
        autoload: bool,
        max_batch_size: int = 64,
    ) -> None:
        self._router = router
        self._max_batch_size = max_batch_size
        self._ensure_ready = ensure_ready
        self._autoload = autoload
        self._handlers = {
            Kind.V1_STATUS: self._v1_status,
            Kind.V1_METADATA: self._v1_metadata,
            Kind.V2_METADATA: self._v2_metadata,
            Kind.V2_CONFIG: self._v2_config,
            Kind.V2_STATISTICS: self._v2_statistics,
            Kind.V2_READY: self._v2_ready,
            Kind.V2_SERVER: self._v2_server,
            Kind.V2_SERVER_LIVE: self._v2_live,
            Kind.V2_SERVER_READY: self._v2_server_ready,
            Kind.V2_INDEX: self._v2_index,
            Kind.V2_LOAD: self._v2_load,
            Kind.V2_UNLOAD: self._v2_unload,
        }

    async def answer(self, route: Route, call: Asker) -> tuple[int, Any]:
        """Return the HTTP status and the JSON of an answer."""
        if route.label is not None:
            version = self._router.labelled(route.model, route.label)
            route = replace(route, label=None, version=version)
        return await self._handlers[route.kind](route, call)

    async def _v1_status(self, route: Route, call: Asker) -> tuple[int, Any]:
        view = self._view(route)
        current = route.version or metadata.current_version(view)
        shown = {current: view} if current is not None else {}
        if route.version is None:
            shown |= self._loaded_versions(view)
        return HTTPStatus.OK, metadata.v1_status(shown, autoload=self._autoload)

    def _loaded_versions(self, view: ModelView) -> dict[str, ModelView]:
        """Return the versions that are ready, the highest first."""
        ready = [v for v in reversed(view.versions) if self._router.ready(view.name, v)]
        return {version: self._of_version(view, version) for version in ready}

    async def _v1_metadata(self, route: Route, call: Asker) -> tuple[int, Any]:
        view = await self._view_with_signatures(route, call)
        version = route.version or metadata.current_version(view) or ""
        return HTTPStatus.OK, metadata.v1_metadata(view, version, view.signatures or ())

    async def _v2_metadata(self, route: Route, call: Asker) -> tuple[int, Any]:
        view = await self._view_with_signatures(route, call)
        return HTTPStatus.OK, metadata.v2_metadata(view, view.signatures or ())

    async def _v2_config(self, route: Route, call: Asker) -> tuple[int, Any]:
        view = await self._view_with_signatures(route, call)
        return HTTPStatus.OK, metadata.v2_config(view, view.signatures or (), self._max_batch_size)

    async def _v2_statistics(self, route: Route, call: Asker) -> tuple[int, Any]:
        if route.model:
            self._view(route)
            told = await statistics_of(self._router, route.model, route.version)
        else:
            told = await statistics_of_all(self._router)
        return HTTPStatus.OK, {"model_stats": told}

    async def _v2_ready(self, route: Route, call: Asker) -> tuple[int, Any]:
        self._view(route)
        ready = self._router.ready(route.model, route.version) is not None
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return status, {"name": route.model, "ready": ready}

    async def _v2_server(self, route: Route, call: Asker) -> tuple[int, Any]:
        version = package_version("modelsup")
        return HTTPStatus.OK, {
            "name": "modelsup",
            "version": version,
            "extensions": V2_EXTENSIONS,
        }

    async def _v2_live(self, route: Route, call: Asker) -> tuple[int, Any]:
        return HTTPStatus.OK, {"live": True}

    async def _v2_server_ready(self, route: Route, call: Asker) -> tuple[int, Any]:
        return HTTPStatus.OK, {"ready": True}

    async def _v2_index(self, route: Route, call: Asker) -> tuple[int, Any]:
        wish = await call.read_json()
        ready = wish.get("ready")
        if not isinstance(ready, bool | None):
            raise BadRequest("the field 'ready' must be true or false")
        return HTTPStatus.OK, metadata.v2_index(self._router.models(), ready_only=ready is True)

    async def _v2_load(self, route: Route, call: Asker) -> tuple[int, Any]:
        if (await call.read_json()).get("parameters"):
            raise BadRequest(
                "load takes no parameters here; "
                f"give options with POST /api/models/{route.model}/load"
            )
        await self._router.load(route.model)
        return HTTPStatus.OK, {}

    async def _v2_unload(self, route: Route, call: Asker) -> tuple[int, Any]:
        await call.read_json()
        self._router.model(route.model)
        with suppress(NotLoaded):  # V2 clients unload what may not be loaded, and expect success
            await self._router.unload(route.model)
        return HTTPStatus.OK, {}

    def _view(self, route: Route) -> ModelView:
        """Return the model of a path, in whose versions the asked-for one is."""
        try:
            view = self._router.model(route.model)
        except UnknownModel as error:
            message = f"Could not find any versions of model {route.model}"
            raise UnknownModel(message, model=route.model) from error
        if route.version not in (None, view.version, *view.versions):
            raise UnknownModel(
                f"Could not find version {route.version} of model {route.model}",
                model=route.model,
            )
        return self._of_version(view, route.version or self._default_version(view))

    def _default_version(self, view: ModelView) -> str | None:
        """Return the version that a prediction without one would get; it may not be loaded."""
        if self._router.ready(view.name, None) is not None:
            return view.version
        return metadata.highest(view.versions)

    def _of_version(self, view: ModelView, version: str | None) -> ModelView:
        """Return the view of a model as that of one version, which may be loaded beside others."""
        worker = self._router.ready(view.name, version)
        if worker is not None:
            return replace(
                view,
                version=version,
                state=State.READY,
                failure=None,
                signatures=worker.signatures,
            )
        return view if version == view.version else replace(view, signatures=None)

    async def _view_with_signatures(self, route: Route, call: Asker) -> ModelView:
        view = self._view(route)
        if not view.signatures and self._autoload:
            await self._ensure_ready(route, call)
            view = self._view(route)
        if not view.signatures:
            raise UnknownModel(
                f"the signatures of model {route.model!r} are known once it has been loaded; "
                "load it first",
                model=route.model,
            )
        return view
