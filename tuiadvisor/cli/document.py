"""One JSON document on standard output, for scripts; harmless also where somebody looks at it in a terminal."""

from __future__ import annotations

import re
import sys
from typing import Final

import orjson

_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7e]")


def print_document(document: object, options: int = 0) -> None:
    """Print it; `options`: more of orjson's."""
    sys.stdout.buffer.write(document_bytes(document, options))


def document_bytes(document: object, options: int = 0) -> bytes:
    """The document with a line end; characters that a terminal may obey are written as JSON's escapes."""
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | options).decode() + "\n"
    return _BEYOND_ASCII.sub(_escaped, text).encode()


def _escaped(found: re.Match[str]) -> str:
    """JSON itself escapes what is below a blank; beyond ASCII are more control and direction characters."""
    if found[0].isprintable():
        return found[0]
    raw = found[0].encode("utf-16-be")
    return "".join(f"\\u{raw[at : at + 2].hex()}" for at in range(0, len(raw), 2))
