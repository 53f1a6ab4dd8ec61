"""The agent of this machine, over a private socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor import log
from tuiadvisor.launch.agents import Agents, Launched
from tuiadvisor.launch.command import agent_command
from tuiadvisor.stream.keys import Invitation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tuiadvisor.stream.keys import PeerKey


class LocalLauncher:
    """One agent here, for these processes or for the only training."""

    def __init__(self, pids: Sequence[int] = ()) -> None:
        self._pids = pids

    def agents_endpoint(self, folder: Path) -> str:
        """A socket in the session's own folder: nobody else may enter."""
        return f"ipc://{folder}/agents"

    def num_keys(self) -> int:
        """One agent."""
        return 1

    def start(self, url: str, keys: Sequence[PeerKey]) -> Agents:
        """Start it."""
        options, descriptors = log.for_child()
        command = agent_command(pids=self._pids, log_options=options)
        agent = Launched("", command, lambda *_: None, descriptors)
        agent.invite(Invitation(url, keys[0] if keys else None))
        return Agents([agent])
