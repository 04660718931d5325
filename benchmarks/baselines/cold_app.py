"""Baseline "cold": a process per model that starts from nothing.

python -m benchmarks.baselines.cold_app MODEL_FILE
"""

from __future__ import annotations

import sys

from flask import Flask, Response

from .serving import KerasModel, answer_v1, answer_v2, serve


def create_app(file: str) -> Flask:
    """Return an app that serves the model in `file` under any name."""
    app = Flask(__name__)
    model = KerasModel(file)

    @app.post("/v1/models/<name>:predict")
    def predict(name: str) -> Response:
        return answer_v1(model)

    @app.post("/v2/models/<name>/infer")
    def infer(name: str) -> Response:
        return answer_v2(model)

    return app


if __name__ == "__main__":
    serve(create_app(sys.argv[1]))
