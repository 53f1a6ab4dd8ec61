"""The picture of the sixth screen: what the report says over many sizes; limits; what is missing; texts typed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from snapshot import desks, views
from synthetic_run import Job
from unit.test_scaling_one_run import EIGHT
from unit.test_session_recorded_sizes import MODEL, recorded

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.analysis import analyse
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.curves import picture
from tuiadvisor.scaling.oneruncurves import one_run_picture
from tuiadvisor.scaling.series import Target
from tuiadvisor.session.entries import MAX_CANDIDATES, Stated, entries, nudged, stated_in, with_text
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.machine import Machine
from tuiadvisor.session.sizing import Known, of_each_size, picture_of
from tuiadvisor.text.wording import size_figures
from tuiadvisor.tui.pages.scaling import ScalingPage

if TYPE_CHECKING:
    from tuiadvisor.scaling.picture import Picture

WANTED = desks.LIMITS


def test_the_picture_says_what_the_report_says() -> None:
    """Points and rows are those of `scale`; the curve runs through the predicted sizes with their intervals."""
    table = desks.table()
    (report,) = analyse(table, [Target(64), Target(128)], WANTED)
    found = picture(table, WANTED, [64, 128])
    assert (report.decision.decision, report.decision.because) == (found.decision, found.because)
    assert (32, 64) == (found.yours, found.chosen)
    efficiency, cost, hours = found.curves
    for curve, one in ((efficiency, "efficiency"), (cost, "cost"), (hours, "hours")):
        for predicted in report.predictions:
            place = curve.devices.index(predicted.target.devices)
            value = getattr(predicted, one)
            assert (value.expected, value.low, value.high) == pytest.approx(
                (curve.expected[place], curve.low[place], curve.high[place])
            )
        assert list(curve.devices) == sorted(set(curve.devices))
        assert all(
            low <= value <= high
            for low, value, high in zip(curve.low, curve.expected, curve.high, strict=True)
        )
    assert [row.cost for row in report.rows] == pytest.approx([one.value for one in cost.points[:3]])
    assert (0.8, 1200.0, 7.0) == (efficiency.limit, cost.limit, hours.limit)


def test_a_limit_is_kept_only_where_the_whole_interval_keeps_it() -> None:
    """64 devices are surely in time; 128 only perhaps; the present 32 are not."""
    rows = {one.devices: one for one in desks.sized().rows}
    assert ["no", "yes", "perhaps"] == [rows[devices].in_time for devices in (32, 64, 128)]
    assert ["yes", "yes", "perhaps"] == [rows[devices].in_budget for devices in (32, 64, 128)]
    found = desks.sized()
    assert found.deadline_from is not None
    assert 32 < found.deadline_from <= 64


def test_without_the_length_of_the_run_limits_are_missing_not_guessed() -> None:
    """Cost is that of a step, hours are not drawn, and it is said what to state."""
    found = desks.sized(replace(WANTED, remaining_steps=None))
    assert ["efficiency", "cost"] == [curve.name for curve in found.curves]
    assert "state steps left" in found.missing[0]
    assert {""} == {one.in_time for one in found.rows}
    assert found.cost_unit.endswith("per step")


def test_one_size_gives_a_point_and_says_what_is_missing() -> None:
    """No curve through one point."""
    found = desks.sized(rows=desks.MEASURED[:1])
    assert () == found.curves[0].devices
    assert "one size" in found.missing[0]


def test_the_cost_of_one_run_at_its_own_size_is_exact() -> None:
    """8 devices, 100 ms, 36,000 steps: an hour, 8 device-hours, 20 in money; elsewhere bounds around the expected."""
    wanted = Aim(price_per_device_hour=2.5, remaining_steps=36_000, deadline_h=1.0, budget=15.0)
    for mode in ("weak", "strong"):
        found = one_run_picture("run", EIGHT, wanted, [16], mode)  # type: ignore[arg-type]
        here, there = found.rows
        assert here.cost is not None
        assert here.hours is not None
        assert (20.0, 1.0) == pytest.approx((here.cost.expected, here.hours.expected))
        assert ("yes", "no") == (here.in_time, here.in_budget)
        assert there.cost is not None
        assert there.cost.low < there.cost.expected < there.cost.high
        assert there.cost.expected == pytest.approx(20.0 / there.efficiency.expected)  # type: ignore[union-attr]
        assert "keep" == found.decision


def test_a_size_the_run_cannot_speak_for_is_refused_in_place() -> None:
    """One full host: 16 devices would use a network nobody measured."""
    found = one_run_picture("run", replace(EIGHT, room_a_host=8), Aim(), [], "weak")
    assert [8] == [one.devices for one in found.rows]
    assert max(found.curves[0].devices) == 8
    assert "network nobody measured" in found.notes[0]


def known(*others: int, current: int | None = 4, **changes: object) -> Known:
    runs = tuple(recorded(ranks) for ranks in others)
    return Known(recorded(current) if current else None, runs, **changes)  # type: ignore[arg-type]


def shown(held: Known, stated: Stated | None = None) -> Picture:
    return picture_of(held, stated or Stated(Aim()), Machine())


def test_recordings_of_other_sizes_are_fitted_and_one_alone_is_bounded() -> None:
    """With a second size there is a statistical interval."""
    fitted = shown(known(2, 8))
    assert "3 recordings: 4 (4), 2 (2), 8 (8)" == fitted.source.replace(".tuirec", "")
    assert "weak scaling" in fitted.basis
    alone = shown(known())
    assert alone.basis.startswith("bounds")
    assert "alone" in alone.source
    assert "with more devices" in [one.label for one in alone.entries]


@pytest.mark.slow
def test_of_each_size_the_newest_counts_and_another_model_not_at_all() -> None:
    """Older recordings of a size may hold faults that were mended since."""
    newest, older, other = recorded(8), recorded(8), recorded(2, gradient_bytes=2 * MODEL)
    mine = recorded(4)
    assert [mine, newest] == of_each_size(mine, (newest, older, other))
    # What the user chose is all taken: as rows of a table.
    every = shown(Known(mine, (newest, older), all_count=True))
    assert [4, 8, 8] == [one.devices for one in every.rows if one.is_measured]


def test_a_live_run_whose_gradients_were_not_seen_goes_with_its_name() -> None:
    """Recordings of one model under the same name are its other sizes."""
    live = replace(recorded(4), gradient_bytes=None)
    assert [MODEL, MODEL] == [run.gradient_bytes for run in of_each_size(live, (recorded(2),))]


def test_nothing_to_draw_is_said_with_the_remedy() -> None:
    """Ranks that share one host's cores, or no run at all."""
    for held in (Known(desks.Recorded("before", views.straggler(), 268_800)), Known()):
        found = shown(held)
        assert () == found.curves
        assert None is found.decision
        assert any("record this training at a second size" in text for text in found.missing)
        assert found.entries


def test_what_is_typed_is_checked_and_taken_back() -> None:
    """Numbers with commas or k, durations, sizes; an empty text takes it back; nonsense is one line."""
    stated = stated_in(Intent(price_per_device_hour=2.0, objective="cost"), 0.7)
    assert (2.0, "cost", 0.7) == (
        stated.aim.price_per_device_hour,
        stated.aim.objective,
        stated.aim.efficiency_floor,
    )
    for name, typed, field, value in (
        ("price", "3.5", "price_per_device_hour", 3.5),
        ("deadline", "2d", "deadline_h", 48.0),
        ("budget", "1,200", "budget", 1200.0),
        ("left", "100k", "remaining_steps", 100_000.0),
        ("objective", "time", "objective", "time"),
        ("current", "16", "current", 16),
    ):
        stated = with_text(stated, desks.STEP, name, typed)
        assert value == getattr(stated.aim, field)
        text = next(one.text for one in entries(stated, desks.STEP, is_one_run=False) if one.name == name)
        assert value == getattr(with_text(stated, desks.STEP, name, text).aim, field)
        assert None is getattr(with_text(stated, desks.STEP, name, " ").aim, field)
    assert (16, 32) == with_text(stated, desks.STEP, "candidates", "16, 32 16").candidates
    assert "strong" == with_text(stated, desks.STEP, "mode", "s").mode
    for name, typed in (
        ("price", "-1"),
        ("price", "nan"),
        ("deadline", "soon"),
        ("left", "\x1b[2J"),
        ("candidates", "0"),
        ("candidates", "9" * 40),
        ("candidates", ",".join(map(str, range(1, MAX_CANDIDATES + 2)))),
        ("objective", "fame"),
        ("mode", ""),
    ):
        with pytest.raises(TuiadvisorError) as caught:
            with_text(stated, desks.STEP, name, typed)
        assert "\n" not in str(caught.value)
        assert "\x1b" not in str(caught.value)


def test_left_and_right_change_a_little() -> None:
    """A tenth, the next choice, the next size; what is not stated cannot be moved."""
    stated = Stated(WANTED, (64,))

    def moved(name: str, by: int) -> Stated:
        return nudged(stated, desks.STEP, name, by, (8, 16, 32))

    assert 2.75 == moved("price", 1).aim.price_per_device_hour
    assert 2.27 == moved("price", -1).aim.price_per_device_hour
    assert 110_000 == moved("left", 1).aim.remaining_steps
    assert (64, 128) == moved("candidates", 1).candidates
    assert () == moved("candidates", -1).candidates
    assert 16 == moved("current", -1).aim.current
    assert 32 == moved("current", 1).aim.current
    assert "time" == moved("objective", 1).aim.objective
    assert "cost" == moved("objective", -1).aim.objective
    assert "strong" == moved("mode", 1).mode
    with pytest.raises(TuiadvisorError, match="nothing is stated here yet"):
        nudged(Stated(Aim()), desks.STEP, "budget", 1, (8,))


def test_recordings_too_short_are_left_out_with_the_reason() -> None:
    """A second size of ten steps is no second size."""
    from unit.test_session_recorded_sizes import view_of

    short = desks.Recorded("short", view_of(Job(num_ranks=8, num_steps=10)), MODEL)
    found = shown(Known(recorded(4), (short,)))
    assert found.basis.startswith("bounds")
    assert "short is left out" in found.missing[0]


@pytest.mark.parametrize("width", [80, 100, 120, 140, 160, 200])
def test_no_figure_of_the_table_is_cut(width: int) -> None:
    """At 120 columns a cost lost its last digits: the table was beside what is stated at any width."""
    held = desks.sized(replace(desks.LIMITS, price_per_device_hour=2.5, remaining_steps=2e6))
    page = ScalingPage()
    page.desk = desks.desk(scaling=held)
    shown = [each.text for each in page.lines(views.live(views.straggler()), width, 60)]
    for one in held.rows:
        figures = [figure for figure in size_figures(one, held.time_unit) if figure]
        assert any(all(figure in text for figure in figures) for text in shown), (width, figures)
