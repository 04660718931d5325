"""The runtime for Keras files and SavedModels.

TensorFlow is imported by `preload` and not with this module, so that the forkserver can set the
environment first.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from ..caps import tensorflow_caps
from .base import LoadFailed
from .tensorflow_sources import find_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..caps import Caps
    from ..contract import LaunchSpec
    from .base import Model

logger = logging.getLogger(__name__)

# Set before the import, where the user has not: Keras must not pick another backend from the
# user's settings file, and TensorFlow's informational lines say nothing about the model.
ENVIRONMENT: Final = {"KERAS_BACKEND": "tensorflow"}
DEFAULT_ENVIRONMENT: Final = {"TF_CPP_MIN_LOG_LEVEL": "1"}

# What a first load or call would import, so that no worker pays for it after the fork. The last
# ones are imported lazily by h5py, zipfile and TensorFlow.
PRELOADED: Final = (
    "tensorflow",
    "keras",
    "h5py",
    "encodings.cp437",
    "modelsup.worker.runtimes.keras_loading",
    "modelsup.worker.runtimes.saved_model_loading",
    "modelsup.worker.runtimes.tensorflow_errors",
)


class TensorFlowRuntime:
    """Loads .keras, .h5 and SavedModel, each into the calling process."""

    name = "tensorflow"

    def preload(self) -> None:
        """Import TensorFlow and Keras: 2 to 7 s, 600 MB. Opens no device, leaves no thread.

        The threads of the BLAS library are bounded by the environment, which the caller sets.
        """
        os.environ.update(ENVIRONMENT)
        for key, value in DEFAULT_ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        for module in PRELOADED:
            importlib.import_module(module)

    def load(self, spec: LaunchSpec) -> Model:
        """Apply the caps of `spec` and load its source. Raises LoadFailed."""
        source = find_source(spec.source)  # before TensorFlow opens a device: a bad path is quick
        self.preload()
        _apply(_caps(spec), spec)
        return _load(source.kind, source.path, on_gpu=spec.device is not None)


def _load(kind: str, path: Any, *, on_gpu: bool) -> Model:
    from . import keras_loading, saved_model_loading, tensorflow_errors

    load = (
        saved_model_loading.load_saved_model if kind == "saved_model" else keras_loading.load_keras
    )
    try:
        with _collector_paused():
            return load(path)
    except Exception as error:
        raise tensorflow_errors.explain(error, path, on_gpu=on_gpu) from error


def _caps(spec: LaunchSpec) -> Caps:
    try:
        return tensorflow_caps(spec)
    except ValueError as error:
        raise LoadFailed(
            "load_error", f"The options of {spec.model} are wrong: {error}."
        ) from error


def _apply(caps: Caps, spec: LaunchSpec) -> None:
    """Set the limits. Must run before anything makes TensorFlow open its devices."""
    for variable in caps.unset:
        os.environ.pop(variable, None)
    os.environ.update(caps.environment)
    import tensorflow as tf

    if caps.threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(caps.threads)
        tf.config.threading.set_inter_op_parallelism_threads(caps.threads)
    if spec.device is None:
        return
    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        raise LoadFailed(
            "load_error",
            f"TensorFlow sees no GPU {spec.device}. Install modelsup[tensorflow-gpu] and check the "
            "driver, or load the model with device cpu.",
        )
    if caps.memory_limit is not None:
        configuration = tf.config.LogicalDeviceConfiguration(memory_limit=caps.memory_limit)
        tf.config.set_logical_device_configuration(devices[0], [configuration])


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
