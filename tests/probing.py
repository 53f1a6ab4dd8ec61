"""The probe in the test's own process: attach by the very code an injection runs, read its ring, detach."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tuiadvisor.agent.payload import attach_code, detach_code, wants_native, write_native
from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS, EventKind, StepFlag
from tuiadvisor.phases import PHASES
from tuiadvisor_probes import ring

TOLERANCE_NS = 100_000
TOLERANCE_SHARE = 0.02


class Observed:
    """What the ring tells, by column name."""

    def __init__(self, reader: ring.RingReader) -> None:
        self.reader = reader
        self._steps: list[dict[str, int]] = []
        self._events: list[dict[str, int]] = []

    @property
    def steps(self) -> list[dict[str, int]]:
        """All steps so far."""
        self._steps += [dict(zip(STEP_COLUMNS, row, strict=True)) for row in self.reader.take_steps()]
        return self._steps

    def events(self, *kinds: EventKind) -> list[dict[str, int]]:
        """All events so far, of these kinds if some are named."""
        names = ("kind", *EVENT_COLUMNS)
        self._events += [dict(zip(names, row, strict=True)) for row in self.reader.take_events()]
        return [event for event in self._events if not kinds or event["kind"] in kinds]

    @property
    def info(self) -> dict[str, Any]:
        """The info area."""
        info: dict[str, Any] = json.loads(self.reader.info())
        return info

    @property
    def errors(self) -> int:
        """Exceptions the guard caught."""
        return self.reader.get_u64(ring.OFFSET_ERRORS)


@contextlib.contextmanager
def probed(folder: Path, *, detail_s: float = 0.0, budget_ppm: int | None = None) -> Iterator[Observed]:
    """Attach for the length of the block; the ring stays readable after it. detail_s: of a burst from the start."""
    place = folder / f"probe-{os.getpid()}-{time.monotonic_ns()}"  # ranks of one test share the folder
    place.mkdir()
    path = place / "ring"
    ring.create_ring_file(str(path))
    reader = ring.RingReader(str(path))
    if detail_s:
        reader.put_u64(ring.OFFSET_BURST, time.monotonic_ns() + int(detail_s * 1e9))
    if budget_ppm is not None:
        reader.put_u64(ring.OFFSET_BUDGET, 1 + budget_ppm)
    write_native(place)
    exec(attach_code(str(path)), {})  # noqa: S102 - the very code an injection runs
    observed = Observed(reader)
    try:
        yield observed
    finally:
        exec(detach_code(), {})  # noqa: S102
    assert observed.errors == 0, observed.info
    assert ("native" if wants_native() else "python") == observed.info["core"], observed.info


def observed_phases(step: dict[str, int]) -> set[str]:
    """Names of the phases with a working hook."""
    return {name for index, name in enumerate(PHASES) if step["observed"] >> index & 1}


def is_close(expected_ns: float, measured_ns: float) -> bool:
    """Within 2 % or 100 us."""
    return abs(expected_ns - measured_ns) <= max(TOLERANCE_NS, TOLERANCE_SHARE * expected_ns)


COUNTED = (
    "step",
    "micro_steps",
    "samples",
    "tokens",
    "observed",
    "group_seq",
    "num_collectives",
    "comm_bytes",
)


def assert_sums_to_step(step: dict[str, int]) -> None:
    """The parts are the whole, to the nanosecond, and none is less than nothing."""
    assert all(step[f"{name}_ns"] >= 0 for name in PHASES)
    assert step["end_ns"] - step["begin_ns"] == sum(step[f"{name}_ns"] for name in PHASES)


def assert_same_step(reference: dict[str, int], row: dict[str, int], *, but: Collection[str] = ()) -> None:
    """Two probes tell the same of a step, its times aside: counts, flags, what was seen, which phases there were.

    but: columns that differ between the two runs. A collection of garbage is long by chance.
    """
    names = [name for name in COUNTED if name not in but]
    assert {name: reference[name] for name in names} == {name: row[name] for name in names}
    assert reference["flags"] & ~StepFlag.GC == row["flags"] & ~StepFlag.GC
    assert (reference["arrive_ns"] < 0) == (row["arrive_ns"] < 0)
    assert there(reference) == there(row)


def there(row: dict[str, int]) -> set[str]:
    """Names of the phases that the step had time in; borders of the same moment have none, and `other` is the rest."""
    return {name for name in PHASES if row[f"{name}_ns"] > 0 and name != "other"}
