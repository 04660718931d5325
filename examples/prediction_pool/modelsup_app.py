"""The application on modelsup: it holds no model, and all its users share one worker.

python -m examples.prediction_pool.modelsup_app SUPERVISOR_URL MODEL THREADS
"""

from __future__ import annotations

import sys

import numpy as np
from modelsup.client import Client

from ..local_supervisor import end_on_sigterm
from .web import classifier_app, serve


def main(url: str, model: str, threads: int) -> None:
    """Serve with what the model `model` of the supervisor at `url` predicts."""
    end_on_sigterm()
    with Client(url) as client:
        serve(classifier_app(lambda batch: np.asarray(client.predict(model, batch))), threads)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
