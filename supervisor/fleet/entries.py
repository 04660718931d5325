"""Whether what an entry of the catalogue asks for can be had here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import BadDevice, Invalid

if TYPE_CHECKING:
    from ..domain import CatalogueEntry
    from .ports import Devices


def check_entry(entry: CatalogueEntry, devices: Devices, max_batch_size: int) -> None:
    """Raise Invalid where an option names what is not there, or two do not go together.

    `max_batch_size` is that of a model that says nothing else, in rows.
    """
    options = entry.options
    try:
        devices.choose(options.device)
    except BadDevice as error:
        raise Invalid(str(error), model=entry.name) from error
    most = options.max_batch_size or max_batch_size
    largest = max(options.preferred_batch_sizes or [], default=0)
    if largest > most:
        raise Invalid(
            f"model {entry.name} is to have batches of {largest} rows, and of {most} at most; "
            "raise 'max_batch_size', or leave out what is over it in 'preferred_batch_sizes'",
            model=entry.name,
        )
