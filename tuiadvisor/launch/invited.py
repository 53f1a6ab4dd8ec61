"""Agents that others start: a sidecar of a pod, a line of a job script, an MPI launcher. They come with an invitation.

In: a file that does not exist yet.  Out: the hub's address and the agents' key in it, readable by its owner alone. The
file opens this session only and goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.launch.address import listening_endpoint, reachable_url
from tuiadvisor.launch.agents import Agents
from tuiadvisor.stream.keys import Invitation, write_invitation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tuiadvisor.stream.keys import PeerKey


class InvitedLauncher:
    """Starts nothing."""

    def __init__(self, file: Path, address: str) -> None:
        """file: where the invitation is written; address: a name or number of this machine that agents reach."""
        self._file = file
        self._address = address

    def agents_endpoint(self, folder: Path) -> str:  # noqa: ARG002  # others listen in the session's folder
        """A port on our address."""
        return listening_endpoint(self._address)

    def num_keys(self) -> int:
        """One: there is one file."""
        return 1

    def start(self, url: str, keys: Sequence[PeerKey]) -> Agents:
        """Write the invitation."""
        reachable = reachable_url(self._address, int(url.rpartition(":")[2]))
        write_invitation(self._file, Invitation(reachable, keys[0]))
        return InvitedAgents(self._file)


class InvitedAgents(Agents):
    """None of them is a process of ours: they end with their ranks, or when whoever started them ends them."""

    def __init__(self, file: Path) -> None:
        super().__init__(())
        self._file = file

    def ended(self) -> bool:
        """Another one may still come."""
        return False

    def close(self) -> None:
        """The invitation opens nothing any more."""
        self._file.unlink(missing_ok=True)
