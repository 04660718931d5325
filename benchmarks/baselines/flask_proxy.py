"""Baseline "Flask proxy": Flask and requests between the client and one worker.

python -m benchmarks.baselines.flask_proxy WORKER_URL SECRET
"""

from __future__ import annotations

import sys
import threading

import requests
from flask import Flask, Response, request
from modelsup.worker.contract import SECRET_HEADER

from .serving import LENGTH_HEADER, serve

TIMEOUT_SECONDS = 60
PASSED = ("Content-Type", LENGTH_HEADER)  # of the headers that come in


def create_app(worker_url: str, secret: str) -> Flask:
    """Return an app that passes predictions on. Each thread keeps a connection of its own."""
    app = Flask(__name__)
    local = threading.local()

    def passed_on(path: str) -> Response:
        if not hasattr(local, "session"):
            local.session = requests.Session()
        headers = {name: request.headers[name] for name in PASSED if name in request.headers}
        answer = local.session.post(
            f"{worker_url}{path}",
            data=request.get_data(),
            headers={**headers, SECRET_HEADER: secret},
            timeout=TIMEOUT_SECONDS,
        )
        return Response(answer.content, answer.status_code, mimetype="application/json")

    @app.post("/v1/models/<name>:predict")
    def predict(name: str) -> Response:
        return passed_on("/v1/predict")

    @app.post("/v2/models/<name>/infer")
    def infer(name: str) -> Response:
        return passed_on("/v2/infer")

    return app


if __name__ == "__main__":
    serve(create_app(*sys.argv[1:3]))
