"""Names of people, machines, places and processes, each replaced by a word of ours: the same by the same.

In: originals.  Out: replacements, numbered as they appear.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tuiadvisor.stream.frames import HUB_SOURCE

_DEFAULT_GROUP: Final = "default_pg"


@dataclass(slots=True)
class Names:
    """original -> replacement, one map a kind of name; filled by the first reading."""

    hosts: dict[str, str] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)  # serial numbers of devices
    boots: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    purposes: dict[str, str] = field(default_factory=dict)

    def label(self, text: str) -> str:
        """Scripts are numbered as they appear."""
        return self.labels.setdefault(text, f"script{len(self.labels)}.py") if text else ""

    def command(self, text: str) -> str:
        """Command lines too: equal ones stay equal, different ones different."""
        return self.commands.setdefault(text, f"command {len(self.commands)}") if text else ""

    def commit(self, text: str) -> str:
        """Commits of a repository that nobody outside may know."""
        return self.commits.setdefault(text, f"commit{len(self.commits)}") if text else ""

    def device(self, text: str) -> str:
        """Serial numbers; the process knows its device without NVML's prefix."""
        text = text.removeprefix("GPU-").removeprefix("MIG-")
        return self.devices.setdefault(text, f"GPU-{len(self.devices)}") if text else ""

    def boot(self, text: str) -> str:
        """Ids of a machine's boot."""
        return self.boots.setdefault(text, f"boot{len(self.boots)}") if text else ""

    def group(self, text: str) -> str:
        """Process groups: torch numbers them, and a program may name them; equal ones stay equal."""
        return text if text.isdigit() else self.groups.setdefault(text, f"group{len(self.groups)}")

    def purpose(self, text: str) -> str:
        """What a group is for is the program's own word, but for torch's default group."""
        if text in {"", _DEFAULT_GROUP}:
            return text
        return self.purposes.setdefault(text, f"purpose{len(self.purposes)}")

    def pid(self, number: int) -> int:
        """Process ids: 1, 2, 3, ... as they appear."""
        return self.pids.setdefault(number, len(self.pids) + 1)

    def source(self, name: str) -> str:
        """host/agentpid/startns of an agent."""
        if name == HUB_SOURCE:
            return name
        if name not in self.sources:
            host, _, rest = name.partition("/")
            pid = rest.partition("/")[0]
            number = self.pid(int(pid)) if pid.isdecimal() and len(pid) < 12 else 0
            self.sources[name] = f"{self.host(host)}/{number}/{len(self.sources)}"
        return self.sources[name]

    def host(self, name: str) -> str:
        """A machine's name; one that the first reading did not see gets a number of its own."""
        return self.hosts.setdefault(name, f"other{len(self.hosts)}") if name else ""
