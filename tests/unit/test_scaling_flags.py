"""Anomalous rows are named, kept from spoiling the fit where that is safe, and never invented."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scaling_tables import report_of, write
from thinned import crossed

from tuiadvisor.scaling.analysis import _fit
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.series import subjects
from tuiadvisor.scaling.table import read_table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("slow", "index"), crossed([1.25, 1.6, 3.0], [1, 2, 3]))
def test_slow_row_between_others_is_left_out(index: int, slow: float, tmp_path: Path) -> None:
    """A row 25 % or more off is named, and the prediction is as if it were not there."""
    sizes = [8, 16, 32, 64, 128]
    times = [100 * (0.004 + 0.996 / size) for size in sizes]
    times[index] *= slow
    table = "devices,step_s\n" + "".join(f"{n},{t:.4f}\n" for n, t in zip(sizes, times, strict=True))
    report = report_of(tmp_path, table, 256)
    assert [(sizes[index], True)] == [(flag.row.devices, flag.is_excluded) for flag in report.flags]
    time, truth = report.predictions[0].time, 100 * (0.004 + 0.996 / 256)
    assert time.low <= truth <= time.high
    assert truth == pytest.approx(time.expected, rel=0.08)


@pytest.mark.parametrize("last", [13.0, 3.0])
def test_nothing_rests_on_a_last_row_that_the_others_contradict(last: float, tmp_path: Path) -> None:
    """A knee or a bad measurement: no size beyond is predicted, nothing is decided, and the row is named."""
    report = report_of(tmp_path, f"devices,step_s\n8,100\n16,51\n32,26\n64,14\n128,{last}\n", 48, 256)
    assert (128, True) in [(flag.row.devices, flag.is_excluded) for flag in report.flags]
    assert [48] == [one.target.devices for one in report.predictions]
    assert report.predictions[0].time.low < 100 * 8 / 48 * 1.05 < report.predictions[0].time.high
    assert ["the row at 128 devices"] == [one.why[:22] for one in report.refused if one.devices == 256]
    assert ("keep", 128) == (report.decision.decision, report.decision.devices)
    assert "128 devices" in report.decision.because
    assert "contradict" in report.decision.because
    assert report.frontier is None
    assert report.classic.doubled_devices is None
    assert report.classic.halved_serial is not None


def test_who_runs_below_a_contradicted_row_is_answered(tmp_path: Path) -> None:
    """The rows up to the present size agree: the last one does not silence them."""
    table = "devices,step_s\n8,100\n16,51\n32,26\n64,14\n128,13\n"
    decision = report_of(tmp_path, table, aim=Aim(current=32)).decision
    assert "contradict" not in decision.because
    assert decision.devices in {32, 64}


def test_a_contradicted_row_that_would_be_the_choice_leaves_it_open(tmp_path: Path) -> None:
    """Measured, 64 devices are faster than 128, and the law says so, too: left out, they still are.

    A row in between that is too slow is no choice anyway, and decides nothing.
    """
    knee = report_of(tmp_path, "devices,step_s\n8,1\n16,0.52\n32,0.29\n64,0.19\n128,0.26\n", 256)
    assert [(64, True)] == [(flag.row.devices, flag.is_excluded) for flag in knee.flags]
    assert "keep" == knee.decision.decision
    assert "64 devices" in knee.decision.because
    slow = report_of(tmp_path, "devices,step_s\n8,100\n16,51\n32,40\n64,14\n128,7.8\n")
    assert [32] == [flag.row.devices for flag in slow.flags]
    assert "contradict" not in slow.decision.because


def test_slow_smallest_size_is_no_baseline(tmp_path: Path) -> None:
    """It would make every other size look better than perfect; efficiency counts from the next one."""
    report = report_of(tmp_path, "devices,step_s\n8,140\n16,51\n32,26\n64,14\n128,7.6\n", 256)
    assert [(8, True)] == [(flag.row.devices, flag.is_excluded) for flag in report.flags]
    assert [1.0, pytest.approx(51 / 52)] == [row.efficiency for row in report.rows[1:3]]
    assert 1 > report.predictions[0].efficiency.expected


def test_middle_of_three(tmp_path: Path) -> None:
    """Of three rows the outer two contradict the middle one."""
    report = report_of(tmp_path, "devices,step_s\n8,10\n16,7\n32,2.6\n", 64)
    assert [16] == [flag.row.devices for flag in report.flags]


def test_faster_than_linear_is_named(tmp_path: Path) -> None:
    """Two rows, twice the devices and a third of the time: something else changed."""
    report = report_of(tmp_path, "devices,step_s\n8,9\n16,3\n", 32)
    assert ["faster than linear" in flag.why for flag in report.flags] == [True]


def test_repeats_that_disagree_are_named(tmp_path: Path) -> None:
    """Two runs of one size 30 % apart."""
    report = report_of(tmp_path, "devices,step_s\n8,10\n16,5\n16,6.5\n32,2.6\n", 64)
    assert [(16, 6.5)] == [
        (flag.row.devices, flag.row.value) for flag in report.flags if "2 times" in flag.why
    ]


@pytest.mark.slow
def test_ordinary_scatter_is_rarely_flagged(tmp_path: Path) -> None:
    """Five rows with 2 % noise: at most 5 of 100 tables get a flag."""
    random = np.random.default_rng(3)
    flagged = 0
    for _ in range(100):
        sizes = [8, 16, 32, 64, 128]
        noise = np.exp(0.02 * random.standard_normal(5))
        table = "devices,step_s,global_batch\n" + "".join(
            f"{n},{(0.5 + 100 / n) * e:.5f},64\n" for n, e in zip(sizes, noise, strict=True)
        )
        (subject,) = subjects(read_table(write(tmp_path, table)))
        flagged += any(
            _fit(series).flags for series in subject.series
        )  # a prediction takes six times as long
    assert 5 >= flagged
