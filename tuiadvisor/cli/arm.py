"""`tuiadvisor arm -- COMMAND`: become the command, with a dormant listener in each of its Python processes.

Nothing of us stays around it: the command takes this process's place, so its exit code, signals, terminal and process
id are its own.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from typing import NoReturn

from tuiadvisor import expendable
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.inject.armed import TEMPORARY, arm_environment, waiting_processes


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "--env", action="store_true", help='print the variables for a job script instead: eval "$(… --env)"'
    )
    parser.add_argument(
        "training", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what starts the training"
    )


def run(options: argparse.Namespace) -> int:
    """Print the environment, or become the command."""
    command = options.training[1:] if options.training[:1] == ["--"] else options.training
    if not os.access(TEMPORARY, os.W_OK | os.X_OK):
        raise FailureError(f"nothing could be armed: {TEMPORARY} is not writable; listeners wait there")
    environment = arm_environment(dict(os.environ))
    if options.env:
        for name in sorted(environment):
            if environment[name] != os.environ.get(name):
                print(f"export {name}={shlex.quote(environment[name])}")
        return 0
    if not command:
        raise TuiadvisorError("nothing to run: write the command after --, e.g. -- torchrun train.py")
    waiting_processes(remove_dead=True)
    return _become(command, environment)


def _become(command: list[str], environment: dict[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    # Python ignores these two; a command inherits that, and would not end when its reader does.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    expendable.no_longer()
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606  it is what the user asked for
    except OSError as error:
        raise TuiadvisorError(f"{command[0]}: {error.strerror}; check the command after --") from error
