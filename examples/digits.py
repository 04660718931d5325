"""Train small Keras classifiers on scikit-learn's digits: `python -m examples.digits DIR`.

Runs in a process of its own, so that an example never holds TensorFlow itself. Writes
`NAME.keras` per model and `held_out.npz`: images `x` (n, 8, 8, 1), labels `y` (n,), and what each
model answers to the images, under its name (n, 10).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

MODELS = ("dense", "conv", "deep")
EPOCHS = 8
SEED = 1
TRAIN_SECONDS = 300  # the most that training may take


def train_elsewhere(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Train all models in another process; return what `held_out.npz` holds.

    Raises CalledProcessError with the output of that process in its `stdout`.
    """
    subprocess.run(
        [sys.executable, "-m", "examples.digits", str(folder)],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=TRAIN_SECONDS,
    )
    with np.load(folder / "held_out.npz") as stored:
        return dict(stored)


def _train(folder: Path) -> None:
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.images[..., np.newaxis] / 16).astype(np.float32)
    x, held_out, y, labels = train_test_split(
        images, digits.target, test_size=0.2, random_state=SEED, stratify=digits.target
    )
    keras.utils.set_random_seed(SEED)
    arrays: dict[str, Any] = {"x": held_out, "y": labels}
    for name in MODELS:
        model = keras.Sequential([keras.Input((8, 8, 1)), *_layers(name)], name=name)
        model.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy")
        model.fit(x, y, batch_size=64, epochs=EPOCHS, verbose=0)
        model.save(folder / f"{name}.keras")
        arrays[name] = np.asarray(model(held_out, training=False))
    np.savez(folder / "held_out.npz", **arrays)


def _layers(name: str) -> list[Any]:
    from keras import layers

    hidden = {
        "dense": [layers.Flatten(), layers.Dense(64, activation="relu")],
        "conv": [layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten()],
        "deep": [layers.Flatten(), *(layers.Dense(64, activation="relu") for _ in range(3))],
    }
    return [*hidden[name], layers.Dense(10, activation="softmax")]


if __name__ == "__main__":
    _train(Path(sys.argv[1]))
