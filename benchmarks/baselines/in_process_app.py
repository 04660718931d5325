"""Baseline "in-process": one process that loads and drops all models.

python -m benchmarks.baselines.in_process_app
"""

from __future__ import annotations

import gc
import threading

import keras
from flask import Flask, Response, request

from .serving import KerasModel, answer_v1, answer_v2, serve


def create_app() -> Flask:
    """Return an app that loads models on `PUT /models/NAME` and drops them on `DELETE`."""
    app = Flask(__name__)
    models: dict[str, KerasModel] = {}
    changing = threading.Lock()

    @app.put("/models/<name>")
    def load(name: str) -> Response:
        with changing:
            models[name] = KerasModel(request.get_json()["file"])
        return Response(status=204)

    @app.delete("/models/<name>")
    def unload(name: str) -> Response:
        with changing:
            del models[name]
            keras.backend.clear_session()
            gc.collect()
        return Response(status=204)

    @app.post("/v1/models/<name>:predict")
    def predict(name: str) -> Response:
        return answer_v1(models[name])

    @app.post("/v2/models/<name>/infer")
    def infer(name: str) -> Response:
        return answer_v2(models[name])

    return app


if __name__ == "__main__":
    serve(create_app())
