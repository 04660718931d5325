"""Export y = 0.5 x + 2 as TensorFlow Serving's examples use it: `python ... FOLDER`.

One SavedModel with a signature for each verb, and two more whose answers are harder to write.
"""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1
build = v1.saved_model.build_signature_def
SERVING = v1.saved_model.tag_constants.SERVING
PREFIX = "tensorflow/serving/"


def signature(method: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    told = [
        {name: v1.saved_model.build_tensor_info(tensor) for name, tensor in tensors.items()}
        for tensors in (inputs, outputs)
    ]
    return build(*told, PREFIX + method)


def export(folder: str) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        a, b, c = (v1.Variable(value) for value in (0.5, 2.0, 3.0))
        text = v1.placeholder(tf.string, [None], name="tf_example")
        features = {
            "x": tf.io.FixedLenFeature([1], tf.float32),
            "x2": tf.io.FixedLenFeature([1], tf.float32, default_value=[0.0]),
        }
        parsed = tf.io.parse_example(text, features)
        x = tf.identity(parsed["x"], name="x")
        y, y2 = a * x + b, a * x + c
        number = tf.identity(parsed["x2"], name="number")
        words = tf.fill(tf.shape(y), "half plus two")
        scalar = v1.placeholder(tf.float32, [], name="scalar")
        image = v1.placeholder(tf.string, [None], name="image")
        regress = signature("regress", {"inputs": text}, {"outputs": y})
        signatures = {
            "serving_default": signature("predict", {"x": x}, {"y": y}),
            "regress_x_to_y": regress,
            "tensorflow/serving/regress": regress,
            "regress_x_to_y2": signature("regress", {"inputs": text}, {"outputs": y2}),
            "regress_x2": signature("regress", {"inputs": text}, {"outputs": number}),
            "regress_numbers": signature("regress", {"inputs": x}, {"outputs": y}),
            "classify_x_to_y": signature("classify", {"inputs": text}, {"scores": y}),
            "classify_named": signature(
                "classify", {"inputs": text}, {"scores": y, "classes": words}
            ),
            "two": signature("predict", {"x": x}, {"y": y, "words": words}),
            "scalar": signature("predict", {"scalar": scalar}, {"half": scalar / 2.0}),
            "bytes": signature("predict", {"image": image}, {"image_bytes": image}),
        }
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(folder)
        builder.add_meta_graph_and_variables(session, [SERVING], signature_def_map=signatures)
        builder.save()


export(sys.argv[1])
