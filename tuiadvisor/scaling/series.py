"""Splits a table into series that may be compared, and says which one a prediction may come from.

In: rows.  Out: Series: one label, one layout, and either one global batch (strong scaling) or one batch per
device (weak scaling). Everything is fitted as device-time per unit of work: constant when scaling is perfect.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from tuiadvisor.scaling.columns import Quantity
    from tuiadvisor.scaling.models import Family
    from tuiadvisor.scaling.table import Row, Table

Regime = Literal["strong", "weak", "unknown"]
BATCH_TOLERANCE: Final = 0.01  # batches are rounded to multiples of something
FLAT: Final = 0.95  # a step time that nowhere falls below this share of its first one is read as weak scaling


@dataclass(frozen=True, slots=True)
class Series:
    """Rows of the same work in the same layout, by ascending devices."""

    rows: tuple[Row, ...]
    quantity: Quantity
    regime: Regime
    label: str | None
    layout: str | None
    global_batch: float | None  # strong
    batch_per_device: float | None  # weak
    note: str | None = None
    is_regime_guessed: bool = False  # weak scaling read from flat step times alone

    @property
    def sizes(self) -> tuple[int, ...]:
        """Distinct device counts, ascending."""
        return tuple(sorted({row.devices for row in self.rows}))

    @property
    def can_fit(self) -> bool:
        """Two sizes are the least that show how something scales."""
        return self.rows[0].devices < self.rows[-1].devices

    @property
    def family(self) -> Family:
        """Whose laws it follows. A time to a result whose batch is not given may hold another batch at each size."""
        return "result" if self.quantity.kind == "total" and self.global_batch is None else self.regime

    def time(self, row: Row) -> float:
        """Time of a measured row: its value, or 1/throughput."""
        assert row.value is not None  # noqa: S101 - series hold measured rows only
        return 1.0 / row.value if self.quantity.kind == "throughput" else row.value

    def device_time(self, row: Row) -> float:
        """Device-time per unit of work."""
        return self.time(row) * self.factor(row.devices)

    def factor(self, devices: float) -> float:
        """Device-time per unit of work = time x this. In weak scaling the work of a step grows with the devices."""
        return 1.0 if self.quantity.kind == "step" and self.regime == "weak" else float(devices)

    def batch_at(self, devices: int) -> float | None:
        """The global batch that a prediction at this size assumes."""
        return self.batch_per_device * devices if self.batch_per_device is not None else self.global_batch

    def what(self) -> str:
        """The series in a few words."""
        if self.batch_per_device is not None:
            batch = f"batch per device {self.batch_per_device:g}"
        else:
            batch = "batch not given" if self.global_batch is None else f"global batch {self.global_batch:g}"
        return f"{batch}, layout {self.layout}" if self.layout else batch


@dataclass(frozen=True, slots=True)
class Target:
    """A size to predict; batch and layout None: that of the nearest rows."""

    devices: int
    global_batch: float | None = None
    layout: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """Everything about one label: what its rows are, and which series they form."""

    label: str | None
    series: tuple[Series, ...]
    targets: tuple[Target, ...] = ()

    @property
    def rows(self) -> list[tuple[Series, Row]]:
        """All measured rows, by devices."""
        return sorted(
            ((series, row) for series in self.series for row in series.rows),
            key=lambda pair: (pair[1].devices, pair[1].line),
        )


def subjects(table: Table) -> tuple[Subject, ...]:
    """One subject per label, in the order of the file. Labels that all differ name rows, not series."""
    counts = Counter(row.label for row in table.rows)
    by_label: dict[str | None, list[Row]] = {}
    for row in table.rows:
        by_label.setdefault(None if len(counts) == len(table.rows) else row.label, []).append(row)
    return tuple(
        Subject(
            label,
            tuple(_split([row for row in rows if row.value is not None], table.quantity)),
            tuple(Target(row.devices, row.global_batch, row.layout) for row in rows if row.value is None),
        )
        for label, rows in by_label.items()
    )


def governing(subject: Subject, target: Target) -> tuple[tuple[Series, ...], str]:
    """The series that may speak for a target, and if none, why not."""
    able = [series for series in subject.series if series.can_fit]
    if not able:
        return (), _why_none_fits(subject)
    fitting = [series for series in able if _matches(series, target)]
    if not fitting:
        wanted = [f"global batch {target.global_batch:g}"] if target.global_batch is not None else []
        wanted += [f"layout {target.layout}"] if target.layout is not None else []
        have = "; ".join(series.what() for series in able[:3])
        return (
            (),
            f"asked for {' and '.join(wanted)}, but the measured rows have {have}: measure it at that setting",
        )
    if target.global_batch is not None or target.layout is not None:
        return tuple(fitting), ""
    open_way = [series for series in fitting if _between(subject, series, target.devices) is None]
    if open_way:
        return tuple(open_way), ""
    nearest = max(fitting, key=lambda series: (len(series.sizes), series.sizes[-1]))
    other, row = _between(subject, nearest, target.devices) or (nearest, nearest.rows[-1])
    return (), (
        f"the fitted rows ({nearest.sizes[0]} to {nearest.sizes[-1]} devices) have {nearest.what()}, the row at "
        f"{row.devices} devices has {other.what()}: no law carries across that change; measure a second size there"
    )


def _why_none_fits(subject: Subject) -> str:
    rows = subject.rows
    sizes = {row.devices for _, row in rows}
    if len(sizes) < 2:
        return "one size can't show how a job scales: measure a second one"
    changes = ", ".join(f"{row.devices}: {series.what()}" for series, row in rows[:4])
    return f"no two sizes share batch and layout ({changes}): measure a second size at one setting"


def _matches(series: Series, target: Target) -> bool:
    if target.layout is not None and target.layout != series.layout:
        return False
    if target.global_batch is None:
        return True
    batch = series.batch_at(target.devices)
    return batch is not None and abs(batch / target.global_batch - 1) <= BATCH_TOLERANCE


def _between(subject: Subject, series: Series, devices: int) -> tuple[Series, Row] | None:
    """The first row of another setting that lies between a series and a size outside it."""
    low, high = series.sizes[0], series.sizes[-1]
    for other, row in subject.rows:
        if other is not series and (high < row.devices <= devices or devices <= row.devices < low):
            return other, row
    return None


def _split(rows: list[Row], quantity: Quantity) -> list[Series]:
    by_layout: dict[str | None, list[Row]] = {}
    for row in rows:
        by_layout.setdefault(row.layout, []).append(row)
    return [series for group in by_layout.values() for series in _by_batch(group, quantity)]


def _by_batch(rows: list[Row], quantity: Quantity) -> list[Series]:
    """Largest comparable set first: the same batch, or the same batch per device; what is left stands alone."""
    found = []
    left = list(rows)
    while left:
        # Time to a result contains what the batch did to convergence: there another batch is another job.
        sets = _same_batch(left) + (_same_per_device(left) if quantity.kind != "total" else [])
        best = max(sets, key=_reach)
        # Once the largest set is one row, so are all others.
        chosen = [best] if _reach(best)[0] > 1 else _same_batch(left)
        found += [
            _series(sorted(group, key=lambda row: (row.devices, row.line)), quantity) for group in chosen
        ]
        used = {row.line for group in chosen for row in group}
        left = [row for row in left if row.line not in used]
    return found


def _reach(rows: list[Row]) -> tuple[int, int]:
    return len({row.devices for row in rows}), max(row.devices for row in rows)


def _same_batch(rows: list[Row]) -> list[list[Row]]:
    groups: dict[float | None, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.global_batch, []).append(row)
    return list(groups.values())


def _same_per_device(rows: list[Row]) -> list[list[Row]]:
    shares = sorted(
        ((row.global_batch / row.devices, row) for row in rows if row.global_batch is not None),
        key=lambda pair: pair[0],
    )
    groups: list[tuple[float, list[Row]]] = []
    for share, row in shares:
        if groups and share <= groups[-1][0] * (1 + BATCH_TOLERANCE):
            groups[-1][1].append(row)
        else:
            groups.append((share, [row]))
    return [group for _, group in groups]


def _series(rows: list[Row], quantity: Quantity) -> Series:
    batches = {row.global_batch for row in rows}
    first = rows[0]
    regime: Regime = "strong"
    per_device = note = None
    guessed = False
    if len(batches) > 1:
        regime = "weak"
        per_device = (rows[-1].global_batch or 0.0) / rows[-1].devices
    elif first.global_batch is None and quantity.kind == "throughput":
        regime = "unknown"
        note = "global_batch is not given: fitted without knowing whether the batch grew with the devices"
    elif first.global_batch is None and quantity.kind == "step" and _nowhere_falls(rows):
        regime, guessed = "weak", True
        note = "step time nowhere falls and global_batch is not given: read as weak scaling (batch grows with devices)"
    elif first.global_batch is None and quantity.kind == "step":
        note = "global_batch is not given: taken as the same in all rows"
    return Series(
        rows=tuple(rows),
        quantity=quantity,
        regime=regime,
        label=first.label,
        layout=first.layout,
        global_batch=first.global_batch if len(batches) == 1 else None,
        batch_per_device=per_device,
        note=note,
        is_regime_guessed=guessed,
    )


def _nowhere_falls(rows: list[Row]) -> bool:
    first = rows[0].value or 0.0
    grown = rows[-1].devices >= 2 * rows[0].devices
    return grown and all((row.value or 0.0) >= FLAT * first for row in rows)
