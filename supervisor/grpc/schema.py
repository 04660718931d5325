"""Message types from the .proto files beside this one, made when they are read.

Generated code works with few versions of protobuf, and its names are those of the whole process.
These types work with the version that is there, and no other package sees them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = Path(__file__).parent

_FIELD: Final = re.compile(r"(repeated )?([\w.]+) (\w+) = (\d+);")
_MAP: Final = re.compile(r"map<(\w+), ([\w.]+)> (\w+) = (\d+);")
_VALUE: Final = re.compile(r"(\w+) = (\d+);")
_BLOCK: Final = re.compile(r"(message|enum|oneof|service) (\w+) {")
_RPC: Final = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);")

_Field: Any = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    name: _Field.Type.Value(f"TYPE_{name.upper()}")
    for name in ["bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64"]
}


@dataclass(frozen=True, slots=True)
class Rpc:
    """One method of a service. The types are message classes."""

    name: str
    request: Any
    response: Any
    streaming: bool  # in both directions


@dataclass(frozen=True, slots=True)
class Schema:
    """What one file defines: messages and enums by name, methods by a service's full name."""

    messages: Any
    enums: dict[str, dict[int, str]]
    services: dict[str, tuple[Rpc, ...]]


def read_schema(name: str) -> Schema:
    """Return what the file `name` defines. Raises ValueError on a line that is not understood."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    file = _Reader(name).read(text)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindFileByName(name)
    classes = {
        message.name: message_factory.GetMessageClass(found.message_types_by_name[message.name])
        for message in file.message_type
    }
    enums = {enum.name: {v.number: v.name for v in enum.value} for enum in file.enum_type}
    return Schema(SimpleNamespace(**classes), enums, dict(_services(file, classes)))


def _services(file: Any, classes: dict[str, Any]) -> Iterator[tuple[str, tuple[Rpc, ...]]]:
    for service in file.service:
        yield (
            f"{file.package}.{service.name}",
            tuple(
                Rpc(m.name, classes[m.input_type], classes[m.output_type], m.client_streaming)
                for m in service.method
            ),
        )


class _Reader:
    """Reads one file, line by line; `_open` holds the blocks that are open, the innermost last."""

    def __init__(self, name: str) -> None:
        self._file: Any = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3")
        self._open: list[tuple[str, Any]] = [("file", self._file)]

    def read(self, text: str) -> Any:
        """Return the file's descriptor."""
        for number, whole in enumerate(text.splitlines(), 1):
            line = whole.partition("//")[0].strip()
            if line and line != 'syntax = "proto3";' and not self._take(line):
                raise ValueError(f"{self._file.name}, line {number}: {line!r} is not understood")
        return self._file

    def _take(self, line: str) -> bool:
        kind, block = self._open[-1]
        if line.startswith("package "):
            self._file.package = line.removeprefix("package ").rstrip(";")
        elif line == "}":
            self._open.pop()
        elif found := _BLOCK.fullmatch(line):
            self._begin(*found.groups())
        elif kind == "enum" and (found := _VALUE.fullmatch(line)):
            block.value.add(name=found[1], number=int(found[2]))
        elif kind == "service" and (found := _RPC.fullmatch(line)):
            name, stream, request, _, response = found.groups()
            block.method.add(
                name=name, input_type=request, output_type=response, client_streaming=bool(stream)
            )
        elif found := _MAP.fullmatch(line):
            self._add_map(*found.groups())
        elif found := _FIELD.fullmatch(line):
            self._add_field(*found.groups())
        else:
            return False
        return True

    def _begin(self, kind: str, name: str) -> None:
        outer_kind, outer = self._open[-1]
        is_top = outer_kind == "file"
        if kind == "message":
            block = (outer.message_type if is_top else outer.nested_type).add(name=name)
        elif kind == "enum":
            block = outer.enum_type.add(name=name)
        elif kind == "service":
            block = outer.service.add(name=name)
        else:  # the fields of a oneof are the message's
            outer.oneof_decl.add(name=name)
            block = outer
        self._open.append((kind, block))

    def _add_field(self, repeated: str | None, kind: str, name: str, number: str) -> None:
        block_kind, message = self._open[-1]
        field = message.field.add(name=name, number=int(number))
        field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type_name = kind
        if block_kind == "oneof":
            field.oneof_index = len(message.oneof_decl) - 1

    def _add_map(self, key: str, value: str, name: str, number: str) -> None:
        entry = "".join(word.capitalize() for word in name.split("_")) + "Entry"
        self._begin("message", entry)
        self._add_field(None, key, "key", "1")
        self._add_field(None, value, "value", "2")
        self._open.pop()[1].options.map_entry = True
        self._add_field("repeated", entry, name, number)
