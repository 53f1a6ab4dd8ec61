"""What `doctor` looks at for a cluster's sake: a file and an address of the machine that asks, NCCL's variables."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tuiadvisor.errors import one_line

State = Literal["ok", "limited", "missing"]
REACH_S: Final = 5.0
# Switches that somebody set to find a fault, and forgot: each costs bandwidth or writes all the time.
COSTLY: Final = {
    "NCCL_P2P_DISABLE": "devices of a node talk through its memory",
    "NCCL_SHM_DISABLE": "devices of a node talk through the network",
    "NCCL_IB_DISABLE": "nodes talk over sockets, not InfiniBand or RoCE",
}
LOUD: Final = frozenset({"INFO", "TRACE"})
MAX_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    state: State
    found: str
    remedy: str


def look_at_nccl() -> Check:
    """Variables of the shell that asks; a job may have its own."""
    held = {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(("NCCL_", "TORCH_NCCL_"))
    }
    if not held:
        return Check("nccl", "ok", "no NCCL variable is set here", "")
    found = ", ".join(f"{name}={one_line(value)[:40]}" for name, value in [*held.items()][:MAX_SHOWN])
    wrong = [f"{name}: {why}" for name, why in COSTLY.items() if held.get(name, "0") not in {"", "0"}]
    if held.get("NCCL_DEBUG", "").upper() in LOUD:
        wrong.append("NCCL_DEBUG: every communicator writes to the log")
    if not wrong:
        return Check("nccl", "ok", found, "")
    return Check("nccl", "limited", found, f"unset it unless it is meant: {'; '.join(wrong)}")


def look_at_shared_file(path: str, token: str) -> Check:
    """Whether a file of the machine that asks is here, too."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            is_same = file.read(64) == token.encode()
    except OSError:
        is_same = False
    if is_same:
        return Check("files", "ok", f"{Path(path).parent} is shared with the machine that asks", "")
    remedy = "tuiadvisor has to be installed here: name its python with --remote-python; recordings are written there"
    return Check("files", "limited", f"{Path(path).parent} is not shared with the machine that asks", remedy)


def look_at_way_back(address: str) -> Check:
    """Whether agents here would reach the hub."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), REACH_S):
            return Check("ports", "ok", f"reaches {host} at a free port", "")
    except (OSError, ValueError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        remedy = "agents connect to the hub there: --hub-address names another address, or a firewall is in between"
        return Check("ports", "missing", f"does not reach {host}: {why}", remedy)
