"""A name as one word of a command line that we print for somebody to paste."""

from __future__ import annotations

import shlex


def shell_word(name: str) -> str:
    """Quoted where a shell needs it; no option; what a terminal would obey is spelled out, as bash and zsh read it."""
    word = f"./{name}" if name.startswith("-") else name
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(char if _is_plain(char) else _spelled_out(char) for char in word)}'"


def _is_plain(char: str) -> bool:
    return char.isprintable() and char not in "\\'"


def _spelled_out(char: str) -> str:
    # A byte of a file name that is no UTF-8 stands as one of these surrogates.
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", errors))
