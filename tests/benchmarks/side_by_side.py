"""What each tool costs a training step, side by side in one run: bare, ours, TraceML, probing, py-spy, torch.profiler.

    python tests/benchmarks/side_by_side.py [--ranks 2 4] [--step-ms 1 5 20 100] [--minutes 6] [--only ours TraceML]

Every contender is a training of its own, all of them started at once with their ranks pinned to the same cores. They
take turns in blocks of steps, in a new random order each round; whoever waits is stopped with all its processes
(SIGSTOP). A contender that can be taken in and out of a running process is compared with its own blocks without it,
the others with the bare training of the same round. "bare again" is the null: what two equal processes differ by.
Printed: median over rounds of (median step with / median step without) with a 95 % bootstrap interval, the extra
microseconds of wall and of CPU time a step (all threads of a rank, mean over ranks), and at the end the memory a rank
holds beyond the bare one. On fewer cores than ranks the wall clock shows the scheduler; the CPU time does not.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "probes"))

from contenders import KINDS, Contender, Kind, gather, install
from overhead import SETTLED, bootstrap_median

from tuiadvisor.agent.payload import attach_code, detach_code, write_native
from tuiadvisor_probes.ring import create_ring_file

MIN_ROUNDS = 3
BLOCK_S = 0.25
WARMUP = 3


@dataclass(frozen=True)
class Measured:
    """One block: medians over its steps on rank 0, CPU mean over ranks."""

    wall_s: float
    cpu_s: float


class Race:
    """All contenders of one number of ranks, taking turns."""

    def __init__(self, contenders: list[Contender], folder: Path) -> None:
        self.contenders = contenders
        self.bare = contenders[0]
        self.folder = folder
        self.resident: dict[str, list[int]] = {}
        self._dice = random.Random(0)  # noqa: S311 - an order, not a secret
        for contender in contenders:
            contender.stand_still()

    def turn(self, contender: Contender, steps: int, spin: int, *, on: bool = False) -> Measured:
        """One block of one contender, all others standing still."""
        message: dict[str, Any] = {"steps": steps, "warmup": WARMUP, "settle": 5, "spin": spin, "on": on}
        contender.go_on()
        try:
            if on and contender.kind.wrap == "attach":
                return self._attached(contender, message)
            return self._taken(contender, contender.order(message), on=on)
        finally:
            contender.stand_still()

    def _attached(self, contender: Contender, message: dict[str, Any]) -> Measured:
        # Rings beside each other in the ranks' shared memory, one a rank: each rank runs the code of its own.
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="bench-") as rings:
            paths = [f"{rings}/{rank}" for rank in range(contender.num_ranks)]
            for path in paths:
                create_ring_file(path)
            write_native(Path(rings))
            ring = f"{rings}/RING"
            attach = attach_code(ring).replace(
                repr(ring), f"{rings!r} + '/' + __import__('os').environ['RANK']"
            )
            answers = contender.order({**message, "settle": SETTLED, "code": [attach, detach_code()]})
            return self._taken(contender, answers, on=True)

    def _taken(self, contender: Contender, answers: list[dict[str, Any]], *, on: bool) -> Measured:
        if on or not contender.kind.switched:
            self.resident[contender.kind.name] = [answer["resident"] for answer in answers]
        return Measured(
            statistics.median(answers[0]["wall"]), statistics.fmean(answer["cpu_s"] for answer in answers)
        )

    def spin_for(self, step_s: float) -> int:
        """Matrix products that lengthen the bare step to this many seconds here and now."""
        short_s = min(self.turn(self.bare, 20, 0).wall_s for _ in range(3))
        spin, long_s = 200, 0.0
        while long_s < 2 * short_s:  # else what disturbs a step is taken for products that cost nothing
            spin *= 2
            long_s = min(self.turn(self.bare, 5, spin).wall_s for _ in range(3))
        return max(0, round((step_s - short_s) / (long_s - short_s) * spin))

    def rounds(self, step_s: float, seconds: float) -> dict[str, list[tuple[Measured, Measured]]]:
        """Pairs (without, with) of each contender, as many rounds as the time allows."""
        spin = self.spin_for(step_s)
        steps = max(4, min(100, round(BLOCK_S / step_s)))
        pairs: dict[str, list[tuple[Measured, Measured]]] = {one.kind.name: [] for one in self.contenders[1:]}
        deadline_s = time.monotonic() + seconds
        done = 0
        while done < MIN_ROUNDS or time.monotonic() < deadline_s:
            order = [
                (one, on)
                for one in self.contenders
                for on in ((False, True) if one.kind.switched else (False,))
            ]
            self._dice.shuffle(order)
            found = {(one.kind.name, on): self.turn(one, steps, spin, on=on) for one, on in order}
            for one in self.contenders[1:]:
                name = one.kind.name
                without = found[(name, False) if one.kind.switched else (self.bare.kind.name, False)]
                pairs[name].append((without, found[name, one.kind.switched]))
            done += 1
        return pairs


def print_pairs(step_ms: float, pairs: dict[str, list[tuple[Measured, Measured]]]) -> None:
    """One line a contender."""
    for name, measured in pairs.items():
        ratio, low, high = bootstrap_median([on.wall_s / off.wall_s for off, on in measured])
        wall = statistics.median(on.wall_s - off.wall_s for off, on in measured)
        cpu = bootstrap_median([(on.cpu_s - off.cpu_s) * 1e6 for off, on in measured])
        off_s = statistics.median(off.wall_s for off, _ in measured)
        print(
            f"{step_ms:6g}ms {name:15} {off_s * 1e3:8.2f}ms {wall * 1e6:9.1f}us {ratio:8.4f} ({low:.4f}-{high:.4f}) "
            f"{cpu[0]:8.1f}us ({cpu[1]:.1f} to {cpu[2]:.1f})  {len(measured)}",
            flush=True,
        )


def print_memory(race: Race) -> None:
    """What a rank of each contender holds in its last block beyond a bare one."""
    bare = statistics.fmean(race.resident[race.bare.kind.name])
    for contender in race.contenders[1:]:
        own = statistics.fmean(race.resident[contender.kind.name])
        extra = f"{(own - bare) / 2**20:+8.1f} MiB a rank beyond bare ({bare / 2**20:.0f} MiB)"
        print(f"memory   {contender.kind.name:15} {extra}")


def start_all(kinds: list[Kind], folder: Path, num_ranks: int, pythons: dict[str, str]) -> list[Contender]:
    """Start every kind and wait for its ranks; one that does not come is said so and left out."""
    address = str(folder / f"orders-{num_ranks}")
    contenders = [Contender(kind, folder, num_ranks) for kind in kinds]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        try:
            # TraceML gives up when its aggregator needs more than 15 s: it starts while nobody else does.
            first = [one for one in contenders if one.kind.wrap == "traceml"]
            rest = [one for one in contenders if one not in first]
            for together in (first, rest):
                for contender in together:
                    contender.start(address, pythons[contender.kind.name])
                gather(together, listener)
            for contender in contenders:
                if contender.kind.name == "ours":
                    contender.watch()
                elif contender.kind.name == "py-spy" and contender.is_whole:
                    contender.sample(pythons[contender.kind.name])
        except BaseException:
            for contender in contenders:
                contender.end()
            raise
    whole = [contender for contender in contenders if contender.is_whole]
    for contender in contenders:
        if not contender.is_whole:
            print(f"skipped  {contender.kind.name}: it did not start: {contender.why_not()}", flush=True)
            contender.end()
    return whole


def chosen(only: list[str]) -> list[Kind]:
    """The kinds asked for; the first is always the bare training."""
    unknown = set(only) - {kind.name for kind in KINDS}
    if unknown:
        raise SystemExit(
            f"no such contender: {', '.join(sorted(unknown))}; there are {[k.name for k in KINDS]}"
        )
    return [kind for kind in KINDS if kind is KINDS[0] or not only or kind.name in only]


def main() -> None:
    """Install, race, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--step-ms", type=float, nargs="*", default=[1, 5, 20, 100])
    parser.add_argument(
        "--minutes", type=float, default=6.0, help="of measuring; starting takes about two more"
    )
    parser.add_argument("--only", nargs="*", default=[], help="names of contenders")
    options = parser.parse_args()
    kinds = chosen(options.only)
    cell_s = options.minutes * 60 / (len(options.ranks) * len(options.step_ms))
    print(f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        packages = [kind.package for kind in kinds if kind.package]
        python, missing = install(folder / "venv", packages) if packages else (sys.executable, {})
        for kind in kinds:
            if kind.package in missing:
                print(f"skipped  {kind.name}: {kind.package} cannot be installed: {missing[kind.package]}")
        kinds = [kind for kind in kinds if kind.package not in missing]
        pythons = {kind.name: python if kind.package else sys.executable for kind in kinds}
        for num_ranks in options.ranks:
            contenders = start_all(kinds, folder, num_ranks, pythons)
            try:
                run(contenders, folder, num_ranks, options.step_ms, cell_s)
            finally:
                for contender in contenders:
                    contender.end()


def run(
    contenders: list[Contender], folder: Path, num_ranks: int, steps_ms: list[float], cell_s: float
) -> None:
    """All step lengths of one number of ranks."""
    race = Race(contenders, folder)
    heads = f"{'step':>8} {'contender':15} {'without':>10} {'extra wall':>11} {'ratio':>8} (95 % interval)  "
    print(f"\n{num_ranks} ranks\n{heads} extra CPU a step (95 %)  rounds")
    for step_ms in steps_ms:
        print_pairs(step_ms, race.rounds(step_ms / 1e3, cell_s))
    print_memory(race)
    for contender in contenders:
        if contender.kind.name == "ours" and not contender.is_watched():
            print("ours: the probes left before the end; its figures are worth nothing")
        if contender.kind.name == "py-spy" and not contender.is_sampled():
            print(f"py-spy left before the end; its figures are worth nothing: {contender.why_not()}")


if __name__ == "__main__":
    main()
