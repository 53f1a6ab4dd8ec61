"""Small charts: their widths, their scales, and what they do with unknown values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiadvisor.phases import PHASES
from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Line, length
from tuiadvisor.tui.draw import bars
from tuiadvisor.views.shares import known_phases

SHARES = st.dictionaries(st.sampled_from(PHASES), st.none() | st.floats(0, 1), max_size=10)


@given(values=st.lists(st.floats(0, 1), max_size=10), width=st.integers(0, 80))
def test_cells_sum_to_the_width(values: list[float], width: int) -> None:
    """No cell is lost or invented by rounding, and no part gets less than nothing."""
    cells = bars.cells_of(values, width)
    assert all(size >= 0 for size in cells)
    assert sum(cells) == (width if sum(values) > 0 else 0)


def test_a_visible_part_keeps_a_cell() -> None:
    """A phase of 2 % is on a bar of 20 cells."""
    assert [19, 1] == bars.cells_of([0.98, 0.02], 20)


@given(shares=SHARES, width=st.integers(1, 120))
def test_a_stacked_bar_has_its_width(shares: dict[str, float | None], width: int) -> None:
    """Named or not, whatever is known."""
    assert width == length(bars.stacked_bar(shares, width))
    assert width == length(bars.stacked_bar(shares, width, named=True))


def test_a_bar_of_unknown_phases_says_so() -> None:
    """Nothing observed is not an empty bar."""
    assert [("no phase observed yet   ", "unknown")] == bars.stacked_bar(dict.fromkeys(PHASES), 24)


def test_zero_and_unknown_are_told_apart() -> None:
    """A phase observed as zero is not listed as unknown."""
    shares = {"data_wait": 0.0, "h2d": None, "forward": 1.0} | dict.fromkeys(PHASES[3:], 0.0)
    assert ["h2d"] == bars.unknown_phases(shares)
    assert [("forward", 1.0)] == known_phases(shares)


def test_letters_double_the_colours() -> None:
    """Each phase has a letter of its own."""
    assert len(PHASES) == len(set(bars.PHASE_LETTERS.values()))
    assert set(PHASES) == set(bars.PHASE_LETTERS) == set(bars.SHORT_NAMES)


def test_columns_start_at_zero() -> None:
    """A value half as high is half as tall."""
    assert ["▄█"] == [row.text for row in bars.column_chart([0.5, 1.0], 2, 1)]
    assert [" █", "██"] == [row.text for row in bars.column_chart([0.5, 1.0], 2, 2)]


def test_an_unknown_value_is_marked_at_the_foot() -> None:
    """It is neither a zero nor a gap without a reason."""
    assert ["  █", "█?█"] == [row.text for row in bars.column_chart([0.5, None, 1.0], 3, 2)]


def test_a_chart_shows_all_values_and_fills_its_width() -> None:
    """A longer series has the highest value of each column, a shorter one is widened."""
    assert "█▄" == bars.column_chart([1.0, 0.25, 0.5, 0.25], 2, 1)[0].text
    assert "█▄" == bars.column_chart([1.0, None, 0.5], 2, 1)[0].text
    assert "▄▄██" == bars.column_chart([0.5, 1.0], 4, 1)[0].text


@given(
    num=st.integers(1, 300),
    jump=st.floats(0, 1, exclude_max=True),
    width=st.integers(1, 200),
    size=st.sampled_from([1, 2, 64]),
)
def test_a_jump_is_drawn_above_its_mark_however_long_the_run(
    num: int, jump: float, width: int, size: int
) -> None:
    """The first tall column is that to which the arrow of the jump's step points."""
    bucket = int(jump * num)
    chart = bars.column_chart([0.25] * bucket + [1.0] * (num - bucket), width, 1)[0].text
    assert width == len(chart)
    assert chart.index("█") == bars.chart_column(100 + bucket * size, 100, size, num, width)


def test_the_axis_says_the_first_step_and_round_ones() -> None:
    """Each number begins in the column of its step."""
    axis = bars.step_axis(42, 1, 300, 96).text
    assert axis.startswith("╵step 42 ")
    assert ["step", "42", "100", "150", "200", "250", "300"] == axis.replace("╵", " ").split()
    assert axis.index("╵200") == bars.chart_column(200, 42, 1, 300, 96)


@given(
    first=st.integers(-20, 10**9),
    num=st.integers(1, 240),
    width=st.integers(1, 200),
    size=st.integers(1, 4096),
)
def test_the_axis_never_leaves_its_width(first: int, num: int, width: int, size: int) -> None:
    """However long the numbers are; they never touch."""
    axis = bars.step_axis(first, size, num, width).text
    assert len(axis) <= width
    for text in axis.split("╵")[1:-1]:
        assert text.endswith(" ")


def test_a_mark_points_at_its_bucket() -> None:
    """Step 20 is the third bucket of ten steps."""
    assert "  ▲ step 20 late" == bars.chart_marks([(20, "late")], 0, 10, 30, 30).text


def test_a_mark_near_the_edge_stands_left_of_its_arrow() -> None:
    """The arrow stays on its step."""
    text = bars.chart_marks([(28, "late")], 0, 1, 30, 30).text
    assert 28 == text.index("▲")
    assert text.endswith("step 28 late ▲")


def test_marks_outside_the_chart_are_not_drawn() -> None:
    """A step that scrolled out has no arrow."""
    assert "" == bars.chart_marks([(3, "late")], 100, 1, 30, 30).text


def test_marks_never_overwrite_each_other() -> None:
    """Where two would touch, the second is only an arrow, or gone."""
    text = bars.chart_marks([(2, "one"), (5, "two"), (20, "three")], 0, 1, 40, 40).text
    assert "one" in text
    assert "three" in text


@given(
    first=st.integers(0, 10_000),
    steps=st.integers(0, 300),
    width=st.integers(1, 120),
    further=st.integers(0, 30),
)
def test_the_heat_map_shows_the_newest_step_and_moves_seldom(
    first: int, steps: int, width: int, further: int
) -> None:
    """Its left edge is a multiple of a quarter of its width and the newest step is always inside."""
    left = bars.first_heat_step(first, steps, width)
    assert 0 == left % max(width // 4, 1)
    assert first + steps - left <= width
    later = bars.first_heat_step(first + further, steps, width)
    assert later >= left


@pytest.mark.slow
@given(levels=st.binary(max_size=60), first=st.none() | st.integers(0, 50), width=st.integers(1, 60))
def test_a_heat_row_has_its_width(levels: bytes, first: int | None, width: int) -> None:
    """Bytes outside the scale are unknown, and no row is too long."""
    assert width == length(bars.heat_row(levels, first, first or 0, width))


def test_a_heat_row_is_heights_with_unknown_told_apart() -> None:
    """Level by glyph, 255 as unknown, blank where there is no step yet."""
    text = Line(tuple(bars.heat_row(bytes([0, 1, 4, 7, 255]), 10, 10, 8))).text
    assert "._▄█?   " == text


def test_a_heat_row_starts_at_its_step() -> None:
    """Columns are steps: a rank's first byte stands where its step is."""
    assert "  █ " == Line(tuple(bars.heat_row(bytes([7]), 12, 10, 4))).text
    assert "█   " == Line(tuple(bars.heat_row(bytes([0, 0, 7]), 8, 10, 4))).text


def test_the_time_line_has_head_and_marks() -> None:
    """Played, head, still to come; marks stay visible."""
    assert "━━▲━━●──▲─" == Line(tuple(bars.time_line(0.55, [(0.2, "late"), (0.9, "x")], 10))).text


def test_progress_is_bounded() -> None:
    """More done than planned is full, nothing planned is empty."""
    assert "████" == Line(tuple(bars.progress(9, 4, 4))).text
    assert "░░░░" == Line(tuple(bars.progress(0, 0, 4))).text


@pytest.mark.parametrize(
    ("width", "label"),
    [
        (40, "exposed comm 13.0 ms"),
        (19, "exp. comm 13.0 ms"),
        (13, "comm 13.0 ms"),
        (11, ""),
    ],
)
def test_a_phase_gives_up_letters_before_its_figure(width: int, label: str) -> None:
    """At 80 columns "exposed comm 13.0..." was cut in its number, and bars kept the name without the share."""
    assert label == bars.phase_label("comm_exposed", "13.0 ms", width)
    assert bars.phase_label("forward", "7.29 ms", 10) == "forward"


def test_what_a_rank_is_in_is_told_with_the_whole_time() -> None:
    now = "comm_exposed 13.0 s"
    said = [text_of.activity(now, width) for width in (30, 18, 12, None)]
    assert said == ["exposed comm 13.0 s", "exp. comm 13.0 s", "comm 13.0 s", "exposed comm 13.0 s"]
    assert text_of.activity("comm_exposed 0.0 s", 9) == "exp. comm"
    assert (
        text_of.activity("saving a thing 3.0 s", 9) == "saving a thing 3.0 s"
    )  # no phase: the field cuts it
