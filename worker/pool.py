"""Measure the other way to serve several models: all of them in one process.

`python -m modelsup.worker.pool SOURCE --runtime tensorflow --instances 1,2,4` imports the framework
once and forks one process for each count, which loads that many instances, calls each once, and
is measured as a worker is. Prints JSON: what the imported framework takes, and for each count the
private bytes beside it before and after the first calls, or the "error" that it ended with.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import lifeline
from .contract import LaunchSpec

if TYPE_CHECKING:
    from .runtimes.base import Runtime

# Set before numpy is imported: a BLAS that starts its threads then would make forking unsafe.
ENVIRONMENT: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "4",
}


def counts(text: str) -> list[int]:
    """Read a list such as "1,2,4". Raises ValueError."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise ValueError(f"there is no {min(found)} of something")
    return found


def measure(runtime: Runtime, spec: LaunchSpec, instances: int) -> dict[str, Any]:
    """Load `instances` of the model of `spec` into a fork of this process; return the sizes."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _be_the_pool(runtime, spec, instances, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if text:
        return {"instances": instances, **json.loads(text)}
    code = os.waitstatus_to_exitcode(status)
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return {"instances": instances, "error": f"the process {how}"}


def _be_the_pool(runtime: Runtime, spec: LaunchSpec, instances: int, writer: int) -> None:
    """Be the forked process; never returns."""
    try:
        os.write(writer, json.dumps(_load_all(runtime, spec, instances)).encode())
    except BaseException as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            os.write(writer, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(0)


def _load_all(runtime: Runtime, spec: LaunchSpec, instances: int) -> dict[str, int]:
    from .bootstrap import enter_environment, settle_heap
    from .footprint import Meter
    from .warmup import warm_up

    meter = Meter()
    enter_environment(spec)
    models = [runtime.load(spec) for _ in range(instances)]
    meter.mark("load")
    for model in models:
        warm_up(model, spec.warm_up_batch)
    meter.mark("first_call")
    settle_heap()
    sizes = meter.footprint()
    if not sizes:
        raise OSError("the kernel does not tell private memory: no /proc/self/smaps_rollup")
    return {
        "before_bytes": sizes["load"],
        "after_bytes": sizes["steady"],
        "peak_bytes": sizes["peak"],
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure each count and print the result. Returns an exit code."""
    parser = argparse.ArgumentParser(prog="python -m modelsup.worker.pool", description=__doc__)
    parser.add_argument("source", nargs="?", type=Path, help="as for `modelsup load`")
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--instances", type=counts, default=[1, 2, 4, 8], metavar="N,N,...")
    parser.add_argument("--threads", type=int, help="most threads of one operation")
    parser.add_argument("--batch", type=int, default=1, help="rows of the largest call")
    parser.add_argument("--lifeline", type=int, help="descriptor of a pipe; its end ends this")
    options = parser.parse_args(arguments)
    if options.lifeline is not None:
        lifeline.arm(options.lifeline)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.update(ENVIRONMENT)

    from .footprint import Meter
    from .forkserver import prepare, threads_of_this_process

    runtime = prepare(options.runtime)
    if threads_of_this_process() != 1:
        parser.exit(1, f"runtime {options.runtime} left a thread: a fork would not be safe\n")
    framework = Meter().footprint().get("steady")
    with tempfile.TemporaryDirectory(prefix="modelsup-pool-") as folder:
        spec = LaunchSpec(
            uid="pool",
            model="pool",
            version="1",
            runtime=options.runtime,
            source=None if options.source is None else str(options.source.absolute()),
            secret="",
            temp_dir=folder,
            threads=options.threads,
            warm_up_batch=options.batch,
        )
        rows = [measure(runtime, spec, instances) for instances in options.instances]
    report = {"framework": runtime.framework, "framework_bytes": framework, "rows": rows}
    print(json.dumps(report))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
