"""Input that is no UTF-8, as of a binary file that is pasted, is unreadable text and not the end of the screens.

Textual decodes strictly what the terminal sends: one wrong byte raised in the thread that reads it, and the app ended
with a traceback. It has no hook for it; what it looks the decoder up by is a name of its driver's module.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from textual.drivers import linux_driver

if TYPE_CHECKING:
    from collections.abc import Callable


def read_any_bytes() -> None:
    """For drivers that begin to read from now on."""
    linux_driver.getincrementaldecoder = _lenient  # type: ignore[assignment,attr-defined]


def _lenient(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
    return lambda: codecs.getincrementaldecoder(encoding)("replace")
