"""What is said of each situation on devices: right, unknown or wrong; by looks at the loss and number of ranks.

    python tests/accuracy/device_table.py [--ranks 2 4 8 64] [--only PATTERN] [--verbose]

The situations of `device_worlds.py`: those that were told wrong before the device's clock was asked, and further ones
that were thought of afterwards. "wrong" is an innocent rank named, a wrong reason, a loss kept silent, or a healthy
job called ill; "size" is the right rank and reason at a cost that is more than a tenth (and 1 ms) off.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections import Counter
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from device_rigs import RIGS, TWINS
from device_troubles import TROUBLES
from device_weather import FAIR, WEATHER
from device_worlds import FURTHER, TABLE, Said, World, said_of

SYNCS = (1, 10, 0)


def cells(name: str, world: World, num_ranks: int, period: int, *, verbose: bool) -> list[Said]:
    """One situation at one size, for each distance of looks at the loss."""
    found = []
    for sync in SYNCS:
        said = said_of(world, num_ranks, sync, period)
        found.append(said)
        if verbose or said.is_wrong:
            print(f"{said.word:8} {name}, {num_ranks} ranks, sync {sync}: {said.words}", flush=True)
    return found


def main() -> int:
    """Print the table; 1 where something is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 64])
    parser.add_argument("--only", default="*")
    parser.add_argument("--period", type=int, default=1, help="one step in so many is measured")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    begin_s = process_time()
    counts: Counter[str] = Counter()
    lines = [
        "| looks at the loss: each step, each tenth, never | "
        + " | ".join(f"{ranks} ranks" for ranks in options.ranks)
        + " |",
        "|---" * (len(options.ranks) + 1) + "|",
    ]
    for title, names in (
        ("of the table", TABLE),
        ("further", FURTHER),
        ("on clusters", TROUBLES),
        ("in practice", {**RIGS, **TWINS}),
        ("that comes and goes", {**WEATHER, **FAIR}),
    ):
        lines.append(f"| **{title}** |" + " |" * len(options.ranks))
        for name, world in names.items():
            if not fnmatch.fnmatch(name, options.only):
                continue
            row = []
            for num_ranks in options.ranks:
                found = cells(name, world, num_ranks, options.period, verbose=options.verbose)
                words = [said.word for said in found]
                counts.update(words)
                row.append(words[0] if len(set(words)) == 1 else ", ".join(words))
            lines.append(f"| {name} | " + " | ".join(row) + " |")
    print("\n".join(lines))
    print(", ".join(f"{word} {num}" for word, num in counts.most_common()))
    print(f"{process_time() - begin_s:.0f} s of CPU")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
