"""The runtime for Keras files and SavedModels.

TensorFlow is imported by `preload` and not with this module, so that the forkserver can set the
environment first.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from typing import TYPE_CHECKING, Final

from .base import ignore
from .tensorflow_sources import find_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ..contract import LaunchSpec
    from .base import Model
    from .tensorflow_functions import TensorFlowModel
    from .tensorflow_sources import Source

# Set before the import, where the user has not: Keras must not pick another backend from the
# user's settings file, and TensorFlow's informational lines say nothing about the model.
ENVIRONMENT: Final = {"KERAS_BACKEND": "tensorflow"}
DEFAULT_ENVIRONMENT: Final = {"TF_CPP_MIN_LOG_LEVEL": "1"}

# What a load and a first call import, so that no worker pays for it after the fork. The codecs
# are those of the names in a zip archive and in an HDF5 file.
PRELOADED: Final = (
    "tensorflow",
    "keras",
    "h5py",
    "encodings.ascii",
    "encodings.cp437",
    "modelsup.worker.runtimes.keras_loading",
    "modelsup.worker.runtimes.prepared_loading",
    "modelsup.worker.runtimes.saved_model_loading",
    "modelsup.worker.runtimes.tensorflow_device",
    "modelsup.worker.runtimes.tensorflow_errors",
)


class TensorFlowRuntime:
    """Loads .keras, .h5 and SavedModel, each into the calling process."""

    name = "tensorflow"

    def __init__(self) -> None:
        self._is_open = False  # the device and the threads can be set once in a process

    @property
    def framework(self) -> str:
        """Name and version of what is installed."""
        found = importlib.import_module("tensorflow")
        return f"tensorflow {found.__version__}"

    def preload(self) -> None:
        """Import TensorFlow and Keras: 2 to 7 s, 600 MB. Opens no device, leaves no thread.

        The threads of the BLAS library are bounded by the environment, which the caller sets.
        """
        os.environ.update(ENVIRONMENT)
        for key, value in DEFAULT_ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        for module in PRELOADED:
            importlib.import_module(module)

    def load(
        self, spec: LaunchSpec, on_device_open: Callable[[], None] = ignore
    ) -> TensorFlowModel:
        """Apply the caps of `spec` and load its source. Raises LoadFailed."""
        source = find_source(spec.source)  # first: a wrong path need not wait for a GPU
        self._open(spec, on_device_open)
        return _load(source, on_gpu=spec.device is not None)

    def load_prepared(
        self, spec: LaunchSpec, folder: Path, on_device_open: Callable[[], None] = ignore
    ) -> Model:
        """Apply the caps of `spec` and load what was prepared into `folder`.

        Raises NotPreparable, LoadFailed, OSError, and others on damaged files.
        """
        self._open(spec, on_device_open)
        from . import prepared_loading

        with _collector_paused():
            return prepared_loading.load(folder, on_gpu=spec.device is not None)

    def is_preparable(self, model: Model) -> bool:
        """Return True: which ones cannot be is found out by trying."""
        return True

    def prepare(self, spec: LaunchSpec, folder: Path) -> None:
        """Load the source of `spec`, and write its prepared form into an empty folder.

        Raises NotPreparable, LoadFailed or OSError.
        """
        model = self.load(spec)
        from . import prepared_making

        prepared_making.make(model, folder, for_gpu=spec.prepare_for == "gpu")

    def _open(self, spec: LaunchSpec, on_device_open: Callable[[], None]) -> None:
        if self._is_open:
            return
        self._is_open = True
        self.preload()  # nothing to do in a fork of a process that has done it
        from .tensorflow_device import apply_caps, open_gpu

        apply_caps(spec)
        if spec.device is not None:
            open_gpu(spec.device)
            on_device_open()


def _load(source: Source, *, on_gpu: bool) -> TensorFlowModel:
    from . import keras_loading, saved_model_loading, tensorflow_errors

    try:
        with _collector_paused():
            if source.kind == "saved_model":
                return saved_model_loading.load_saved_model(source.path)
            return keras_loading.load_keras(source.path)
    except Exception as error:
        raise tensorflow_errors.explain(error, source.path, on_gpu=on_gpu) from error


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep Python's cyclic garbage collector out of a load.

    A load makes hundreds of thousands of objects that stay. Each full collection would walk all
    of them, and write to, and so unshare, the pages that came from the forkserver.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
