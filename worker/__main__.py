"""Run one worker alone, without a supervisor: `python -m modelsup.worker SPEC.json`.

Prints `{"url": ...}` on one line once it is ready and serves until SIGTERM. For debugging a model
and for measuring a worker without the gateway before it.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .bootstrap import enter_environment, load_and_serve
from .contract import LaunchSpec
from .forkserver import prepare

if TYPE_CHECKING:
    from .contract import StatusMessage


def main(arguments: list[str] | None = None) -> int:
    """Load the model of a spec file and serve it. Returns an exit code."""
    parser = argparse.ArgumentParser(prog="python -m modelsup.worker", description=__doc__)
    parser.add_argument("spec", type=Path, help="file with a launch spec in JSON")
    spec = LaunchSpec.from_json(parser.parse_args(arguments).spec.read_bytes())
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def tell(message: StatusMessage) -> None:
        if message.stage == "ready":
            print(json.dumps({"url": url}), flush=True)  # noqa: T201
        elif message.stage == "failed":
            print(f"{message.cause}: {message.message}", file=sys.stderr)  # noqa: T201

    runtime = prepare(spec.runtime)
    enter_environment(spec)
    return load_and_serve(spec, runtime, listener, tell)


if __name__ == "__main__":
    sys.exit(main())
