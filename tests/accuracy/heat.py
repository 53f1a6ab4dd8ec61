"""Devices that are held back for some of the time, at random: what is said of them against what is true.

    python tests/accuracy/heat.py [--runs 60] [--seed 0] [--verbose]

Steps of 60 to 300 ms, 2 to 16 ranks; one device, the devices of one of two hosts, all devices or none is slower by 8 to
30 % for 20 to 80 % of each turn, of which the window of 512 steps sees two to eight; the run ends anywhere in one. NVML
tells of it in half of the runs; where nobody is slowed, of a cap that comes and goes by lot and slows nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from device_rigs import STRETCHES
from device_troubles import scaled
from device_weather import flickering
from device_worlds import DEVICE, HOST, Build, World, bad, judged, on_two_hosts, second_half
from simulated_devices import DeviceJob, Fault, folded, frames, simulate

HELD_STEPS = 512  # of the window
WHOM = ("one", "host", "all", "nobody")


def world(stream: np.random.Generator, whom: str, *, is_told: bool) -> tuple[World, DeviceJob]:
    """One training, and what must be said of it."""
    turn = int(HELD_STEPS / stream.uniform(2, 8))
    length = max(10, int(turn * stream.uniform(0.2, 0.8)))
    steps = HELD_STEPS + int(stream.integers(0, 2 * turn))
    job = DeviceJob(
        num_ranks=int(stream.choice([4, 8, 16] if whom == "host" else [2, 4, 8, 16])),
        sync_every=int(stream.choice([0, 1, 10])),
        num_steps=steps,
        seed=int(stream.integers(1 << 30)),
        throttled_by="thermal (hardware)" if is_told or whom == "nobody" else "",
    )
    job = scaled(stream.uniform(0.7, 3.4))(job)
    factor = stream.uniform(1.08, 1.3)
    first = max(2, steps - HELD_STEPS)
    hit: Build = {"one": lambda j: j, "all": lambda j: j, "nobody": lambda j: j, "host": on_two_hosts}[whom]
    job = hit(job)
    ranks = {"one": bad(job), "host": second_half(job)}.get(whom)
    if whom != "nobody":
        job = job.with_faults(Fault("device", ranks, factor=factor, every=turn, length=length))
    guilty = ranks or ()
    return World(
        hit,
        lambda _job: guilty,
        DEVICE | HOST,
        findings=STRETCHES if whom == "all" else frozenset(),
        first=first,
    ), job


def main() -> int:
    """Print the table; 1 where something is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=60, help="of each row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    begin_s = process_time()
    stream = np.random.default_rng(options.seed)
    print(
        "| held back | NVML | right | size | remark | not decided | kept silent | said wrong |\n"
        + "|---" * 8
        + "|"
    )
    num_wrong = 0
    for whom in WHOM:
        for is_told in (False, True):
            counts: Counter[str] = Counter()
            for _ in range(options.runs):
                truth, job = world(stream, whom, is_told=is_told)
                sequence = frames(simulate(job))
                if whom == "nobody" and is_told:
                    sequence = flickering(sequence, job.seed)
                said = judged(truth, replace(job), folded(sequence))
                word = "silent" if said.words.startswith("silent") else said.word
                counts[word] += 1
                if options.verbose and word != "right":
                    print(
                        f"{word}: {whom} {job.num_ranks} ranks, {job.faults}: {said.words}", file=sys.stderr
                    )
            num_wrong += counts["wrong"]
            figures = [counts[word] for word in ("right", "size", "remark", "unknown", "silent", "wrong")]
            print(
                f"| {whom} | {'tells' if is_told else 'not asked'} | " + " | ".join(map(str, figures)) + " |",
                flush=True,
            )
    print(f"{process_time() - begin_s:.0f} s of CPU")
    return int(num_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
