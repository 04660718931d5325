"""Each kind of model: the same answers prepared and not, or a reason in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from modelsup.worker.runtimes.base import NotPreparable
from modelsup.worker.runtimes.prepared_questions import question
from modelsup.worker.runtimes.prepared_verifying import compare
from modelsup.worker.runtimes.tensorflow import TensorFlowRuntime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modelsup.worker.contract import LaunchSpec
    from modelsup.worker.runtimes.base import Model

    Load = Callable[[Path], Model]

pytestmark = pytest.mark.tensorflow

PREPARED = {
    "wide.keras": 0.0,  # of each the least tolerance, for what it computes with
    "wide_float16.keras": 1e-2,
    "wide_bfloat16.keras": 5e-2,
    "wide_float64.keras": 0.0,
    "wide_mixed.keras": 5e-2,
    "convolutions.keras": 0.0,
    "lstm.keras": 0.0,
    "gru.keras": 0.0,
    "simple_rnn.keras": 0.0,
    "unrolled.keras": 0.0,
    "distributed.keras": 0.0,
    "masked.keras": 0.0,
    "attention.keras": 0.0,
    "shared.keras": 0.0,
    "choice.keras": 0.0,
    "nested.keras": 0.0,
    "quantised.keras": 0.0,
    "hashed.keras": 0.0,
    "images_in_steps.keras": 0.0,
    "wide_saved_model": 0.0,
    "there_and_back": 0.0,
    "gathers": 0.0,
    "loops": 0.0,
    "branches": 0.0,
    "texts": 0.0,
    "waves": 0.0,
    "plain": 0.0,
    "writes": 0.0,
    "draws_the_same": 0.0,
    "ragged_inside": 0.0,
    "one_ragged": 0.0,  # that signature is not served, prepared or not
    "dtypes": 0.0,
    "integers": 0.0,
    "no_inputs": 0.0,
    "both": 0.0,
}

REFUSED = {
    "stateful_rnn.keras": "serving_default changes a variable when it is called",
    "counts": r"serving_default changes a variable .*\(AssignAddVariableOp\)",
    "one_counts": "Signature counts changes a variable when it is called",
    "scatters": "changes a variable when it is called",
    "looks_up": "looks something up in a table",
    "looks_up_in_a_file": "looks something up in a table",
    "looks_up_what_was_learned": "looks something up in a table",
    "words.keras": "looks something up in a table",
    "queues": "a resource that is not a variable",
    "draws": "draws random numbers",
    "generates": r"does with a variable more than to read it \(RngReadAndSkip\)",
    "calls_python": r"keeps or changes something outside of the call \(PyFunc\)",
    "prints": r"keeps or changes something outside of the call \(PrintV2\)",
    "parses": "accepts none of the random inputs .* not a multiple of 8",
}


@pytest.fixture
def prepare(load: Load, spec: LaunchSpec, tmp_path: Path) -> Callable[[Path], Model]:
    """Prepare a model in this process and load what came of it."""

    def prepared(path: Path) -> Model:
        folder = tmp_path / "prepared"
        folder.mkdir()
        TensorFlowRuntime().prepare(replace(spec, source=str(path)), folder)
        return TensorFlowRuntime().load_prepared(spec, folder)

    return prepared


@pytest.mark.parametrize("name", PREPARED)
def test_a_prepared_model_answers_as_the_original(
    load: Load, prepare: Load, kinds: Path, name: str
) -> None:
    check_answers(load(kinds / name), prepare(kinds / name), PREPARED[name])


@pytest.mark.parametrize("name", ["tensorflow_1", "several", "fixed.keras", "keyed.keras"])
@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict:UserWarning")
def test_so_does_a_model_of_another_origin(
    load: Load, prepare: Load, models: Path, name: str
) -> None:
    check_answers(load(models / name), prepare(models / name), 0.0)


def check_answers(original: Model, prepared: Model, least_tolerance: float) -> None:
    assert prepared.signatures == original.signatures
    generator = np.random.default_rng(17)  # other inputs than those of the verification
    for signature in original.signatures.values():
        for rows in (1, 5):
            inputs = question(signature, rows, 16, generator, wide=True)
            expected = original.call(signature.name, inputs)
            answers = prepared.call(signature.name, inputs)
            assert answers.keys() == expected.keys()
            for key, value in expected.items():
                assert compare(value, answers[key], least_tolerance) == "", key


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_prepared_says_why(prepare: Load, kinds: Path, name: str) -> None:
    with pytest.raises(NotPreparable, match=REFUSED[name]) as refusal:
        prepare(kinds / name)
    assert "\n" not in str(refusal.value)


def test_a_check_in_the_graph_stays(load: Load, prepare: Load, kinds: Path) -> None:
    original, prepared = load(kinds / "asserts"), prepare(kinds / "asserts")
    rows: dict[str, Any] = {"x": np.zeros((3, 2), "float32")}
    for model in (original, prepared):
        with pytest.raises(Exception, match=r"Condition x < y|assertion failed"):
            model.call("serving_default", rows)
        model.call("serving_default", {"x": rows["x"][:2]})


def test_signatures_share_their_weights(prepare: Load, kinds: Path, tmp_path: Path) -> None:
    prepare(kinds / "both")
    matrix = 40 * 30 * 4  # bytes; "both" has it, and its transpose as a constant
    assert (tmp_path / "prepared" / "weights.bin").stat().st_size == 2 * matrix
