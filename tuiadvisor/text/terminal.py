"""What the terminal around us can do, read from environment and streams; set before Textual is imported.

In: os.environ, sys streams.  Out: switches for Textual, whether to write ASCII only.
"""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING

from tuiadvisor.errors import TuiadvisorError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Animations cost 15 to 70 times the bytes of the frame they lead to (measured over SSH).
TEXTUAL_SWITCHES = {"TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0", "TEXTUAL_FPS": "30"}
# Fonts of these terminals lack the eighth blocks.
_POOR_TERMINALS = frozenset({"linux", "vt100", "vt220", "ansi"})


def prepare() -> None:
    """Set what Textual reads once, when it is imported; the user's own settings win."""
    for name, value in TEXTUAL_SWITCHES.items():
        os.environ.setdefault(name, value)


def in_browser(environ: Mapping[str, str]) -> bool:
    """Return whether `textual serve` runs us: keys and frames are packets on stdin and stdout then."""
    return environ.get("TEXTUAL_DRIVER", "").endswith("web_driver:WebDriver")


def shows_screens() -> bool:
    """Return whether somebody looks: stdout is a terminal, or a web page's."""
    return sys.stdout.isatty() or in_browser(os.environ)


def is_there() -> bool:
    """Return whether the terminal or the page still is; a terminal has no name any more after a hang-up."""
    if sys.__stdin__ is None:
        return False
    try:
        if not in_browser(os.environ):
            return os.ttyname(sys.__stdin__.fileno()) != ""
        look = select.poll()
        look.register(sys.__stdin__.fileno(), 0)
        # A server that was killed has closed its end; one that ends in order says so by a packet.
        return not any(event & (select.POLLHUP | select.POLLERR) for _, event in look.poll(0))
    except OSError:
        return False


def require_terminal() -> None:
    """Raise where screens cannot be drawn. Textual reads keys from stdin and draws on stderr."""
    if in_browser(os.environ):
        return
    if not sys.__stdin__ or not sys.__stdin__.isatty() or not sys.__stderr__ or not sys.__stderr__.isatty():
        raise TuiadvisorError(
            "the screens need a terminal on stdin and stderr: use --once, or record and diagnose"
        )
    if os.environ.get("TERM", "") in {"", "dumb", "unknown"}:
        raise TuiadvisorError(
            f"TERM is {os.environ.get('TERM', '')!r}, a terminal without a cursor: "
            "use --once, or set TERM=xterm-256color"
        )


def ascii_only(environ: Mapping[str, str], encoding: str | None) -> bool:
    """Return whether only ASCII may be written.

    Python turns an unset locale into UTF-8 by itself (PEP 538), so a locale that was set is asked first.
    """
    if environ.get("TUIADVISOR_ASCII", "") not in {"", "0"}:
        return True
    if in_browser(environ):
        return False
    if environ.get("TERM", "") in _POOR_TERMINALS:
        return True
    if (encoding or "ascii").lower().replace("-", "").replace("_", "") != "utf8":
        return True
    chosen = environ.get("LC_ALL") or _own_ctype(environ) or environ.get("LANG") or ""
    return bool(chosen) and "utf" not in chosen.lower()


def _own_ctype(environ: Mapping[str, str]) -> str:
    """Return LC_CTYPE unless it is what PEP 538 puts there."""
    ctype = environ.get("LC_CTYPE", "")
    return "" if ctype == "C.UTF-8" else ctype


def first_theme(environ: Mapping[str, str], num_colours: int | None, preferred: str = "auto") -> str:
    """Return the theme to start with: the user's, else the terminal's own colours where there are few.

    preferred: of the file of preferences; a variable wins over it, because it is nearer.
    """
    asked = environ.get("TUIADVISOR_THEME", "")
    if asked in {"dark", "light", "terminal"}:
        return asked
    if preferred in {"dark", "light", "terminal"} and "NO_COLOR" not in environ:
        return preferred
    if "NO_COLOR" in environ or num_colours is None or num_colours <= 16:
        return "terminal"
    # COLORFGBG is "foreground;background" of the terminal, 7 and 15 are light grounds.
    return "light" if environ.get("COLORFGBG", "").rpartition(";")[2] in {"7", "15"} else "dark"


def has_shell() -> bool:
    """Whether a shell of this terminal started us as a job of its own, so that it can bring us back."""
    try:
        parent = os.getppid()
        in_session = os.getsid(parent) == os.getsid(0)
        return in_session and os.getpgid(parent) != os.getpgrp() == os.getpid()
    except OSError:
        return False
