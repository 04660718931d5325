"""Keras models drawn at random, for property tests: not as a strategy, for Keras itself draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from keras import Input, Model, layers

if TYPE_CHECKING:
    from collections.abc import Callable

    Layer = Callable[[Any], Any]
    Draw = Callable[[st.SearchStrategy[Any]], Any]

ACTIVATIONS = ("relu", "gelu", "tanh", "sigmoid", "swish", "softmax", "relu6", "elu", None)
NORMALISATIONS: dict[str, Callable[[], Layer]] = {
    "batch": layers.BatchNormalization,
    "layer": layers.LayerNormalization,
    "group": lambda: layers.GroupNormalization(2),
    "unit": layers.UnitNormalization,
    "none": lambda: lambda x: x,
}
WIDTH = 12  # features between two blocks: what a group norm halves
MASKED = ("lstm", "gru", "bidirectional")
SEQUENCES = (*MASKED, "attention", "convolution")
IMAGE, STEPS, TOKENS = (9, 9, 4), 6, 20


def drawn_model(draw: Draw) -> Model:
    """Draw a model of one to three inputs, a shared trunk, and one to three outputs."""
    inputs, branches = [], []
    kinds = draw(st.lists(st.sampled_from(list(BRANCHES)), min_size=1, max_size=3))
    for number, kind in enumerate(kinds):
        tensor, features = BRANCHES[kind](draw, f"{kind}_input_{number}")
        inputs.append(tensor)
        branches.append(features)
    if draw(st.booleans()):  # a layer that all of them share
        shared = layers.Dense(WIDTH, activation=draw(st.sampled_from(ACTIVATIONS)))
        branches = [shared(branch) for branch in branches]
    joined = branches[0]
    if len(branches) > 1:
        join = draw(st.sampled_from((layers.Add, layers.Multiply, layers.Concatenate)))
        joined = join()(branches)
    outputs = []
    for number in range(draw(st.integers(1, 3))):
        activation = draw(st.sampled_from(ACTIVATIONS))
        head = layers.Dense(draw(st.integers(1, 70)), activation=activation)
        outputs.append(head(_normalised(draw, joined)))
        if draw(st.booleans()) and number:
            outputs.append(joined)
    named = draw(st.booleans())
    if named:
        return Model(inputs, {f"out_{number}": value for number, value in enumerate(outputs)})
    return Model(inputs, outputs)


def _normalised(draw: Draw, tensor: Any) -> Any:
    if tensor.shape[-1] % 2:
        return tensor
    return NORMALISATIONS[draw(st.sampled_from(list(NORMALISATIONS)))]()(tensor)


def _activated(draw: Draw, tensor: Any) -> Any:
    activation = draw(st.sampled_from(ACTIVATIONS))
    return layers.Activation(activation)(tensor) if activation else tensor


def _dense(draw: Draw, name: str) -> tuple[Any, Any]:
    tensor = x = Input((5,), name=name)
    for _ in range(draw(st.integers(1, 3))):
        x = _activated(draw, _normalised(draw, layers.Dense(WIDTH)(x)))
        if draw(st.booleans()):
            x = layers.Dropout(0.5)(x)
    return tensor, x


def _image(draw: Draw, name: str) -> tuple[Any, Any]:
    tensor = Input(IMAGE, name=name, dtype=draw(st.sampled_from(("float32", "uint8"))))
    x = layers.Rescaling(1 / 7)(tensor)
    for _ in range(draw(st.integers(1, 3))):
        padding, bias = draw(st.sampled_from(("same", "valid"))), draw(st.booleans())
        makers = (layers.Conv2D, layers.SeparableConv2D, layers.Conv2DTranspose)
        kind = draw(st.sampled_from((*makers, layers.DepthwiseConv2D)))
        if kind is layers.DepthwiseConv2D:
            x = kind(3, padding=padding, use_bias=bias)(x)
        else:
            x = kind(WIDTH, 3, padding=padding, use_bias=bias)(x)
        x = _activated(draw, _normalised(draw, x))
    pool = draw(st.sampled_from((layers.GlobalAveragePooling2D, layers.GlobalMaxPooling2D)))
    return tensor, layers.Dense(WIDTH)(pool()(x))


def _steps(draw: Draw, name: str) -> tuple[Any, Any]:
    tensor = Input((STEPS, 3), name=name)
    return tensor, _sequence(draw, tensor)


def _tokens(draw: Draw, name: str) -> tuple[Any, Any]:
    tensor = Input((STEPS,), name=name, dtype="int32")
    mask = draw(st.booleans())
    x = layers.Embedding(TOKENS, WIDTH, mask_zero=mask)(tensor)
    return tensor, _sequence(draw, x, MASKED if mask else SEQUENCES)


def _sequence(draw: Draw, x: Any, kinds: tuple[str, ...] = SEQUENCES) -> Any:
    kind = draw(st.sampled_from(kinds))
    if kind == "attention":
        x = layers.Dense(WIDTH)(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(x, x)])
        x = layers.GlobalAveragePooling1D()(_normalised(draw, x))
    elif kind == "convolution":
        x = layers.Conv1D(WIDTH, 3, padding="causal")(x)
        x = layers.GlobalMaxPooling1D()(_activated(draw, _normalised(draw, x)))
    elif kind == "bidirectional":
        x = layers.Bidirectional(layers.GRU(WIDTH // 2))(x)
    else:
        x = (layers.LSTM if kind == "lstm" else layers.GRU)(WIDTH)(x)
    return x


BRANCHES: dict[str, Callable[[Draw, str], tuple[Any, Any]]] = {
    "dense": _dense,
    "image": _image,
    "steps": _steps,
    "tokens": _tokens,
}
