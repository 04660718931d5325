"""What the baseline servers share: a Keras model behind Flask, and a fast enough WSGI server.

The baselines are as good as such servers get without a change of design: keep-alive, no
Nagle delay, one compiled function per model, no request log.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from flask import Response, request
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from flask import Flask

LENGTH_HEADER = "Inference-Header-Content-Length"


class KeepAliveHandler(WSGIRequestHandler):
    """Keeps connections open, and sends a small answer at once."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write nothing: a log line per request would be measured too."""


class KerasModel:
    """One loaded Keras model with one compiled function."""

    def __init__(self, file: str) -> None:
        import keras
        import tensorflow as tf

        model = keras.models.load_model(file, compile=False)
        self._constant = tf.constant
        self._function = tf.function(lambda x: model(x, training=False))

    def __call__(self, batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the output for a batch of float32 inputs."""
        return np.asarray(self._function(self._constant(batch)).numpy())


def answer_v1(model: KerasModel) -> Response:
    """Answer a JSON request `{"instances": [...]}`, or one that is a JPEG."""
    if request.mimetype == "image/jpeg":
        batch = _image(request.get_data())
    else:
        batch = np.asarray(request.get_json()["instances"], dtype=np.float32)
    return _json_response({"predictions": model(batch).tolist()})


def answer_v2(model: KerasModel) -> Response:
    """Answer a request with one binary tensor."""
    raw = request.get_data()
    split = int(request.headers[LENGTH_HEADER])
    tensor = json.loads(raw[:split])["inputs"][0]
    batch = np.frombuffer(raw, dtype="<f4", offset=split).reshape(tensor["shape"])
    output = model(batch)
    described = {"name": "output", "datatype": "FP32", "shape": list(output.shape)}
    return _json_response({"outputs": [{**described, "data": output.ravel().tolist()}]})


def _image(data: bytes) -> np.ndarray[Any, Any]:
    """Return a JPEG as a batch of one, values 0 to 1."""
    from PIL import Image

    return (np.asarray(Image.open(io.BytesIO(data)), np.float32) / np.float32(255))[None]


def _json_response(data: Any) -> Response:
    return Response(json.dumps(data), mimetype="application/json")


def serve(app: Flask) -> None:
    """Serve on a free port of the loopback device and print the URL. Does not return."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=KeepAliveHandler)
    print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}"}), flush=True)
    server.serve_forever()
