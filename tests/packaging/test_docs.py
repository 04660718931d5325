"""The documentation says what the code does: each test here fails when one moves alone."""

from __future__ import annotations

import ast
import dataclasses
import html
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import modelsup.client
import pytest
from modelsup.cli.exits import Exit
from modelsup.cli.main import cli
from modelsup.supervisor.domain import Options
from modelsup.supervisor.grpc.calls import CODES
from modelsup.supervisor.grpc.schema import read_schema
from modelsup.supervisor.http.problem import STATUS
from modelsup.supervisor.http.routes import Kind, match
from modelsup.supervisor.settings import FIELDS
from modelsup.supervisor.states import State

from tests.api import control

if TYPE_CHECKING:
    from collections.abc import Iterator

    from werkzeug.routing import Rule

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)]


def source(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def first_columns(text: str) -> list[str]:
    """Return the words in backticks of the first cell of each row of a table."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def section(text: str, heading: str) -> str:
    """Return what stands between a heading and the next one of the same or a higher level."""
    level = heading.index(" ")
    _, _, rest = text.partition(heading + "\n")
    assert rest, f"no heading {heading!r}"
    return re.split(rf"^#{{1,{level}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield " ".join([*path, name]), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(DOCS), str(out)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return out


def shown(site: Path, page: str) -> str:
    """Return the text of a built page."""
    text = (site / f"{page}.html").read_text(encoding="utf-8")
    return html.unescape(re.sub(r"<[^>]+>", "", text))


def test_the_reference_shows_every_command_and_flag(site: Path) -> None:
    text = shown(site, "reference/cli")
    flags = {
        flag
        for _, command in commands(cli)
        for parameter in command.get_params(click.Context(command))
        if isinstance(parameter, click.Option) and not parameter.hidden
        for flag in parameter.opts
        if flag.startswith("--") and flag != "--help"
    }
    assert {"--json", "--gpu-memory-fraction"} <= flags
    assert [name for name, _ in commands(cli) if f"modelsup {name}" not in text] == []
    assert sorted(flag for flag in flags if flag not in text) == []


def test_the_reference_shows_every_setting(site: Path) -> None:
    text = shown(site, "reference/settings")
    assert [f.name for f in FIELDS if f.name not in text or f.help not in text] == []
    assert str(Path.home()) not in text


def test_the_reference_shows_every_public_name_of_the_client(site: Path) -> None:
    text = shown(site, "reference/python")
    missing = [n for n in modelsup.client.__all__ if f"modelsup.client.{n}" not in text]
    assert missing == []


def blocks(language: str) -> list[str]:
    """Return the code blocks of the README and the documentation in one language."""
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [block for page in PAGES for block in fence.findall(page.read_text(encoding="utf-8"))]


def quoted_commands() -> list[str]:
    """Return each `modelsup ...` line of a code block in the README or the documentation."""
    line = re.compile(r"^(?:\$ )?modelsup (.*)", re.MULTILINE)
    return sorted({command for block in blocks(r"\w*") for command in line.findall(block)})


@pytest.mark.parametrize("line", quoted_commands())
def test_quoted_commands_are_understood(line: str) -> None:
    words = shlex.split(line, comments=True)
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        name = words.pop(0)
        assert name in command.commands
        command = command.commands[name]
    parser_context = command.make_context(name, words, parent=context, resilient_parsing=True)
    assert parser_context.args == []


def test_quoted_python_calls_what_is_there() -> None:
    owners = {"supervisor": modelsup.client.Client, "john": modelsup.client.Session}
    called = {
        (node.value.id, node.attr)
        for block in blocks("python")
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert {name for name, _ in called} >= owners.keys()
    missing = [
        call for call in called if call[0] in owners and not hasattr(owners[call[0]], call[1])
    ]
    assert missing == []


def test_exit_codes() -> None:
    table = re.findall(r"^\| (\d+) \|", section(source("reference/cli.md"), "## Exit codes"), re.M)
    assert [int(code) for code in table] == [code.value for code in Exit]


def test_error_codes_and_their_statuses() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.*?) \|", source("reference/http-api.md"), re.MULTILINE)
    told = {(code, int(status)) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    assert told == set(STATUS.items()) | {("load_failed", 422)}


def test_grpc_codes_and_their_statuses() -> None:
    text = source("reference/grpc.md")
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([\d, ]+) \|$", text, re.MULTILINE)
    told = {int(status): code for code, statuses in rows for status in statuses.split(",")}
    assert told == {status: code.name for status, code in CODES.items()}
    assert told.keys() >= set(STATUS.values())


def test_grpc_methods() -> None:
    text = source("reference/grpc.md")
    cells = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    told = {word for cell in cells for word in re.findall(r"`([A-Z][a-z]\w+)`", cell)}
    files = ("inference.proto", "serving.proto", "health.proto")
    services = {k: v for file in files for k, v in read_schema(file).services.items()}
    assert [name for name in services if f"`{name}`" not in text] == []
    assert told == {rpc.name for rpcs in services.values() for rpc in rpcs}


def test_states_of_a_worker() -> None:
    text = section(source("explanation/architecture.md"), "## The states of a worker")
    assert first_columns(text) == [state.value for state in State]


def test_states_of_a_model() -> None:
    text = section(source("reference/http-api.md"), "### The model object")
    (sentence,) = re.findall(r"`state` is one of ([^.]*)\.", text)
    expected = {state.value for state in State} - {"gone"} | {"unloaded", "queued", "restarting"}
    assert set(re.findall(r"`(\w+)`", sentence)) == expected


def test_options_of_a_load() -> None:
    text = section(source("reference/http-api.md"), "### Options")
    assert first_columns(text) == [field.name for field in dataclasses.fields(Options)]


def nameless(path: str) -> str:
    """Return a path with each of its variables, `{name}` or `<name>`, as `{}`."""
    return re.sub(r"\{\w+\}|<\w+>", "{}", path)


def control_rules() -> list[Rule]:
    return list(control().wsgi.url_map.iter_rules())


def test_control_paths() -> None:
    headings = re.findall(r"^### (.*)$", source("reference/http-api.md"), re.MULTILINE)
    told = {
        nameless(call)
        for heading in headings
        for call in re.findall(r"`([A-Z]+ (?:/api|/openapi)[^`]*)`", heading)
    }
    own = {"HEAD", "OPTIONS"}  # Flask's
    there = {
        nameless(f"{m} {rule.rule}")
        for rule in control_rules()
        for m in (rule.methods or set()) - own
    }
    assert told == there


def test_prediction_paths() -> None:
    text = section(source("reference/http-api.md"), "## Predictions")
    calls = re.findall(r"`(GET|POST) (/[^`]*)`", text)
    routes = {call: match(nameless(call[1]).replace("{}", "1").encode()) for call in calls}
    assert [call for call, route in routes.items() if route is None] == []
    found = [(call[0], route) for call, route in routes.items() if route is not None]
    assert [route for method, route in found if method not in route.methods] == []
    assert {route.kind for _, route in found} == set(Kind)
