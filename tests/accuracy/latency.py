"""How many steps after its onset a late rank is named: the live view, asked after every step.

    python tests/accuracy/latency.py [--ranks 4 16] [--noise device quiet crowded] [--seeds 3]
    python tests/accuracy/latency.py --recording FILE --onset 100 --rank 1

In: simulated worlds with real noise and a fault that begins mid-run, or a recording whose truth is given.  Out: a table
of steps until the right rank is named above info, alone; and how often anybody was named before the onset.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import worlds
from worlds import Fault, World

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.view import RunView
from tuiadvisor.stream.frames import Frame, FrameKind, decode, pack_columns, unpack_columns
from tuiadvisor.stream.recording import RecordingReader

ONSET = 120
AFTER = 40  # steps that are waited for
BEFORE = 20  # steps before the onset in which nobody may be named
SHARES = (0.1, 0.2, 0.5, 1.0)
KINDS = ("data_wait", "forward", "backward")
WANTED = 10


def named(view: RunView) -> set[int]:
    """Ranks named above info."""
    return {
        rank
        for finding in view.findings
        if finding.severity != "info" and finding.id == "straggler"
        for rank in finding.ranks
    }


def latency(frames: Iterator[Frame], onset: int, rank: int) -> tuple[int | None, int]:
    """(steps until the rank is named for good, None if it is not; views with a name before the onset)."""
    advisor = Advisor()
    found: int | None = None
    alarms, last = 0, -1
    for frame in frames:
        advisor.feed_frame(frame)
        if frame.kind is not FrameKind.STEPS:
            continue
        span = advisor.store.span()
        step = -1 if span is None else span[1] - advisor.store.axis_shift()
        if step == last or step < onset - BEFORE or step >= onset + AFTER:
            continue
        last, names = step, named(advisor.view())
        if step < onset:
            alarms += bool(names)
        elif names != {rank}:
            found = None
        elif found is None:
            found = step - onset + 1
    return found, alarms


def simulated(world: World) -> Iterator[Frame]:
    """One frame a step and host."""
    worlds.CHUNK_STEPS = 1
    return worlds.frames(world)


def recorded(path: Path) -> Iterator[Frame]:
    """The frames of a recording, each cut into single steps."""
    with RecordingReader(path) as reader:
        while located := reader.take(64):
            for entry in located:
                frame = decode(entry.data)
                if frame.kind is not FrameKind.STEPS:
                    yield frame
                    continue
                columns = unpack_columns(frame.payload, worlds.STEP_NAMES)
                rows = np.array([columns[name] for name in worlds.STEP_NAMES]).T
                for end in np.argsort(rows[:, worlds.STEP_NAMES.index("end_ns")], kind="stable"):
                    yield replace(frame, payload=pack_columns(rows[end : end + 1], worlds.STEP_NAMES))


def main() -> int:
    """Print the table; 1 if an innocent was named before the onset."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--noise", nargs="+", default=["device", "quiet", "crowded"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recording", type=Path)
    parser.add_argument("--onset", type=int)
    parser.add_argument("--rank", type=int)
    options = parser.parse_args()
    if options.recording is not None:
        found, alarms = latency(recorded(options.recording), options.onset, options.rank)
        print(f"{options.recording}: named after {found} steps; {alarms} views named somebody before")
        return 0
    total = 0
    for noise in options.noise:
        for share in SHARES:
            runs = [
                latency(simulated(World(num_ranks, ONSET + AFTER, noise=noise, seed=seed,
                                        faults=(Fault(kind, share, (num_ranks // 3,), onset=ONSET),))),
                        ONSET, num_ranks // 3)
                for num_ranks in options.ranks for kind in KINDS for seed in range(options.seeds)
            ]  # fmt: skip
            total += sum(alarms for _, alarms in runs)
            print(f"{noise:8} {share:4.0%} {told([found for found, _ in runs])}", flush=True)
    print(f"views with a name in the {BEFORE} steps before the onset: {total}")
    return int(total > 0)


def told(found: list[int | None]) -> str:
    """Distribution in words."""
    known = sorted(steps for steps in found if steps is not None)
    if not known:
        return f"named in 0 of {len(found)}"
    quick = sum(steps <= WANTED for steps in known)
    return (
        f"named in {len(known)} of {len(found)}: after {int(np.median(known))} steps (median), "
        f"{known[0]} to {known[-1]}; within {WANTED}: {quick}"
    )


if __name__ == "__main__":
    sys.exit(main())
