"""The slider "what if": what the judged gains say, where it is only a bound, and nothing where nothing is known."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from snapshot import desks, views
from synthetic_run import MS, Fault, Job, final_view
from test_tui_navigator import Keyboard

from tuiadvisor.advisor.assemble.prospects import prospects
from tuiadvisor.text.line import length
from tuiadvisor.tui.contract.desk import Scale
from tuiadvisor.tui.pages.what_if import LABEL, all_lines, what_if_lines

LATE = final_view(Job(num_steps=300, faults=(Fault("backward", (2,), 9 * MS),)))


def test_a_late_rank_fixed_is_the_step_without_its_loss() -> None:
    """The same figures as the finding's and the verdict's."""
    (one,) = [each for each in LATE.prospects if each.words == "rank 2 fixed"]
    found = next(each for each in LATE.findings if each.id == "straggler")
    assert found.loss_s_per_step is not None
    assert one.now_s == pytest.approx(LATE.step.mean_s)
    assert one.step_s == pytest.approx(one.now_s - found.loss_s_per_step)
    assert one.low_s <= one.step_s <= one.high_s < one.now_s
    assert not one.at_best
    assert LATE.verdict.speedup is not None
    assert one.now_s / one.step_s == pytest.approx(LATE.verdict.speedup.expected)


def test_more_buckets_are_a_bound() -> None:
    """The model of one link: compute may leave the exchange no core."""
    (one,) = prospects([], views.exchange(), 0.0286)
    assert one.words == "6 buckets, not 2 (cap 5 MiB)"
    assert one.at_best
    assert one.step_s == pytest.approx(0.0286 - 0.0031)
    assert prospects([], views.exchange(), None) == ()


def test_the_key_goes_round_and_asks_for_sizes_last() -> None:
    """As it is, each prospect, half the devices, and as it is again."""
    board = Keyboard(views.live(replace(views.straggler(), prospects=LATE.prospects)), desk=desks.desk())
    assert "rank 2 fixed" in board.press("i")
    board.press(*["i"] * len(LATE.prospects))
    assert board.shell.asked[-1] == Scale()
    assert "half the devices" in "\n".join(row.text for row in board.place.rows(100, 30))
    assert "the step as it is" in board.press("i")
    assert "what if" not in "\n".join(row.text for row in board.place.rows(100, 30)[:-1])


@pytest.mark.parametrize("width", [78, 158])
def test_a_long_name_is_told_whole(width: int) -> None:
    """It takes more rows, never an end that nobody can read."""
    (late, *_) = LATE.prospects
    words = "without the time of the ranks that wait for rank 3, which reads its data from a slower disk than its peers"
    view = replace(views.straggler(), prospects=(late, replace(late, words=words)))
    for rows in (all_lines(view, width), what_if_lines(view, desks.desk(), 2, width)):
        column = re.split(r"  +", " ".join(row.text[: max(width // 3, LABEL)] for row in rows))
        assert words in re.sub(r"[█ ]+", " ", " ".join(column)), rows
        assert max(length(row) for row in rows) <= width


def test_without_a_choice_all_are_side_by_side_below_the_chain() -> None:
    """A bound is marked as one; the slider takes their place; nothing is said where nothing is predicted."""
    bound = prospects([], views.exchange(), 0.0286)
    view = replace(views.straggler(), prospects=(*LATE.prospects, *bound))
    board = Keyboard(views.live(view), desk=desks.desk())
    board.press("3")
    rows = [row.text for row in board.place.rows(100, 60)]
    (head,) = [index for index, row in enumerate(rows) if "if one thing were changed" in row]
    assert ["as it is", "rank 2 fixed", "6 buckets"] == [
        next(name for name in ("as it is", "rank 2 fixed", "6 buckets") if name in row)
        for row in rows[head + 1 : head + 4]
    ]
    assert "≥ 25.5 ms" in rows[head + 3]
    assert rows[head + 2].count("█") < rows[head + 1].count("█")
    board.press("i")
    assert "if one thing were changed" not in "".join(row.text for row in board.place.rows(100, 60))
    nothing = Keyboard(views.live(replace(view, prospects=())), desk=desks.desk())
    nothing.press("3")
    assert "if one thing were changed" not in "".join(row.text for row in nothing.place.rows(100, 60))


def test_half_the_devices_comes_from_the_picture_of_sizes() -> None:
    """With its interval; where the size is not on it the reason is said."""
    picture = replace(desks.sized(candidates=(4, 16)), yours=8)
    assert picture.half is not None
    board = Keyboard(views.live(views.straggler()), desk=desks.desk(scaling=picture))
    board.press(*["i"] * (1 + len(views.straggler().prospects)))
    text = " ".join(row.text for row in board.place.rows(160, 30))
    assert "half the devices (4)" in text
    unknown = Keyboard(views.live(views.straggler()), desk=desks.desk(scaling=desks.unsized()))
    unknown.press(*["i"] * (1 + len(views.straggler().prospects)))
    assert "half the devices: not predicted" in " ".join(row.text for row in unknown.place.rows(160, 30))


def test_what_is_lost_of_another_mean_says_of_which() -> None:
    """A pause is lost of the mean with its pauses: beside a steady step its rest alone would be longer than that."""
    (late,) = [each for each in LATE.prospects if each.words == "rank 2 fixed"]
    paused = replace(
        late, words="without the pauses", now_s=0.496, step_s=0.487, share=0.487 / 0.496, at_best=True
    )
    view = replace(views.straggler(), prospects=(replace(late, now_s=0.346, step_s=0.093), paused))
    rows = [row.text.rstrip() for row in all_lines(view, 120)]
    (row,) = [row for row in rows if "without the pauses" in row]
    assert "≥ 487 ms" in row
    assert row.endswith(" of 496 ms")
    (row,) = [row for row in rows if "rank 2 fixed" in row]
    assert " of " not in row.split("fixed")[1]
