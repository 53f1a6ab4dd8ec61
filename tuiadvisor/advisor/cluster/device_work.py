"""What an imported trace's devices did, out of the RUN frame of its recording; frames come from strangers.

In: the payload's object.  Out: views.device_work, without what is no number or text of that kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.payload_fields import integer, number, objects, text
from tuiadvisor.views.device_work import DevicePart, DeviceTime, DeviceWork, KernelSum

if TYPE_CHECKING:
    from tuiadvisor.advisor.cluster.payload_fields import Payload

MAX_RANKS: Final = 1024
MAX_PARTS: Final = 20
MAX_KERNELS: Final = 40
MAX_SAYS: Final = 8


def device_work(told: object) -> DeviceWork | None:
    """None where there is nothing of it."""
    if not isinstance(told, dict):
        return None
    ranks = tuple(
        found for entry in objects(told, "ranks")[:MAX_RANKS] if (found := _rank(entry)) is not None
    )
    says = told.get("says")
    sentences = [text({"says": each}, "says") for each in says[:MAX_SAYS]] if isinstance(says, list) else []
    if not ranks:
        return None
    return DeviceWork(
        ranks,
        _sums(told, "kinds"),
        _sums(told, "kernels"),
        tuple(each for each in sentences if each),
        "operators" if told.get("unit") == "operators" else "kernels",
    )


def _rank(entry: Payload) -> DeviceTime | None:
    rank, window_s = integer(entry, "rank"), number(entry, "window_s")
    if rank is None or not window_s:
        return None
    parts = [_part(part, window_s) for part in objects(entry, "parts")[:MAX_PARTS]]
    compute, communication, host = (
        min((number(entry, name) or 0.0) / window_s, 1.0) for name in ("compute_s", "exposed_s", "host_s")
    )
    return DeviceTime(
        rank,
        window_s,
        compute,
        communication,
        host,
        tuple(part for part in parts if part is not None),
        number(entry, "collective_wait_s"),
        number(entry, "pageable_s"),
    )


def _part(entry: Payload, window_s: float) -> DevicePart | None:
    words, seconds = text(entry, "words"), number(entry, "seconds")
    return None if not words or seconds is None else DevicePart(words, seconds, min(seconds / window_s, 1.0))


def _sums(told: Payload, name: str) -> tuple[KernelSum, ...]:
    found = []
    for entry in objects(told, name)[:MAX_KERNELS]:
        seconds, whole = number(entry, "seconds"), number(entry, "of_s")
        if seconds is not None and whole:
            share = min(seconds / whole, 1.0)
            kind = text(entry, "kind") or ""
            found.append(
                KernelSum(text(entry, "name") or kind, kind, seconds, share, integer(entry, "kernels") or 0)
            )
    return tuple(found)
