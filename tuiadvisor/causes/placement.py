"""Ranks far from their devices, at a lower priority, sharing one; unlike devices or shares; links with lanes missing.

These are facts of the machine; what they cost a step is not in them. Where they make a rank late its straggler finding
says how much, so none of these is more than a remark.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause, Measured, rank_words
from tuiadvisor.views.placement import num_cpus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.lateness.late_phase import Priority
    from tuiadvisor.views.placement import DeviceFacts, RankPlacement

GIB: Final = 2**30  # bytes
MAX_SAID: Final = 3  # groups in one sentence
METRICS: Final = """
placement ranks text ranks that it is said of, e.g. "ranks 1 and 3"
placement cpus_far flag 1 if these ranks may run only on CPUs of other NUMA nodes than their devices'
placement memory_far flag 1 if their memory may come only from other NUMA nodes than their devices'
placement far_words text where they may run, and where their devices are
placement far_late_words text which of them arrive late; empty where none does
placement devices_differ flag 1 if ranks compute on devices of different names, memory, clock or power limits
placement unlike_words text what differs, and on which ranks
placement shares_differ flag 1 if ranks may use different numbers of multiprocessors of devices of one name
placement share_words text how many multiprocessors, on which ranks
placement devices_shared flag 1 if several ranks of the job compute on one device
placement sharing_words text how many of them, on how many devices
placement lanes_missing flag 1 if their devices' PCIe links have fewer lanes than device and slot can
placement lanes_words text how many of how many lanes, on which ranks
placement priority_lower flag 1 if ranks have a higher nice value than the typical other one, and are not late for it
placement priority_words text which nice values, on which ranks, against which
"""


def measure(diagnosis: Diagnosis, facts: Facts, _job: Values) -> list[Measured]:
    """A subject each for what is far, what is unlike and what is narrow; none where nothing is."""
    late = {one.rank for one in diagnosis.stragglers}
    found = [_far(facts.placements, late), _unlike(facts.placements), _uneven(facts.placements)]
    found += [_sharing(facts.placements), _narrow(facts.placements), _yielding(diagnosis, facts)]
    return [one for one in found if one is not None]


def _far(placements: tuple[RankPlacement, ...], late: set[int]) -> Measured | None:
    far = [one for one in placements if one.cpus_far or one.memory_far]
    if not far:
        return None
    far_late = tuple(one.rank for one in far if one.rank in late)
    late_words = (
        f" {_capital(rank_words(far_late))} of them arrive{'s' * (len(far_late) == 1)} late."
        if far_late
        else ""
    )
    return _subject(
        far,
        {
            "cpus_far": int(any(one.cpus_far for one in far)),
            "memory_far": int(any(one.memory_far for one in far)),
            "far_words": _grouped({one.rank: _far_words(one) for one in far}),
            "far_late_words": late_words,
        },
    )


def _far_words(one: RankPlacement) -> str:
    parts = []
    if one.cpus_far:
        parts.append(f"CPUs on {_nodes(one.cpu_nodes)}")
    if one.memory_far:
        parts.append(f"memory on {_nodes(one.memory_nodes)} ({one.memory_policy or 'by its control group'})")
    apart = (
        f", distance {one.distance} where 10 is local" if one.cpus_far and one.distance is not None else ""
    )
    return f"{' and '.join(parts)}, device on node {one.device_node}{apart}"


def _nodes(nodes: tuple[int, ...] | None) -> str:
    known = nodes or ()
    return f"node{'s' * (len(known) > 1)} {', '.join(str(node) for node in known)}"


def _unlike(placements: tuple[RankPlacement, ...]) -> Measured | None:
    for limit in (_name, _memory, _clock, _power):
        words_of = {
            one.rank: words for one in placements if one.device is not None and (words := limit(one.device))
        }
        if len(set(words_of.values())) > 1:
            words = _grouped(dict(sorted(words_of.items())))
            return _subject(_odd(placements, words_of), {"devices_differ": 1, "unlike_words": words})
    return None


def _uneven(placements: tuple[RankPlacement, ...]) -> Measured | None:
    """Of devices that are alike; CUDA MPS and the parts of a device give a rank less than all of one."""
    if len({one.device.name for one in placements if one.device is not None}) != 1:
        return None
    given = {one.rank: one.multiprocessors for one in placements if one.multiprocessors}
    if len(set(given.values())) < 2:
        return None
    most = max(given.values())
    words = _grouped({rank: f"{num} multiprocessors" for rank, num in sorted(given.items())})
    fewer = [one for one in placements if given.get(one.rank, most) < most]
    return _subject(fewer, {"shares_differ": 1, "share_words": words})


def _sharing(placements: tuple[RankPlacement, ...]) -> Measured | None:
    """Each of them computes as long as all of these together: a device slow for that is as fast as any other."""
    sharing = [one for one in placements if (one.num_on_device or 1) > 1]
    if not sharing:
        return None
    num_devices = round(sum(1 / (one.num_on_device or 1) for one in sharing))
    devices = "one device" if num_devices == 1 else f"{num_devices} devices"
    return _subject(sharing, {"devices_shared": 1, "sharing_words": f"{len(sharing)} ranks on {devices}"})


def _odd(placements: tuple[RankPlacement, ...], words_of: dict[int, str]) -> list[RankPlacement]:
    """Those that are fewer than the most common kind; none where all kinds are as common."""
    sizes = Counter(words_of.values())
    return [
        one for one in placements if one.rank in words_of and sizes[words_of[one.rank]] < max(sizes.values())
    ]


def _name(device: DeviceFacts) -> str | None:
    return device.name


def _memory(device: DeviceFacts) -> str | None:
    # Whole GiB: what the driver keeps for itself differs by some MiB.
    return None if device.memory_bytes is None else f"{device.memory_bytes / GIB:.0f} GiB of memory"


def _clock(device: DeviceFacts) -> str | None:
    return None if device.max_clock_mhz is None else f"clocks up to {device.max_clock_mhz:.0f} MHz"


def _power(device: DeviceFacts) -> str | None:
    return None if device.power_limit_w is None else f"a power limit of {device.power_limit_w:.0f} W"


def _narrow(placements: tuple[RankPlacement, ...]) -> Measured | None:
    words_of = {one.rank: said for one in placements if one.device and (said := _lanes(one.device))}
    narrow = [one for one in placements if one.rank in words_of]
    if not narrow:
        return None
    return _subject(narrow, {"lanes_missing": 1, "lanes_words": _grouped(words_of)})


def _lanes(device: DeviceFacts) -> str | None:
    now, most = device.pcie_width, device.pcie_max_width
    return f"{now} of {most} lanes" if now and most and now < most else None


def at_lower_priority(diagnosis: Diagnosis, facts: Facts) -> dict[int, Priority]:
    """By rank; without those that are late or held back for it, of whom that is told with what it costs."""
    late = {one.rank for one in diagnosis.stragglers if one.cause.priority is not None}
    held = {diagnosis.table.ranks[one.row] for one in diagnosis.held if one.priority is not None}
    return {rank: told for rank, told in facts.priorities.items() if rank not in late | held}


def packed(
    placements: Sequence[RankPlacement], cores_of_hosts: Mapping[str, int]
) -> dict[tuple[int, ...], str]:
    """Ranks that may use the same CPUs and no others, fewer than they are, although their host has more; and which.

    Where it is not known how many a host has, of none: a small machine binds nobody.
    """
    together: dict[tuple[str, str], list[int]] = defaultdict(list)
    for one in placements:
        if one.cpus:
            together[one.host, one.cpus].append(one.rank)
    return {
        tuple(sorted(ranks)): cpus
        for (host, cpus), ranks in together.items()
        if 0 < num_cpus(cpus) < min(len(ranks), cores_of_hosts.get(host, 0))
    }


def bound_words(together: Mapping[tuple[int, ...], str]) -> str:
    """Who is bound to what, of the first groups: 'ranks 0 and 1 are bound to CPU 0, and ranks 2 and 3 to CPU 1'."""
    said = [
        f"{rank_words(ranks)} {'' if place else 'are bound '}to {_cpus(cpus)}"
        for place, (ranks, cpus) in enumerate(list(together.items())[:MAX_SAID])
    ]
    more = len(together) - len(said)
    return ", and ".join(said) + (f", and {more} more such groups" if more else "")


def _cpus(told: str) -> str:
    return f"CPU{'' if num_cpus(told) == 1 else 's'} {told}"


def _yielding(diagnosis: Diagnosis, facts: Facts) -> Measured | None:
    lower = at_lower_priority(diagnosis, facts)
    if not lower:
        return None
    ranks, table = tuple(sorted(lower)), diagnosis.table
    words = _grouped({rank: f"nice {told.nice}, the others {told.others}" for rank, told in lower.items()})
    hosts = {host for rank, host in zip(table.ranks, table.hosts, strict=True) if rank in lower}
    values: Values = {"ranks": rank_words(ranks), "priority_lower": 1, "priority_words": words}
    return Measured("placement", values, ranks, tuple(sorted(hosts)))


def _grouped(words_of: dict[int, str]) -> str:
    """'rank 3: A; ranks 0 and 1: B', the ranks that share words together."""
    groups: dict[str, list[int]] = defaultdict(list)
    for rank, words in words_of.items():
        groups[words].append(rank)
    said = [f"{rank_words(tuple(sorted(ranks)))}: {words}" for words, ranks in groups.items()]
    more = len(said) - MAX_SAID
    return "; ".join(said[:MAX_SAID]) + (f"; and {more} more" if more > 0 else "")


def _subject(placed: list[RankPlacement], values: Values) -> Measured:
    ranks = tuple(sorted(one.rank for one in placed))
    words = rank_words(ranks) if ranks else "the ranks"
    return Measured(
        "placement", {"ranks": words, **values}, ranks, tuple(sorted({one.host for one in placed}))
    )


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


PLACEMENT: Final = Cause(
    rules=(
        "far_from_device",
        "unlike_devices",
        "unlike_shares",
        "shared_device",
        "lanes_missing",
        "lower_priority",
    ),
    metrics=METRICS,
    scope="placement",
    measure=measure,
    is_remark=True,
    names_ranks=True,
    needs_device=False,
)
