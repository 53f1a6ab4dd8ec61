"""How many steps after its onset a late rank is named: the live view, asked after every step.

    python tests/accuracy/latency.py [--ranks 4 16] [--noise device quiet crowded] [--seeds 3]
    python tests/accuracy/latency.py --least          what nobody could be faster than
    python tests/accuracy/latency.py --healthy 60     names in worlds and recordings in which nobody is late
    python tests/accuracy/latency.py --recording FILE... [--onset 100 --rank 1]

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
from worlds import Fault, Floats, World

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.events import STEP_NAMES
from tuiadvisor.stream.frames import Frame, FrameKind, decode, pack_columns, unpack_columns
from tuiadvisor.stream.recording import RecordingReader
from tuiadvisor.views.run_view import RunView

ONSET = 120
AFTER = 40  # steps that are waited for
BEFORE = 20  # steps before the onset in which nobody may be named
SHARES = (0.1, 0.2, 0.5, 1.0)
KINDS = ("data_wait", "forward", "backward")
WANTED = 10
HEALTHY_STEPS = 160
HEALTHY_RUNS = 60  # in which the least possible alarm may not sound once
SMOOTH = 0.01  # of the step: between the known quantiles of the noise


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
    return worlds.frames(replace(world, chunk_steps=1))


def recorded(path: Path) -> Iterator[Frame]:
    """The frames of a recording, each cut into single steps."""
    with RecordingReader(path) as reader:
        while located := reader.take(64):
            for entry in located:
                frame = decode(entry.data)
                if frame.kind is not FrameKind.STEPS:
                    yield frame
                    continue
                columns = unpack_columns(frame.payload, STEP_NAMES)
                rows = np.array([columns[name] for name in STEP_NAMES]).T
                for end in np.argsort(rows[:, STEP_NAMES.index("end_ns")], kind="stable"):
                    yield replace(frame, payload=pack_columns(rows[end : end + 1], STEP_NAMES))


def alarms(frames: Iterator[Frame]) -> tuple[int, int]:
    """(views with a name, views) of a run in which nobody is late."""
    advisor = Advisor()
    num, total, last = 0, 0, -1
    for frame in frames:
        advisor.feed_frame(frame)
        span = advisor.store.span()
        if frame.kind is FrameKind.STEPS and span is not None and span[1] != last:
            last, total = span[1], total + 1
            num += bool(named(advisor.view()))
    return num, total


def least_steps(noise: str, share: float, num_ranks: int) -> float:
    """Median delay of the quickest test there is: Page's CUSUM of the true likelihood ratio, told everything but when.

    It knows the distribution of the noise, the size of the fault and every rank's usual pace, and looks at the right
    rank's work alone. Its limit is what sounds in none of HEALTHY_RUNS runs of as many ranks.
    Source: Moustakides 1986 (no test of the same rate of false alarms is quicker).
    """
    rng = np.random.default_rng(1)
    scale = 1 - worlds.TRANSFER_SHARE

    def draw(*shape: int) -> Floats:
        return np.asarray(scale * (np.interp(rng.random(shape), worlds.QUANTILES, worlds.NOISE[noise]) - 1))

    sample = draw(1 << 18) + rng.normal(0, SMOOTH, 1 << 18)
    density, edges = np.histogram(sample, bins=400, range=(-0.5, 1.5), density=True)
    log_density = np.log(density + 1e-4)

    def score(values: Floats) -> Floats:
        late, usual = (
            np.clip(np.searchsorted(edges, x) - 1, 0, log_density.size - 1) for x in (values - share, values)
        )
        return np.asarray(log_density[late] - log_density[usual])

    def cusum(values: Floats) -> Floats:
        sums = np.cumsum(score(values), axis=-1)
        return np.asarray(sums - np.minimum.accumulate(np.minimum(sums, 0.0), axis=-1))

    limit = cusum(draw(HEALTHY_RUNS * num_ranks, HEALTHY_STEPS)).max()
    late = cusum(share + draw(400, 400)) > limit
    return float(np.median(np.where(late.any(axis=1), late.argmax(axis=1) + 1, np.inf)))


def main() -> int:
    """Print the table; 1 if an innocent was named before the onset."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--noise", nargs="+", default=["device", "quiet", "crowded"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--least", action="store_true")
    parser.add_argument("--healthy", type=int, default=0)
    parser.add_argument("--recording", type=Path, nargs="*", default=[])
    parser.add_argument("--onset", type=int)
    parser.add_argument("--rank", type=int)
    options = parser.parse_args()
    if options.least:
        return print_least(options)
    if options.healthy or (options.recording and options.onset is None):
        return print_healthy(options)
    if options.recording:
        for path in options.recording:
            found, num = latency(recorded(path), options.onset, options.rank)
            print(f"{path}: named after {found} steps; {num} views named somebody before")
        return 0
    return print_delays(options)


def print_least(options: argparse.Namespace) -> int:
    """A line for each noise and number of ranks."""
    for noise in options.noise:
        for num_ranks in options.ranks:
            least = ", ".join(f"{share:.0%} {least_steps(noise, share, num_ranks):.0f}" for share in SHARES)
            print(f"{noise:8} {num_ranks:3} ranks, least steps (median) for a delay of {least}", flush=True)
    return 0


def print_healthy(options: argparse.Namespace) -> int:
    """Names in healthy worlds of each noise, or in recordings of healthy runs; 1 if there is one."""
    runs = [(str(path), recorded(path)) for path in options.recording]
    sizes = options.ranks
    runs += [
        (noise, simulated(World(sizes[seed % len(sizes)], HEALTHY_STEPS, noise=noise, seed=100 + seed)))
        for noise in options.noise
        for seed in range(options.healthy // len(options.noise))
    ]
    named_runs = total = 0
    for name, frames in runs:
        num, views = alarms(frames)
        total += views
        if num:
            named_runs += 1
            print(f"{name}: {num} of {views} views name somebody", flush=True)
    print(f"{named_runs} of {len(runs)} healthy runs named somebody at some time ({total} views)")
    return int(named_runs > 0)


def print_delays(options: argparse.Namespace) -> int:
    """A line for each noise and delay; 1 if an innocent was named before the onset."""
    total = 0
    for noise in options.noise:
        for share in SHARES:
            runs = [
                latency(simulated(World(num_ranks, ONSET + AFTER, noise=noise, seed=seed,
                                        faults=(Fault(kind, share, (num_ranks // 3,), onset=ONSET),))),
                        ONSET, num_ranks // 3)
                for num_ranks in options.ranks for kind in KINDS for seed in range(options.seeds)
            ]  # fmt: skip
            total += sum(num for _, num in runs)
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
