"""The command line: one small module a command, no logic of its own.

Exit codes: 0 success, 1 a failure around us, 2 a mistake in what was asked. `--debug` shows tracebacks.
"""

import sys  # and nothing else yet: the current folder may still be on the path


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the console script's entry."""
    from tuiadvisor.ownpython import leave_current_folder  # noqa: PLC0415

    if arguments is None:
        leave_current_folder()
    from tuiadvisor import expendable  # noqa: PLC0415
    from tuiadvisor.cli.commands import end_in_order, run  # noqa: PLC0415 - `--version` and errors stay instant
    from tuiadvisor.cli.output import prepare_output  # noqa: PLC0415

    if arguments is None:
        prepare_output()
        end_in_order()
        expendable.go_first()
    return run(sys.argv[1:] if arguments is None else arguments)
