"""How often the verdict changes when the same run's steps are drawn again: the flip rate.

    python tests/accuracy/flips.py [RECORDING ...] [--draws 40] [--only PATTERN] [--noise device quiet crowded]

A moving block bootstrap over job steps: blocks of consecutive steps, so that what depends on the step before (waits,
pauses) keeps its neighbour, moved in time so that each follows the one before it. A flip is another decision, another
finding or other ranks than the verdict on all steps as they were. Without recordings the faults of simulate.py are
drawn, in a world of 16 ranks. Onsets are left out: drawing steps anew takes the order away that makes one.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from simulate import scenarios
from worlds import World, frames

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.whole_recording import frames_of
from tuiadvisor.metrics.steps.step_table import StepTable, select

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tuiadvisor.views.run_view import RunView

BLOCK_STEPS = 12
CLOCKS = ("begin_s_RK", "end_s_RK", "arrive_s_RK", "release_s_RK")
Verdict = tuple[str | None, str | None, tuple[int, ...]]


def drawn(table: StepTable, random: np.random.Generator, block: int = BLOCK_STEPS) -> StepTable:
    """As many steps of the table, drawn in blocks. Column 0 stays: the first step is known to have begun late."""
    num = table.num_steps
    if num < 3 * block:
        raise ValueError(f"{num} steps are too few to draw blocks of {block}")
    columns = [np.array([0])]
    while sum(map(len, columns)) < num:
        start = int(random.integers(1, num - block + 1))
        columns.append(np.arange(start, start + block))
    chosen = np.concatenate(columns)[:num]
    moved = _moves(table, chosen)
    picked = replace(select(table, chosen), first_step=table.first_step)
    return replace(picked, **{name: getattr(picked, name) + moved for name in CLOCKS})


def _moves(table: StepTable, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Seconds by which each drawn step is moved, R x K: one number a host and block, so that nobody's lateness changes.

    A block's steps begin where the block before ends, as its first step began where the step before it ended.
    """
    hosts = np.array(table.hosts)
    moved = np.zeros((table.num_ranks, len(chosen)))
    breaks = np.flatnonzero(np.diff(chosen) != 1) + 1
    for host in dict.fromkeys(table.hosts):
        rows = hosts == host
        end = table.end_s_RK[rows]
        shift = 0.0
        shifts = np.zeros(len(chosen))
        for first, last in zip([0, *breaks], [*breaks, len(chosen)], strict=True):
            if first:
                ended, due = end[:, chosen[first - 1]] + shift, end[:, chosen[first] - 1]
                shift = float(np.nanmedian(ended - due))
            shifts[first:last] = shift
        moved[rows] = shifts
    return moved


def verdict_of(view: RunView) -> Verdict:
    """What a flip is judged by."""
    found = next((one for one in view.findings if one.id == view.verdict.finding), None)
    return view.verdict.decision, view.verdict.finding, found.ranks if found else ()


def flips(advisor: Advisor, num_draws: int, seed: int = 0) -> tuple[Verdict, Counter[Verdict]]:
    """(the verdict on all steps, how often each verdict came out on drawn ones)."""
    whole = verdict_of(advisor.view())
    table, _ = advisor.store.table() or (None, False)
    if table is None:
        raise ValueError("no steps")
    random = np.random.default_rng(seed)
    seen: Counter[Verdict] = Counter()
    original = advisor.store.table
    try:
        for _ in range(num_draws):
            again = drawn(table, random)
            # Steps drawn from all over the run are not its first ones.
            advisor.store.table = lambda *_, again=again: (again, False)  # type: ignore[method-assign]
            seen[verdict_of(advisor._view(None))] += 1
    finally:
        advisor.store.table = original  # type: ignore[method-assign]
    return whole, seen


def _runs(options: argparse.Namespace) -> Iterator[tuple[str, Advisor]]:
    for path in options.recordings:
        advisor = Advisor()
        for frame in frames_of(path):
            advisor.feed(frame)
        yield Path(path).name, advisor
    if options.recordings:
        return
    base = World(16, num_steps=options.steps)
    for noise in options.noise:
        for scenario in scenarios(base.num_ranks, options.steps, base.ranks_per_host):
            if scenario.onset is None and fnmatch.fnmatch(scenario.name, options.only):
                advisor = Advisor()
                for one in frames(replace(base, noise=noise, faults=scenario.faults)):
                    advisor.feed_frame(one)
                yield f"{noise} {scenario.name}", advisor


def main() -> int:
    """Print a line a run and the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("recordings", nargs="*")
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--only", default="*")
    parser.add_argument("--noise", nargs="+", default=["device", "quiet", "crowded"])
    parser.add_argument("--steps", type=int, default=240)
    options = parser.parse_args()
    num_flips = num_decisions = num_draws = 0
    for name, advisor in _runs(options):
        whole, seen = flips(advisor, options.draws)
        other = sum(count for verdict, count in seen.items() if verdict != whole)
        num_decisions += sum(count for verdict, count in seen.items() if verdict[0] != whole[0])
        num_flips += other
        num_draws += options.draws
        most = next((f"; most: {verdict}" for verdict, _ in seen.most_common() if verdict != whole), "")
        print(f"{other / options.draws:5.0%}  {name:28} {whole}{most}", flush=True)
    if num_draws:
        print(f"flip rate {num_flips / num_draws:.1%} (the decision alone {num_decisions / num_draws:.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
