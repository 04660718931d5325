"""Make the models that the TensorFlow tests load: `python make_models.py DIR`.

A program of its own, so that the tests meet each model as a worker does: as a file alone.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

FOLDER = Path(sys.argv[1])


class Homemade(keras.layers.Layer):
    """A custom layer, which no other process knows."""

    def call(self, inputs: object) -> object:
        return inputs


def dense() -> keras.Model:
    layers = [keras.Input((4,), name="x"), keras.layers.Dense(8, activation="relu")]
    return keras.Sequential([*layers, keras.layers.Dense(3, name="scores")])


def images() -> keras.Model:
    inputs = keras.Input((None, None, 3), name="image")
    x = keras.layers.Conv2D(4, 3, kernel_initializer="orthogonal")(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.DepthwiseConv2D(3, activation="relu")(x)
    x = keras.layers.Dropout(0.5)(keras.layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, keras.layers.Dense(2, name="classes")(x))


def text() -> keras.Model:
    inputs = keras.Input((6,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(20, 8)(inputs)
    x = keras.layers.MultiHeadAttention(2, 4)(x, x)
    x = keras.layers.LSTM(5)(keras.layers.LayerNormalization()(x))
    return keras.Model(inputs, keras.layers.Dense(1, name="score")(x))


def two_inputs(*, by_key: bool) -> keras.Model:
    left, right = keras.Input((2,), name="left"), keras.Input((3,), name="right")
    total = keras.layers.Dense(2, name="total")(keras.layers.Concatenate()([left, right]))
    halves = keras.layers.Dense(1, name="half")
    outputs = [total, halves(left[:, :1]), halves(right[:, :1])]
    if by_key:
        return keras.Model({"b": left, "a": right}, {"sum": total, "one": outputs[1]})
    return keras.Model([left, [right]], outputs)


def words() -> keras.Model:
    inputs = keras.Input((1,), dtype="string", name="word")
    lookup = keras.layers.StringLookup(vocabulary=["cat", "dog"])
    return keras.Model(inputs, lookup(inputs))


def fixed_batch() -> keras.Model:
    inputs = keras.Input(batch_shape=(2, 4), name="x")
    return keras.Model(inputs, keras.layers.Dense(1, name="y")(inputs))


def sparse() -> keras.Model:
    inputs = keras.Input((4,), sparse=True, name="x")
    return keras.Model(inputs, keras.layers.Dense(1)(inputs))


def save_keras_files() -> None:
    good = {
        "dense": dense(),
        "images": images(),
        "text": text(),
        "listed": two_inputs(by_key=False),
        "keyed": two_inputs(by_key=True),
        "words": words(),
        "fixed": fixed_batch(),
    }
    for name, model in good.items():
        model.save(FOLDER / f"{name}.keras")
    good["dense"].save(FOLDER / "dense.h5")
    good["dense"].save_weights(FOLDER / "only.weights.h5")
    good["dense"].export(FOLDER / "dense_saved_model", verbose=False)
    inputs = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    np.savez(FOLDER / "dense.npz", inputs=inputs, outputs=good["dense"].predict(inputs, verbose=0))


def save_bad_keras_files() -> None:
    custom = keras.Sequential([keras.Input((4,)), Homemade()])
    custom.save(FOLDER / "custom.keras")
    custom.save(FOLDER / "custom.h5")
    doubled = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x * 2)])
    doubled.save(FOLDER / "lambda.keras")
    doubled.save(FOLDER / "lambda.h5")
    keras.Sequential([keras.layers.Dense(2)]).save(FOLDER / "unbuilt.keras")
    sparse().save(FOLDER / "sparse.keras")
    whole = (FOLDER / "dense.keras").read_bytes()
    (FOLDER / "truncated.keras").write_bytes(whole[: len(whole) // 2])
    (FOLDER / "truncated.h5").write_bytes((FOLDER / "dense.h5").read_bytes()[:4000])
    (FOLDER / "really_hdf5.keras").write_bytes((FOLDER / "dense.h5").read_bytes())
    with zipfile.ZipFile(FOLDER / "photos.keras", "w") as archive:
        archive.writestr("cat.jpg", b"not a model")


class Server(tf.Module):
    """Functions that Keras would not make: text, a scalar, several signatures."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def shout(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"loud": tf.strings.upper(text), "length": tf.strings.length(text)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32, name="z"),
            tf.TensorSpec([], tf.float32, name="a"),
        ]
    )
    def weigh(self, z: tf.Tensor, a: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"result": z * self.scale + a, "any_rank": tf.reshape(z, tf.shape(z))}

    @tf.function(input_signature=[tf.TensorSpec([], tf.variant, name="opaque")])
    def opaque(self, opaque: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"same": opaque}


def save_saved_models() -> None:
    server = Server()
    signatures = {"serving_default": server.weigh, "shout": server.shout, "opaque": server.opaque}
    tf.saved_model.save(server, FOLDER / "several", signatures=signatures)
    tf.saved_model.save(server, FOLDER / "opaque_only", signatures={"opaque": server.opaque})
    tf.saved_model.save(tf.Module(), FOLDER / "unsigned")
    for name, source in {"damaged": b"junk junk", "empty_graph": b""}.items():
        (FOLDER / name).mkdir()
        (FOLDER / name / "saved_model.pb").write_bytes(source)
    save_of_tensorflow_1(FOLDER / "tensorflow_1")


def save_of_tensorflow_1(folder: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 2], name="x")
        weight = tf.compat.v1.get_variable("w", initializer=[3.0, 5.0])
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"x": x}, {"y": x * weight})


keras.utils.set_random_seed(7)
save_keras_files()
save_bad_keras_files()
save_saved_models()
