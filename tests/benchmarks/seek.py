"""What a seek and a look at a stretch cost in a large recording, in parts: the state, folding on from it, the view.

Run: python tests/benchmarks/seek.py [--ranks 512] [--rank-steps 1000000] [--recording FILE] [--seeks 40] [--views 9]

Processor time of the feed's own turns in a process that gives blocks back as the screens' does, called here without
its thread: other jobs on the machine matter little, and least to the fastest, which is printed beside the median.
With --profile the views' and seeks' calls by the time spent in them.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generated import straggling, write_recording

from tuiadvisor.app.memory_trim import give_back_large_blocks
from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.tui.contract.feed import Pause, SeekStep

if TYPE_CHECKING:
    from collections.abc import Callable

STRETCHES = (40, 128, 200, 256)
PROFILE_LINES = 45


class Parts:
    """Processor seconds of each part of what is measured, one entry a time."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self._now: dict[str, float] = {}

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, its time counted under this name."""

        def counted(*args: Any, **options: Any) -> Any:
            begin_s = time.process_time()
            try:
                return call(*args, **options)
            finally:
                self._now[name] = self._now.get(name, 0.0) + time.process_time() - begin_s

        return counted

    def once(self, name: str, call: Callable[[], object]) -> None:
        """One measurement, with the parts that were taken during it."""
        self._now = {}
        begin_s = time.process_time()
        call()
        self.seconds[name].append(time.process_time() - begin_s)
        for part, seconds in self._now.items():
            self.seconds[f"{name}: {part}"].append(seconds)

    def lines(self) -> list[str]:
        """A row each."""
        rows = []
        for name, seconds in self.seconds.items():
            high_s = sorted(seconds)[int(0.95 * (len(seconds) - 1))]
            figures = (statistics.median(seconds), high_s, min(seconds))
            rows.append(f"| {name} | " + " | ".join(f"{1e3 * value:.1f} ms" for value in figures) + " |")
        return rows


def opened(path: Path) -> ReplayFeed:
    """A feed that has looked at all of the recording and stands."""
    feed = ReplayFeed(ReplaySource(path))
    feed.command(Pause())
    while feed.latest().view is None or not feed._survey.is_done:
        feed._cycle()
    return feed


def seek(feed: ReplayFeed, step: int) -> None:
    """Until the step stands on the screen."""
    feed.command(SeekStep(step))
    feed._cycle()
    while feed._is_seeking or feed._changed:
        feed._cycle()
    view = feed.latest().view
    assert view is not None
    assert view.last_step == step


def measure(path: Path, num_seeks: int, num_views: int) -> Parts:
    """Seeks to steps by lot, then views of stretches that end with the last step."""
    feed, parts = opened(path), Parts()
    checkpoints = feed._survey.checkpoints
    checkpoints.restore = parts.timed("state", checkpoints.restore)  # type: ignore[method-assign]
    feed._picture = parts.timed("view", feed._picture)  # type: ignore[method-assign]
    lots, last = random.Random(512), feed.last_step  # noqa: S311
    assert last is not None
    for number in range(num_seeks):
        step = lots.randrange(last)
        if number:  # the first loads what it needs
            parts.once("a seek", lambda: seek(feed, step))  # noqa: B023
        else:
            seek(feed, step)
    seek(feed, last)
    for num_steps in STRETCHES:
        for _ in range(num_views):
            parts.once(
                f"a view of {num_steps} steps",
                lambda: feed.advisor.view_of_stretch((last - num_steps + 1, last)),  # noqa: B023
            )
    feed.stop()
    return parts


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--rank-steps", type=int, default=1_000_000)
    parser.add_argument("--recording", type=Path)
    parser.add_argument("--seeks", type=int, default=40)
    parser.add_argument("--views", type=int, default=9)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    give_back_large_blocks()
    with tempfile.TemporaryDirectory() as folder:
        path = options.recording or Path(folder, "run.tuirec")
        if options.recording is None:
            write_recording(path, straggling(options.ranks, options.rank_steps))
        profiler = cProfile.Profile()
        with profiler if options.profile else nullcontext():
            parts = measure(path, options.seeks, options.views)
    print("| | median | 95 % | fastest |\n|---|---|---|---|")
    print("\n".join(parts.lines()))
    if options.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(PROFILE_LINES)


if __name__ == "__main__":
    main()
