"""Compute what each model must answer: `python -m benchmarks.reference MODEL_FILE ...`.

Writes `NAME.reference.npz` beside each model: one input, the output Keras gives for it, and the
name of the input. Runs in a process of its own, so that the benchmark never holds TensorFlow.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

SEED = 7


def reference_file(model_file: Path) -> Path:
    """Return where the reference of a model lies."""
    return model_file.with_name(f"{model_file.stem}.reference.npz")


def write(model_file: Path) -> None:
    """Compute and write the reference of one model. A half-written file is never seen."""
    import keras

    model = keras.models.load_model(model_file, compile=False)
    shape = (1, *model.inputs[0].shape[1:])
    batch = np.random.default_rng(SEED).random(shape, dtype=np.float32)
    expected = np.asarray(model(batch, training=False))
    target = reference_file(model_file)
    partial = target.with_name(f"partial-{os.getpid()}-{target.name}")
    np.savez(partial, input=batch, expected=expected, input_name=model.inputs[0].name)
    partial.rename(target)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for argument in sys.argv[1:]:
        write(Path(argument))
