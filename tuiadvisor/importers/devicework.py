"""What a traced rank's device did: its window by cause, its kernels by kind, and those that took longest.

In: a RankTrace with its events and its host's work.  Out: parts of the import's document, and sentences.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.importers.computekinds import compute_kind
from tuiadvisor.importers.hostops import own_times
from tuiadvisor.metrics.series.intervals import Intervals, both, union
from tuiadvisor.metrics.traces.device_split import device_split
from tuiadvisor.metrics.traces.gpu_timeline import gpu_time
from tuiadvisor_rules.message import seconds as duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.importers.hostwork import HostWork
    from tuiadvisor.importers.rank_trace import RankTrace
    from tuiadvisor.metrics.traces.gpu_timeline import GpuEvents

NS: Final = 1e9
TOP: Final = 10
SHOWN: Final = 5
MAX_KEPT_RANKS: Final = 1024  # in a recording
PAGEABLE: Final = re.compile(r"Memcpy.*Pageable ?-> ?Device")
KEPT: Final = ("window_s", "compute_s", "exposed_s", "host_s", "collective_wait_s")
WIDTH: Final = 60
UNITS: Final = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
OTHER_HOST: Final = "other"
# What a part of the window is called, where the training thread held the device up by what it did.
HOST_WORDS: Final = {
    "data_wait": "the training thread waits for data: the loader",
    "h2d": "the training thread prepares a copy to the device",
    "forward": "the training thread launches too late in forward",
    "backward": "the training thread launches too late in backward",
    "optimizer": "the training thread launches too late in the optimizer",
    OTHER_HOST: "the training thread launches too late outside of these phases",
}
# The same where it computes itself.
CPU_WORDS: Final = {
    "data_wait": "no operator runs: the training thread waits for data: the loader",
    "h2d": "no operator runs in a copy to the device",
    "forward": "no operator runs in forward",
    "backward": "no operator runs in backward",
    "optimizer": "no operator runs in the optimizer",
    OTHER_HOST: "no operator runs outside of these phases: Python, waiting, sleeping",
}
BESIDE_WORDS: Final = {
    "gpu": "nothing runs on it, before its first event in the trace or after its last",
    "cpu": "no operator runs, before the first one in the trace or after the last",
}
WORDS: Final = {
    "exposed_s": "exposed communication, which nothing hides",
    "copy_s": "copies alone",
    "launch_s": "between launch and start, or between two kernels",
    "held_s": "held back by other streams or events",
    "unknown_s": "idle, for a launch that is not in the trace",
}


def device_work(trace: RankTrace) -> dict[str, Any] | None:
    """None without events of a device or operators of a training on the CPU, and of several processes."""
    if trace.host is not None:
        return _on_cpu(trace, trace.host)
    split = device_split(trace.events, _doing(trace.work))
    if split is None or trace.name_of is None:
        return None
    doing = {name: value / NS for name, value in split.host_doing.items()}
    return {
        **_beside_window(trace),
        "time_by_cause": {
            "window_s": split.window_ns / NS,
            "compute_s": split.compute_ns / NS,
            "exposed_s": split.exposed_ns / NS,
            "copy_s": split.copy_ns / NS,
            "host_s": split.host_ns / NS,
            "host_doing_s": {**doing, OTHER_HOST: split.host_ns / NS - sum(doing.values())},
            "launch_s": split.launch_ns / NS,
            "held_s": split.held_ns / NS,
            "unknown_s": split.unknown_ns / NS,
        },
        **_kernels(trace),
    }


def _on_cpu(trace: RankTrace, events: GpuEvents) -> dict[str, Any] | None:
    """Where the training thread is the device: nothing is launched or copied, so these parts are None."""
    if not events.begin_ns.size or trace.name_of is None:
        return None
    time = gpu_time(events)
    if time is None:
        return None
    busy = union(events.begin_ns, events.end_ns)
    idle = Intervals(busy.end[:-1], busy.begin[1:])
    doing = {name: both(idle, when) / NS for name, when in _doing(trace.work).items()}
    return {
        **_beside_window(trace),
        "time_by_cause": {
            "window_s": time.window_ns / NS,
            "compute_s": time.compute_ns / NS,
            "exposed_s": time.exposed_ns / NS,
            "copy_s": None,
            "host_s": time.idle_ns / NS,
            "host_doing_s": {**doing, OTHER_HOST: time.idle_ns / NS - sum(doing.values())},
            "launch_s": None,
            "held_s": None,
            "unknown_s": None,
        },
        **_kernels(trace),
    }


def _beside_window(trace: RankTrace) -> dict[str, Any]:
    """Seconds of the steps before the first of what computed and after the last, of which the window knows nothing."""
    before_ns = after_ns = 0
    if trace.steps:
        before_ns = int(trace.worked.begin_ns.min()) - trace.steps[0][1]
        after_ns = trace.steps[-1][1] + trace.steps[-1][2] - int(trace.worked.end_ns.max())
    beside = {"before": max(before_ns, 0) / NS, "after": max(after_ns, 0) / NS}
    return {"steps_beside_window_s": beside}


def _doing(work: HostWork | None) -> dict[str, Intervals]:
    """When the training thread was in which phase."""
    if work is None:
        return {}
    runs = work.runs()
    phase = np.array(runs.phase)
    return {
        name: union(runs.begin_ns[phase == name], runs.end_ns[phase == name]) for name in sorted(runs.seen)
    }


def _kernels(trace: RankTrace) -> dict[str, Any]:
    """Sums of each name and kind; what runs on several streams at once counts on each. Of operators their own time."""
    name_of = trace.name_of if trace.name_of is not None else np.empty(0, dtype=np.int64)
    events = trace.worked
    took = (events.end_ns - events.begin_ns if trace.host is None else own_times(events)).astype(np.float64)
    size = len(trace.kernel_names)
    seconds, calls = np.bincount(name_of, took, size) / NS, np.bincount(name_of, minlength=size)
    first = np.zeros(size, dtype=np.int64)
    first[name_of[::-1]] = np.arange(name_of.size)[::-1]
    kinds = [
        compute_kind(name, int(events.kind[at])) for name, at in zip(trace.kernel_names, first, strict=True)
    ]
    by_kind: dict[str, list[float]] = {}
    for kind, took_s, count in zip(kinds, seconds.tolist(), calls.tolist(), strict=True):
        sums = by_kind.setdefault(kind, [0.0, 0.0])
        sums[0], sums[1] = sums[0] + took_s, sums[1] + count
    longest = np.argsort(-seconds, kind="stable")[:TOP].tolist()
    pageable = [at for at, name in enumerate(trace.kernel_names) if PAGEABLE.search(name)]
    return {
        "pageable_s": float(seconds[pageable].sum()) if trace.host is None else None,
        "kernels_by_kind": [
            {"kind": kind, "seconds": sums[0], "kernels": int(sums[1])}
            for kind, sums in sorted(by_kind.items(), key=lambda item: -item[1][0])
        ],
        "top_kernels": [
            {
                "name": trace.kernel_names[at],
                "kind": kinds[at],
                "seconds": float(seconds[at]),
                "kernels": int(calls[at]),
            }
            for at in longest
        ],
    }


def causes(row: dict[str, Any]) -> list[tuple[str, float]]:
    """(why the row's device did not compute, seconds), the longest first; without what took no time."""
    found = row["time_by_cause"]
    host_words = CPU_WORDS if row["device"] == "cpu" else HOST_WORDS
    parts = [(host_words[name], value) for name, value in found["host_doing_s"].items()]
    parts += [(words, found[name]) for name, words in WORDS.items() if found[name] is not None]
    return sorted(((words, value) for words, value in parts if value > 0), key=lambda part: -part[1])


def one_rank_says(rows: list[dict[str, Any]], *, is_compared: bool, steps_tell: bool) -> list[str]:
    """What each of one or a few ranks' traces tells alone; empty where ranks were compared.

    steps_tell: who is late is for the steps to say, so nothing is said of it here.
    """
    if is_compared:
        return []
    told = [says for row in rows[:SHOWN] if (says := _says(row, len(rows)))]
    untold = f". {'One rank alone does' if len(rows) == 1 else 'These traces do'} not tell who is late"
    return told if steps_tell else [f"{says}{untold}" for says in told]


def _says(row: dict[str, Any], num_rows: int) -> str:
    found = row["time_by_cause"]
    if found is None or not found["window_s"]:
        return ""
    window = found["window_s"]
    device = "The CPU" if row["device"] == "cpu" else "The device"
    who = device if num_rows == 1 else f"{device} of {_who(row)}"
    num = len(row["steps"])
    parts = causes(row)
    beside = row["steps_beside_window_s"]
    is_whole = sum(beside.values()) > max((seconds for _, seconds in parts), default=0.0)
    # A step begins before its device does: without that time it is not all of it.
    is_cut = not is_whole and any(beside.values())
    around = ", from its first event to its last" if is_cut else " and what is around"
    of = f"{num} step{'s' * (num > 1)}{around}" if num else "a trace without step marks"
    if is_whole:
        # Else what the host does there would be in no sentence: the steps' time is the base.
        window += sum(beside.values())
        parts = [(BESIDE_WORDS["cpu" if row["device"] == "cpu" else "gpu"], sum(beside.values()))]
    said = f"{who} computes {_percent(found['compute_s'], window)} of {duration(window)} ({of})"
    if parts:
        words, seconds = parts[0]
        said += f"; the largest part of the rest, {_percent(seconds, window)}: {words}"
    return said


def work_lines(rows: list[dict[str, Any]], late: Sequence[int] = ()) -> list[str]:
    """Of one rank with a device: where its window goes, its kinds and longest kernels.

    late: ranks that are, the first of them is that one; else it is the one that idles most, whatever the others wait.
    """
    known = [row for row in rows if row["time_by_cause"] is not None]
    if not known:
        return []
    of_rank = {row["rank"]: row for row in reversed(known)}
    row = next((of_rank[rank] for rank in late if rank in of_rank), max(known, key=_idles))
    window = row["time_by_cause"]["window_s"]
    who = _who(row)
    lines = [
        f"{who}, not computing: "
        + ", ".join(f"{_percent(s, window)} {words}" for words, s in causes(row)[:SHOWN])
    ]
    total = sum(each["seconds"] for each in row["kernels_by_kind"])
    kinds = [f"{each['kind']} {_percent(each['seconds'], total)}" for each in row["kernels_by_kind"][:SHOWN]]
    lines.append(f"{who}, {_unit(row)}: " + ", ".join(kinds))
    return lines + [
        f"  {_spent(each['seconds']):>10} {each['kernels']:>8,} x {each['name'][:WIDTH]}"
        for each in row["top_kernels"][:SHOWN]
    ]


def _idles(row: dict[str, Any]) -> float:
    """Share of the window in which nothing runs on the device, for its host's part."""
    window = row["time_by_cause"]["window_s"]
    return float(row["time_by_cause"]["host_s"] or 0.0) / window if window else 0.0


def _spent(seconds: float) -> str:
    """With four digits, as small as it is."""
    unit, factor = next(((name, by) for name, by in UNITS if seconds * by >= 1), UNITS[-1])
    return f"{seconds * factor:.4g} {unit}"


def _who(row: dict[str, Any]) -> str:
    return str(row["file"]) if row["rank"] is None else f"rank {row['rank']}"


def recorded_work(document: dict[str, Any], ranks: dict[str, int]) -> dict[str, Any] | None:
    """What a recording keeps of it, of the files that it is made of; None: no device."""
    rows = [
        (ranks[row["file"]], row)
        for row in document["per_rank"]
        if row["file"] in ranks and row["time_by_cause"]
    ]
    if not rows:
        return None
    return {
        "ranks": [
            {
                "rank": rank,
                **{name: row["time_by_cause"][name] for name in KEPT},
                **({"pageable_s": row["pageable_s"]} if row["pageable_s"] else {}),
                "parts": [{"words": words, "seconds": seconds} for words, seconds in causes(row)],
            }
            for rank, row in rows[:MAX_KEPT_RANKS]
        ],
        "kinds": _together([row["kernels_by_kind"] for _, row in rows], "kind", rows),
        "kernels": _together([row["top_kernels"] for _, row in rows], "name", rows)[: 2 * TOP],
        "says": document["says"],
        "unit": _unit(rows[0][1]),
    }


def _unit(row: dict[str, Any]) -> str:
    """What is counted: kernels, or operators with their own time where the training is on a CPU."""
    return "operators" if row["device"] == "cpu" else "kernels"


def _together(
    lists: list[list[dict[str, Any]]], key: str, rows: list[tuple[int, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Entries of one name or kind of all ranks as one, the longest first; of_s: all kernels' time."""
    whole = sum(each["seconds"] for _, row in rows for each in row["kernels_by_kind"])
    found: dict[str, dict[str, Any]] = {}
    for each in (entry for entries in lists for entry in entries):
        sums = found.setdefault(each[key], {**each, "seconds": 0.0, "kernels": 0, "of_s": whole})
        sums["seconds"] += each["seconds"]
        sums["kernels"] += each["kernels"]
    return sorted(found.values(), key=lambda each: -each["seconds"])


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "unknown"
