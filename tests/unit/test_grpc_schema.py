"""The message types that are read from .proto files, beside the stubs that others generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from modelsup.supervisor.grpc import schema
from modelsup.supervisor.grpc.schema import read_schema
from tritonclient.grpc import service_pb2

if TYPE_CHECKING:
    from google.protobuf import descriptor

BYTES = 12  # the number of the type
FILES = ["inference.proto", "serving.proto", "health.proto"]


def fields(message: descriptor.Descriptor) -> dict[str, tuple[Any, ...]]:
    """Return what of each field is seen on the wire, where a message is bytes."""
    return {
        f.name: (f.number, BYTES if f.message_type else f.type, f.is_repeated, f.is_packed)
        for f in message.fields
    }


def assert_part_of(ours: descriptor.Descriptor, theirs: descriptor.Descriptor) -> None:
    """Check that all our fields are theirs, down to the messages in them."""
    assert fields(ours).items() <= fields(theirs).items(), ours.full_name
    for field in ours.fields:
        other = theirs.fields_by_name[field.name]
        if field.message_type is not None and other.message_type is not None:
            assert_part_of(field.message_type, other.message_type)
        if field.enum_type is not None:
            values = {v.name: v.number for v in field.enum_type.values}
            assert values.items() <= {v.name: v.number for v in other.enum_type.values}.items()


def test_inference_is_what_tritons_client_speaks() -> None:
    ours = read_schema("inference.proto").services["inference.GRPCInferenceService"]
    theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    for rpc in ours:
        other = theirs[rpc.name]
        assert_part_of(rpc.request.DESCRIPTOR, other.input_type)
        assert_part_of(rpc.response.DESCRIPTOR, other.output_type)
        assert rpc.streaming == other.client_streaming == other.server_streaming
    left_out = {name for name in theirs if name not in {rpc.name for rpc in ours}}
    assert {name for name in left_out if "SharedMemory" not in name} == {
        "LogSettings",
        "TraceSetting",
    }


@pytest.mark.parametrize("name", FILES)
def test_messages_survive_the_wire(name: str) -> None:
    for rpc in (rpc for rpcs in read_schema(name).services.values() for rpc in rpcs):
        for kind in (rpc.request, rpc.response):
            assert kind.FromString(kind().SerializeToString()) == kind()


def test_reading_twice_gives_types_of_their_own() -> None:
    first, second = read_schema("health.proto"), read_schema("health.proto")
    assert first.messages.HealthCheckRequest is not second.messages.HealthCheckRequest


@pytest.mark.parametrize(
    "line", ["message A extends B {", "int32 a;", "optional int32 a = 1;", "rpc A(B) returns B;"]
)
def test_a_line_that_is_not_understood(
    line: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.proto").write_text(f'syntax = "proto3";\nmessage M {{\n{line}\n}}\n')
    monkeypatch.setattr(schema, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"odd\.proto, line 3: .* is not understood"):
        read_schema("odd.proto")
