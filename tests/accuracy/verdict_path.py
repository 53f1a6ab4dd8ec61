"""How long a verdict stays: what the screen would have said at each second of a recorded run, and how often it changed.

    python tests/accuracy/verdict_path.py RECORDING [RECORDING ...] [--every 1.0] [--quiet]

A recording is folded as it came, and its view asked for each second, as a live screen does. A line a verdict that
stayed, with from when to when; then how many changes a minute there were after the first decision, and how many came
back to a verdict that had been left. What a run is like may change, so that a change is no error: many are, where
nothing was done to the run.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.stream.replay import ReplaySource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.views.run_view import RunView

What = tuple[str | None, str | None, tuple[int, ...]]


@dataclass
class Stay:
    """A verdict, and the seconds of the recording at which it was said first and last."""

    what: What
    first_s: float
    last_s: float
    sentence: str


def verdict_of(view: RunView) -> What:
    """Decision, finding and its ranks: what makes another verdict."""
    found = next((one for one in view.findings if one.id == view.verdict.finding), None)
    return view.verdict.decision, view.verdict.finding, found.ranks if found else ()


def views(path: str, every_s: float) -> Iterator[tuple[float, RunView]]:
    """(second of the recording, the view of what had come by then)."""
    now_s = 0.0
    source = ReplaySource(path, now=lambda: now_s)
    advisor = Advisor()
    try:
        while now_s < source.duration_s:
            now_s += every_s
            while frames := source.read(0.0):
                advisor.feed_many(frames)
            yield now_s, advisor.view()
    finally:
        source.close()


def stays(path: str, every_s: float) -> list[Stay]:
    """The verdicts in their order."""
    found: list[Stay] = []
    for at_s, view in views(path, every_s):
        what = verdict_of(view)
        if not found or found[-1].what != what:
            found.append(Stay(what, at_s, at_s, view.verdict.sentence))
        found[-1].last_s = at_s
    return found


def main() -> int:
    """Print the stays of each recording, and a line that sums them up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("recordings", nargs="+")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between looks")
    parser.add_argument("--quiet", action="store_true", help="the sums alone")
    options = parser.parse_args()
    for path in options.recordings:
        found = stays(path, options.every)
        if not options.quiet:
            for stay in found:
                print(f"  {stay.first_s:6.0f} to {stay.last_s:6.0f} s  {stay.what}  {stay.sentence}")
        decided = [stay for stay in found if stay.what[0] is not None]
        if not decided:
            print(f"{path}: nothing was decided")
            continue
        minutes = (decided[-1].last_s - decided[0].first_s) / 60
        num_changes = sum(1 for _ in pairwise(decided))
        num_returns = sum(
            stay.what in [one.what for one in decided[:place]] for place, stay in enumerate(decided)
        )
        rate = f"{num_changes / minutes:.1f} a minute" if minutes else "one look"
        print(
            f"{path}: {num_changes} changes in {60 * minutes:.0f} s ({rate}), {num_returns} of them back",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
