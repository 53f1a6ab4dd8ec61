"""The command line: one small module a command, no logic of its own.

Exit codes: 0 success, 1 a failure around us, 2 a mistake in what was asked. `--debug` shows tracebacks.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the console script's entry."""
    from tuiadvisor.cli.commands import end_in_order, run  # noqa: PLC0415 - `--version` and errors stay instant

    if arguments is None:
        end_in_order()
    return run(sys.argv[1:] if arguments is None else arguments)
