"""The forms that requests and answers take: by path, Content-Type and Accept."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from .codecs import npy, top_k, v1, v1_examples, v2
from .codecs.base import BadInput, Body, Request, UnsupportedBody
from .codecs.image import MEDIA_TYPES, ImageInput, image_input
from .runtimes.base import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from .contract import LaunchSpec, Signature

    Outputs = Mapping[str, np.ndarray[Any, Any]]
    Headers: TypeAlias = Mapping[bytes, bytes]
    Decode: TypeAlias = Callable[[Body], Request]
    Encode: TypeAlias = Callable[[Request, Outputs], "Reply"]
    Form: TypeAlias = tuple[Decode, Encode]

JSON_SIZE_HEADER: Final = b"inference-header-content-length"
OCTETS: Final = b"application/octet-stream"

_CONTENT_TYPE: Final = b"content-type"
_NPY: Final = npy.MEDIA_TYPE
_TOP: Final = "top_k"  # of an image's answer: the key in V1, the output in V2
_FEW: Final = 5  # classes, where the option `image` says nothing else


class Reply(NamedTuple):
    """An answer that is ready to be sent."""

    status: int
    buffers: list[bytes | memoryview]
    headers: tuple[tuple[bytes, bytes], ...] = ((_CONTENT_TYPE, b"application/json"),)


class Forms:
    """The ways to decode a request to one model, and to encode its answer.

    Raises LoadFailed where the model's options `image` and `classes` cannot be followed.
    """

    def __init__(self, signatures: Mapping[str, Signature], spec: LaunchSpec) -> None:
        self._signatures = dict(signatures)
        self._model = spec.model
        self._version = spec.version
        self._image = None if spec.image is None else _image(spec.image, self._signatures)
        self._most_classes = (spec.image or {}).get("top_k", _FEW)
        self._class_names = () if spec.classes is None else _class_names(spec.classes)
        self.decode_image: Decode = self._decode_image  # takes long, however small the body
        self._bodies: dict[bytes, Decode] = dict.fromkeys(MEDIA_TYPES, self.decode_image)
        self._bodies[_NPY] = partial(npy.decode, signatures=self._signatures)
        self._decode_v2: Decode = partial(v2.decode, json_size=None, signatures=self._signatures)
        self._encode_v2_octets: Encode = partial(self._encode_v2, binary=True)
        self._decode_v1: Decode = partial(v1.decode, signatures=self._signatures)
        self._classify: Form = self._examples(v1_examples.CLASSIFY, v1_examples.encode_classes)
        self._regress: Form = self._examples(v1_examples.REGRESS, v1_examples.encode_values)

    def predict(self, headers: Headers) -> Form:
        """Return the form of a V1 predict request."""
        decode = self._bodies.get(headers.get(_CONTENT_TYPE, b""), self._decode_v1)
        if _NPY in headers.get(b"accept", b""):
            return decode, _encode_npy
        return decode, self._encode_v1

    def classify(self, headers: Headers) -> Form:
        """Return the form of a V1 classify request."""
        return self._classify

    def regress(self, headers: Headers) -> Form:
        """Return the form of a V1 regress request."""
        return self._regress

    def infer(self, headers: Headers) -> Form:
        """Return the form of a V2 request. Raises BadInput on a JSON size that is none."""
        accepted = headers.get(b"accept", b"")
        decode = self._bodies.get(headers.get(_CONTENT_TYPE, b""), self._decode_v2)
        if JSON_SIZE_HEADER in headers:
            size = _json_size(headers[JSON_SIZE_HEADER])
            decode = partial(v2.decode, json_size=size, signatures=self._signatures)
        if _NPY in accepted:
            return decode, _encode_npy
        return decode, self._encode_v2_octets if OCTETS in accepted else self._encode_v2

    def _examples(self, method: str, encode: Callable[[Outputs, int], bytes]) -> Form:
        def encoded(request: Request, outputs: Outputs) -> Reply:
            (examples,) = request.inputs.values()
            return Reply(200, [encode(outputs, len(examples))])

        return partial(v1_examples.decode, signatures=self._signatures, method=method), encoded

    def _decode_image(self, body: Body) -> Request:
        if self._image is None:
            raise UnsupportedBody(
                f"model {self._model!r} takes no images: its option `image` is not set; "
                "set it, or send the pixels as a tensor"
            )
        request = self._image.decode(body)
        request.options[_TOP] = self._most_classes
        return request

    def _encode_v1(self, request: Request, outputs: Outputs) -> Reply:
        # Only JSON says whether it came in rows; an array has them where the signature does.
        request.options.setdefault("in_rows", request.rows is not None)
        text = v1.encode(request, outputs)
        if self._class_names and _TOP in request.options and len(outputs) == 1:
            ((name, array),) = outputs.items()
            count = request.options[_TOP]
            classes = top_k.as_json(name, array, request.rows, count, self._class_names)
            text = text[:-1] + b',"top_k":' + classes + b"}"
        return Reply(200, [text])

    def _encode_v2(self, request: Request, outputs: Outputs, binary: bool = False) -> Reply:
        options = request.options
        if "outputs" not in options:  # the body was no V2 request, which says what it wants
            options |= {"id": None, "outputs": dict.fromkeys(outputs, v2.Wanted(binary))}
            if self._class_names and _TOP in options and len(outputs) == 1:
                outputs = {**outputs, _TOP: next(iter(outputs.values()))}
                options["outputs"][_TOP] = v2.Wanted(binary, options[_TOP])
        answer = v2.encode(request, outputs, self._model, self._version, self._class_names)
        if answer.json_size is None:
            return Reply(200, answer.buffers)
        size = b"%d" % answer.json_size
        return Reply(200, answer.buffers, ((_CONTENT_TYPE, OCTETS), (JSON_SIZE_HEADER, size)))


def _encode_npy(request: Request, outputs: Outputs) -> Reply:
    return Reply(200, npy.encode(outputs), ((_CONTENT_TYPE, _NPY),))


def _json_size(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise BadInput(f"Inference-Header-Content-Length must be a size, not {text!r}")
    return int(text)


def _image(option: Mapping[str, Any], signatures: Mapping[str, Signature]) -> ImageInput:
    try:
        return image_input(option, signatures)
    except (ValueError, BadInput) as error:
        raise LoadFailed("load_error", f"the option `image` does not fit: {error}") from error


def _class_names(path: str) -> tuple[str, ...]:
    try:
        return tuple(Path(path).read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError) as error:
        raise LoadFailed(
            "load_error", f"the class names in {path} cannot be read: {error}"
        ) from error
