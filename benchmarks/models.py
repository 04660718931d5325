"""Make the models that benchmarks and tests load: `python -m benchmarks.models DIR [NAME ...]`.

Weights are random but the same on every run. What exists is left alone, so a second run is quick.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEED = 20240501


def tiny() -> Any:
    """Return a model of 4 inputs, 8 hidden units and 3 outputs: 67 parameters."""
    import keras

    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(3),
        ],
        name="tiny",
    )


def mobilenet() -> Any:
    """Return MobileNetV2 for 224 x 224 x 3 images: 3.5 million parameters."""
    import keras

    return keras.applications.MobileNetV2(weights=None)


def resnet50() -> Any:
    """Return ResNet50 for 224 x 224 x 3 images: 25.6 million parameters."""
    import keras

    return keras.applications.ResNet50(weights=None)


def wide() -> Any:
    """Return a model whose input of 1000 x 2000 floats has 8 MB, and that does little with it."""
    import keras

    return keras.Sequential(
        [
            keras.Input((1000, 2000)),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3),
        ],
        name="wide",
    )


BUILDERS: dict[str, Callable[[], Any]] = {
    "tiny": tiny,
    "mobilenet": mobilenet,
    "resnet50": resnet50,
    "wide": wide,
}
SAVED_MODELS = ("tiny", "mobilenet")  # made as SavedModel folders too


def make(folder: Path, names: Sequence[str] = tuple(BUILDERS)) -> list[Path]:
    """Make the named models in `folder` and return all their paths.

    `NAME.keras` for each, and the folder `NAME_savedmodel` for those in SAVED_MODELS. A file is
    made under another name and then renamed, so that an interrupted run leaves no half a model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in names:
        keras_file = folder / f"{name}.keras"
        wanted = [keras_file]
        if name in SAVED_MODELS:
            wanted.append(folder / f"{name}_savedmodel")
        missing = [path for path in wanted if not path.exists()]
        if missing:
            _make_one(name, missing)
        paths += wanted
    return paths


def _make_one(name: str, missing: list[Path]) -> None:
    import keras

    started = time.monotonic()
    keras.utils.set_random_seed(SEED)
    model = BUILDERS[name]()
    for path in missing:
        partial = path.with_name(f"partial-{os.getpid()}-{path.name}")
        if path.suffix == ".keras":
            model.save(partial)
        else:
            model.export(partial, verbose=False)
        partial.rename(path)
        print(f"{path} made, {time.monotonic() - started:.1f} s", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make models as the command line asks, with one line of progress per model."""
    parser = argparse.ArgumentParser(prog="benchmarks.models", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BUILDERS)}")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(BUILDERS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    make(options.folder, options.names or tuple(BUILDERS))


if __name__ == "__main__":
    main()
