"""A rank in another time namespace: what is written into its ring is of its clock, what is read of it of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

import pytest

from tuiadvisor.agent.attach import Injector
from tuiadvisor.agent.discovery import RankProcess
from tuiadvisor.agent.drain import Drain, status_of
from tuiadvisor.agent.procfs import stat
from tuiadvisor.agent.rank_link import RankLink
from tuiadvisor.agent.session import LEASE_NS
from tuiadvisor.agent.timespace import OUR_CLOCK, RankClock, clock_of
from tuiadvisor.events import EVENT_COLUMNS, EVENT_NAMES, STEP_COLUMNS, STEP_NAMES, EventKind, RankState
from tuiadvisor.inject import Identity, Injection
from tuiadvisor.stream.frames import FrameKind, unpack_columns
from tuiadvisor_probes import ring as ring_file

NS = 10**9
AHEAD_S = 100_000
CLOCK = "import time; print(time.monotonic_ns(), flush=True); input()"


class AtOnce(Executor):
    """Runs a job where it is submitted."""

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **options))
        return future


@contextmanager
def elsewhen(offset_s: int) -> Iterator[tuple[int, int]]:
    """(pid, its monotonic clock minus ours) of a process in a time namespace of its own."""
    unshare = shutil.which("unshare") or "unshare"
    shift = ["--monotonic", str(offset_s), "--boottime", str(offset_s)]
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = [unshare, *as_root, "--time", *shift, sys.executable, "-c", CLOCK]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except FileNotFoundError:
        pytest.skip("no unshare here")
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        if not said:
            pytest.skip("this system makes no time namespaces")
        yield process.pid, int(said) - time.monotonic_ns()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("offset_s", [AHEAD_S, -1])
def test_the_clock_of_a_process_elsewhen(offset_s: int) -> None:
    """As the process reads it itself, ahead and behind."""
    with elsewhen(offset_s) as (pid, difference_ns):
        ahead_ns = clock_of(pid).ahead_ns
    assert offset_s * NS == ahead_ns
    assert abs(ahead_ns - difference_ns) < NS


def test_who_shares_our_clock_needs_no_translation() -> None:
    """Also a process that is gone."""
    assert OUR_CLOCK == clock_of(os.getpid()) == clock_of(0)
    rows = [tuple(range(len(STEP_COLUMNS)))]
    assert rows is OUR_CLOCK.steps(rows)


def test_a_moment_is_translated_and_no_moment_stays_none() -> None:
    clock = RankClock(7)
    assert (12, 0) == (clock.to_rank(5), clock.to_rank(0))
    assert (5, 0, -1) == (clock.to_us(12), clock.to_us(0), clock.to_us(-1))
    assert 2**63 - 1 == RankClock(-7).to_us(2**63 - 1)  # a forged time fits its frame all the same
    assert 1 == clock.to_us(3)


def test_lease_burst_and_records_of_a_rank_elsewhen() -> None:
    """The lease it is given runs on its clock; its steps, events and phase are told on ours."""
    writers: list[ring_file.RingWriter] = []

    def inject(target: Identity, code: str) -> Injection:
        writers.append(ring_file.RingWriter(code))
        return Injection(target.pid, "thread", 0, 0)

    with elsewhen(AHEAD_S) as (pid, _):
        found = stat(pid)
        assert found is not None
        rank = RankProcess(
            pid=pid, ppid=1, start_ticks=found.start_ticks, uid=os.geteuid(), rank=0, local_rank=0, world_size=1,
            local_world_size=1, command="", label="", python="3.11", start_wall_ns=None, master=None, run_id=None,
            job="",
        )  # fmt: skip
        link = RankLink(rank, Injector(inject, lambda path, _: path, lambda: "", lambda _: True))
        try:
            now_ns = time.monotonic_ns()
            link.advance(now_ns, AtOnce())
            link.advance(now_ns, AtOnce())
            (writer,) = writers
            assert now_ns + LEASE_NS + AHEAD_S * NS == writer.get_u64(ring_file.OFFSET_LEASE)
            writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_LIVE)
            writer.put_u64(ring_file.OFFSET_CLOCKS, 1)
            link.advance(now_ns + NS, AtOnce())
            assert now_ns + NS + LEASE_NS + AHEAD_S * NS == writer.get_u64(ring_file.OFFSET_LEASE)
            assert link.ask_for_burst(1000)
            assert writer.get_u64(ring_file.OFFSET_BURST) > AHEAD_S * NS + now_ns
            asked_ns, until_ns = status_of(link)["burst_ns"]  # by our clock, as its steps
            assert (NS, True) == (until_ns - asked_ns, now_ns <= asked_ns < now_ns + AHEAD_S * NS)
            assert link.ask_for_burst(5000)  # while the first goes on: one burst, and a longer one
            assert asked_ns == status_of(link)["burst_ns"][0]

            theirs_ns = now_ns + AHEAD_S * NS
            writer.put_step(
                step(begin_ns=theirs_ns - 9, end_ns=theirs_ns, arrive_ns=-1, release_ns=theirs_ns - 1)
            )
            writer.put_event(EventKind.GC, event(begin_ns=theirs_ns - 5, end_ns=theirs_ns))
            writer.put_event(EventKind.DETACHED, event(begin_ns=0, end_ns=0))
            writer.put_u64(ring_file.OFFSET_NOW, theirs_ns << 4 | 2)
            drain = Drain()
            drain.take(link)
            told = dict(drain.frames())
            assert RankState.LIVE == link.state
            assert now_ns == status_of(link)["phase_since_ns"]
        finally:
            link.release()
            for writer in writers:
                writer.close()
    steps = unpack_columns(told[FrameKind.STEPS], STEP_NAMES)
    events = unpack_columns(told[FrameKind.EVENTS], EVENT_NAMES)
    assert [now_ns - 9] == list(steps["begin_ns"])
    assert [now_ns] == list(steps["end_ns"])
    assert ([-1], [now_ns - 1]) == (list(steps["arrive_ns"]), list(steps["release_ns"]))
    assert [now_ns - 5, 0] == list(events["begin_ns"])
    assert [now_ns, 0] == list(events["end_ns"])


def step(**values: int) -> tuple[int, ...]:
    return tuple(values.get(name, 1) for name in STEP_COLUMNS)


def event(**values: int) -> tuple[int, ...]:
    return tuple(values.get(name, 1) for name in EVENT_COLUMNS)
