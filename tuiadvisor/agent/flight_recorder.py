"""What a rank's flight recorder holds, asked inside while the rank stands still, and cut to what tells of a hang.

In: the process.  Out: an entry for a STATUS frame: its process groups, of each recorder the calls that are not
completed and the newest few of each group, or why there are none. A stopped process is left alone.
It goes the way of `stacks`: a standalone module in an injected thread, which works while the training thread is blocked
in C. Nothing is unpickled: torch writes JSON.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import orjson

from tuiadvisor.agent import procfs
from tuiadvisor.agent.answer_fields import count, text
from tuiadvisor.agent.info import json_object
from tuiadvisor.agent.question import asked
from tuiadvisor.errors import TuiadvisorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.agent.discovery import RankProcess

MAX_RECORDED_BYTES: Final = 8 << 20
RECORDERS: Final = ("fr", "nccl")
MAX_PENDING: Final = 24  # the first is where the rank waits
NEWEST: Final = 3  # of a group: how far the rank got there, and what it called
MAX_ENTRIES: Final = 96
MAX_GROUPS: Final = 64
MAX_SPANS: Final = 512
MAX_THREADS: Final = 16
MAX_TEXT_CHARS: Final = 120
STOPPED: Final = "it is stopped"
_INTEGERS: Final = ("pg_id", "collective_seq_id", "p2p_seq_id", "op_id", "record_id", "time_created_ns")
_TEXTS: Final = ("profiling_name", "state")
_FLAGS: Final = ("is_p2p", "retired")
Entry = dict[str, Any]


def ask_recorder(process: RankProcess) -> Entry:
    """What it says; `why` where it says nothing. Waits for up to 10 s."""
    state = procfs.stat(process.pid)
    if state is None or state.start_ticks != process.start_ticks or not state.is_alive:
        return {"why": "it has ended"}
    if state.state in "Tt":
        return {"why": STOPPED}
    try:
        with asked(process, "recorded") as answer:
            return told(
                answer.said, {name: answer.read(f"{name}.json", MAX_RECORDED_BYTES) for name in RECORDERS}
            )
    except (OSError, TuiadvisorError) as error:
        return {"why": text(str(error), MAX_TEXT_CHARS)}


def ask_recorders(processes: Sequence[RankProcess]) -> list[Entry]:
    """All of them at once, in their order, each with its process and when it was asked."""
    begin = {"still_since_ns": 1, "wall_ns": time.time_ns()}
    with ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="recorders") as pool:
        answers = pool.map(ask_recorder, processes)
        return [
            {"pid": process.pid, **begin, **answer}
            for process, answer in zip(processes, answers, strict=True)
        ]


def told(raw: bytes, dumps: dict[str, bytes]) -> Entry:
    """The believable part of what a process said of itself. dumps: by recorder."""
    said = json_object(raw)
    recorders = said.get("recorders")
    whys = recorders if isinstance(recorders, dict) else {}
    listed = said.get("groups")
    entry: Entry = {
        "groups": [
            group
            for one in (listed[:MAX_GROUPS] if isinstance(listed, list) else [])
            if (group := _group(one))
        ],
        "recorders": [
            {"name": name, **cut(dumps.get(name, b""), text(whys[name], MAX_TEXT_CHARS))}
            for name in RECORDERS
            if name in whys
        ],
        "why": text(said.get("why"), MAX_TEXT_CHARS),
        "call": text(said.get("call"), MAX_TEXT_CHARS),
    }
    if not entry["groups"] and not entry["why"]:
        entry["why"] = "it has no process group"
    numbers = {
        "spent_us": count(said.get("spent_us")),
        "own_rank": count(said.get("rank")),
        "evaluates": count(said.get("evaluates")),
        "ends": count(said.get("ends")),
    }
    return entry | {name: number for name, number in numbers.items() if number is not None}


def cut(raw: bytes, why: str = "") -> Entry:
    """Of one recorder's dump: the calls under way, the newest of each group, and whether it goes back to the first.

    A group that was destroyed and made anew has its name again and counts from 1: of each name only the newest group's.
    """
    if why:
        return {"why": why}
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {"why": "what it wrote cannot be read"}
    listed = document.get("entries") if isinstance(document, dict) else None
    if listed is None and isinstance(document, dict) and document.get("pg_config"):
        # It knows its groups, so it is on, and leaves the list away until the first call.
        return {"num_entries": 0, "from_first": 1, "entries": [], "why": ""}
    if not isinstance(listed, list):
        return {"why": "its flight recorder is off, or has seen no call"}
    called = [one for one in listed if isinstance(one, dict)]
    lives: dict[str, int] = {}
    for one in called:
        lives[_group_name(one)] = max(lives.get(_group_name(one), 0), _life(one))
    entries = [one for one in called if _life(one) == lives[_group_name(one)]]
    kept = set([index for index, one in enumerate(entries) if _is_pending(one)][:MAX_PENDING])
    num_of: dict[tuple[str, bool], int] = {}
    is_whole = True
    for index in range(len(entries) - 1, -1, -1):
        counter = _counter(entries[index])
        if counter is None:
            continue
        num_of[counter] = num_of.get(counter, 0) + 1
        if num_of[counter] <= NEWEST and len(num_of) <= MAX_GROUPS and len(kept) < MAX_ENTRIES:
            kept.add(index)
        is_whole &= num_of[counter] > 1 or index in kept
    return {
        "num_entries": len(called),
        # Of a group without a call among those kept it is then known that it has none.
        "from_first": int(is_whole and any(one.get("record_id") == 0 for one in called)),
        "entries": [_short(entries[index]) for index in sorted(kept)],
        "why": "",
    }


def _is_pending(entry: Entry) -> bool:
    completed_ns = entry.get(
        "time_discovered_completed_ns"
    )  # 0 or none: not discovered; newer JSON has it as text
    is_discovered = completed_ns not in (None, 0, "0", "")
    return not (entry.get("state") == "completed" or entry.get("retired") is True or is_discovered)


def _short(entry: Entry) -> Entry:
    """Only what is read of it, in its own words."""
    found: Entry = {name: number for name in _INTEGERS if (number := count(entry.get(name))) is not None}
    found |= {name: text(entry[name], MAX_TEXT_CHARS) for name in _TEXTS if isinstance(entry.get(name), str)}
    found |= {name: True for name in _FLAGS if entry.get(name) is True}
    if not _is_pending(entry):
        found["state"] = "completed"
    group = entry.get("process_group")
    if isinstance(group, list):
        found["process_group"] = [text(part, MAX_TEXT_CHARS) for part in group[:2]]
    sizes, dtypes = entry.get("input_sizes"), entry.get("input_dtypes")
    if isinstance(sizes, list) and sizes and isinstance(sizes[0], list):
        found["input_sizes"] = [[size for size in sizes[0][:8] if count(size) is not None]]
    if isinstance(dtypes, list) and dtypes:
        found["input_dtypes"] = [text(dtypes[0], MAX_TEXT_CHARS)]
    return found


def _life(entry: Entry) -> int:
    """Which of the groups that bore its name: torch counts them up."""
    return count(entry.get("pg_id")) or 0


def _counter(entry: Entry) -> tuple[str, bool] | None:
    """(group, whether of its messages) whose number the call has; None where it has none."""
    is_p2p = entry.get("is_p2p") is True
    if count(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id")) is None:
        return None
    return _group_name(entry), is_p2p


def _group_name(entry: Entry) -> str:
    group = entry.get("process_group")
    return text(group[0], MAX_TEXT_CHARS) if isinstance(group, list) and group else ""


def _group(entry: object) -> Entry | None:
    if not isinstance(entry, dict):
        return None
    seq, spans = count(entry.get("seq")), entry.get("spans")
    if seq is None or not isinstance(spans, list) or len(spans) > MAX_SPANS:
        return None
    is_sound = all(
        isinstance(span, list) and len(span) == 3 and all(count(part) is not None for part in span)
        for span in spans
    )
    texts = {name: text(entry.get(name), MAX_TEXT_CHARS) for name in ("name", "purpose", "backend")}
    return {**texts, "seq": seq, "spans": spans if is_sound else []}
