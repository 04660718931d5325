"""Make models of many kinds, to be prepared: `python make_kinds.py DIR`.

The weights are random, those of normalisations too, so that a lost one shows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf
from keras import layers

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(sys.argv[1])


def wide() -> keras.Model:
    """Return a model whose weights are large enough to be moved out of the graph."""
    inputs = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(64, 3, activation="relu")(inputs)
    x = layers.Flatten()(layers.BatchNormalization()(x))
    return keras.Model(inputs, layers.Dense(200)(x))


def wide_of(policy: str) -> keras.Model:
    keras.config.set_dtype_policy(policy)
    try:
        return wide()
    finally:
        keras.config.set_dtype_policy("float32")


def convolutions() -> keras.Model:
    inputs = keras.Input((None, None, 3), dtype="uint8", name="pixels")
    x = layers.Rescaling(1 / 255)(inputs)
    x = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    x = layers.BatchNormalization()(layers.DepthwiseConv2D(3)(x))
    x = layers.SeparableConv2D(8, 3, activation="swish")(x)
    x = layers.Conv2DTranspose(4, 3)(layers.GroupNormalization(2)(x))
    return keras.Model(inputs, layers.GlobalMaxPooling2D()(x))


def recurrent(layer: Callable[[], layers.Layer]) -> keras.Model:
    inputs = keras.Input((None, 5), name="steps")
    return keras.Model(inputs, layers.Dense(3)(layer()(inputs)))


def masked() -> keras.Model:
    inputs = keras.Input((7,), dtype="int32", name="tokens")
    x = layers.Embedding(50, 40, mask_zero=True)(inputs)
    x = layers.Bidirectional(layers.LSTM(6, return_sequences=True))(x)
    return keras.Model(inputs, layers.GRU(4)(x))


def attention() -> keras.Model:
    inputs = keras.Input((10,), dtype="int64", name="tokens")
    x = layers.Embedding(30, 16)(inputs) + layers.Embedding(10, 16)(keras.ops.arange(10))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 8)(x, x, use_causal_mask=True))
    x = layers.Attention(use_scale=True)([x, x])
    x = layers.UnitNormalization()(layers.Dense(64, activation="gelu")(x))
    return keras.Model(inputs, layers.Dense(30, activation="softmax")(x))


def shared() -> keras.Model:
    left, right = keras.Input((6,), name="left"), keras.Input((6,), name="right")
    tower = keras.Sequential([layers.Dense(80, "tanh"), layers.Dropout(0.5), layers.Dense(80)])
    near, far = tower(left), tower(right)
    outputs = {"near": near, "both": layers.Dot(1)([near, far]), "same": left}
    return keras.Model({"left": left, "right": right}, outputs)


def choice() -> keras.Model:
    inputs = keras.Input((4,), dtype="float64", name="x")
    x = layers.Dense(9, dtype="float64")(inputs)
    return keras.Model(inputs, [keras.ops.argmax(x, axis=-1), x > 0])


def nested() -> keras.Model:
    inputs, dense = keras.Input((4,), name="x"), layers.Dense(3, name="dense")
    outputs = [[dense(inputs)], {"again": dense(inputs * 2), "same": inputs}]
    return keras.Model([inputs], outputs)


def quantised() -> keras.Model:
    model = keras.Sequential([keras.Input((16,)), layers.Dense(64), layers.Dense(128)])
    model.quantize("int8")
    return model


def words() -> keras.Model:
    inputs = keras.Input((1,), dtype="string", name="word")
    return keras.Model(inputs, layers.StringLookup(vocabulary=["cat", "dog"])(inputs))


KERAS = {
    "wide": wide,
    "wide_float16": lambda: wide_of("float16"),
    "wide_bfloat16": lambda: wide_of("bfloat16"),
    "wide_float64": lambda: wide_of("float64"),
    "wide_mixed": lambda: wide_of("mixed_bfloat16"),
    "convolutions": convolutions,
    "lstm": lambda: recurrent(lambda: layers.LSTM(40)),
    "gru": lambda: recurrent(lambda: layers.GRU(40, reset_after=False)),
    "simple_rnn": lambda: recurrent(lambda: layers.SimpleRNN(40)),
    "unrolled": lambda: keras.Sequential([keras.Input((4, 5)), layers.LSTM(3, unroll=True)]),
    "distributed": lambda: recurrent(lambda: layers.TimeDistributed(layers.Dense(40))),
    "masked": masked,
    "attention": attention,
    "shared": shared,
    "choice": choice,
    "nested": nested,
    "quantised": quantised,
    "hashed": lambda: keras.Sequential([keras.Input((2,), dtype="string"), layers.Hashing(16)]),
    "images_in_steps": lambda: keras.Sequential(
        [keras.Input((4, 9, 9, 2)), layers.ConvLSTM2D(8, 3)]
    ),
    "words": words,
    "stateful_rnn": lambda: keras.Sequential(
        [keras.Input(batch_shape=(2, 3, 5)), layers.LSTM(4, stateful=True)]
    ),
}


def randomise(model: keras.Model) -> None:
    """Give the weights of normalisations and biases values that are not 0 and 1."""
    generator = np.random.default_rng(1)
    for weight in model.weights:
        if len(weight.shape) == 1 and "int" not in weight.dtype:
            weight.assign(generator.uniform(0.5, 1.5, weight.shape))


for name, make in KERAS.items():
    keras.utils.set_random_seed(5)
    made = make()
    randomise(made)
    made.save(FOLDER / f"{name}.keras")
    if name == "wide":
        made.save(FOLDER / "wide.h5")
        made.export(FOLDER / "wide_saved_model", verbose=False)


NUMBERS = (
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool float16 bfloat16 float32 float64 "
    "complex64 complex128"
)
DTYPES = [tf.as_dtype(name) for name in (*NUMBERS.split(), "string")]


def spec(*shape: int | None, dtype: tf.DType = tf.float32, name: str = "x") -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype, name=name)


class Queue(tf.saved_model.experimental.TrackableResource):
    """A resource that is neither a variable nor a table."""

    def __init__(self) -> None:
        super().__init__()
        assert self.resource_handle is not None  # made now, so that no function makes one

    def _create_resource(self) -> tf.Tensor:
        return tf.raw_ops.FIFOQueueV2(component_types=[tf.float32], shared_name="queue")

    def _initialize(self) -> None:
        """Nothing: it starts empty."""


class Functions(tf.Module):
    """What Keras would not make: state, loops, branches, text, lookups."""

    def __init__(self) -> None:
        super().__init__()
        numbers = np.random.default_rng(3).normal(size=(40, 30)).astype("float32")
        self.matrix = tf.Variable(numbers)
        self.count = tf.Variable(0.0)
        self.constant = tf.constant(numbers.T)
        initializer = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
        self.table = tf.lookup.StaticHashTable(initializer, -1)
        words = FOLDER / "words.txt"
        words.write_text("a\nb\n")
        whole, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        lines = tf.lookup.TextFileInitializer(str(words), tf.string, whole, tf.int64, number)
        self.file = tf.lookup.StaticHashTable(lines, -1)
        self.learned = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        self.queue = Queue()
        self.generator = tf.random.Generator.from_seed(1)

    @tf.function(input_signature=[spec(None, 40)])
    def forwards(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x @ self.matrix}

    @tf.function(input_signature=[spec(None, 40)])
    def there_and_back(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x @ self.matrix @ self.constant, "matrix": self.matrix + 0.0}

    @tf.function(input_signature=[spec(None, dtype=tf.int32)])
    def gathers(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        pairs = tf.stack([x, x], axis=-1)
        return {
            "rows": tf.gather(self.matrix, x),
            "sparse": self.matrix.sparse_read(x),
            "by_pairs": tf.gather_nd(self.matrix, pairs),
            "read_by_pairs": self.matrix.gather_nd(pairs),
            "shape": tf.shape(self.matrix)[0] * x,
        }

    @tf.function(input_signature=[spec(None, 40)])
    def loops(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        step, y = tf.constant(0), x
        while step < 3:
            y = tf.tanh(y @ self.matrix) @ self.constant
            step += 1
        mapped = tf.map_fn(lambda row: tf.reduce_sum(row * self.matrix[0, 0]), x)
        return {"y": y, "mapped": mapped}

    @tf.function(input_signature=[spec(None, 40)])
    def branches(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        y = x @ self.matrix if tf.reduce_sum(x) > 20 else x[:, :30] - self.matrix[0]
        cases = tf.switch_case(tf.shape(x)[0] % 3, [lambda: x, lambda: x * 2, lambda: x * 3])
        return {"y": y, "cases": cases}

    @tf.function(input_signature=[spec(None, None)])
    def asserts(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        tf.debugging.assert_less(tf.shape(x)[0], 3)
        return {"y": x * 2}

    @tf.function(input_signature=[spec(None, dtype=tf.string)])
    def texts(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        joined = tf.strings.join([x, tf.strings.lower(x)], "\0")
        return {"joined": joined, "hash": tf.strings.to_hash_bucket_fast(x, 1000)}

    @tf.function(input_signature=[spec(None, None, dtype=tf.complex64)])
    def waves(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.signal.fft(x), "nan": tf.math.log(-tf.abs(x))}

    @tf.function(input_signature=[spec(2, dtype=tf.bool), spec(None, name="unused")])
    def plain(self, x: tf.Tensor, unused: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"same": x, "again": x, "nothing": tf.zeros([0, 3]), "five": tf.constant(5)}

    @tf.function(input_signature=[spec(None)])
    def counts(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x + self.count.assign_add(1.0)}

    @tf.function(input_signature=[spec(None)])
    def scatters(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        self.matrix.scatter_update(tf.IndexedSlices(tf.zeros([1, 30]), tf.constant([1])))
        return {"y": x + self.matrix[0, 0]}

    @tf.function(input_signature=[spec(None, dtype=tf.string)])
    def looks_up(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": self.table.lookup(x)}

    @tf.function(input_signature=[spec(None, dtype=tf.string)])
    def looks_up_in_a_file(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": self.file.lookup(x)}

    @tf.function(input_signature=[spec(None, dtype=tf.string)])
    def looks_up_what_was_learned(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": self.learned.lookup(x)}

    @tf.function(input_signature=[spec(None)])
    def queues(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        size = tf.raw_ops.QueueSizeV2(handle=self.queue.resource_handle)
        return {"y": x + tf.cast(size, tf.float32)}

    @tf.function(input_signature=[spec(None)])
    def generates(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x + self.generator.normal([1])}

    @tf.function(input_signature=[spec(None)])
    def draws_the_same(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x + tf.random.stateless_normal([1], [1, 2])}

    @tf.function(input_signature=[spec(None)])
    def calls_python(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.numpy_function(np.negative, [x], tf.float32)}

    @tf.function(input_signature=[spec(None, 40)])
    def ragged(self, x: tf.Tensor) -> dict[str, tf.RaggedTensor]:
        return {"y": tf.RaggedTensor.from_row_lengths(x, [tf.shape(x)[0]])}

    @tf.function(input_signature=[spec(None, 40)])
    def ragged_inside(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.RaggedTensor.from_tensor(x @ self.matrix, tf.range(tf.shape(x)[0]) % 30)
        sums = tf.reduce_sum(rows, axis=1)
        return {"numbers": rows.flat_values, "splits": rows.row_splits, "sums": sums}

    @tf.function(input_signature=[spec(None, dtype=dtype, name=dtype.name) for dtype in DTYPES])
    def dtypes(self, *tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        return {tensor.dtype.name: tf.concat([tensor, tensor], 0) for tensor in tensors}

    @tf.function(input_signature=[spec(None, dtype=tf.int32), spec(None, dtype=tf.uint8, name="z")])
    def integers(self, x: tf.Tensor, z: tf.Tensor) -> dict[str, tf.Tensor]:
        bits = tf.bitwise.bitwise_and(z, tf.constant(5, tf.uint8))
        return {"difference": x * 3 - tf.cast(z, tf.int32), "bits": bits, "quotient": x // 7}

    @tf.function(input_signature=[])
    def no_inputs(self) -> dict[str, tf.Tensor]:
        return {"y": self.matrix * 2.0}

    @tf.function(input_signature=[spec(None)])
    def draws(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x + tf.random.uniform([1])}

    @tf.function(input_signature=[spec(None)])
    def prints(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        tf.print(x, output_stream=sys.stderr)
        return {"y": x}

    @tf.function(input_signature=[spec(None)])
    def writes(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        array = tf.TensorArray(tf.float32, size=3, clear_after_read=False)
        for step in tf.range(3):
            array = array.write(step, tf.reduce_sum(x) * tf.cast(step, tf.float32))
        return {"y": array.stack()}

    @tf.function(input_signature=[spec(None, dtype=tf.string)])
    def parses(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.io.decode_raw(x, tf.float64, little_endian=True)}


functions = Functions()
NAMES = """forwards there_and_back gathers loops branches asserts texts waves plain counts scatters
looks_up looks_up_in_a_file looks_up_what_was_learned queues generates draws_the_same calls_python
ragged_inside dtypes integers no_inputs draws prints writes parses"""
for name in NAMES.split():
    signatures = {"serving_default": getattr(functions, name)}
    tf.saved_model.save(functions, FOLDER / name, signatures=signatures)
both = {"serving_default": functions.forwards, "back": functions.there_and_back}
tf.saved_model.save(functions, FOLDER / "both", signatures=both)
tf.saved_model.save(functions, FOLDER / "one_counts", {**both, "counts": functions.counts})
tf.saved_model.save(functions, FOLDER / "one_ragged", {**both, "ragged": functions.ragged})
