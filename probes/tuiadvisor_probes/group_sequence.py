"""The sequence number of a process group's last collective, from whichever of its backends counts them.

A group that was made with a map of devices, as "cpu:gloo", may have no backend by default, and MPI's and `fake` count
nothing. torch raises where such a group is asked, and so would every step. What a group can is asked of it once.
"""

from __future__ import annotations

import sys
from typing import Any

UNKNOWN = -1
MAX_ASKED = 64
ITSELF = ""  # by its default backend
NOT_ASKED: Any = object()
CANNOT = RuntimeError, AttributeError, TypeError  # torch's, and those of groups that are written in Python


class Sequences:
    """Mutable: by which way each group tells its number."""

    __slots__ = ("ways",)

    def __init__(self) -> None:
        # id of a group -> ITSELF, a type of device, or None; the backend itself would be kept alive beyond its group
        self.ways: dict[int, str | None] = {}

    def way_of(self, group: Any) -> str | None:
        """ITSELF, the type of device whose backend counts, or None where none does."""
        way = self.ways.get(id(group), NOT_ASKED)
        if way is NOT_ASKED:
            if len(self.ways) >= MAX_ASKED:
                self.ways.clear()
            way = self.ways[id(group)] = _found_way(group)
        found: str | None = way
        return found

    def of(self, group: Any) -> int:
        """The number, UNKNOWN where nobody counts."""
        way = self.way_of(group)
        if way is None:
            return UNKNOWN
        try:
            return _told(group, way)
        except CANNOT:  # another group has its id now, or it was shut down
            del self.ways[id(group)]
            return UNKNOWN


def sequence_number(group: Any) -> int:
    """Of a group that is asked this once."""
    return Sequences().of(group)


def _found_way(group: Any) -> str | None:
    # Beside a device's backend the CPU's is for what is sent now and then, as a checkpoint's plan.
    types = dict.fromkeys(str(device.type) for device in getattr(group, "_device_types", ()))
    for way in (ITSELF, *sorted(types, key=lambda kind: kind == "cpu")):
        try:
            _told(group, way)
        except CANNOT:
            continue
        return way
    return None


def _told(group: Any, way: str) -> int:
    counting = group._get_backend(sys.modules["torch"].device(way)) if way else group
    return int(counting._get_sequence_number_for_group())
