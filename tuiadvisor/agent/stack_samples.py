"""Stacks of a few ranks, sampled for a second or two because somebody asked: where their time goes, line by line.

In: requests, links.  Out: entries of a STATUS frame, one a thread that was looked at, or why it was not.
py-spy reads a process while it runs on; without it a thread inside the process looks, within the probes' budget. A
rank is asked once at a time: whoever asks again meanwhile gets the answer that is under way.
"""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from tuiadvisor.agent import procfs
from tuiadvisor.agent.answer_fields import text
from tuiadvisor.agent.info import json_object
from tuiadvisor.agent.loader_workers import loader_workers
from tuiadvisor.agent.question import ANSWER_S, asked
from tuiadvisor.agent.stacks import find_spy, is_probe, native_frames
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.inject.identity import OtherProcessError, confirm
from tuiadvisor.log import Logger
from tuiadvisor_probes.duty import DEFAULT_BUDGET_PPM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor, Future

    from tuiadvisor.agent.discovery import RankProcess
    from tuiadvisor.agent.rank_link import RankLink
    from tuiadvisor.stream.probe_request import StackRequest

NS: Final = 10**9
RATE_HZ: Final = 97  # of no common factor with the rates at which trainings step
SPY_PATIENCE_S: Final = 10.0  # beyond the window: it reads the symbols of every library first
MAX_FRAMES: Final = 40
MAX_STACKS: Final = 300
MAX_SAMPLES: Final = 1200
MAX_TEXT_CHARS: Final = 120
MAX_NATIVE: Final = 30
MAX_ANSWER_BYTES: Final = 8 << 20
MAX_INSIDE_BYTES: Final = 4 << 20
LONGEST: Final = 3  # times the window, as in tuiadvisor_probes.stuck
MAX_WORKERS: Final = 4  # of a rank; they do the same work
LIBRARY_PARTS: Final = ("/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3")
logger: Final = Logger(__name__)
Entry = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Target:
    """A thread to look at."""

    process: RankProcess
    rank: int
    thread: int  # by our count
    is_worker: bool
    budget_ppm: int
    stands: bool  # nothing moves: it may be stopped for a look at its frames in C


class StackSamples:
    """Mutable: what was asked for, and what has come of it. Never waits."""

    def __init__(self) -> None:
        self._jobs: dict[int, tuple[Future[list[Entry]], RankLink, _Count]] = {}  # by rank
        self._looks: dict[int, StackRequest] = {}

    def ask(self, request: StackRequest, links: Sequence[RankLink], executor: Executor) -> None:
        """Begin to look at those of the ranks that are here and are not looked at already."""
        for link in links:
            rank = link.rank
            if rank is None or rank not in request.ranks or rank in self._jobs:
                continue
            logger.info("samples stacks of rank %d for %d ms", rank, request.window_ms)
            self._looks[rank] = request
            job = executor.submit(_sampled, _target(link, rank, request), request)
            self._jobs[rank] = (job, link, _count(link))

    def take(self) -> list[Entry]:
        """Entries of the requests that are done, each once; the ranks of one belong together."""
        open_looks = {self._looks[rank].look for rank, (job, _, _) in self._jobs.items() if not job.done()}
        done = [rank for rank in self._jobs if self._looks[rank].look not in open_looks]
        entries: list[Entry] = []
        for rank in done:
            job, link, begin = self._jobs.pop(rank)
            request, end = self._looks.pop(rank), _count(link)
            entries += [
                {
                    **_asked(rank, request),
                    "num_steps": end.steps_since(begin),
                    "steps_ms": (end.at_ns - begin.at_ns) // 1_000_000,
                    **entry,
                }
                for entry in _result(job)
            ]
        return entries


def sample_processes(processes: Mapping[int, RankProcess], request: StackRequest) -> list[Entry]:
    """The same of ranks that nobody watches: waits, and knows no steps."""
    targets = [
        _Target(process, rank, process.pid, False, DEFAULT_BUDGET_PPM, request.subject == "hang")
        for rank, process in processes.items()
    ]
    with ThreadPoolExecutor(len(targets), thread_name_prefix="samples") as pool:
        found = pool.map(lambda target: _sampled(target, request), targets)
        return [
            {**_asked(target.rank, request), **entry}
            for target, entries in zip(targets, found, strict=True)
            for entry in entries
        ]


def _asked(rank: int, request: StackRequest) -> Entry:
    return {"rank": rank, "look": request.look, "subject": request.subject, "of": request.ranks[0]}


def _result(job: Future[list[Entry]]) -> list[Entry]:
    error = None if job.cancelled() else job.exception()
    if job.cancelled():
        return [{"why": "the agent ended meanwhile"}]
    if error is not None:
        return [{"why": text(str(error) or type(error).__name__, MAX_TEXT_CHARS)}]
    return job.result()


class _Count(NamedTuple):
    """How many steps a rank had made by then."""

    step: int | None
    at_ns: int

    def steps_since(self, begin: _Count) -> int | None:
        """Steps between the two; None where a count is not known, or began anew."""
        if self.step is None or begin.step is None or self.step < begin.step:
            return None
        return self.step - begin.step


def _count(link: RankLink) -> _Count:
    reader, session = link.reader, link.session
    if reader is None or session is None or not session.is_whole(reader.num_bytes):
        return _Count(None, time.monotonic_ns())
    return _Count(reader.now()[2], time.monotonic_ns())


def _target(link: RankLink, rank: int, request: StackRequest) -> _Target:
    budget_ppm = DEFAULT_BUDGET_PPM if link.budget_ppm is None else link.budget_ppm
    return _Target(link.process, rank, link.thread, False, budget_ppm, request.subject == "hang")


def _sampled(target: _Target, request: StackRequest) -> list[Entry]:
    """The training thread's entry, and where data is what is waited for one of each worker of the loader."""
    window_s = request.window_ms / 1000
    if request.subject not in {"straggler", "input"}:
        return [_one(target, window_s)]
    workers = [
        _Target(worker, target.rank, worker.pid, True, target.budget_ppm, False)
        for worker in loader_workers(target.process)[:MAX_WORKERS]
    ]
    with ThreadPoolExecutor(1 + MAX_WORKERS, thread_name_prefix="samples") as pool:
        return list(pool.map(lambda one: _one(one, window_s), [target, *workers]))


def _one(target: _Target, window_s: float) -> Entry:
    entry: Entry = {
        "pid": target.process.pid,
        "worker": int(target.is_worker),
        "window_ms": int(window_s * 1000),
    }
    if gone := _why_gone(target):
        return {**entry, "why": gone}
    spy = find_spy()
    found, why = _by_spy(spy, target, window_s) if spy else ({}, "")
    if not found and not _why_gone(target):
        found, inner = _inside(target, window_s)
        why = "" if found else "; ".join(filter(None, (why, inner)))
    if spy and found and target.stands:
        found["native"] = _native(spy, target)
    return {**entry, **found, "why": "" if found else _why_gone(target) or text(why, MAX_TEXT_CHARS)}


def _why_gone(target: _Target) -> str:
    """That it is not the process any more that was found."""
    try:
        confirm(target.process.identity)
    except OtherProcessError as other:
        return text(other.what, MAX_TEXT_CHARS)
    except OSError as error:
        return text(str(error), MAX_TEXT_CHARS)
    return ""


def _native(spy: str, target: _Target) -> list[str]:
    """Frames in C of a thread that stands; only one that sleeps may be held for a look."""
    state = procfs.stat(target.process.pid)
    may_stop = state is not None and state.state == "S"
    thread = None if target.thread == target.process.pid else target.thread
    frames, _ = native_frames(spy, target.process.pid, thread, may_stop=may_stop)
    return [text(frame, MAX_TEXT_CHARS) for frame in frames[:MAX_NATIVE]]


def _by_spy(spy: str, target: _Target, window_s: float) -> tuple[Entry, str]:
    """(what py-spy saw of the thread without ever stopping it, why nothing)."""
    limit_s = window_s + SPY_PATIENCE_S
    written = os.memfd_create("samples")  # no file that would stay if we were killed
    try:
        command = [spy, "record", "--pid", str(target.process.pid), "--output", f"/proc/self/fd/{written}"]
        command += ["--format", "speedscope", "--rate", str(RATE_HZ), "--nonblocking", "--idle", "--threads"]
        command += ["--full-filenames", "--duration", str(max(1, round(window_s)))]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
            pass_fds=(written,),
        )
        raw = os.pread(written, MAX_ANSWER_BYTES, 0)
    except subprocess.TimeoutExpired:
        return {}, f"py-spy: no answer within {limit_s:.0f} s"
    except OSError as error:
        return {}, f"py-spy: {error}"
    finally:
        os.close(written)
    found = parse_speedscope(raw, target.thread, is_main=target.thread == target.process.pid)
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    said = lines[0] if lines and not raw else "it saw no stack of the thread"
    return found, "" if found else f"py-spy: {said}"


def parse_speedscope(raw: bytes, thread: int, *, is_main: bool = False) -> Entry:
    """Frames, stacks and samples of one thread in py-spy's document; empty where it holds none of it."""
    try:
        document: Any = orjson.loads(raw) if raw else {}
        frames = document["shared"]["frames"]
        profile = _profile(document["profiles"], thread, is_main=is_main)
        samples = profile["samples"] if profile is not None else []
        places = [(frame["name"], frame["file"], frame["line"]) for frame in frames]
        # Outermost first, and before it a line that names the thread.
        stacks = [[index for index in reversed(sample) if places[index][1]] for sample in samples]
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError):
        return {}
    return packed(places, stacks, "py-spy")


def _profile(profiles: list[Any], thread: int, *, is_main: bool) -> Any:
    """Of the thread. In a container the process counts its threads otherwise: its main one is known by name."""
    names = [str(one["name"]) for one in profiles]
    found = [one for one, name in zip(profiles, names, strict=True) if name.startswith(f"Thread {thread} ")]
    mains = [one for one, name in zip(profiles, names, strict=True) if name.endswith(' "MainThread"')]
    if not found and is_main and len(mains) == 1:
        found = mains
    return found[0] if found else None


def _inside(target: _Target, window_s: float) -> tuple[Entry, str]:
    """The same by a thread inside the process."""
    if target.budget_ppm <= 0:
        return {}, "the probes' budget leaves nothing for samples, and py-spy is not installed"
    try:
        told = json_object(samples_inside(target.process, window_s, target.budget_ppm))
        places = [(name, file, line) for name, file, line in told.get("frames", ())]
        numbered = told.get("stacks", [])
        stacks = [numbered[index] for index in told.get("samples", ())[:MAX_SAMPLES]]
        found = packed(places, stacks, "inside")
    except (OSError, TuiadvisorError) as error:
        return {}, str(error)
    except (ValueError, TypeError, IndexError, KeyError):
        return {}, "what it said of its stacks cannot be read"
    return found, "" if found else "no stack was seen"


def samples_inside(process: RankProcess, window_s: float, budget_ppm: int) -> bytes:
    """What a thread within it says that ends by itself. OSError or TuiadvisorError where it cannot be asked."""
    arguments = int(window_s * NS), int(NS / RATE_HZ), budget_ppm
    patience_s = LONGEST * window_s + ANSWER_S
    with asked(process, "sample", *arguments, patience_s=patience_s, limit=MAX_INSIDE_BYTES) as answer:
        return answer.said


def packed(places: Sequence[tuple[Any, Any, Any]], sampled: Sequence[Sequence[int]], way: str) -> Entry:
    """Each frame and each stack once, bounded; a place that is none raises TypeError or IndexError."""
    frames: dict[tuple[str, str, int, int], int] = {}
    stacks: dict[tuple[int, ...], int] = {}
    samples = []
    for sample in sampled[:MAX_SAMPLES]:
        shown = [place for index in sample if not is_probe(*(place := places[index])[:2])][:MAX_FRAMES]
        stack = tuple(frames.setdefault(_frame(*place), len(frames)) for place in shown)
        if stack in stacks or len(stacks) < MAX_STACKS:
            samples.append(stacks.setdefault(stack, len(stacks)))
    if not samples:
        return {}
    return {
        "way": way,
        "frames": [
            {"name": name, "file": file, "line": line, "own": own} for name, file, line, own in frames
        ],
        "stacks": [list(stack) for stack in stacks],
        "samples": samples,
    }


def _frame(name: object, file: object, line: object) -> tuple[str, str, int, int]:
    path = file if isinstance(file, str) else ""
    is_library = path.startswith("<") or not path or any(part in path for part in LIBRARY_PARTS)
    short = "/".join(PurePath(path[-600:]).parts[-2:])
    number = line if type(line) is int and 0 <= line < 1 << 31 else 0
    return (
        text(name, MAX_TEXT_CHARS),
        text(short[-MAX_TEXT_CHARS:], MAX_TEXT_CHARS),
        number,
        int(not is_library),
    )
