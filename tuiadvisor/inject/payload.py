"""The caller's code, wrapped so that it can neither touch the host's names nor say a word when it fails.

In: Python source.  Out: pure-ASCII Python source that never raises.
"""

from __future__ import annotations

NAME_IN_TARGET = "_tuiadvisor_boot"


def wrapped(code: str, before: str = "") -> str:
    """Code that runs `code` in a fresh namespace; `before` is one line run first, under the same guard."""
    # ascii(): the text crosses as bytes and is decoded under whatever source encoding is in force there.
    lines = ["try:"]
    if before:
        lines.append(f"    {before}")
    lines += [
        f"    exec({code!a}, {{'__name__': {NAME_IN_TARGET!r}}})",
        "except BaseException:",
        "    pass",
    ]
    return "\n".join(lines) + "\n"
