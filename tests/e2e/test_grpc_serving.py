"""TensorFlow Serving over gRPC, with its own stubs and TensorFlow's own tensors."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from modelsup.supervisor.grpc.schema import read_schema

from tests.conftest import supervisors
from tests.unit.test_grpc_schema import assert_part_of

if TYPE_CHECKING:
    from collections.abc import Iterator

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorFlow's own imports warn, differently by version
    tf = pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_serving", reason="needs tensorflow-serving-api: make venv")
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        inference_pb2,
        model_management_pb2,
        model_service_pb2,
        model_service_pb2_grpc,
        predict_pb2,
        prediction_service_pb2,
        prediction_service_pb2_grpc,
        regression_pb2,
    )

pytestmark = pytest.mark.tensorflow
HERE = Path(__file__).parent
MODEL = "half_plus_two"

Service = prediction_service_pb2_grpc.PredictionServiceStub


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where gRPC is served over half_plus_two: versions 123 and 124, the first one "stable"."""
    models = tmp_path_factory.mktemp("models")
    for version in ("123", "124"):
        program = [sys.executable, str(HERE / "export_half_plus_two.py")]
        subprocess.run(
            [*program, str(models / MODEL / version)], check=True, capture_output=True, timeout=100
        )
    for name, dtype in ECHOED.items():
        (models / f"{name}.echo").write_text(
            f'{{"inputs": {{"x": {{"dtype": "{dtype}", "shape": [null]}}}}}}'
        )
    with supervisors(tmp_path_factory.mktemp("serving") / "home") as start:
        supervisor = start("--models-dir", str(models), "--grpc-port", "0")
        yield str(supervisor.client.status().grpc)


ECHOED = {
    name: dtype.name
    for name, dtype in (
        ("half", tf.float16),
        ("bfloat16", tf.bfloat16),
        ("float", tf.float32),
        ("double", tf.float64),
        ("int8", tf.int8),
        ("int16", tf.int16),
        ("int32", tf.int32),
        ("int64", tf.int64),
        ("uint8", tf.uint8),
        ("uint16", tf.uint16),
        ("uint32", tf.uint32),
        ("uint64", tf.uint64),
        ("bool", tf.bool),
        ("string", tf.string),
    )
}


@pytest.fixture
def service(address: str) -> Iterator[Service]:
    with grpc.insecure_channel(address) as channel:
        yield Service(channel)


@pytest.fixture
def models(address: str) -> Iterator[model_service_pb2_grpc.ModelServiceStub]:
    with grpc.insecure_channel(address) as channel:
        yield model_service_pb2_grpc.ModelServiceStub(channel)


def predict(model: str = MODEL, **inputs: Any) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def example(**features: float) -> Any:
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
                for name, value in features.items()
            }
        )
    )


def refusal(call: Any, request: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call(request)
    return error.value.code(), error.value.details()


def test_the_messages_are_those_of_the_stubs() -> None:
    services = read_schema("serving.proto").services
    theirs = {
        service.full_name: service
        for module in (prediction_service_pb2, model_service_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    }
    assert services.keys() == theirs.keys()
    for name, rpcs in services.items():
        assert [rpc.name for rpc in rpcs] == [m.name for m in theirs[name].methods]
        for rpc, method in zip(rpcs, theirs[name].methods, strict=True):
            assert_part_of(rpc.request.DESCRIPTOR, method.input_type)
            assert_part_of(rpc.response.DESCRIPTOR, method.output_type)


def test_predict(service: Service) -> None:
    answer, call = service.Predict.with_call(predict(x=[[1.0], [2.0], [5.0]]))
    np.testing.assert_array_equal(tf.make_ndarray(answer.outputs["y"]), [[2.5], [3.0], [4.5]])
    assert list(answer.outputs["y"].float_val) == [2.5, 3.0, 4.5]  # as examples read it
    assert answer.model_spec.name == MODEL
    assert answer.model_spec.version.value == 124
    assert answer.model_spec.signature_name == "serving_default"
    assert dict(call.trailing_metadata())["x-modelsup-worker"].startswith("w-")


def test_versions_signatures_and_filters(service: Service) -> None:
    request = predict(x=[[1.0]])
    request.model_spec.version.value = 123
    request.model_spec.signature_name = "two"
    assert set(service.Predict(request).outputs) == {"y", "words"}
    request.output_filter.append("words")
    answer = service.Predict(request)
    assert answer.model_spec.version.value == 123
    assert list(answer.outputs) == ["words"]
    assert list(answer.outputs["words"].string_val) == [b"half plus two"]


def test_a_scalar(service: Service) -> None:
    request = predict(scalar=3.0)
    request.model_spec.signature_name = "scalar"
    answer = tf.make_ndarray(service.Predict(request).outputs["half"])
    assert (answer.shape, float(answer)) == ((), 1.5)


@pytest.mark.parametrize("name", ECHOED)
@pytest.mark.parametrize("form", ["content", "values", "the last one stands for more"])
def test_every_type_in_every_form(service: Service, name: str, form: str) -> None:
    dtype = tf.as_dtype(ECHOED[name])
    values = [b"", b"\xff", b"text"] if name == "string" else [0, 1, 1]
    array = np.array(values, dtype.as_numpy_dtype)
    request = predict(name)
    proto = request.inputs["x"]
    proto.CopyFrom(tf.make_tensor_proto(array, dtype))
    if form != "content" and name != "string":
        proto.CopyFrom(as_values(array, dtype))
    if form == "the last one stands for more":
        proto.tensor_shape.dim[0].size = 5
        array = np.append(array, [array[-1]] * 2)
    answer = service.Predict(request).outputs["x"]
    assert answer.dtype == dtype.as_datatype_enum
    np.testing.assert_array_equal(tf.make_ndarray(answer), array)


def as_values(array: Any, dtype: Any) -> Any:
    """Return a tensor whose values stand in the field of their type."""
    fields = {
        tf.float16: ("half_val", lambda a: a.view(np.uint16)),
        tf.bfloat16: ("half_val", lambda a: a.view(np.uint16)),
        tf.float32: ("float_val", list),
        tf.float64: ("double_val", list),
        tf.int64: ("int64_val", list),
        tf.uint32: ("uint32_val", list),
        tf.uint64: ("uint64_val", list),
        tf.bool: ("bool_val", list),
    }
    field, form = fields.get(dtype, ("int_val", list))
    proto = tf.make_tensor_proto(np.zeros((), dtype.as_numpy_dtype), dtype)
    for described, _ in proto.ListFields():
        if described.name.endswith("_val"):
            proto.ClearField(described.name)
    proto.ClearField("tensor_content")
    proto.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
    getattr(proto, field).extend(value.item() for value in np.asarray(form(array)))
    return proto


def test_strings_as_tensor_content(service: Service) -> None:
    request = predict("string")
    proto = request.inputs["x"]
    proto.dtype = tf.string.as_datatype_enum
    proto.tensor_shape.dim.add(size=2)
    proto.tensor_content = b"\x02\xac\x02" + b"ab" + bytes(300)
    answer = service.Predict(request).outputs["x"]
    assert list(answer.string_val) == [b"ab", bytes(300)]
    proto.tensor_content = b"\x02\xac\x02" + b"ab"
    code, said = refusal(service.Predict, request)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "does not hold 2 strings" in said


def test_refused_predictions(service: Service) -> None:
    invalid, not_found = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    code, said = refusal(service.Predict, predict("nope", x=[[1.0]]))
    assert (code, "nope" in said) == (not_found, True)
    request = predict(x=[[1.0]])
    request.model_spec.version.value = 7
    assert refusal(service.Predict, request)[0] is not_found
    request.model_spec.version_label = "canary"
    code, said = refusal(service.Predict, request)
    assert (code, "canary" in said) == (not_found, True)
    for given, words in (
        (predict(z=[[1.0]]), "missing input x"),
        (predict(x=[["text"]]), "got string"),
        (predict(x=[[1j]]), "tensors of DT_COMPLEX128 cannot travel"),
        (predict(x=[[[1.0]]]), "got shape [1, 1, 1]"),
    ):
        code, said = refusal(service.Predict, given)
        assert (code, words in said) == (invalid, True), said
    request = predict(x=[[1.0]])
    request.model_spec.signature_name = "nope"
    assert "no signature 'nope'" in refusal(service.Predict, request)[1]
    request = predict(x=[[1.0]])
    request.output_filter.append("nope")
    assert "unknown output 'nope'" in refusal(service.Predict, request)[1]


def test_one_value_may_not_stand_for_too_many(service: Service) -> None:
    request = predict(x=1.0)
    for _ in range(2):
        request.inputs["x"].tensor_shape.dim.add(size=2**30)
    code, said = refusal(service.Predict, request)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "max_body_size" in said


def test_metadata(service: Service) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = MODEL
    answer = service.GetModelMetadata(request)
    assert answer.model_spec.version.value == 124
    told = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(told)
    signature = told.signature_def["serving_default"]
    assert signature.method_name == "tensorflow/serving/predict"
    assert signature.inputs["x"].dtype == tf.float32.as_datatype_enum
    assert [dim.size for dim in signature.inputs["x"].tensor_shape.dim] == [-1, 1]
    assert told.signature_def["regress_x_to_y"].method_name == "tensorflow/serving/regress"
    request.metadata_field[:] = ["other"]
    code, said = refusal(service.GetModelMetadata, request)
    assert (code, "signature_def" in said) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_status(service: Service, models: model_service_pb2_grpc.ModelServiceStub) -> None:
    service.Predict(predict(x=[[1.0]]))
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = MODEL
    (told, *_) = models.GetModelStatus(request).model_version_status
    assert told.version == 124
    assert told.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
    assert (told.status.error_code, told.status.error_message) == (0, "")
    request.model_spec.name = "nope"
    assert refusal(models.GetModelStatus, request)[0] is grpc.StatusCode.NOT_FOUND


def test_no_configuration_is_reloaded(models: model_service_pb2_grpc.ModelServiceStub) -> None:
    request = model_management_pb2.ReloadConfigRequest()
    code, said = refusal(models.HandleReloadConfigRequest, request)
    assert (code, "modelsup load" in said) == (grpc.StatusCode.UNIMPLEMENTED, True)


def test_regress(service: Service) -> None:
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = MODEL
    request.model_spec.signature_name = "regress_x_to_y"
    request.input.example_list.examples.extend([example(x=1.0), example(x=2.0)])
    answer = service.Regress(request)
    assert [value.value for value in answer.result.regressions] == [2.5, 3.0]
    assert answer.model_spec.version.value == 124
    request.model_spec.signature_name = "classify_named"
    code, said = refusal(service.Regress, request)
    assert (code, "regress_x_to_y" in said) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    request.input.example_list.ClearField("examples")
    assert "no examples" in refusal(service.Regress, request)[1]


def test_the_context_belongs_to_each_example(service: Service) -> None:
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = MODEL
    request.model_spec.signature_name = "regress_x2"
    given = request.input.example_list_with_context
    given.context.CopyFrom(example(x2=7.5))
    given.examples.extend([example(x=1.0), example(x=2.0)])
    answer = service.Regress(request)
    assert [value.value for value in answer.result.regressions] == [7.5, 7.5]


def test_classify(service: Service) -> None:
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = MODEL
    request.model_spec.signature_name = "classify_named"
    request.input.example_list.examples.extend([example(x=1.0), example(x=2.0)])
    answer = service.Classify(request)
    found = [[(c.label, c.score) for c in row.classes] for row in answer.result.classifications]
    assert found == [[("half plus two", 2.5)], [("half plus two", 3.0)]]
    request.model_spec.signature_name = "classify_x_to_y"
    (row, _) = service.Classify(request).result.classifications
    assert [(c.label, c.score) for c in row.classes] == [("", 2.5)]


def test_multi_inference(service: Service) -> None:
    request = inference_pb2.MultiInferenceRequest()
    for signature, method in (("regress_x_to_y2", "regress"), ("classify_named", "classify")):
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name = MODEL
        task.model_spec.signature_name = signature
    request.input.example_list.examples.append(example(x=2.0))
    first, second = service.MultiInference(request).results
    assert first.regression_result.regressions[0].value == 4.0
    assert second.classification_result.classifications[0].classes[0].score == 3.0
    request.tasks[0].method_name = "tensorflow/serving/predict"
    assert "method_name" in refusal(service.MultiInference, request)[1]
