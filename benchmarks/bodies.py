"""The forms that one input may travel in: JSON lists, a binary tensor, a JPEG."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .processes import BenchmarkError

if TYPE_CHECKING:
    from .workload import Workload

FORMS = ("json", "binary", "jpeg")
IMAGE = {"scale": 1 / 255}  # how a JPEG becomes the input of the image models
JPEG_QUALITY = 90


@dataclass(frozen=True)
class Body:
    """A request as every side gets it. `v2` says in which of the two protocols."""

    content: bytes
    headers: dict[str, str]
    v2: bool = False

    def path(self, model: str) -> str:
        """Return the path of a prediction of `model` with this body."""
        return f"/v2/models/{model}/infer" if self.v2 else f"/v1/models/{model}:predict"

    @property
    def worker_path(self) -> str:
        """The path of the same at a worker, which has one model."""
        return "/v2/infer" if self.v2 else "/v1/predict"


def body_of(workload: Workload, form: str) -> Body:
    """Return the workload's input in one of FORMS."""
    if form == "binary":
        return Body(workload.v2_body, workload.v2_headers, v2=True)
    if form == "jpeg":
        return Body(_jpeg(workload.batch[0]), {"Content-Type": "image/jpeg"})
    return Body(workload.v1_body, {"Content-Type": "application/json"})


def _jpeg(image: np.ndarray[Any, Any]) -> bytes:
    """Return a float image of shape [height, width, 3], values 0 to 1, as a JPEG."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray((image * 255).astype(np.uint8)).save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()


def values(answer: bytes) -> np.ndarray[Any, Any]:
    """Return the only output in a V1 or V2 answer, without its shape. Raises BenchmarkError."""
    found = json.loads(answer)
    if "predictions" in found:
        return np.asarray(found["predictions"], dtype=np.float32).ravel()
    if "outputs" in found:
        return np.asarray(found["outputs"][0]["data"], dtype=np.float32)
    raise BenchmarkError(f"no answer but {answer[:300]!r}")
