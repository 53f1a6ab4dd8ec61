"""A thousand attaches to one real training, parts of the watcher killed at random moments: is anybody harmed?

Run: python tests/benchmarks/kills.py [--attaches 1000] [--seed 1].  Most rounds fork what an agent does with its ranks
(attach, see the probe live, take it out) and kill -9 that process, the tracer that holds a rank, or both, at a random
moment; each twentieth starts a whole `record` and kills watcher, hub, agent or all. Counted are probes that came up, a
ring each. At the end: training alive, weights bit for bit those of an unwatched twin, rings and probes left over once
every lease has run out, threads and descriptors as before.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from patience import wait_until
from soak import TIMED, is_equal_to_its_twin
from training import end, launch, wait_for_ranks

from tuiadvisor.agent.attach import REAL_INJECTOR, attach
from tuiadvisor.agent.session import LEASE_NS, adopt_session, mapped_rings, remove_leftovers
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor_probes import ring as ring_file

if TYPE_CHECKING:
    from tuiadvisor.agent.discovery import RankProcess

NUM_RANKS = 2
FORKED, WHOLE = ("agent", "tracer", "agent and tracer", "nobody"), ("watcher", "hub", "agent", "all")
WHOLE_EVERY, ROUNDS_A_LINE = 20, 20
TUIADVISOR = [sys.executable, "-P", "-m", "tuiadvisor"]
LOOK_S, TRACER_S = 0.002, 0.12  # a tracer lives about so long
WHOLE_S, LEAVE_S, PROBE_S = 4.0, 30.0, 10.0
STALE_S = 61.0  # what nobody holds for so long is a leftover


@dataclass
class Tally:
    """What happened so far."""

    rings: set[str] = field(default_factory=set)
    killed: Counter[str] = field(default_factory=Counter)
    num_missed: int = 0  # rounds whose victim had ended, or had not come, at its moment
    lingering: Counter[str] = field(default_factory=Counter)  # parts that did not leave by themselves
    lengths_s: list[float] = field(default_factory=lambda: [0.5])  # of rounds in which nobody was killed

    def look(self, ranks: list[RankProcess]) -> None:
        """Note the rings that the ranks map now."""
        for rank in ranks:
            self.rings |= {path for path, _ in mapped_rings(rank.pid)}

    def tell(self, number: int) -> None:
        """One line."""
        print(
            f"{time.strftime('%H:%M:%S')} round {number}: {len(self.rings)} attaches; killed {dict(self.killed)}, "
            f"{self.num_missed} moments missed; a round {statistics.median(self.lengths_s):.2f} s; "
            f"lingering {dict(self.lingering)}",
            flush=True,
        )


def visit(rank: RankProcess, leaves: bool) -> None:
    """What an agent does: take out what a killed one left, put in a probe, see it live, perhaps take it out."""
    left = adopt_session(rank.pid)
    if left is not None:
        take_out(ring_file.RingReader(left.ring_path))
        left.close()
    attached = attach(rank, REAL_INJECTOR)
    wait_for(attached.reader, ring_file.STATE_LIVE)
    if leaves:
        take_out(attached.reader)
        attached.session.remove()


def take_out(reader: ring_file.RingReader) -> None:
    """Ask the probe to leave, and see it go."""
    reader.put_u64(ring_file.OFFSET_COMMAND, ring_file.COMMAND_DETACH)
    wait_for(reader, ring_file.STATE_DETACHED)


def wait_for(reader: ring_file.RingReader, state: int) -> None:
    """Not for ever: a probe whose tracer was killed never comes."""
    deadline_s = time.monotonic() + PROBE_S
    while reader.get_u64(ring_file.OFFSET_STATE) != state and time.monotonic() < deadline_s:
        time.sleep(LOOK_S)


def forked_agent(ranks: list[RankProcess], leaves: bool) -> int:
    """A child that visits all ranks at once, as an agent's threads do."""
    child = os.fork()
    if child:
        return child
    with contextlib.suppress(TuiadvisorError, OSError), ThreadPoolExecutor(NUM_RANKS) as pool:
        for done in [pool.submit(visit, rank, leaves) for rank in ranks]:
            with contextlib.suppress(TuiadvisorError, OSError):
                done.result()
    os._exit(0)


def forked_round(ranks: list[RankProcess], victim: str, chance: random.Random, tally: Tally) -> None:
    """Fork, wait for the moment, kill, and collect what is left."""
    agent = psutil.Process(forked_agent(ranks, leaves=chance.random() < 0.7))
    begin_s, seen = time.monotonic(), {agent.pid: agent}
    moment_s = chance.uniform(0.0, statistics.median(tally.lengths_s[-20:]))
    since_s, killed = 0.0, victim == "nobody"
    tracer_moment_s = chance.uniform(0.0, TRACER_S)
    while alive(agent):
        tally.look(ranks)
        now_s, tracers = time.monotonic(), [one for one in children(agent) if part_of(one) == "tracer"]
        seen |= {tracer.pid: tracer for tracer in tracers}
        since_s = since_s or (now_s if tracers else 0.0)
        is_time = (
            since_s and now_s - since_s >= tracer_moment_s
            if "tracer" in victim
            else now_s - begin_s >= moment_s
        )
        if is_time and not killed:
            victims = tracers if "tracer" in victim else []
            victims = [*victims, agent] if "agent" in victim else victims
            killed = any(kill(one) for one in victims) or "tracer" in victim
            tally.num_missed += not victims
        time.sleep(0.0 if since_s and not killed else LOOK_S)
    tally.num_missed += not killed
    if victim == "nobody":
        tally.lengths_s.append(time.monotonic() - begin_s)
    os.waitpid(agent.pid, 0)
    wait_for_all(list(seen.values()), tally)


def whole_round(
    training_pid: int, ranks: list[RankProcess], victim: str, chance: random.Random, tally: Tally
) -> None:
    """The same with a `record`, its hub and its agent."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*TUIADVISOR, "record", "--pid", str(training_pid), "-o", f"{folder}/round.tuirec"]
        process = subprocess.Popen(
            command, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        watcher, end_s = psutil.Process(process.pid), time.monotonic() + chance.uniform(0.0, WHOLE_S)
        seen: dict[int, psutil.Process] = {}
        while time.monotonic() < end_s:
            tally.look(ranks)
            seen |= {one.pid: one for one in (watcher, *children(watcher))}
            time.sleep(10 * LOOK_S)
        victims = [one for one in seen.values() if victim in (part_of(one), "all")]
        tally.num_missed += not any(kill(one) for one in victims)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        wait_for_all(list(seen.values()), tally, process)


def wait_for_all(
    seen: list[psutil.Process], tally: Tally, parent: subprocess.Popen[bytes] | None = None
) -> None:
    """Until nobody is left; who stays is counted, and killed."""
    deadline_s = time.monotonic() + LEAVE_S
    while any(map(alive, seen)) and time.monotonic() < deadline_s:
        time.sleep(LOOK_S)
    for one in filter(alive, seen):
        tally.lingering[part_of(one)] += 1
        kill(one)
    if parent is not None:
        parent.wait()


def children(process: psutil.Process) -> list[psutil.Process]:
    """All below it; none once it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        found: list[psutil.Process] = process.children(recursive=True)
        return found
    return []


def part_of(process: psutil.Process) -> str:
    """Which of our parts a process is, by what it runs."""
    marks = {"tracer.main": "tracer", "stream.hub": "hub", "tuiadvisor.agent": "agent", "record": "watcher"}
    with contextlib.suppress(psutil.Error):
        words = " ".join(process.cmdline())
        return next((name for mark, name in marks.items() if mark in words), "other")
    return "other"


def kill(process: psutil.Process) -> bool:
    """Whether it was there to be killed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
        return True
    return False


def alive(process: psutil.Process) -> bool:
    """Still running, and no zombie."""
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def footprint(rank: RankProcess) -> tuple[int, int]:
    """Threads and descriptors."""
    process = psutil.Process(rank.pid)
    return process.num_threads(), process.num_fds()


def leave(ranks: list[RankProcess], tally: Tally) -> tuple[list[str], list[str]]:
    """(rings still mapped, ring folders still there) when leases have run out and an agent has looked for leftovers."""
    time.sleep(max(LEASE_NS / 1e9, STALE_S) + 5)  # what is waited for is this very time
    mapped = [path for rank in ranks for path, _ in mapped_rings(rank.pid)]
    remove_leftovers()
    return mapped, [path for path in tally.rings if Path(path).parent.exists()]


def trial(options: argparse.Namespace, folder: Path) -> None:
    """All rounds and the count."""
    chance, tally, stop = random.Random(options.seed), Tally(), folder / "stop"  # noqa: S311  no secret
    arguments = [
        "--print-every",
        "0",
        "--seed",
        "5",
        "--step-ms",
        "8",
        "--result",
        str(folder / "watched.pt"),
    ]
    times = ["--step-times", str(folder / "times")]
    training = launch(NUM_RANKS, [*arguments, *times, "--stop-file", str(stop)], TIMED, is_whole=True)
    try:
        ranks, number = wait_for_ranks(training, NUM_RANKS), 0
        # A rank opens this file of its own with its first step.
        wait_until(lambda: all((folder / f"times.{rank}").exists() for rank in range(NUM_RANKS)))
        before = [footprint(rank) for rank in ranks]
        while len(tally.rings) < options.attaches:
            number += 1
            is_whole = number % WHOLE_EVERY == 0
            victim = chance.choice(WHOLE if is_whole else FORKED)
            tally.killed[f"{victim} of record" if is_whole else victim] += 1
            if is_whole:
                whole_round(training.pid, ranks, victim, chance, tally)
            else:
                forked_round(ranks, victim, chance, tally)
            if training.poll() is not None:
                print(f"THE TRAINING ENDED with {training.returncode} in round {number}, killed: {victim}")
                tally.tell(number)
                return
            if number % ROUNDS_A_LINE == 0:
                tally.tell(number)
        tally.tell(number)
        mapped, left = leave(ranks, tally)
        print(f"probes left in: {mapped or 'none'}; ring folders left: {left or 'none'}")
        print(f"threads and descriptors before {before}, after {[footprint(rank) for rank in ranks]}")
        stop.touch()
        print(f"training ended with {training.wait(120)}")
        print(f"weights equal to an unwatched twin: {is_equal_to_its_twin(folder, NUM_RANKS)}", flush=True)
    finally:
        end(training)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--attaches", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial(options, Path(folder))


if __name__ == "__main__":
    main()
