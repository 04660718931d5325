"""Make the pipeline's models: `python -m examples.chart_pipeline.models FOLDER [--small]`.

Runs in a process of its own, so that the pipeline never holds TensorFlow itself. Writes
`NAME.keras` per model. The classifier is small and trained. The readers are large: a network for
photographs with random weights, below one trained layer, because weights that were trained on
photographs would have to be downloaded. They take the time and the memory of the real thing, and
guess better than by chance.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from .charts import KINDS, PIXELS, Chart, draw, pixels

CLASSIFIER = "chart_kind"
READERS: Final = {
    "bar_highest": ("bar", "highest", "DenseNet121"),
    "line_trend": ("line", "trend", "ResNet50"),
    "line_roughness": ("line", "roughness", "ResNet50"),
    "pie_largest": ("pie", "largest", "DenseNet121"),
}  # name: the kind of chart, what it finds, and its network
EXAMPLES = 240  # charts of a kind to learn from
EPOCHS = 6
RIDGE = 1000.0  # how much weights cost in the readers' last layer
SEED = 7
MAKE_SECONDS = 600  # the most that making them may take


def make_elsewhere(folder: Path, *, small: bool) -> None:
    """Make all models in another process.

    Raises CalledProcessError with the output of that process in its `stdout`.
    """
    subprocess.run(
        [sys.executable, "-m", __name__, str(folder), *(["--small"] if small else [])],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=MAKE_SECONDS,
    )


def _make(folder: Path, *, small: bool) -> None:
    import keras

    keras.utils.set_random_seed(SEED)
    random = np.random.default_rng(SEED)
    charts = {kind: [draw(kind, random) for _ in range(EXAMPLES)] for kind in KINDS}
    pictures = {kind: np.stack([pixels(chart) for chart in charts[kind]]) for kind in KINDS}
    _classifier(pictures).save(folder / f"{CLASSIFIER}.keras")
    for name, (kind, found, network) in READERS.items():
        base = _small_network() if small else _network(network)
        model = _reader(base, pictures[kind], charts[kind], found)
        model.save(folder / f"{name}.keras")


def _classifier(pictures: dict[str, Any]) -> Any:
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((PIXELS, PIXELS, 3)),
            layers.AveragePooling2D(2),
            layers.Conv2D(16, 5, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(len(KINDS), activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    labels = np.repeat(np.arange(len(KINDS)), EXAMPLES)
    model.fit(np.concatenate([pictures[k] for k in KINDS]), labels, epochs=EPOCHS, verbose=0)
    return model


def _network(name: str) -> Any:
    import keras

    shape = (PIXELS, PIXELS, 3)
    return getattr(keras.applications, name)(weights=None, include_top=False, input_shape=shape)


def _small_network() -> Any:
    import keras
    from keras import layers

    shape = (PIXELS, PIXELS, 3)
    convolution = layers.Conv2D(32, 5, strides=4, activation="relu")
    return keras.Sequential([keras.Input(shape), convolution, layers.AveragePooling2D(2)])


def _reader(base: Any, pictures: Any, charts: list[Chart], found: str) -> Any:
    """Return a network with one layer on top that finds a number, fitted by ridge regression."""
    import keras
    from keras import layers

    network = keras.Model(base.inputs, layers.Flatten()(base.outputs[0]))
    features = np.asarray(network.predict(pictures, batch_size=16, verbose=0), np.float64)
    middle, spread = features.mean(0), features.std(0) + 1e-9
    x = (features - middle) / spread
    y = np.array([chart.truth[found] for chart in charts])
    kernel = x.T @ np.linalg.solve(x @ x.T + RIDGE * np.eye(len(x)), y - y.mean()) / spread
    last = layers.Dense(1, name=found)
    model = keras.Model(network.inputs, last(network.outputs[0]))
    last.set_weights([kernel[:, np.newaxis], np.array([y.mean() - middle @ kernel])])
    return model


if __name__ == "__main__":
    _make(Path(sys.argv[1]), small="--small" in sys.argv[2:])
