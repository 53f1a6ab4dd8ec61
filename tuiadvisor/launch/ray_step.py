"""The driver that brings agents to a Ray cluster's nodes: `python -P -m tuiadvisor.launch.ray_step HOST:PORT [...]`.

In: the invitation and requests, line by line, on standard input, whose end is the end.  Out: on standard error what the
agents say. The actor's class is defined where it is used, so that Ray sends it by value: a node needs a Python with
tuiadvisor for the agent only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from importlib import import_module
from typing import Any, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.launch.command import agent_command
from tuiadvisor.ownpython import python_command

ACTORS_S: Final = 60.0  # for a cluster's nodes to start one each
LOOK_S: Final = 0.2
LEAVE_S: Final = 10.0
POLL_S: Final = 30.0
SURVEY_S: Final = (
    20.0  # one look at a node's processes takes a tenth of a second, and a Python's start on a busy one
)


def node_class() -> Any:  # noqa: C901 - one class, all of it sent by value
    """The actor: an agent's process and its pipes."""

    class Node:
        def survey(self, command: list[str], python: str, patience_s: float) -> tuple[str, bytes]:
            """(this node's name, what runs below its raylet, as `ray_survey` says it; empty where it cannot)."""
            try:
                done = subprocess.run(
                    [python or sys.executable, *command, str(os.getppid())],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=patience_s,
                    check=False,
                    env=self.environment(),
                )
            except (OSError, subprocess.SubprocessError):
                return os.uname().nodename, b""  # its agent will tell better why
            return os.uname().nodename, done.stdout

        def environment(self) -> dict[str, str]:
            """Without what Ray sets for its workers: that is not for another program."""
            return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}

        def start(self, command: list[str], first_line: bytes, python: str) -> str:
            self.said: list[str] = []
            # Below the raylet are this node's workers.
            self.process: Any = subprocess.Popen(
                [python or sys.executable, *command, "--pid", str(os.getppid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=self.environment(),
            )
            self.write(first_line)

            def listen() -> None:
                for raw in self.process.stderr:
                    self.said.append(raw.decode(errors="replace").rstrip()[:2000])

            self.listener = threading.Thread(target=listen, daemon=True)
            self.listener.start()
            return os.uname().nodename

        def write(self, line: bytes) -> None:
            """To the agent; an empty line is the end."""
            try:
                if line:
                    self.process.stdin.write(line)
                    self.process.stdin.flush()
                else:
                    self.process.stdin.close()
            except OSError:
                pass  # it has ended: its exit code tells more

        def look(self) -> tuple[int | None, list[str]]:
            """(exit code if it has ended, what it has said since)."""
            code = self.process.poll()
            if code is not None:
                self.listener.join(1.0)  # its last words say why; a child of it may hold the pipe for longer
            said, self.said = self.said[:200], self.said[200:]
            return code, said

    return Node


class Step:
    """All agents of one cluster."""

    def __init__(self, ray: Any, python: str, options: list[str]) -> None:
        self.ray = ray
        affinity = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        remote = ray.remote(node_class())
        self.nodes = [
            remote.options(num_cpus=0, scheduling_strategy=affinity(node["NodeID"], soft=False)).remote()
            for node in ray.nodes()
            if node["Alive"]
        ]
        self.python = python
        # The node's own interpreter, whichever that is, unless one is named.
        self.command = agent_command(python, log_options=options)[1:]
        self.survey = python_command("tuiadvisor.agent.ray_survey")[1:]
        self.codes: dict[int, int] = {}

    def why_several(self) -> str:
        """What to say where several trainings run on these nodes; one agent looks at its own node only."""
        if len(self.nodes) < 2:
            return ""
        asked = [node.survey.remote(self.survey, self.python, SURVEY_S) for node in self.nodes]
        told = [(host.encode(), raw) for host, raw in self.ray.get(asked, timeout=ACTORS_S)]
        lines = [b"%s\t%s\n" % (host, raw) for host, raw in told if b"\n" not in raw]
        compared = subprocess.run(
            [sys.executable, *self.survey], input=b"".join(lines), capture_output=True, check=False
        )
        return compared.stdout.decode(errors="replace").strip()

    def invite(self, line: bytes) -> None:
        """Start an agent on every node."""
        started = [node.start.remote(self.command, line, self.python) for node in self.nodes]
        self.ray.get(started, timeout=ACTORS_S)

    def tell(self, line: bytes) -> None:
        """A request; empty: the end."""
        self.ray.get([node.write.remote(line) for node in self.nodes], timeout=ACTORS_S)

    def look(self) -> bool:
        """Pass on what they say; whether all have ended."""
        for number, (code, said) in enumerate(
            self.ray.get([node.look.remote() for node in self.nodes], timeout=POLL_S)
        ):
            if code is not None:
                self.codes[number] = code
            for line in said:
                print(line, file=sys.stderr, flush=True)
        return len(self.codes) == len(self.nodes)


def main(arguments: list[str]) -> int:
    """Until standard input ends or all agents have; the least exit code, for a node may have no ranks."""
    address, *options = arguments
    python = next((one.partition("=")[2] for one in options if one.startswith("--python=")), "")
    options = [one for one in options if not one.startswith("--python=")]
    line = _read_line()
    try:
        ray = import_module("ray")
    except ModuleNotFoundError:
        print(
            "tuiadvisor: Ray is not installed beside tuiadvisor; pip install the cluster's own version of it",
            file=sys.stderr,
        )
        return 1
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False, namespace="tuiadvisor")
        step = Step(ray, python, options)
    except (RuntimeError, ValueError, OSError) as error:  # another version, another token, nobody there
        print(f"tuiadvisor: ray {address}: {(str(error) or repr(error)).splitlines()[0]}", file=sys.stderr)
        return 1
    several = step.why_several()
    if several:
        print(f"tuiadvisor: {several}", file=sys.stderr)
        return TuiadvisorError.exit_code
    step.invite(line)
    requests: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(requests,), daemon=True)
    reader.start()
    deadline_s = None
    while not step.look():
        while requests:
            step.tell(requests.pop(0))
        if deadline_s is None and not reader.is_alive():
            step.tell(b"")
            deadline_s = time.monotonic() + LEAVE_S
        if deadline_s is not None and time.monotonic() > deadline_s:
            break
        time.sleep(LOOK_S)
    return min(step.codes.values(), default=1)


def _read_line() -> bytes:
    with os.fdopen(os.dup(0), "rb", buffering=0) as unbuffered:
        return unbuffered.readline()


def _read_all(requests: list[bytes]) -> None:
    with os.fdopen(os.dup(0), "rb", buffering=0) as unbuffered:
        while line := unbuffered.readline():
            requests.append(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
