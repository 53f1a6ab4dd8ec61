"""One agent on each of some hosts, brought by ssh and gone with it.

By default the agent speaks through a port that ssh forwards from the host's loopback to the hub's: no port is opened
to a network. Other users of that host can reach the forwarded port too, hence keys there as well. With an address of
this machine the agents connect to it directly, encrypted.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor import log
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.launch.address import listening_endpoint, reachable_url
from tuiadvisor.launch.agents import Agents, Launched
from tuiadvisor.launch.command import agent_command, what_is_missing
from tuiadvisor.stream.keys import Invitation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tuiadvisor.stream.keys import PeerKey

# No leading "-": ssh would take it as an option.
_HOST: Final = re.compile(r"(?:[A-Za-z0-9_.][A-Za-z0-9_.-]*@)?[A-Za-z0-9_.\[][A-Za-z0-9_.:%\[\]-]*")
FORWARDED: Final = re.compile(r"Allocated port (\d{1,5}) for remote forward")
NOT_FORWARDED: Final = re.compile(r"remote port forwarding failed")
NO_FORWARDING: Final = "its sshd forwards no ports"
INSTEAD_OF_FORWARDING: Final = "give an address of this machine with --hub-address"
NOT_INSTALLED: Final = re.compile(r"No module named '?tuiadvisor|No such file or directory|not found")
_OPTIONS: Final = (
    "BatchMode=yes",  # a question for a password would hang unseen
    "LogLevel=INFO",  # below it the forwarded port is not said
    "ControlMaster=no",  # through a shared connection neither the port nor the end would be ours
    "ControlPath=none",
    "ConnectTimeout=15",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=12",  # a minute: TCP outlives a cut of the network, and so do the agents
)


@dataclass(frozen=True, slots=True)
class SshOptions:
    """How to reach the hosts."""

    hosts: tuple[str, ...]
    config: str = ""  # ssh's -F
    remote_python: str = ""  # default: the path of our own, which a shared file system makes right
    hub_address: str = ""  # connect straight to this address of ours instead of through ssh


def parse_hosts(text: str) -> tuple[str, ...]:
    """A,B,… as hosts, each once. TuiadvisorError for what ssh would not take as a host."""
    hosts = tuple(dict.fromkeys(host for part in text.split(",") if (host := part.strip())))
    wrong = next((host for host in hosts if not _HOST.fullmatch(host)), None)
    if wrong is not None or not hosts:
        raise TuiadvisorError(f"--hosts {wrong or text!r}: not a host; write --hosts node1,user@node2")
    return hosts


class SshLauncher:
    """One ssh a host."""

    def __init__(self, options: SshOptions) -> None:
        self._options = options

    def agents_endpoint(self, folder: Path) -> str:  # noqa: ARG002  # others listen in the session's folder
        """A port on loopback for the tunnels, or on the address given."""
        return listening_endpoint(self._options.hub_address or "127.0.0.1")

    def num_keys(self) -> int:
        """One a host."""
        return len(self._options.hosts)

    def start(self, url: str, keys: Sequence[PeerKey]) -> Agents:
        """Connect to all hosts at once."""
        port = int(url.rpartition(":")[2])
        return Agents([self._start_one(*one, port) for one in zip(self._options.hosts, keys, strict=True)])

    def _start_one(self, host: str, key: PeerKey, port: int) -> Launched:
        direct = self._options.hub_address

        def on_line(agent: Launched, line: str) -> None:
            if (found := FORWARDED.search(line)) and not direct:
                agent.invite(Invitation(f"tcp://127.0.0.1:{found[1]}", key))
            elif NOT_FORWARDED.search(line):
                agent.fail(f"{NO_FORWARDING}; {INSTEAD_OF_FORWARDING}")
            elif not line.startswith("tuiadvisor:"):
                agent.error = what_is_missing(line, NOT_INSTALLED) or agent.error

        try:
            agent = Launched(host, self.command(host, port), on_line)
        except FileNotFoundError:
            raise TuiadvisorError(
                "--hosts: there is no ssh on this machine; install openssh-client"
            ) from None
        if direct:
            agent.invite(Invitation(reachable_url(direct, port), key))
        return agent

    def command(self, host: str, port: int) -> Sequence[str]:
        """The whole of ssh's command line: no key is on it."""
        tunnel = () if self._options.hub_address else tunnel_to(port)
        agent = agent_command(self._options.remote_python, log_options=log.for_remote())
        return ssh_command(self._options, host, agent, tunnel)


def tunnel_to(port: int) -> tuple[str, ...]:
    """Words of ssh for any free port on a host's loopback that leads to this one on ours."""
    return ("-R", f"127.0.0.1:0:127.0.0.1:{port}")


def ssh_command(
    options: SshOptions, host: str, words: Sequence[str], tunnel: Sequence[str] = ()
) -> list[str]:
    """A command on a host, without a terminal and without a question."""
    settings = [word for option in _OPTIONS for word in ("-o", option)]
    config = ["-F", options.config] if options.config else []
    return ["ssh", "-T", "-x", "-a", *config, *settings, *tunnel, "--", host, f"exec {shlex.join(words)}"]
