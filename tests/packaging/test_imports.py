"""What an import brings with it: no name of another project, no ML framework in the supervisor."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

IMPORT_ALL = """
import importlib, pkgutil, sys

def import_all(name):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

for name in {packages!r}:
    import_all(name)
print("\\n".join(sys.modules))
"""


def modules_after_importing(*packages: str) -> set[str]:
    """Import all modules of `packages` in a fresh interpreter; return what was loaded."""
    code = IMPORT_ALL.format(packages=packages)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_no_module_goes_by_a_bare_name() -> None:
    """`import supervisor` is another project's name; one file under two names is two classes."""
    found = modules_after_importing("modelsup.supervisor", "modelsup.client", "modelsup.cli")
    assert "modelsup.supervisor.daemon" in found
    assert found.isdisjoint({"supervisor", "worker", "client", "cli"})


def test_the_supervisor_imports_no_framework() -> None:
    found = modules_after_importing("modelsup.supervisor")
    assert "modelsup.worker.contract" in found
    assert found.isdisjoint({"tensorflow", "keras", "numpy", "torch", "jax", "sklearn"})


def test_policy_needs_the_standard_library_alone() -> None:
    tops = {
        name.partition(".")[0] for name in modules_after_importing("modelsup.supervisor.policy")
    }
    bare = set(modules_after_importing())
    assert tops - bare <= set(sys.stdlib_module_names) | {"modelsup"}


def test_the_client_needs_neither_supervisor_nor_framework() -> None:
    found = modules_after_importing("modelsup.client")
    assert found.isdisjoint({"modelsup.supervisor", "modelsup.worker", "tensorflow", "keras"})


@pytest.mark.parametrize("name", ["echo", pytest.param("tensorflow", marks=pytest.mark.tensorflow)])
def test_each_runtime_entry_point_loads(name: str) -> None:
    (point,) = entry_points(group="modelsup.runtimes", name=name)
    assert point.load()().name == name


def test_the_command_entry_point_loads() -> None:
    (point,) = entry_points(group="console_scripts", name="modelsup")
    assert callable(point.load())
