"""What a runtime must offer.

A runtime is a class named by an entry point of the group `modelsup.runtimes`. It is created
without arguments in the forkserver, once; `load` runs in the forked worker, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from ..contract import Cause, LaunchSpec, Signature

    Array = npt.NDArray[Any]
    Arrays = Mapping[str, Array]


def ignore() -> None:
    """Do nothing when the device is open: nobody wants to know."""


class LoadFailed(Exception):
    """A model that cannot be loaded. The message says what is wrong and what to do."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause: Cause = cause


class NotPreparable(Exception):
    """A model that has no prepared form. The message says why, for the user."""


class Model(Protocol):
    """A loaded model. Calls come from one thread, one at a time."""

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The callables by name; the default one is named "serving_default"."""
        ...

    def call(self, signature: str, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Run one signature.

        `inputs` conform to the signature: same names, dtypes and shapes. A "string" tensor is an
        object array of bytes. May raise whatever the framework raises; the worker lives on.
        """
        ...


class Runtime(Protocol):
    """One kind of model."""

    name: str

    @property
    def framework(self) -> str:
        """Name and version of what runs the models, such as "tensorflow 2.21.0"."""
        ...

    def preload(self) -> None:
        """Import what every worker needs. Runs in the forkserver, before any fork.

        Touches no device, runs no operation and leaves no thread behind.
        """
        ...

    def load(self, spec: LaunchSpec, on_device_open: Callable[[], None] = ignore) -> Model:
        """Apply the caps of `spec` and load its model. Raises LoadFailed.

        On a GPU, `on_device_open` is to be called in between: the device is open, and nothing of
        the model is on it.
        """
        ...


@runtime_checkable
class Preparer(Protocol):
    """What a runtime offers besides when its models have a faster form to load from."""

    def is_preparable(self, model: Model) -> bool:
        """Return whether it is worth trying to prepare a model that `load` gave."""
        ...

    def prepare(self, spec: LaunchSpec, folder: Path) -> None:
        """Write the prepared form of the model of `spec` into an empty folder, and verify it.

        It is for the kind of device in `spec.prepare_for`, and is made on the CPU. The caller
        adds the manifest. Raises NotPreparable, LoadFailed or OSError.
        """
        ...

    def load_prepared(
        self, spec: LaunchSpec, folder: Path, on_device_open: Callable[[], None] = ignore
    ) -> Model:
        """Load what `prepare` wrote, as `load` loads the original.

        May raise anything; `load` is called then. `on_device_open` is to be called once.
        """
        ...
