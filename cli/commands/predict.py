"""`modelsup predict`: one prediction, from JSON, numpy's files or an image."""

from __future__ import annotations

import base64
import io
import json
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zipfile import BadZipFile

import click

from ..context import Context, pass_context
from ..output import say
from ..parameters import complete_clients, complete_models, duration, idle_time

if TYPE_CHECKING:
    import numpy.typing as npt
    from modelsup.client import Client

    Array = npt.NDArray[Any]
    Arrays = Array | dict[str, Array]

_NPY_MAGIC: Final = b"\x93NUMPY"
_NPZ_MAGIC: Final = b"PK\x03\x04"  # a .npz file is a zip archive
_JSON: Final = "application/json"
_IMAGES: Final = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png"}


@click.command()
@click.argument("arguments", metavar="[NAME] INPUT", nargs=-1, shell_complete=complete_models)
@click.option(
    "--client",
    "client_id",
    shell_complete=complete_clients,
    help="Ask this client's current model; leave NAME out.",
)
@click.option("--signature", metavar="NAME", help="Which signature of the model to call.")
@click.option("--timeout", type=duration, help="Longest wait for the answer, a load included.")
@click.option(
    "--keep-alive",
    type=idle_time,
    help="How long the model stays unused from now on; 0: not at all; -1: always.",
)
@click.option(
    "--output",
    "output_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="For an array input: write the answer to this .npy file (.npz for several outputs).",
)
@pass_context
def predict(
    context: Context,
    arguments: tuple[str, ...],
    *,
    client_id: str | None,
    signature: str | None,
    timeout: float | None,
    keep_alive: float | None,
    output_path: Path | None,
) -> None:
    """Ask model NAME for a prediction and print it as JSON.

    INPUT is JSON, or @FILE with JSON, a .npy array, a .npz file with one array for each input, or a
    JPEG or PNG image, or @- for stdin. JSON with "instances" or "inputs" is sent as a TensorFlow
    Serving body; a bare list stands for the instances.
    """
    name, given = _name_and_input(arguments, client_id)
    raw = _read(given)
    with context.client() as client:
        target = _Target(client, name, client_id, keep_alive)
        if raw.startswith((_NPY_MAGIC, _NPZ_MAGIC)):
            outputs = target.predict(_arrays(raw), signature, timeout)
            _write(outputs, output_path)
            return
        if output_path is not None:
            raise click.UsageError(
                "--output goes with a .npy or .npz input; redirect the JSON answer."
            )
        kind = next((k for magic, k in _IMAGES.items() if raw.startswith(magic)), _JSON)
        if kind != _JSON and signature is not None:
            raise click.UsageError("An image goes to the default signature; leave --signature out.")
        body = _body(raw, signature) if kind == _JSON else raw
        answer = target.predict_json(body, kind, timeout)
    click.echo(json.dumps(answer))


class _Target:
    """Whom to ask: a model, or a client's current one."""

    def __init__(
        self, client: Client, name: str | None, client_id: str | None, keep_alive: float | None
    ) -> None:
        self._client = client
        self._name = name
        self._keep_alive = keep_alive
        self._session = None if client_id is None else client.session(client_id)

    def predict(self, x: Arrays, signature: str | None, timeout: float | None) -> Arrays:
        if self._session is not None:
            return self._session.predict(x, signature, timeout=timeout, keep_alive=self._keep_alive)
        assert self._name is not None, "one of name and client is given"
        return self._client.predict(
            self._name, x, signature, timeout=timeout, keep_alive=self._keep_alive
        )

    def predict_json(self, body: bytes, kind: str, timeout: float | None) -> Any:
        if self._session is not None:
            return self._session.predict_json(
                body, content_type=kind, timeout=timeout, keep_alive=self._keep_alive
            )
        assert self._name is not None, "one of name and client is given"
        return self._client.predict_json(
            self._name, body, content_type=kind, timeout=timeout, keep_alive=self._keep_alive
        )


def _name_and_input(arguments: tuple[str, ...], client_id: str | None) -> tuple[str | None, str]:
    if client_id is not None:
        if len(arguments) != 1:
            raise click.UsageError("With --client give INPUT alone: the client has its model.")
        return None, arguments[0]
    if len(arguments) != 2:
        raise click.UsageError("Give NAME and INPUT, or --client and INPUT.")
    return arguments[0], arguments[1]


def _read(given: str) -> bytes:
    """Return the bytes of INPUT: of stdin, of a file, or the text itself."""
    if given == "@-":
        return sys.stdin.buffer.read()
    if not given.startswith("@"):
        return given.encode()
    path = Path(given[1:])
    try:
        return path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"Cannot read {str(path)!r}: {error.strerror}.") from error


def _arrays(raw: bytes) -> Arrays:
    """Return the array of a .npy file, or the arrays of a .npz file by name."""
    import numpy as np

    suffix = ".npy" if raw.startswith(_NPY_MAGIC) else ".npz"
    try:
        stored: Any = np.load(io.BytesIO(raw), allow_pickle=False)
        return stored if suffix == ".npy" else {name: stored[name] for name in stored.files}
    except (ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise click.UsageError(f"INPUT is a {suffix} file that cannot be read: {error}.") from error


def _body(raw: bytes, signature: str | None) -> bytes:
    """Return the V1 body: as it came, unless there is something to add."""
    try:
        data = json.loads(raw)
    except ValueError as error:
        raise click.UsageError(
            f"INPUT is neither JSON nor a .npy or .npz file nor an image ({error}); "
            "write @FILE to read a file."
        ) from error
    if isinstance(data, list):
        data = {"instances": data}
    elif not isinstance(data, dict) or not ({"instances", "inputs"} & data.keys()):
        raise click.UsageError('INPUT must be a list, or an object with "instances" or "inputs".')
    elif signature is None:
        return raw
    if signature is not None:
        data["signature_name"] = signature
    return json.dumps(data).encode()


def _write(outputs: Arrays, path: Path | None) -> None:
    if path is None:
        click.echo(json.dumps(_plain(outputs)))
        return
    import numpy as np

    suffix = ".npz" if isinstance(outputs, dict) else ".npy"
    if path.suffix != suffix:
        raise click.UsageError(f"--output must end in {suffix} for the outputs of this model.")
    try:
        with path.open("wb") as file:
            if isinstance(outputs, dict):
                storable: dict[str, Any] = {n: _storable(array) for n, array in outputs.items()}
                np.savez(file, **storable)
            else:
                np.save(file, _storable(outputs), allow_pickle=False)
    except OSError as error:
        raise click.UsageError(f"Cannot write {str(path)!r}: {error.strerror}.") from error
    say(f"wrote {path}")


def _plain(outputs: Arrays) -> Any:
    """Return outputs as JSON values; bytes that are no text become {"b64": ...}, as in V1."""
    if isinstance(outputs, dict):
        return {name: _plain(array) for name, array in outputs.items()}
    if outputs.dtype == object:
        return _texts(outputs.tolist())
    if outputs.dtype.kind == "V":
        return outputs.astype(float).tolist()
    if outputs.dtype.kind == "f":
        # By way of text: a float32 keeps its own few digits, as in the answer to a JSON input.
        return outputs.astype(str).astype(float).tolist()
    return outputs.tolist()


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(item) for item in value]
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _storable(array: Array) -> Array:
    """Return byte strings in a fixed width: an array of objects would need pickle."""
    return array.astype("S") if array.dtype == object else array
