"""Text from outside made harmless for HTML and SVG.

In: anything.  Out: str without markup, control or direction characters.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def inert(text: object) -> str:
    """The text, to be shown as it is."""
    return escape(_CONTROL.sub(" ", str(text)), quote=True)
