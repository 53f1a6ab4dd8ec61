"""Text from outside made harmless for HTML and SVG.

In: anything.  Out: str without markup, control or direction characters.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final

_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)


def inert(text: object) -> str:
    """The text, to be shown as it is."""
    return escape(_CONTROL.sub(" ", str(text)), quote=True)
