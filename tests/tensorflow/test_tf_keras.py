"""Keras files: their signatures, and the same answers as Keras alone gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
from modelsup.worker.contract import TensorInfo
from modelsup.worker.runtimes.keras_loading import random_weights_held_back

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modelsup.worker.runtimes.base import Model

    Load = Callable[[Path], Model]

pytestmark = pytest.mark.tensorflow


def test_a_model_answers_as_the_process_that_saved_it_did(load: Load, models: Path) -> None:
    expected = np.load(models / "dense.npz")
    for name in ("dense.keras", "dense.h5"):
        model = load(models / name)
        outputs = model.call("serving_default", {"x": expected["inputs"]})
        np.testing.assert_allclose(outputs["scores"], expected["outputs"], rtol=1e-5, atol=1e-6)


def test_the_signature_is_named_by_layers_and_batchable(load: Load, models: Path) -> None:
    signature = load(models / "dense.keras").signatures["serving_default"]
    assert signature.inputs == (TensorInfo("x", "float32", (None, 4)),)
    assert signature.outputs == (TensorInfo("scores", "float32", (None, 3)),)
    assert signature.batchable


def test_a_fixed_batch_is_not_batchable(load: Load, models: Path) -> None:
    signature = load(models / "fixed.keras").signatures["serving_default"]
    assert signature.inputs[0].shape == (2, 4)
    assert not signature.batchable


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("images", np.ones((2, 9, 11, 3), "float32")),
        ("text", np.arange(12, dtype="int32").reshape(2, 6)),
    ],
)
def test_layers_of_all_kinds_keep_their_weights(
    load: Load, models: Path, name: str, inputs: np.ndarray[Any, Any]
) -> None:
    path = models / f"{name}.keras"
    expected = keras.models.load_model(path, compile=False)(inputs, training=False)
    model = load(path)
    signature = model.signatures["serving_default"]
    (output,) = model.call("serving_default", {signature.inputs[0].name: inputs}).values()
    np.testing.assert_allclose(output, np.asarray(expected), rtol=1e-5, atol=1e-6)


def test_nested_lists_are_named_by_their_layers(load: Load, models: Path) -> None:
    model = load(models / "listed.keras")
    signature = model.signatures["serving_default"]
    assert [info.name for info in signature.inputs] == ["left", "right"]
    assert [info.name for info in signature.outputs] == ["total", "half", "half:1"]
    left, right = np.array([[1, 2]], "float32"), np.array([[3, 4, 5]], "float32")
    outputs = model.call("serving_default", {"left": left, "right": right})
    np.testing.assert_allclose(outputs["half:1"], outputs["half"] * 3, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict:UserWarning")
def test_a_dict_keeps_its_keys(load: Load, models: Path) -> None:
    model = load(models / "keyed.keras")
    signature = model.signatures["serving_default"]
    assert {info.name: info.shape for info in signature.inputs} == {"a": (None, 3), "b": (None, 2)}
    left, right = np.array([[1, 2]], "float32"), np.array([[3, 4, 5]], "float32")
    expected = keras.models.load_model(models / "keyed.keras", compile=False)
    expected = expected({"a": right, "b": left}, training=False)
    outputs = model.call("serving_default", {"a": right, "b": left})
    assert outputs.keys() == {"sum", "one"}
    for key, value in outputs.items():
        np.testing.assert_allclose(value, np.asarray(expected[key]), rtol=1e-5)


def test_text_goes_in_as_bytes(load: Load, models: Path) -> None:
    model = load(models / "words.keras")
    assert model.signatures["serving_default"].inputs[0].dtype == "string"
    inputs = np.array([[b"dog"], [b"bird"]], dtype=object)
    (output,) = model.call("serving_default", {"word": inputs}).values()
    assert output.tolist() == [[2], [0]]


@keras.saving.register_keras_serializable("tests")
class Stubborn(keras.layers.Layer):  # type: ignore[misc]
    """A layer that takes nothing from the file, or takes it past Keras's own `assign`."""

    def __init__(self, *, past_assign: bool, **options: Any) -> None:
        super().__init__(**options)
        self.past_assign = past_assign

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "past_assign": self.past_assign}

    def build(self, shape: tuple[int | None, ...]) -> None:
        seeded = keras.initializers.GlorotUniform(seed=5)
        self.kernel = self.add_weight(shape=(3, 2), initializer=seeded, name="kernel")

    def call(self, inputs: Any) -> Any:
        return keras.ops.matmul(inputs, self.kernel)

    def save_own_variables(self, store: Any) -> None:
        if self.past_assign:
            store["kernel"] = np.zeros((3, 2), "float32")

    def load_own_variables(self, store: Any) -> None:
        if self.past_assign:
            self.kernel.value.assign(store["kernel"])


@pytest.mark.parametrize("past_assign", [False, True])
def test_a_weight_that_the_file_leaves_alone_gets_its_initial_value(
    tmp_path: Path, past_assign: bool
) -> None:
    path = tmp_path / "stubborn.keras"
    keras.Sequential([keras.Input((3,)), Stubborn(past_assign=past_assign)]).save(path)
    expected = keras.models.load_model(path, compile=False).get_weights()
    with random_weights_held_back():
        model = keras.models.load_model(path, compile=False)
    np.testing.assert_array_equal(model.get_weights()[0], expected[0])
    assert bool(expected[0].any()) is not past_assign


def test_keras_draws_random_weights_as_before_after_a_load() -> None:
    with random_weights_held_back():
        pass
    layer = keras.layers.Dense(3)
    layer.build((None, 4))
    assert not np.isnan(layer.kernel.numpy()).any()
