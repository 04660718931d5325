"""Make a SavedModel of more than 2 GiB of weights, in one variable: `python make_large.py DIR`.

Each row of the variable holds its own number.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tensorflow as tf

ROWS, WIDTH = 8_800_000, 64  # float32: 2.25 GB


class Table(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        numbers = tf.range(ROWS, dtype=tf.float32)  # each exact: they are below 2 ** 24
        self.rows = tf.Variable(tf.broadcast_to(numbers[:, None], [ROWS, WIDTH]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="x")])
    def ends(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"first": tf.gather(self.rows, x), "last": tf.gather(self.rows, ROWS - x)}


table = Table()
signatures = {"serving_default": table.ends}
tf.saved_model.save(table, str(Path(sys.argv[1]) / "large"), signatures=signatures)
