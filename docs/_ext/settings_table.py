"""The directive `settings-table`: every setting of the supervisor, read from the code.

Made at build time, so that the page cannot name a setting that is not there, or miss one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from modelsup.supervisor.settings import FIELDS, Field
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HEADINGS = ("setting", "type", "default", "meaning")
WIDTHS = (18, 16, 22, 44)


def show_default(field: Field) -> str:
    """Return a default as a reader would write it, without the builder's home folder."""
    value = field.default
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Path):
        return str(value).replace(str(Path.home()), "~", 1)
    if isinstance(value, float):
        value = f"{value:g}"
    return f"{value} {field.units}".strip()


def show_type(field: Field) -> str:
    """Return a type, with the choices where there are some."""
    return " | ".join(field.choices) or field.type


class SettingsTable(SphinxDirective):
    """Takes no arguments and no content."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        group = nodes.tgroup(cols=len(HEADINGS))
        group += [nodes.colspec(colwidth=width) for width in WIDTHS]
        group += nodes.thead("", _row([nodes.Text(text) for text in HEADINGS]))
        group += nodes.tbody("", *[_field_row(field) for field in FIELDS])
        return [nodes.table("", group)]


def _field_row(field: Field) -> nodes.row:
    default = show_default(field)
    return _row(
        [
            nodes.literal("", field.name),
            nodes.Text(show_type(field)),
            nodes.literal("", default) if default else nodes.Text("not set"),
            nodes.Text(field.help),
        ]
    )


def _row(cells: list[nodes.Node]) -> nodes.row:
    return nodes.row("", *[nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("settings-table", SettingsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
