"""One agent on each node of a Ray cluster, as an actor that is pinned to its node and asks for no resources.

A helper process of ours is Ray's driver (`ray_step`): Ray is imported there only. Agents watch what runs below their
node's raylet, and connect back to an address of this machine with a key that comes to them through their actor.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Final

from tuiadvisor import log
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.launch.address import address_towards
from tuiadvisor.launch.one_step import OneStepLauncher
from tuiadvisor.ownpython import python_command

if TYPE_CHECKING:
    from collections.abc import Sequence

AUTO: Final = "auto"
_ADDRESS: Final = re.compile(r"(?:ray://)?([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
_NOT_INSTALLED: Final = re.compile(r"No module named '?tuiadvisor")
CONNECT_S: Final = 5.0


class RayLauncher(OneStepLauncher):
    """One actor a node."""

    def __init__(self, address: str, remote_python: str = "", hub_address: str = "") -> None:
        """address: of the cluster's head, HOST:PORT, or auto on a node of it. TuiadvisorError if it is none."""
        found = _ADDRESS.fullmatch(address)
        if found is None and address != AUTO:
            raise TuiadvisorError(f"--ray {address!r}: not an address; write HOST:PORT of its head, or auto")
        if found is not None:
            _refuse_silent(address, found[1].strip("[]"), int(address.rpartition(":")[2]))
        self._ray_address = address
        self._python = remote_python
        ours = hub_address or address_towards(found[1].strip("[]") if found else "127.0.0.1")
        super().__init__(f"ray {address}", ours, _NOT_INSTALLED)

    def command(self) -> Sequence[str]:
        """The helper's command line: no key is on it."""
        python = [f"--python={self._python}"] if self._python else []
        return python_command("tuiadvisor.launch.ray_step", self._ray_address, *python, *log.for_remote())


def _refuse_silent(address: str, host: str, port: int) -> None:
    """Ray itself would try for half a minute."""
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise FailureError(
            f"--ray {address}: nothing answers there ({why}); `ray status` tells its head"
        ) from None
