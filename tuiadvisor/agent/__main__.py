"""The agent as a process: `python -P -m tuiadvisor.agent --endpoint ipc://... [--pid P ...] [--parent-pid P]`.

Started over a network it is given --from-stdin instead: one line with the hub's address and a key, on standard input,
whose end is the end of the agent.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from typing import Final

from tuiadvisor import expendable, log
from tuiadvisor.agent.agent import AgentConfig, run_agent
from tuiadvisor.agent.candidates import SLURM_JOB
from tuiadvisor.agent.descriptors import raise_limit
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.inject import make_ready
from tuiadvisor.stream.keys import Invitation, read_invitation, read_line_invitation

# Where ranks keep every core busy, we and the tracers we start get what they leave, plus a tenth of a core.
NICENESS: Final = 10
SWITCH_S: Final = 0.0005  # at 5 ms each of many attaches under way holds the loop up for so long


def main(arguments: list[str] | None = None) -> int:
    """Run an agent; the exit code."""
    expendable.go_first()
    parser = argparse.ArgumentParser(
        prog="python -P -m tuiadvisor.agent", description="Watch one node's ranks."
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--endpoint", help="where the hub listens: ipc:///path or tcp://127.0.0.1:PORT")
    where.add_argument(
        "--invitation", metavar="FILE", help="a file of yours alone with the hub's address and a key"
    )
    where.add_argument(
        "--from-stdin",
        action="store_true",
        help="read address and key from standard input; leave when it closes",
    )
    parser.add_argument("--pid", type=int, nargs="+", action="extend", default=[], help="ranks or a launcher")
    parser.add_argument("--parent-pid", type=int, help="leave when this process is gone")
    parser.add_argument("--wait", type=float, default=0.0, metavar="S", help="wait for ranks to appear")
    parser.add_argument(
        "--own-job", action="store_true", help="watch only ranks of the Slurm job that this is a step of"
    )
    log.add_options(parser)
    given = parser.parse_args(arguments)
    with suppress(OSError):
        os.nice(NICENESS)
    raise_limit()
    sys.setswitchinterval(SWITCH_S)
    try:
        log.start_beside("agent", given, is_remote=given.from_stdin)
        invitation = _invitation(given)
        control_fd = sys.stdin.fileno() if given.from_stdin else None
        with suppress(OSError):  # whoever attaches tries again, and says what is missing
            make_ready()
        config = AgentConfig(
            invitation.url, tuple(given.pid), given.parent_pid, given.wait, invitation.key, control_fd,
            os.environ.get(SLURM_JOB, "") if given.own_job else "",
        )  # fmt: skip
        return run_agent(config)
    except TuiadvisorError as error:
        print(f"tuiadvisor: {error}", file=sys.stderr)
        return error.exit_code


def _invitation(given: argparse.Namespace) -> Invitation:
    if given.from_stdin:
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as unbuffered:
            return read_line_invitation(unbuffered)
    return read_invitation(given.invitation) if given.invitation else Invitation(given.endpoint)


if __name__ == "__main__":
    sys.exit(main())
