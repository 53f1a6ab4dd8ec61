"""What leaves the screens: a picture of one, a text into the clipboard. Files are new, private, and named when asked.

In: text.  Out: paths, escape sequences.
"""

from __future__ import annotations

import base64
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

# Terminals cut longer sequences off, or take them for an attack.
MAX_CLIPBOARD_BYTES: Final = 74_000
MAX_ALERT_CHARS: Final = 200
_FONT: Final = re.compile(r"@font-face\s*\{.*?\}", re.DOTALL)


def clipboard_sequence(text: str, environ: Mapping[str, str]) -> str:
    """OSC 52, which asks the terminal to put the text into its clipboard; "" where it is too long or no terminal's.

    tmux passes it on with `set-clipboard on`; nothing tells whether the terminal did it.
    """
    raw = text.encode()
    if len(raw) > MAX_CLIPBOARD_BYTES or environ.get("TERM", "") in {"", "dumb", "linux", "unknown"}:
        return ""
    return f"\x1b]52;c;{base64.b64encode(raw).decode()}\a"


def alert_sequence(text: str, environ: Mapping[str, str]) -> str:
    """The bell and OSC 9, a desktop notification in terminals that know it; the bell alone on a console.

    tmux keeps the bell for its status line, and hands OSC 9 on with `allow-passthrough on`.
    """
    bell = "\a"
    if environ.get("TERM", "") in {"", "dumb", "linux", "unknown"}:
        return bell
    shown = one_line(text, " ")[:MAX_ALERT_CHARS]
    told = f"\x1b]9;{shown}\a"
    if environ.get("TMUX"):
        told = f"\x1bPtmux;{told.replace(chr(27), chr(27) * 2)}\x1b\\"
    return bell + told


def copy_file(environ: Mapping[str, str]) -> Path:
    """Where a copied text lies beside the clipboard: one file of the user's own, overwritten each time."""
    cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "tuiadvisor" / "copied.txt"


def write_private(path: Path, text: str) -> None:
    """Write for the owner's eyes only. OSError if it cannot be written."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def new_picture(folder: Path, svg: str, clock: time.struct_time | None = None) -> Path:
    """Write a screenshot under a name of its own. OSError if it cannot be written."""
    stamp = time.strftime("%Y%m%d-%H%M%S", clock or time.localtime())
    for number in range(100):
        path = folder / f"tuiadvisor-{stamp}{f'-{number}' if number else ''}.svg"
        try:
            # Without the fonts of a web server: the file is to be whole by itself.
            with path.open("x", encoding="utf-8") as file:
                file.write(_FONT.sub("", svg).replace("Fira Code", "Fira Code, DejaVu Sans Mono"))
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"{folder}: a hundred screenshots in a second")
