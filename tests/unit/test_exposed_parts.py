"""Exposed communication and its parts are of the same steps and the same clock: the parts sum to the whole."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from snapshot import views
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.app.whole_recording import whole_view
from tuiadvisor.text import format as text_of
from tuiadvisor.tui.pages.overlap import OverlapPage
from tuiadvisor.tui.pages.sections import communication

RECORDING: Final = Path(__file__).parents[1] / "recordings" / "format2-schema1.tuirec"
LATE: Final = Fault("backward", (1,), 8 * MS)


@pytest.mark.parametrize(
    "faults",
    [(LATE,), (LATE, Fault("release", (2,), 4 * MS)), (Fault("release", (0, 1, 2), 4 * MS),)],
    ids=["a late rank", "one is through late", "one is through early"],
)
def test_waiting_and_moving_data_sum_to_what_is_exposed(faults: tuple[Fault, ...]) -> None:
    """Each rank is through at another moment, and the barrier ends once for all: that may not show as a gap."""
    overlap = final_view(Job(faults=faults)).overlap
    assert overlap.comm_exposed_s is not None
    assert overlap.skew_s is not None
    assert overlap.transfer_s is not None
    assert overlap.comm_exposed_s == pytest.approx(overlap.skew_s + overlap.transfer_s, rel=1e-9)
    assert min(overlap.skew_s, overlap.transfer_s) >= 0


def test_the_figures_of_the_sentence_sum_up() -> None:
    """As on the first screen: 25.6 ms a step, 19.8 of it waiting and 5.78 moving data."""
    view = whole_view(RECORDING)
    (row, *_) = communication(view, 200, 3)
    words = row.text.replace(":", "").replace(",", "").split()
    whole, waiting, moving = [float(word) for word in words if word.replace(".", "", 1).isdigit()][:3]
    assert whole == pytest.approx(waiting + moving, abs=0.1)


def test_a_row_of_two_kinds_of_steps_says_so() -> None:
    """What is hidden was timed in some steps, what is exposed in all: the star of the screen is on the former."""
    view = views.straggler()
    assert view.overlap.sampled_share is not None
    assert view.overlap.sampled_share < 1
    rows = OverlapPage().lines(views.live(view), 160, 45)
    (row,) = [each.text for each in rows if "gradient comm" in each.text]
    assert f"{text_of.seconds(view.overlap.comm_total_s)}*" in row
    assert f"{text_of.seconds(view.overlap.hidden_s)}*" in row


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
def test_the_exposed_communication_of_all_ranks_is_one_figure(size: tuple[int, int]) -> None:
    """Screen 4 had three: of all steps, of those seen in detail, and of those what outlasts backward."""
    view = views.in_buckets()
    overlap = replace(view.overlap, exposed_sampled_s=0.0123)
    view = replace(view, overlap=overlap)
    rows = [row.text for row in OverlapPage().lines(views.live(view), *size)]
    start = next(number for number, row in enumerate(rows) if "── communication of a step" in row)
    of_all = [rows[2], *rows[start:]]
    told = {each for row in of_all for each in re.findall(r"exp(?:osed|\.)\*? +([\d.]+ \S+)", row)}
    assert told == {text_of.seconds(overlap.comm_exposed_s)}
    assert not any("ms exposed" in row for row in rows)


def test_one_rank_has_no_star() -> None:
    """What it stands for, "seen in no step", stood above a sentence without a figure."""
    rows = [row.text for row in OverlapPage().lines(views.live(views.one_rank()), 80, 24)]
    assert not any("*" in row for row in rows)
