"""The application as it is usually done: a pool of predictors, each with the model in it.

python -m examples.prediction_pool.pool_app MODEL_FILE PREDICTORS THREADS
"""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..local_supervisor import end_on_sigterm
from .web import classifier_app, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.synchronize import Barrier

    import numpy as np

    from benchmarks.baselines.serving import KerasModel

    Array = np.ndarray[Any, Any]

LOAD_SECONDS = 120.0  # what all predictors together may take to load

_model: KerasModel  # one in each predictor process


def _load(file: str, all_loaded: Barrier) -> None:
    """Load the model into this process, and wait until every predictor has it."""
    global _model
    from benchmarks.baselines.serving import KerasModel

    _model = KerasModel(file)
    all_loaded.wait(LOAD_SECONDS)


def _predict(batch: Array) -> Array:
    return _model(batch)


def _nothing() -> None:
    """Keep a predictor busy at its start, so that the pool starts the next one."""


@contextmanager
def predictor_pool(file: str, predictors: int) -> Iterator[ProcessPoolExecutor]:
    """Start that many processes with the model; end them with the block.

    They are spawned, because a fork of a process with threads, or with TensorFlow, may hang.
    Raises BrokenProcessPool where one of them cannot load.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        predictors, context, initializer=_load, initargs=(file, context.Barrier(predictors))
    )
    try:
        for started in [pool.submit(_nothing) for _ in range(predictors)]:
            started.result()
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def main(file: str, predictors: int, threads: int) -> None:
    """Load the model into each predictor, then serve."""
    end_on_sigterm()  # first of all, else predictors that still load would outlive this process
    with predictor_pool(file, predictors) as pool:
        serve(classifier_app(lambda batch: pool.submit(_predict, batch).result()), threads)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
