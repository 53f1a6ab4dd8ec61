"""Text that is not ours within a page of Markdown: on one line, and nothing that Markdown or HTML would act on."""

from __future__ import annotations

import re
from typing import Final

from tuiadvisor.errors import one_line

_MARKS: Final = "\\`*<>[]|#"
# What a line that can be pasted begins with, after variables that are set for it.
_PROGRAMS: Final = (
    *(
        "tuiadvisor",
        "python",
        "pip",
        "git",
        "grep",
        "ls",
        "curl",
        "fio",
        "iostat",
        "mpstat",
        "pidstat",
        "nfsiostat",
    ),
    *(
        "nvidia-smi",
        "ncu",
        "nsys",
        "py-spy",
        "all_reduce_perf",
        "sacct",
        "squeue",
        "scontrol",
        "kubectl",
        "ulimit",
    ),
)
_COMMAND: Final = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:{'|'.join(map(re.escape, _PROGRAMS))})(?: .*)?")
# Between a command and the words around it, never within quotation marks.
_QUOTED_OR_BETWEEN: Final = re.compile(
    r"""(?<=\s)'[^']*'|(?<=\s)"[^"]*"|(?P<between>(?:[,;:] |\s{2,}(?!#))(?:(?:or|and|beside|then) )?)"""
)


def plain(text: object) -> str:
    """As it is to be read."""
    shown = one_line(str(text), " ")
    for mark in _MARKS:
        shown = shown.replace(mark, "\\" + mark)
    return shown


def code(text: str) -> str:
    """A command as code: no way out of the span."""
    return "`" + one_line(text, " ").replace("`", "'") + "`"


def with_commands(text: str) -> str:
    """Words as they are to be read; what can be pasted among them as code."""
    shown, start = "", 0
    for found in _QUOTED_OR_BETWEEN.finditer(text):
        if between := found["between"]:
            shown += _piece(text[start : found.start()]) + between
            start = found.end()
    return shown + _piece(text[start:])


def _piece(text: str) -> str:
    return code(text) if _COMMAND.fullmatch(text) else plain(text)
