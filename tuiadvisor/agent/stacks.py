"""Where ranks that stand still are: asked inside, and looked at from outside by py-spy where it is installed.

In: the ranks' processes.  Out: of each one its call, its process groups with sequence numbers, its stacks, or why not.
A rank is asked by a small standalone module in an injected thread, which works while its training thread is blocked in
C. py-spy stops a process only if that waits in a collective anyway (for native frames); every other one is read while
it runs on, so that nobody is held up for a diagnosis.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from tuiadvisor.agent import procfs
from tuiadvisor.agent.answer_fields import count, text
from tuiadvisor.agent.info import json_object
from tuiadvisor.agent.ownfolder import present_session
from tuiadvisor.agent.question import asked
from tuiadvisor.agent.timespace import clock_of
from tuiadvisor.agent.training_thread import host_thread
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.ownpython import own_environment
from tuiadvisor_probes import ring as ring_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.agent.discovery import RankProcess

NS: Final = 10**9
BETWEEN_S: Final = 0.5  # between two questions: numbers that moved meanwhile are of no hang
SPY_S: Final = 20.0
MAX_SPY_BYTES: Final = 16 << 20
MAX_FRAMES: Final = 60
MAX_TEXT_CHARS: Final = 300
MAX_GROUPS: Final = 64
MAX_MEMBERS: Final = 4096
MAX_THREADS: Final = 16
IMPORTING: Final = "<frozen importlib"
# How the probe's frames are known: hooks by their name, whose code may be made anew for a function; the rest by folder.
HOOKS: Final = frozenset({"tuiadvisor_hook", "tuiadvisor_callback"})
PROBE_PART: Final = "/tuiadvisor_probes/"


@dataclass(frozen=True, slots=True)
class GroupSaid:
    """A process group as one rank sees it. seq: of the last collective it entered."""

    name: str
    purpose: str
    members: tuple[int, ...]
    seq: int


@dataclass(frozen=True, slots=True)
class RankStacks:
    """One rank. call None: not in torch.distributed. why: what could not be had."""

    rank: int | None
    pid: int
    state: str  # one letter of /proc/PID/stat
    call: str | None
    call_group: str | None
    call_peer: int | None  # the other side of a message
    groups: tuple[GroupSaid, ...]
    stack: tuple[str, ...]  # Python, innermost first
    native: tuple[str, ...]  # Python and C as py-spy saw them, innermost first
    for_s: float | None  # in its phase, by the probe that watches it
    was_asked: bool
    moved: bool  # it entered another collective while we looked
    why: str
    thread: int | None = None  # the one that trains; None: the main thread
    thread_name: str = ""


def stacks_of(processes: Sequence[RankProcess], spy: str | None) -> list[RankStacks]:
    """One result a process, in their order. spy: py-spy's path, None to do without."""
    with ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="stacks") as pool:
        return list(pool.map(lambda process: _one(process, spy), processes))


def find_spy() -> str | None:
    """py-spy beside our own Python, else on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return (
        str(beside)
        if os.access(beside, os.X_OK)
        else shutil.which("py-spy", path=own_environment().get("PATH"))
    )


def _one(process: RankProcess, spy: str | None) -> RankStacks:
    found = procfs.stat(process.pid)
    if found is None or found.start_ticks != process.start_ticks or not found.is_alive:
        nothing = ("", None, None, None, (), (), (), None)
        return RankStacks(
            process.rank, process.pid, *nothing, was_asked=False, moved=False, why="it has ended"
        )
    first, why = _ask(process)
    if first:
        time.sleep(BETWEEN_S)
    second, _ = _ask(process) if first else (b"", "")
    told = parse_told(second or first, process, found.state)
    moved = bool(first and second) and parse_told(first, process, found.state).groups != told.groups
    told = replace(told, moved=moved, was_asked=bool(first), why=why or told.why, for_s=_phase_s(process))
    if spy is None:
        return told
    is_waiting = told.call is not None and not moved and found.state not in "Tt"
    native, problem = native_frames(spy, process.pid, told.thread, may_stop=is_waiting)
    return replace(told, native=native, why="; ".join(filter(None, (told.why, problem))))


# --- asked inside


def _ask(process: RankProcess) -> tuple[bytes, str]:
    """(what the rank says of itself, why not)."""
    try:
        with asked(process, "report") as answer:
            return answer.said, ""
    except (OSError, TuiadvisorError) as error:
        return b"", str(error)


def parse_told(raw: bytes, process: RankProcess, state: str) -> RankStacks:
    """The believable part of what a process said of itself."""
    told = json_object(raw)
    call = told.get("call")
    groups = told.get("groups")
    rank = count(told.get("rank"))
    return RankStacks(
        rank=process.rank if rank is None else rank,
        pid=process.pid,
        state=state,
        call=text(call, MAX_TEXT_CHARS) if isinstance(call, str) else None,
        call_group=text(group, MAX_TEXT_CHARS)
        if isinstance(group := told.get("call_group"), str) and group
        else None,
        call_peer=count(told.get("call_peer")),
        groups=tuple(
            group
            for entry in (groups[:MAX_GROUPS] if isinstance(groups, list) else [])
            if (group := _group(entry)) is not None
        ),
        stack=_texts(told.get("stack")),
        native=(),
        for_s=None,
        was_asked=bool(told),
        moved=False,
        why=text(told.get("why"), MAX_TEXT_CHARS) if isinstance(told.get("why"), str) else "",
        thread=host_thread(process.pid, thread) if (thread := count(told.get("thread"))) else None,
        thread_name=text(told.get("thread_name"), MAX_TEXT_CHARS),
    )


def _group(entry: object) -> GroupSaid | None:
    if not isinstance(entry, dict):
        return None
    seq, members = count(entry.get("seq")), entry.get("members")
    if seq is None or not isinstance(members, list):
        return None
    ranks = tuple(number for item in members[:MAX_MEMBERS] if (number := count(item)) is not None)
    return GroupSaid(
        text(entry.get("name"), MAX_TEXT_CHARS), text(entry.get("purpose"), MAX_TEXT_CHARS), ranks, seq
    )


def _phase_s(process: RankProcess) -> float | None:
    """How long the rank is in its phase, from the ring of a probe that is in it; None without one."""
    session = None
    try:
        session = present_session(process)
        if session is None:
            return None
        reader = ring_file.RingReader(session.ring_path)
        since_ns = clock_of(process.pid).to_us(reader.now()[1])
        reader.close()
    except (OSError, ring_file.RingError, TuiadvisorError):
        return None
    finally:
        if session is not None:
            session.close()
    now_ns = time.monotonic_ns()
    return (now_ns - since_ns) / NS if 0 < since_ns <= now_ns else None


# --- looked at from outside


def native_frames(spy: str, pid: int, thread: int | None, *, may_stop: bool) -> tuple[tuple[str, ...], str]:
    """(frames of the thread, why there are none). thread: None for the main one."""
    ways = [["--native"], ["--nonblocking"]] if may_stop else [["--nonblocking"]]
    problem = ""
    for way in ways:
        try:
            done = subprocess.run(
                [spy, "dump", "--json", *way, "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SPY_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = f"py-spy: {error}"[:MAX_TEXT_CHARS]
            continue
        frames = parse_spy(done.stdout[:MAX_SPY_BYTES], pid, thread)
        if frames:
            return frames, ""
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        problem = "py-spy: " + text(lines[0] if lines else "it saw no frames", MAX_TEXT_CHARS)
    return (), problem


def parse_spy(raw: bytes, pid: int, thread: int | None = None) -> tuple[str, ...]:
    """Frames of the thread (None: the main one) in py-spy's JSON, innermost first."""
    try:
        threads: Any = orjson.loads(raw) if raw else []
    except orjson.JSONDecodeError:
        return ()
    threads = [one for one in threads if isinstance(one, dict)] if isinstance(threads, list) else []
    by_id = [one for one in threads if one.get("os_thread_id") == (pid if thread is None else thread)]
    by_name = [one for one in threads if thread is None and one.get("thread_name") == "MainThread"]
    frames: Any = next((one.get("frames") for one in by_id or by_name), None)
    return tuple(
        _frame(frame)
        for frame in (frames[:MAX_FRAMES] if isinstance(frames, list) else [])
        if isinstance(frame, dict)
        and not text(frame.get("filename"), MAX_TEXT_CHARS).startswith(IMPORTING)
        and not is_probe(frame.get("name"), frame.get("filename"))
    )


def is_probe(name: object, file: object) -> bool:
    """A frame of the probe: it stands between the training's code and what that calls, and is no part of either."""
    is_hook = isinstance(name, str) and name.rpartition(".")[2] in HOOKS
    return is_hook or (isinstance(file, str) and PROBE_PART in file)


def _frame(frame: dict[str, Any]) -> str:
    name, line = text(frame.get("name"), MAX_TEXT_CHARS)[:120], count(frame.get("line"))
    place = text(frame.get("short_filename") or frame.get("filename") or frame.get("module"), MAX_TEXT_CHARS)
    return f"{name} ({place}:{line})" if line else f"{name} ({place})"


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text(item, MAX_TEXT_CHARS) for item in value[:MAX_FRAMES]) if isinstance(value, list) else ()
