"""Which rows may be compared, and which sizes may be predicted from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scaling_tables import report_of, write

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.analysis import analyse, pick
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.series import Target, subjects
from tuiadvisor.scaling.table import read_table

if TYPE_CHECKING:
    from pathlib import Path

# MegaScale, NSDI'24, table 2: two batches in one table.
BOTH_BATCHES = (
    "devices,step_s,global_batch\n256,32.0,768\n512,16.5,768\n768,11.5,768\n1024,8.9,768\n"
    "3072,23.66,6144\n6144,12.21,6144\n8192,9.56,6144\n"
)


def test_changed_batch_is_not_fitted_together(tmp_path: Path) -> None:
    """12288 devices are predicted from the rows of the same batch only; the others are named as not used."""
    report = report_of(tmp_path, BOTH_BATCHES, 12288)
    assert [6144.0] == [one.series.global_batch for one in report.predictions]
    assert report.predictions[0].time.low <= 6.34 <= report.predictions[0].time.high
    assert [256, 512, 768, 1024] == [one.devices for one in report.refused]


def test_lone_row_at_another_batch_refuses_what_lies_beyond(tmp_path: Path) -> None:
    """One row at a new batch: nothing may be carried to it or past it, and the reason names both."""
    report = report_of(
        tmp_path, "devices,step_s,global_batch\n256,32,768\n512,16.5,768\n3072,23.66,6144\n", 1024, 12288
    )
    assert [1024] == [one.target.devices for one in report.predictions]
    why = next(one.why for one in report.refused if one.devices == 12288)
    assert "768" in why
    assert "6144" in why


def test_asking_for_another_batch_is_refused(tmp_path: Path) -> None:
    """The batch of the target counts, not only that of the rows."""
    table = read_table(write(tmp_path, "devices,step_s,global_batch\n256,32,768\n512,16.5,768\n"))
    report = analyse(table, [Target(1024, global_batch=1536), Target(1024, global_batch=768)], Aim())[0]
    assert [768.0] == [one.target.global_batch for one in report.predictions]
    assert ["asked for global batch 1536"] == [one.why[:27] for one in report.refused]


def test_row_without_a_time_asks_for_a_prediction(tmp_path: Path) -> None:
    """With its own batch and layout: here both differ from what was measured."""
    report = report_of(
        tmp_path,
        "devices,step_s,global_batch,layout\n8,4,64,tp8\n16,2.1,64,tp8\n32,,64,tp8\n32,,128,tp8\n32,,64,tp4\n",
    )
    assert [(32, 64.0, "tp8")] == [
        (one.target.devices, one.target.global_batch, one.target.layout) for one in report.predictions
    ]
    assert 2 == len(report.refused)


def test_changed_layout_is_refused(tmp_path: Path) -> None:
    """A layout that changes on the way to the target: no law carries across it."""
    report = report_of(tmp_path, "devices,total_h,layout\n8,40,tp8\n16,21,tp8\n32,13,tp8 pp2\n", 64)
    assert () == report.predictions
    assert "layout tp8 pp2" in report.refused[0].why
    assert "keep" == report.decision.decision


def test_data_parallel_degree_is_the_same_layout(tmp_path: Path) -> None:
    """Dp grows with the devices; that is scaling, not a change."""
    report = report_of(tmp_path, "devices,step_s,layout\n8,4,tp8 dp1\n16,2.1,tp8 dp2\n32,1.1,tp8 dp4\n", 64)
    assert [64] == [one.target.devices for one in report.predictions]


def test_weak_scaling_is_recognised_by_batch_per_device(tmp_path: Path) -> None:
    """Step times are compared as they are, predictions assume the batch that goes with the size."""
    report = report_of(tmp_path, "devices,step_s,global_batch\n8,1.0,64\n16,1.03,128\n32,1.08,256\n", 64)
    prediction = report.predictions[0]
    assert "weak" == report.main.series.regime
    assert [1.0, pytest.approx(1 / 1.03), pytest.approx(1 / 1.08)] == [row.efficiency for row in report.rows]
    assert 1.08 < prediction.time.expected < 1.25
    assert 512.0 == prediction.series.batch_at(64)


def test_time_to_a_result_is_never_weak_scaling(tmp_path: Path) -> None:
    """Another batch changes convergence: MLPerf times at batches that grow with the devices stay apart."""
    report = report_of(tmp_path, "devices,total_min,global_batch\n64,50,64\n128,26,128\n256,14,256\n", 512)
    assert () == report.predictions


def test_flat_step_times_without_batch_decide_nothing(tmp_path: Path) -> None:
    """Weak scaling, or adding devices in vain? The table can't say, so the answer asks for global_batch."""
    report = report_of(tmp_path, "devices,step_s\n8,1.0\n16,1.02\n32,1.05\n")
    assert "keep" == report.decision.decision
    assert "global_batch" in report.decision.because


def test_throughput_without_batch_uses_the_laws_of_both(tmp_path: Path) -> None:
    """Efficiency of a rate needs no batch; the laws do, so both families are averaged."""
    report = report_of(tmp_path, "devices,throughput\n8,800\n16,1560\n32,2950\n", 64)
    assert "unknown" == report.main.series.regime
    assert pytest.approx(2950 * 8 / (800 * 32)) == report.rows[2].efficiency
    assert 2950 < 1 / report.predictions[0].time.expected < 5900


def test_one_row_predicts_nothing(tmp_path: Path) -> None:
    """One size can't show how a job scales: refused, kept, no fit, no made-up efficiency."""
    report = report_of(tmp_path, "devices,step_s\n8,1.0\n", 16)
    assert (None, (), "keep", 8) == (
        report.main.choice,
        report.predictions,
        report.decision.decision,
        report.decision.devices,
    )
    assert "second" in report.refused[0].why
    assert [None] == [row.efficiency for row in report.rows]


def test_same_size_twice_is_one_size(tmp_path: Path) -> None:
    """Two runs of one size don't make a scaling table."""
    assert () == report_of(tmp_path, "devices,step_s\n8,1.0\n8,1.01\n", 16).predictions


def test_unsorted_rows_are_sorted(tmp_path: Path) -> None:
    """The order of the file means nothing."""
    report = report_of(tmp_path, "devices,step_s\n32,2.2\n8,8\n16,4.1\n", 64)
    assert [8, 16, 32] == [row.row.devices for row in report.rows]
    sorted_report = report_of(tmp_path, "devices,step_s\n8,8\n16,4.1\n32,2.2\n", 64)
    assert sorted_report.predictions[0].time == report.predictions[0].time


def test_two_layouts_side_by_side_are_both_predicted(tmp_path: Path) -> None:
    """Series measured over the same sizes don't refuse each other."""
    rows = "384,84,ptd-p\n768,43,ptd-p\n384,90,zero3\n768,74,zero3\n"
    report = report_of(tmp_path, f"devices,total_days,layout\n{rows}", 1536)
    assert ["ptd-p", "zero3"] == [one.series.layout for one in report.predictions]
    assert "ptd-p" == report.main.series.layout


def test_labels_make_series_unless_they_only_name_rows(tmp_path: Path) -> None:
    """A label that repeats groups its rows; labels that all differ are names."""
    grouped = read_table(write(tmp_path, "devices,step_s,label\n8,4,a\n16,2,a\n8,5,b\n16,3,b\n"))
    assert ["a", "b"] == [subject.label for subject in subjects(grouped)]
    reports = analyse(grouped, [], Aim())
    assert ["b"] == [report.label for report in pick(reports, "b")]
    with pytest.raises(TuiadvisorError, match="no rows labelled 'c'; the table has 'a', 'b'"):
        pick(reports, "c")
    named = read_table(write(tmp_path, "devices,step_s,label\n8,4,monday\n16,2,tuesday\n"))
    assert [None] == [subject.label for subject in subjects(named)]
