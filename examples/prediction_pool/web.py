"""What both applications share: the upload, the answer, and a web server with few threads."""

from __future__ import annotations

import io
import json
import socket
from typing import TYPE_CHECKING, Any

import numpy as np
import uvicorn
from a2wsgi import WSGIMiddleware
from flask import Flask, request
from werkzeug.exceptions import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

PIXEL_MAX = 255
END_SECONDS = 1  # what requests under way get when the application ends


def classifier_app(predict: Callable[[Array], Array]) -> Flask:
    """Return the application: `POST /classify` with one image answers its class.

    The body is a `.npy` file of uint8 pixels (height, width, channels). `predict` gets float32
    of 0 to 1 in a batch of one, (1, height, width, channels), and returns probabilities (1, n).
    """
    app = Flask(__name__)

    @app.post("/classify")
    def classify() -> dict[str, Any]:
        (probabilities,) = predict(_batch_of_one(request.get_data()))
        label = int(np.argmax(probabilities))
        return {"label": label, "probability": float(probabilities[label])}

    return app


def _batch_of_one(upload: bytes) -> Array:
    try:
        pixels = np.load(io.BytesIO(upload), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise BadRequest(f"the body is no .npy file: {error}") from error
    if pixels.dtype != np.uint8 or pixels.ndim != 3:
        raise BadRequest(
            f"send uint8 of (height, width, channels), not {pixels.dtype} of {pixels.shape}"
        )
    batch: Array = np.divide(pixels[np.newaxis], PIXEL_MAX, dtype=np.float32)
    return batch


def serve(app: Flask, threads: int) -> None:
    """Serve on a free port of the loopback device and print the URL, until SIGTERM.

    One event loop holds the connections of all users, and `threads` threads run the application:
    it works on so many requests at once, and the others wait their turn.
    """
    config = uvicorn.Config(
        WSGIMiddleware(app, workers=threads),  # type: ignore[arg-type]
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=END_SECONDS,
    )
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
        uvicorn.Server(config).run(sockets=[listener])
