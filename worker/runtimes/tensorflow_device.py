"""Give TensorFlow its limits: which device it sees, how much of it, and how many threads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tensorflow as tf

from ..caps import tensorflow_caps
from .base import LoadFailed

if TYPE_CHECKING:
    from ..caps import Caps
    from ..contract import LaunchSpec


def apply_caps(spec: LaunchSpec) -> None:
    """Set the limits of `spec` in this process. Raises LoadFailed.

    Must run before anything makes TensorFlow open its devices.
    """
    try:
        caps = tensorflow_caps(spec)
    except ValueError as error:
        raise LoadFailed(
            "load_error", f"The options of {spec.model} are wrong: {error}."
        ) from error
    for variable in caps.unset:
        os.environ.pop(variable, None)
    os.environ.update(caps.environment)
    if caps.threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(caps.threads)
        tf.config.threading.set_inter_op_parallelism_threads(caps.threads)
    if spec.device is not None:
        _limit_gpu(spec.device, caps)


def open_gpu(uuid: str) -> None:
    """Make TensorFlow open its GPU, which it would else do at the first operation.

    Raises LoadFailed.
    """
    try:
        tf.config.list_logical_devices("GPU")
    except (tf.errors.OpError, RuntimeError) as error:
        full = isinstance(error, tf.errors.ResourceExhaustedError)
        raise LoadFailed(
            "cuda_oom" if full else "load_error", f"TensorFlow cannot open GPU {uuid}: {error}"
        ) from error


def _limit_gpu(uuid: str, caps: Caps) -> None:
    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        raise LoadFailed(
            "load_error",
            f"TensorFlow sees no GPU {uuid}. Install modelsup[tensorflow-gpu] and check the "
            "driver, or load the model with device cpu.",
        )
    if caps.memory_limit is not None:
        configuration = tf.config.LogicalDeviceConfiguration(memory_limit=caps.memory_limit)
        tf.config.set_logical_device_configuration(devices[0], [configuration])
