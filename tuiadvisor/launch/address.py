"""Addresses of this machine: where to listen, and under what name others reach it."""

from __future__ import annotations

import re
import socket
from typing import Final

from tuiadvisor.errors import TuiadvisorError

_ADDRESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


def listening_endpoint(address: str) -> str:
    """Any free port of exactly this address of ours. TuiadvisorError if it is none."""
    number = _resolve(address)
    return f"tcp://[{number}]:*" if ":" in number else f"tcp://{number}:*"


def reachable_url(address: str, port: int) -> str:
    """What others connect to."""
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"


def address_towards(host: str) -> str:
    """Our address on the network over which we reach this host; nothing is sent."""
    number = _resolve(host)
    family = socket.AF_INET6 if ":" in number else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((number, 9))
        except OSError as error:
            raise TuiadvisorError(
                f"{host}: no way there ({error.strerror}); name our address with --hub-address"
            ) from None
        return str(probe.getsockname()[0])


def _resolve(address: str) -> str:
    if not _ADDRESS.fullmatch(address):
        raise TuiadvisorError(f"{address!r}: not an address; give a host name or a number like 10.0.0.1")
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError:
        raise TuiadvisorError(f"{address}: unknown here; give a name or number that resolves") from None
    return str(found[0][4][0])
