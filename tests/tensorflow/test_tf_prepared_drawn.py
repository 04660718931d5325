"""A Keras model, whatever it is made of, answers prepared as it does unprepared."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from modelsup.worker.contract import LaunchSpec
from modelsup.worker.runtimes.prepared_questions import question
from modelsup.worker.runtimes.prepared_verifying import compare
from modelsup.worker.runtimes.tensorflow import TensorFlowRuntime

from tests.tensorflow.drawn_models import drawn_model

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # a softmax of one number, a mask that ends
]

EXAMPLES = int(os.environ.get("MODELSUP_TEST_DRAWN_MODELS", "20"))


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Put back what a load sets."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # a smaller example takes minutes to find
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_drawn_model_answers_as_before(data: Any) -> None:
    model = drawn_model(data.draw)
    generator = np.random.default_rng(11)
    for weight in model.weights:  # those of normalisations are 0 and 1 otherwise
        if len(weight.shape) == 1 and "seed" not in weight.path:
            weight.assign(generator.uniform(0.5, 1.5, weight.shape))
    with tempfile.TemporaryDirectory() as folder:
        file, form = Path(folder, "model.keras"), Path(folder, "form")
        model.save(file)
        form.mkdir()
        spec = LaunchSpec("u", "drawn", "1", "tensorflow", str(file), "s", folder)
        original = TensorFlowRuntime().load(spec)
        TensorFlowRuntime().prepare(spec, form)
        prepared = TensorFlowRuntime().load_prepared(replace(spec, source=None), form)
        (signature,) = original.signatures.values()
        for rows in (1, 3, 8):
            inputs = question(signature, rows, 6, generator, wide=False)
            expected = original.call(signature.name, inputs)
            answers = prepared.call(signature.name, inputs)
            for name, value in expected.items():
                assert compare(value, answers[name]) == "", name
    keras.backend.clear_session()
