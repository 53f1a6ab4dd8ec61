"""How soon a long recording is on the screen, how soon a seek shows its place, and what memory that takes.

Run: python tests/benchmarks/recordings.py [--ranks 8 64 512] [--rank-steps 1000000].  CPU time of what the user waits
for: the feed's own turns (read, fold, view), called here without its thread: nothing is waited for in between, and
other jobs on the machine matter little.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path

from generated import straggling, write_recording

from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.tui.contract.feed import Pause, SeekStep

NUM_SEEKS = 40


def measure(num_ranks: int, num_rank_steps: int, folder: Path) -> str:
    """One line of the table."""
    path = folder / f"{num_ranks}.tuirec"
    world = straggling(num_ranks, num_rank_steps)
    write_recording(path, world)
    begin = time.process_time()
    feed = ReplayFeed(ReplaySource(path))
    feed.command(Pause())
    while feed.latest().view is None:
        feed._cycle()
    open_s = time.process_time() - begin
    while not feed._survey.is_done:
        feed._cycle()
    whole_s = time.process_time() - begin
    lots = random.Random(num_ranks)  # noqa: S311
    seeks_s = []
    for _ in range(NUM_SEEKS):
        step = lots.randrange(world.num_steps)
        begin = time.process_time()
        feed.command(SeekStep(step))
        feed._cycle()
        while feed._is_seeking or feed._changed:
            feed._cycle()
        seeks_s.append(time.process_time() - begin)
        view = feed.latest().view
        assert view is not None
        assert step == view.last_step
    kept = feed._survey.checkpoints
    feed.stop()
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seeks_s.sort()
    return (
        f"| {num_ranks:5} | {path.stat().st_size / 1e6:5.1f} MB | {open_s:5.2f} s | {whole_s:5.1f} s "
        f"| {1e3 * statistics.median(seeks_s):4.0f} ms | {1e3 * seeks_s[int(0.95 * NUM_SEEKS)]:4.0f} ms "
        f"| {len(kept)}, {kept._num_held_bytes / 1e6:.0f} MB | {memory_mb:.0f} MB |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--rank-steps", type=int, default=1_000_000)
    options = parser.parse_args()
    print(
        "| ranks | file | first screen | looked at whole | a seek | 95 % of seeks | states kept | process |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for num_ranks in options.ranks:
            print(measure(num_ranks, options.rank_steps, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
