"""What Slurm and Ray share: one process of ours starts all agents, and hands each the line that it is given.

In: an address of this machine that the nodes reach, the command, how it says that tuiadvisor is missing.  Out: Agents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tuiadvisor.launch.address import listening_endpoint, reachable_url
from tuiadvisor.launch.agents import Agents, Launched
from tuiadvisor.launch.command import what_is_missing
from tuiadvisor.stream.keys import Invitation

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence
    from pathlib import Path

    from tuiadvisor.stream.keys import PeerKey


class OneStepLauncher(ABC):
    """One key and one command for all nodes."""

    def __init__(self, name: str, address: str, not_installed: re.Pattern[str]) -> None:
        """name: in messages. address: ours, towards the nodes. not_installed: what a node without us prints."""
        self._name, self._address, self._not_installed = name, address, not_installed

    def agents_endpoint(self, folder: Path) -> str:  # noqa: ARG002  # others listen in the session's folder
        """A port on our address that the nodes can reach."""
        return listening_endpoint(self._address)

    def num_keys(self) -> int:
        """One: the same line is copied to every node."""
        return 1

    def start(self, url: str, keys: Sequence[PeerKey]) -> Agents:
        """Start the command; it copies what we write to every node."""

        def on_line(agent: Launched, line: str) -> None:
            agent.error = what_is_missing(line, self._not_installed) or agent.error

        step = Launched(self._name, self.command(), on_line)
        step.invite(Invitation(reachable_url(self._address, int(url.rpartition(":")[2])), keys[0]))
        return Agents([step])

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The whole command line: no key is on it."""
