"""Two hosts with a switch between them, as network namespaces, and a hand on the cable."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patience import PATIENCE_S

HUB_ADDRESS, NODE_ADDRESS = "10.213.77.1", "10.213.77.2"  # nobody else is in these namespaces


def can_make_networks() -> bool:
    """Whether this machine lets us."""
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return False
    probe = ["unshare", "--net", "ip", "link", "add", "probe", "type", "bridge"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@dataclass
class Network:
    """Pids of processes that hold the namespaces; whoever is entered is alone in there."""

    hub: int
    switch: int
    node: int

    def enter(self, pid: int) -> list[str]:
        """What to write before a command that shall run on that host."""
        return ["nsenter", f"--net=/proc/{pid}/ns/net"]

    def cut(self) -> None:
        """Nothing passes, and neither end is told: what a dead switch does."""
        self._ip(self.switch, "link", "set", "to-node", "nomaster")

    def mend(self) -> None:
        """As before."""
        self._ip(self.switch, "link", "set", "to-node", "master", "switch")

    def build(self) -> None:
        """Cables and addresses."""
        self._ip(self.switch, "link", "add", "switch", "type", "bridge")
        for name, pid, address in (("to-hub", self.hub, HUB_ADDRESS), ("to-node", self.node, NODE_ADDRESS)):
            peer = ("type", "veth", "peer", "name", "cable", "netns", str(pid))
            self._ip(self.switch, "link", "add", name, *peer)
            self._ip(self.switch, "link", "set", name, "master", "switch", "up")
            self._ip(pid, "address", "add", f"{address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                self._ip(pid, "link", "set", device, "up")
        self._ip(self.switch, "link", "set", "switch", "up")

    def _ip(self, pid: int, *arguments: str) -> None:
        subprocess.run([*self.enter(pid), "ip", *arguments], check=True, capture_output=True)


@contextmanager
def network() -> Iterator[Network]:
    """Gone with everything in it at the end, also when the tests are killed: the holders wait for our end."""
    command = ["unshare", "--net", "sh", "-c", "read -r _"]
    holders = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(3)]
    try:
        for holder in holders:
            _wait_for_namespace(holder.pid)
        made = Network(*(holder.pid for holder in holders))
        made.build()
        yield made
    finally:
        for holder in holders:
            holder.communicate()


def _wait_for_namespace(pid: int) -> None:
    ours, deadline_s = Path("/proc/self/ns/net").readlink(), time.monotonic() + PATIENCE_S
    while os.readlink(f"/proc/{pid}/ns/net") == str(ours):  # noqa: PTH115
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
