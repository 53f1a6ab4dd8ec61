"""`doctor --hosts A,B` and `--slurm JOBID`: the same checks on every node, and what only shows between nodes.

Each node is asked by a process of its own (ssh, or a step in the job) that runs `tuiadvisor doctor --json` there. What
it says is checked field by field before it is believed.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from tuiadvisor import __version__
from tuiadvisor.cli.document import print_document
from tuiadvisor.cli.node_checks import Check, State
from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.launch.address import address_towards
from tuiadvisor.launch.command import what_is_missing
from tuiadvisor.launch.slurm import find_job, step_command
from tuiadvisor.launch.ssh import (
    FORWARDED,
    INSTEAD_OF_FORWARDING,
    NO_FORWARDING,
    NOT_FORWARDED,
    NOT_INSTALLED,
    SshOptions,
    parse_hosts,
    ssh_command,
    tunnel_to,
)
from tuiadvisor.ownpython import own_environment, python_command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

NODE_S: Final = 90.0
AT_ONCE: Final = 16
MAX_SAID: Final = 1 << 20  # bytes of a node's answer
MAX_TEXT: Final = 400
UNUSED_PORT: Final = 9  # discard
MAX_CHECKS: Final = 50
OF_HERE: Final = frozenset({"terminal", "ssh"})  # nobody looks at screens there
NUMBERS_VARY: Final = frozenset({"rings", "armed", "clock"})  # nodes are alike although their numbers are not


@dataclass(frozen=True, slots=True)
class Node:
    """What one node said."""

    name: str
    checks: tuple[Check, ...] = ()
    error: str = ""  # why it said nothing


def look_at_nodes(options: argparse.Namespace) -> int:
    """Ask all, print; 1 if something is missing on one of them or one did not answer."""
    if options.hosts and options.slurm:
        raise TuiadvisorError("--hosts and --slurm: give one of the two")
    names, command_of, meeting = _ways(options)
    with _meeting_point(meeting) as reach, _a_file_here() as (file, token):
        words = ["doctor", "--json", "--seen", file, token, *(["--reach", reach] if reach else [])]
        ours = python_command("tuiadvisor", *words, python=options.remote_python)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            nodes = list(pool.map(lambda name: ask(name, command_of(name, ours)), names))
    if options.json:
        print_document({"schema": 1, "tuiadvisor": __version__, "nodes": [asdict(node) for node in nodes]})
    else:
        print("\n".join(lines(nodes)))
    return int(any(node.error or any(one.state == "missing" for one in node.checks) for node in nodes))


def _ways(options: argparse.Namespace) -> tuple[Sequence[str], Callable[[str, list[str]], list[str]], str]:
    """The nodes, how a command runs on one of them, and our address that they have to reach."""
    if options.slurm:
        job = find_job(options.slurm)
        meeting = options.hub_address or address_towards(job.first_address)
        return job.nodes, lambda name, words: step_command(job, name, words), meeting
    hosts = parse_hosts(options.hosts)
    ssh = SshOptions(hosts, options.ssh_config)
    # Agents would come through a port that sshd forwards: whether it does shows without anybody who listens.
    tunnel = () if options.hub_address else tunnel_to(UNUSED_PORT)
    return hosts, lambda name, words: ssh_command(ssh, name, words, tunnel), options.hub_address


def ask(name: str, command: Sequence[str]) -> Node:
    """What a node says of itself, and of its clock beside ours."""
    begin_s = time.time()
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=NODE_S, check=False,
            env=own_environment(),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Node(name, error=f"no answer in {NODE_S:.0f} s")
    except OSError as error:
        return Node(name, error=f"{command[0]}: {error.strerror}")
    node = parsed(name, done.stdout, begin_s, time.time())
    words = done.stderr.decode("utf-8", "replace")
    if not node.error:
        return replace(node, checks=(*node.checks, *_forwarding(words)))
    if done.returncode:
        said = [line for line in words.splitlines() if line.strip() and not FORWARDED.search(line)]
        said = said or [f"exit code {done.returncode}"]
        told = next((text for line in said if (text := what_is_missing(line, NOT_INSTALLED))), said[-1])
        return Node(name, error=one_line(told.strip())[:MAX_TEXT])
    return node


def _forwarding(said: str) -> Iterator[Check]:
    """What ssh said of the port that was asked for; nothing where none was."""
    if NOT_FORWARDED.search(said):
        yield Check("ports", "missing", NO_FORWARDING, INSTEAD_OF_FORWARDING)
    elif FORWARDED.search(said):
        yield Check("ports", "ok", "its sshd forwards a port to this machine", "")


def parsed(name: str, said: bytes, begin_s: float, end_s: float) -> Node:
    """The answer, believed as far as it has the form of one."""
    try:
        document = json.loads(said[:MAX_SAID])
        version, wall_s = str(document["tuiadvisor"]), float(document["wall_s"])
        checks = [
            check for one in document["checks"][:MAX_CHECKS] if (check := _check(one)).name not in OF_HERE
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Node(name, error="its answer is none of tuiadvisor doctor's (of this version)")
    return Node(name, (_version(one_line(version)[:40]), *checks, _clock(wall_s, begin_s, end_s)))


def _check(given: Any) -> Check:
    if given["state"] not in get_args(State):
        raise ValueError
    name, found, remedy = (one_line(str(given[key]))[:MAX_TEXT] for key in ("name", "found", "remedy"))
    return Check(name, given["state"], found, remedy)


def _version(theirs: str) -> Check:
    if theirs == __version__:
        return Check("version", "ok", f"tuiadvisor {theirs}", "")
    return Check(
        "version",
        "limited",
        f"tuiadvisor {theirs}, here {__version__}",
        "agents of another version are refused",
    )


def _clock(wall_s: float, begin_s: float, end_s: float) -> Check:
    """Its clock was read between two looks at ours: more is not known."""
    low_s, high_s = wall_s - end_s, wall_s - begin_s
    if low_s <= 0.0 <= high_s:
        return Check("clock", "ok", f"as ours, as far as {end_s - begin_s:.1f} s tell", "")
    by_s = low_s if low_s > 0.0 else -high_s
    found = f"{'ahead of' if low_s > 0.0 else 'behind'} ours by {by_s:.1f} s or more"
    return Check(
        "clock", "limited", found, "steps need no common clock; logs and recordings would name other times"
    )


def lines(nodes: Sequence[Node]) -> Iterator[str]:
    """A line for each answer to a check, with the nodes that gave it."""
    for node in nodes:
        if node.error:
            yield f"{'missing':8} {'node':10} {node.name}: {node.error}"
    heard = [node for node in nodes if not node.error]
    for name in dict.fromkeys(check.name for node in heard for check in node.checks):
        groups: dict[tuple[str, ...], tuple[Check, list[str]]] = {}
        for node in heard:
            for check in (one for one in node.checks if one.name == name):
                found = re.sub(r"\d+(\.\d+)?", "#", check.found) if name in NUMBERS_VARY else check.found
                groups.setdefault((check.state, found, check.remedy), (check, []))[1].append(node.name)
        for check, names in groups.values():
            everybody = "nodes" if len(heard) == len(nodes) else "that answered"
            where = f"all {len(heard)} {everybody}" if len(names) == len(heard) > 1 else _named(names)
            yield f"{check.state:8} {check.name:10} {check.found}  [{where}]"
            if check.remedy:
                yield f"{'':19} -> {check.remedy}"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


@contextlib.contextmanager
def _a_file_here() -> Iterator[tuple[str, str]]:
    """A file in the current folder, and what is in it: who reads it elsewhere shares our file system."""
    token = secrets.token_hex(8)
    try:
        file = tempfile.NamedTemporaryFile("w", prefix=".tuiadvisor-doctor-", dir=".", delete=True)  # noqa: SIM115
    except OSError as error:
        raise TuiadvisorError(
            f"the current folder: {error.strerror}; change to one that you may write to"
        ) from None
    with file:
        file.write(token)
        file.flush()
        yield str(Path(file.name).resolve()), token


@contextlib.contextmanager
def _meeting_point(address: str) -> Iterator[str]:
    """ADDRESS:PORT where who connects is let go at once; "" where nobody has to."""
    if not address:
        yield ""
        return
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listening:
        try:
            listening.bind((address, 0))
        except OSError as error:
            raise TuiadvisorError(
                f"--hub-address {one_line(address)}: {error.strerror}; give an address of this machine"
            ) from None
        listening.listen(AT_ONCE)
        threading.Thread(target=_let_go, args=(listening,), daemon=True).start()
        try:
            yield f"{address}:{listening.getsockname()[1]}"
        finally:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)


def _let_go(listening: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listening.accept()[0].close()
