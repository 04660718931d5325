"""The pipeline itself: what kind of chart is it, and what do the readers of its kind find?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .charts import KINDS
from .models import CLASSIFIER, READERS

if TYPE_CHECKING:
    from pathlib import Path

    from modelsup.client import Client

IMAGE = {"scale": 1 / 255}  # how a PNG becomes the input of each model
PNG = "image/png"


@dataclass(frozen=True)
class Reading:
    """What was found in a chart, and the seconds that each reader took for it."""

    kind: str
    found: dict[str, float]
    seconds: dict[str, float]


class Pipeline:
    """A classifier that is always there, and readers that are loaded when they are asked."""

    def __init__(self, client: Client, folder: Path) -> None:
        """Load the classifier, pinned, and name the readers from the files in `folder`."""
        self._client = client
        classes = folder / "classes.txt"
        classes.write_text("".join(f"{kind}\n" for kind in KINDS))
        file = folder / f"{CLASSIFIER}.keras"
        client.load(CLASSIFIER, file, pin=True, image=IMAGE, classes=str(classes))
        for name in READERS:
            client.add_model(name, folder / f"{name}.keras", image=IMAGE)

    def read(self, png: bytes) -> Reading:
        """Read one chart. A reader that is not loaded is, before it answers."""
        kind = self._ask(CLASSIFIER, png)["top_k"][0][0]["class"]
        found, seconds = {}, {}
        for name, (reads, _, _) in READERS.items():
            if reads == kind:
                started = time.perf_counter()
                found[name] = float(self._ask(name, png)["predictions"][0][0])
                seconds[name] = time.perf_counter() - started
        return Reading(kind, found, seconds)

    def _ask(self, model: str, png: bytes) -> Any:
        return self._client.predict_json(model, png, content_type=PNG)
