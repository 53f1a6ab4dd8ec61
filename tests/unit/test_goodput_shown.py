"""One figure on screen, in reports, in the comparison and in the document."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from snapshot import views
from synthetic_run import Fault, Job, encoded, final_view, frames
from test_cli_first_steps import RUN
from test_goodput_waterfall import born
from test_tui_navigator import Keyboard

from tuiadvisor.advisor.compare.comparing import compare, measure
from tuiadvisor.app.whole_recording import whole_view
from tuiadvisor.report.comparison import comparison_document
from tuiadvisor.report.page import Dossier, html_report
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.text import format as text_of
from tuiadvisor.text.goodput import late_words, notes
from tuiadvisor.tui.draw import waterfall
from tuiadvisor.tui.pages.comparison import plain_comparison
from tuiadvisor.tui.pages.goodput import goodput_lines
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.tui.pages.sections import lenses, source
from tuiadvisor.views.comparison import Comparison
from tuiadvisor.views.goodput import parts_of
from tuiadvisor.views.run_view import PastFinding

if TYPE_CHECKING:
    from pathlib import Path

LATE = Job(num_ranks=4, num_steps=200, faults=(Fault("data", (2,), 0.02, onset=100),))
SLOW = Fault("data", None, 0.02)


@pytest.mark.parametrize("width", [40, 60, 78, 158])
def test_bars_of_the_waterfall_go_on_where_the_one_above_ended(width: int) -> None:
    wall = views.from_start().wall
    assert wall is not None
    lines = waterfall.rows(wall, width, 20)
    assert all(len(line.text) <= width for line in lines)
    bars = [re.search(r"[█▓?]+$", line.text) for line in lines]
    found = [bar.span() for bar in bars if bar]
    if width >= 60:
        assert len(found) >= len(lines) - 1  # the least may be below a cell
        assert all(one[1] == other[0] for one, other in itertools.pairwise(found))
    else:
        assert not found  # no room: names and figures alone
    assert len(waterfall.one_bar(wall, width).text) == width


def test_parts_that_have_no_room_are_counted() -> None:
    wall = views.from_start().wall
    assert wall is not None
    lines = waterfall.rows(wall, 78, 4)
    assert len(lines) == 4
    assert lines[-1].text == "and 3 smaller parts"


@pytest.mark.parametrize("width", [80, 160])
def test_where_the_wall_time_is_not_known_the_figure_is_said_to_be_of_the_steps(width: int) -> None:
    """Of a hang on devices screen 1 said "goodput 79 %", and W that it is unknown."""
    view = views.from_start()
    assert view.wall is not None
    wall = replace(view.wall, end_to_end=None)
    unjudged = replace(view, wall=wall)
    (row,) = lenses(unjudged, width)
    assert row.text.endswith(f"goodput of steady steps {text_of.share(view.goodput)}")
    assert len(row.text) <= width
    assert f"goodput of steady steps {text_of.share(view.goodput)}" in source(unjudged, 160).text
    assert "goodput unknown" in "\n".join(one.text for one in goodput_lines(wall, width))
    assert "<span>goodput of steady steps</span>" in html_report(
        [Dossier("run.rec", unjudged)], None, "a test"
    )


def test_screen_report_and_summary_show_the_same_figure() -> None:
    view = views.from_start()
    share = text_of.share(view.useful_share)
    assert view.useful_share != view.goodput
    page = html_report([Dossier("run.rec", view)], None, "a test")
    summary = plain_summary(view, plain_ascii=False)
    assert f"<b>{share}</b><span>goodput</span>" in page
    assert f"goodput {share}: useful steps in" in page
    assert f"goodput {share}: useful steps in" in summary
    assert text_of.share(view.goodput) not in re.findall(r"goodput ([^:·<]+?)(?= [:·<]|:)", summary)
    # Start-up's bar begins where useful time and the straggler's end.
    boxes = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="16"', page)
    edges = [(float(x), float(x) + float(width)) for x, width in boxes[:4]]
    assert all(one[1] == pytest.approx(other[0], abs=0.2) for one, other in itertools.pairwise(edges))


def test_a_view_without_wall_time_shows_the_windows_figure() -> None:
    view = replace(views.from_start(), wall=None)
    assert view.useful_share == view.goodput
    assert "where the wall time went" not in plain_summary(view, plain_ascii=False)


def test_parts_of_nothing_are_left_out() -> None:
    assert [part.kind for part in parts_of({"useful": 2.0, "hang": 0.0, "startup": 2.0})] == [
        "useful",
        "startup",
    ]


def compared(before: Job, after: Job, ages: tuple[float | None, float | None] = (5.0, 5.0)) -> Comparison:
    """ages: of the processes at their first record; None: not seen from the start."""
    sides = [
        measure(name, [encoded(frame) for frame in born(frames(job), age or 5.0, young=age is not None)])
        for name, job, age in (("before.rec", before, ages[0]), ("after.rec", after, ages[1]))
    ]
    return compare(*sides)


def test_what_no_row_shows_is_named_in_no_note() -> None:
    """A note said "beside them slower, not explained" below a waterfall that had no such row."""
    whole = final_view(LATE).wall
    assert whole is not None
    parts = parts_of({"useful": 6.0, "straggler": 2.0, "eval": 2.0, "unnamed": 1e-8})
    assert ["useful", "straggler", "eval"] == [part.kind for part in parts]
    said = " ".join(notes(replace(whole, end_to_end=0.6, steady=0.75, waterfall=parts)))
    assert "beside them evaluation, rollout" in said
    assert "not explained" not in said


@pytest.mark.slow
def test_compare_answers_whether_goodput_improved() -> None:
    slow, fast = Job(num_steps=500, faults=(SLOW,)), Job(num_steps=700)
    better, worse = compared(slow, fast).goodput, compared(fast, slow).goodput
    assert better is not None
    assert worse is not None
    assert better.is_end_to_end == worse.is_end_to_end
    assert better.improved is True
    assert worse.improved is False
    assert "improved" in better.sentence
    told = comparison_document(compared(slow, fast))["goodput"]
    assert isinstance(told, dict)
    assert told["improved"] is True
    assert told["before"] == better.before
    assert better.sentence in " ".join(plain_comparison(compared(slow, fast), plain_ascii=False).split())


def test_the_same_run_twice_has_no_better_goodput() -> None:
    job = Job(num_steps=300)
    same = compared(job, replace(job, seed=1)).goodput
    assert same is not None
    assert same.is_end_to_end
    assert same.improved is None
    assert same.answer == "no change"


def test_a_start_up_that_only_one_of_them_shows_decides_nothing() -> None:
    """Or that weighs more because a recording is shorter: the steady steps alone are compared."""
    job = Job(num_steps=300)
    for change in (
        compared(job, replace(job, seed=1), (60.0, None)).goodput,
        compared(job, replace(job, seed=1, num_steps=60), (60.0, 1.0)).goodput,
    ):
        assert change is not None
        assert not change.is_end_to_end
        assert change.before is not None
        assert change.after is not None
        assert abs(change.before - change.after) > 0.1
        assert change.improved is None


@pytest.mark.slow
def test_whom_the_others_waited_for_is_told_by_stretches(tmp_path: Path) -> None:
    """What was lost only before a change of pace has no name in the waterfall: a rank named then keeps its own."""
    faults = (Fault("data", (2,), 0.1, onset=200, until=600), Fault("data", (1,), 0.15, onset=600))
    path = tmp_path / "run.tuirec"
    writer = RecordingWriter(path, RUN)
    for frame in frames(Job(num_ranks=4, num_steps=1200, faults=faults)):
        writer.append(encoded(frame))
    writer.close()
    view = whole_view(str(path))
    said = late_words(view)
    found = re.fullmatch(
        r"the others waited for rank 2 from step (\d+) until about step (\d+); for rank 1 since step (\d+)",
        said,
    )
    assert found is not None, said
    assert [200, 600, 600] == [pytest.approx(int(step), abs=40) for step in found.groups()]
    keyboard = Keyboard(views.live(view))
    keyboard.press("W")
    text = "\n".join(row.text for row in keyboard.place.rows(160, 60))
    assert "rank 1 since step" in text
    assert "the others waited for rank 2 from step" in html_report([Dossier("run.rec", view)], None, "a test")


def test_one_rank_all_along_is_told_where_it_always_was() -> None:
    """And nobody is named whom nothing found."""
    view = final_view(LATE)
    assert "straggler" in {one.id for one in view.findings}
    assert not late_words(view)
    assert not late_words(views.healthy())
    remark = replace(view.findings[0], id="checkpoint_pause", ranks=(3,))
    assert not late_words(replace(view, past=(PastFinding(remark, 20, 90, 1),)))


def test_of_many_stretches_the_last_are_told() -> None:
    """In the order in which they began, whatever the order in which they were found."""
    view = final_view(LATE)
    late = next(one for one in view.findings if one.id == "straggler")
    past = [
        PastFinding(replace(late, ranks=(rank,)), 100 * rank, 100 * rank + 50, 1) for rank in (6, 3, 7, 4, 5)
    ]
    said = late_words(replace(view, past=(PastFinding(replace(late, ranks=(0,)), None, 20, 1), *past)))
    assert said.startswith(
        "the others waited for rank 4 from step 400 until about step 450; for rank 5 from step 500"
    )
    assert said.endswith("; for rank 7 from step 700 until about step 750 (3 earlier stretches not listed)")
    assert late_words(
        replace(view, findings=(), past=(PastFinding(replace(late, ranks=(0,)), None, 20, 1),))
    ) == ("the others waited for rank 0 until about step 20")
