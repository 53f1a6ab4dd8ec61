"""Published scaling tables, their last size held out: our prediction and interval beside a + b/N.

    scaling_laws.py [--ahead 2] [--each] [--left-out]

`published_scaling.csv` holds one row a measured size with its source. MLPerf's times to train are read without their
batches: as given the tool refuses to carry them across another batch. --ahead 2 holds out the last two sizes and
predicts the farther one. --left-out chooses what no law explains (predict.DEPARTURE) from all sources but one, and
counts on that one.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tuiadvisor.scaling import predict
from tuiadvisor.scaling.analysis import analyse
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.series import Target
from tuiadvisor.scaling.table import read_table

DATA: Final = Path(__file__).with_name("published_scaling.csv")
GRID: Final = (0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12)
PROMISED: Final = 0.9
HEAD: Final = (
    "| source | series | refused | median error | a + b/N | mean error | a + b/N | inside 90 % | high/low |"
)


@dataclass(frozen=True, slots=True)
class Published:
    """One series of a published table, by ascending devices."""

    group: str
    name: str
    column: str
    rows: tuple[tuple[int, float, str], ...]  # devices, value, global batch as written

    def time(self, value: float) -> float:
        """Time of one unit of work in the table's unit."""
        return 1.0 / value if self.column == "throughput" else value


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one held-out size. error: relative to the truth; None where the tool refused."""

    series: Published
    family: str
    reach: float
    error: float | None
    is_inside: bool
    width: float
    plain: float


def published() -> list[Published]:
    """All series; MLPerf's rounds are sources of their own."""
    found: dict[tuple[str, str, str], list[tuple[int, float, str]]] = defaultdict(list)
    with DATA.open() as file:
        for row in csv.DictReader(file):
            group = f"MLPerf {row['series'].split()[0]}" if row["group"] == "MLPerf" else row["group"]
            found[group, row["series"], row["column"]].append(
                (int(row["devices"]), float(row["value"]), row["global_batch"])
            )
    return [Published(*key, tuple(sorted(rows))) for key, rows in found.items()]


def outcome(series: Published, ahead: int) -> Outcome | None:
    """The farthest size from all rows but the last `ahead`; None where fewer than two sizes are left."""
    rows = series.rows[:-ahead]
    if len({row[0] for row in rows}) < 2:
        return None
    devices, value, _ = series.rows[-1]
    truth = series.time(value)
    has_batch = not series.group.startswith("MLPerf") and all(row[2] for row in series.rows)
    head = f"devices,{series.column}{',global_batch' if has_batch else ''}\n"
    lines = "".join(f"{n},{v!r}{f',{batch}' if has_batch else ''}\n" for n, v, batch in rows)
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(head + lines)
        file.flush()
        report = analyse(read_table(file.name), [Target(devices)], Aim())[0]
    plain = plain_time(series, rows, devices) / truth - 1
    reach = devices / rows[-1][0]
    family = report.main.series.family
    if not report.predictions:
        return Outcome(series, family, reach, None, is_inside=False, width=0.0, plain=plain)
    time = report.predictions[0].time
    inside = time.low <= truth <= time.high
    return Outcome(series, family, reach, time.expected / truth - 1, inside, time.high / time.low, plain)


def plain_time(series: Published, rows: tuple[tuple[int, float, str], ...], devices: int) -> float:
    """T = a + b/N by least squares of the relative error, T the time of the same work."""
    sizes = np.array([float(row[0]) for row in rows])
    times = np.array([series.time(row[1]) for row in rows])
    design = np.stack([np.ones_like(sizes), 1 / sizes], axis=1) / times[:, None]
    a, b = np.linalg.lstsq(design, np.ones_like(times), rcond=None)[0]
    return float(a + b / devices)


def line(name: str, outcomes: list[Outcome]) -> str:
    """A row of the table in RESULTS.md."""
    told = [one for one in outcomes if one.error is not None]
    if not told:
        return f"| {name} | {len(outcomes)} | {len(outcomes)} | | | | | | |"
    ours = np.array([abs(one.error or 0.0) for one in told])
    plain = np.array([abs(one.plain) for one in told])
    inside = sum(one.is_inside for one in told)
    return (
        f"| {name} | {len(outcomes)} | {len(outcomes) - len(told)} | {np.median(ours):.1%} | {np.median(plain):.1%} "
        f"| {ours.mean():.1%} | {plain.mean():.1%} | {inside} of {len(told)} ({inside / len(told):.0%}) "
        f"| {np.median([one.width for one in told]):.2f} |"
    )


def left_out(series: list[Published], ahead: int) -> None:
    """Every source once left out of the choice of DEPARTURE."""
    chosen = dict(predict.DEPARTURE)
    told: dict[float, list[Outcome]] = {}
    for value in GRID:
        predict.DEPARTURE.update(dict.fromkeys(chosen, value))
        told[value] = [one for each in series if (one := outcome(each, ahead)) and one.error is not None]
    predict.DEPARTURE.update(chosen)
    inside: dict[str, list[bool]] = defaultdict(list)
    picks: dict[str, set[float]] = defaultdict(set)
    for group in dict.fromkeys(one.group for one in series):
        for family in chosen:
            value = next((v for v in GRID if _share(told[v], family, group) >= PROMISED), GRID[-1])
            mine = [one for one in told[value] if one.series.group == group and one.family == family]
            inside[family] += [one.is_inside for one in mine]
            if mine:
                picks[family].add(value)
    for name, held in inside.items():
        if held:
            print(f"{name}: chosen {sorted(picks[name])}; inside {sum(held)} of {len(held)}")
    both = [one for held in inside.values() for one in held]
    print(f"all, each source with what the others chose: inside {sum(both)} of {len(both)}")


def _share(outcomes: list[Outcome], family: str, but: str) -> float:
    held = [one.is_inside for one in outcomes if one.family == family and one.series.group != but]
    return sum(held) / len(held) if held else 1.0


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ahead", type=int, default=1, choices=(1, 2))
    parser.add_argument("--each", action="store_true", help="a line a series")
    parser.add_argument("--left-out", action="store_true", help="calibrate without each source in turn")
    options = parser.parse_args()
    series = published()
    if options.left_out:
        left_out(series, options.ahead)
        return
    found = [one for each in series if (one := outcome(each, options.ahead))]
    if options.each:
        for one in found:
            error = "refused" if one.error is None else f"{one.error:+.1%} {'in' if one.is_inside else 'OUT'}"
            name = f"{one.series.group}: {one.series.name}"
            print(f"{error:>14} a+b/N {one.plain:+.1%} {one.family} x{one.reach:.3g} {name}")
    print(HEAD)
    print("|---|---|---|---|---|---|---|---|---|")
    for group in dict.fromkeys(one.series.group for one in found):
        print(line(group, [one for one in found if one.series.group == group]))
    for family in dict.fromkeys(one.family for one in found):
        print(line(f"all {family}", [one for one in found if one.family == family]))
    print(line("all", found))


if __name__ == "__main__":
    main()
