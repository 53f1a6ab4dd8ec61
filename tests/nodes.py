"""Several "nodes" on this machine, namespaces of processes and host name, and a training across them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "demo" / "train.py"
PYTHONPATH = os.pathsep.join(str(ROOT / part) for part in ("", "probes", "rules"))
# The host name, a /run of its own, then the node's programs; the namespace ends with its first process.
_INIT = 'hostname "$1" && mount -t tmpfs run /run && mkdir -p /run/sshd && shift && exec "$@"'


def can_make_nodes() -> bool:
    """Whether namespaces are allowed here."""
    if shutil.which("unshare") is None:
        return False
    command = [
        "unshare",
        "--uts",
        "--pid",
        "--fork",
        "--mount-proc",
        "sh",
        "-c",
        _INIT,
        "sh",
        "probe",
        "true",
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@dataclass
class Node:
    """A namespace with its own host name and process ids."""

    name: str
    process: subprocess.Popen[bytes]

    def family(self) -> list[psutil.Process]:
        """Every process of the node."""
        try:
            return list(psutil.Process(self.process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def agents(self) -> list[psutil.Process]:
        """Our agents among them, whoever their parent is now."""
        found = []
        for process in psutil.process_iter():
            try:
                if "tuiadvisor.agent" in process.cmdline() and _same_node(process.pid, self):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def end(self) -> None:
        """End it with all its processes."""
        self.process.kill()
        self.process.wait(PATIENCE_S)


def _same_node(pid: int, node: Node) -> bool:
    try:
        mine = Path(f"/proc/{pid}/ns/pid").readlink()
        return any(Path(f"/proc/{one.pid}/ns/pid").readlink() == mine for one in node.family())
    except OSError:
        return False


def start_node(name: str, command: list[str], log: Path, env: dict[str, str] | None = None) -> Node:
    """A node that runs this command as its first process."""
    enter = [
        "unshare",
        "--uts",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        _INIT,
        "sh",
        name,
    ]
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*enter, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            env={**os.environ, **TRAINING_ENV, **(env or {})}, start_new_session=True,
        )  # fmt: skip
    return Node(name, process)


TRAINING_ENV = {
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTHONPATH": PYTHONPATH,
}


def torchrun(node_rank: int, num_nodes: int, ranks_a_node: int, port: int, arguments: list[str]) -> list[str]:
    """One node's launcher of a training over several."""
    place = [f"--nnodes={num_nodes}", f"--node-rank={node_rank}", f"--nproc-per-node={ranks_a_node}"]
    meet = ["--master-addr=127.0.0.1", f"--master-port={port}"]
    training = [str(SCRIPT), "--seconds", "3600", "--print-every", "0", *arguments]
    return [sys.executable, "-m", "torch.distributed.run", *place, *meet, *training]


def wait_for_training(nodes: list[Node], ranks_a_node: int) -> None:
    """Until each node's ranks have a process group."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if all(_num_training(node) >= ranks_a_node for node in nodes):
            time.sleep(2.0)
            return
        time.sleep(0.2)
    raise AssertionError("the training did not start: " + str([_num_training(node) for node in nodes]))


def _num_training(node: Node) -> int:
    return sum(map(_trains, node.family()))


def _trains(process: psutil.Process) -> bool:
    try:
        threads = Path(f"/proc/{process.pid}/task")
        return any("gloo" in (thread / "comm").read_text() for thread in threads.iterdir())
    except OSError:
        return False


def wait_until_no_agents(nodes: list[Node], patience_s: float = PATIENCE_S) -> list[psutil.Process]:
    """The agents that are left after a while; none if all went."""
    deadline_s = time.monotonic() + patience_s
    while (left := [agent for node in nodes for agent in node.agents()]) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    return left
