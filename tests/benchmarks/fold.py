"""How many rank-steps a second the advisor folds, by size of the world; and what a view costs then.

Run: python tests/benchmarks/fold.py [--ranks 4 64 1024 16384].  Frames are written beforehand; a frame is a chunk of
steps of one agent's ranks. Decoding (compression, checks) and folding are timed apart, in CPU seconds of one process:
other jobs on the machine do not count.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "accuracy"))

from worlds import World, frames

from tuiadvisor.advisor.assemble.rank_groups import groupings
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.stream.frames import FrameKind, decode, encode

RANK_STEPS = 400_000  # as many in each world, so that each runs a few seconds
PROFILE_LINES = 25


def measure(num_ranks: int, ranks_per_agent: int, *, profile: bool) -> str:
    """One line of the table."""
    num_steps = max(48, min(2048, RANK_STEPS // num_ranks))
    world = World(num_ranks, num_steps=num_steps, ranks_per_host=min(ranks_per_agent, num_ranks))
    encoded = [encode(f.kind, f.source, f.seq, f.time_ns, f.payload) for f in frames(world)]
    begin = process_time()
    decoded = [decode(data) for data in encoded]
    decode_s = process_time() - begin
    num_rows = sum(int(str(f.payload["rows"])) for f in decoded if f.kind == FrameKind.STEPS)
    advisor = Advisor()
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    begin = process_time()
    for frame in decoded:
        advisor.feed_frame(frame)
    fold_s = process_time() - begin
    begin = process_time()
    view = advisor.view()
    view_s = process_time() - begin
    profiler.disable()
    begin = process_time()
    groupings(view.ranks, {rank.rank: (rank.rank % 8,) for rank in view.ranks}, {})
    group_s = process_time() - begin
    if profile:
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(PROFILE_LINES)
    assert view.last_step == num_steps - 1, view.last_step
    assert len(view.ranks) == num_ranks
    size = num_rows / max(len(decoded) - num_ranks // world.ranks_per_host, 1)
    return (
        f"| {num_ranks:6} | {size:6.0f} | {num_rows / fold_s:9,.0f} | {num_rows / (fold_s + decode_s):9,.0f} "
        f"| {1e3 * view_s:6.0f} ms | {1e3 * group_s:6.1f} ms |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 64, 1024, 16384])
    parser.add_argument("--ranks-per-agent", type=int, default=8)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    print("| ranks | rows a frame | rank-steps/s, fold | with decoding | a view | two groupings |")
    print("|---|---|---|---|---|---|")
    for num_ranks in options.ranks:
        print(measure(num_ranks, options.ranks_per_agent, profile=options.profile), flush=True)


if __name__ == "__main__":
    main()
