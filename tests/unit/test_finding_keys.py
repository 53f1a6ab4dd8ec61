"""Two findings of one rule are two: on the screens each has its row, its page and its place in what is counted."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from snapshot import views
from synthetic_run import MS, Fault, Job, final_view
from unit.test_tui_navigator import Keyboard

from tuiadvisor.outlets import metrics
from tuiadvisor.tui.contract.feed import FeedState
from tuiadvisor.tui.pages.overview import Overview
from tuiadvisor.views.finding_keys import keyed
from tuiadvisor.views.run_view import Finding, RunView


def with_two_pauses() -> RunView:
    """A straggler, two periodic pauses of all ranks and another two remarks."""
    view = views.straggler()
    pause = replace(view.findings[-1], id="periodic_pause", severity="info", ranks=())
    told = [replace(pause, title=f"pause of {what}", message=f"pause of {what}") for what in ("one", "two")]
    last = [replace(pause, id=f"last{number}", title=f"last {number}", message="") for number in range(2)]
    return replace(view, findings=(view.findings[0], *told, *last))


def titles(found: tuple[Finding, ...]) -> list[str]:
    return [each.title for each in found]


@pytest.mark.parametrize("height", range(18, 40))
def test_what_is_listed_and_what_is_more_make_the_number_of_the_head(height: int) -> None:
    """6 findings, two listed, and 3 more: two pauses counted as one."""
    state: FeedState = views.live(with_two_pauses())
    rows = [row.text for row in Overview().lines(state, 80, height)]
    head = next(place for place, row in enumerate(rows) if "── findings" in row)
    assert "5 findings" in rows[head]
    more = next((place for place, row in enumerate(rows) if "more finding" in row), None)
    if more is not None:
        (left,) = re.findall(r"and (\d+) more", rows[more])
        assert 5 == more - head - 1 + int(left)


def test_n_comes_to_every_finding() -> None:
    """It went from the second of two pauses back to that second one, and what came after them was never shown."""
    view = with_two_pauses()
    keyboard = Keyboard(views.live(view))
    keyboard.press("enter")
    seen = []
    for _ in view.findings:
        seen.append(keyboard.draw())
        keyboard.press("n")
    for title, drawn in zip(titles(view.findings), seen, strict=True):
        assert title in drawn


def test_enter_opens_the_second_of_two_pauses() -> None:
    keyboard = Keyboard(views.live(with_two_pauses()))
    keyboard.press("n", "n", "n")
    assert "pause of two" in keyboard.press("enter")


def test_a_sentence_that_is_cut_for_more_findings_says_so() -> None:
    """On a wide screen it ended in the middle, "grows by 1.5 % a minute:", before "and 6 more findings"."""
    view = with_two_pauses()
    long = tuple(
        replace(each, severity="warning", message=f"{'The others wait for rank 2. ' * 4}End.")
        for each in view.findings
    )
    state = views.live(replace(view, findings=long))
    num_cut = 0
    for height in range(18, 45):
        rows = [row.text[77:].rstrip() for row in Overview().lines(state, 120, height)]
        more = next((place for place, row in enumerate(rows) if "more finding" in row), None)
        if more is not None and rows[more - 1].strip() and not rows[more - 1].endswith("End."):
            num_cut += 1
            assert rows[more - 1].endswith("…"), (height, rows[more - 1])
    assert num_cut


def test_two_findings_of_a_rule_are_two_series() -> None:
    """Two pauses of all ranks had one set of labels with two values, of which Prometheus keeps one."""
    for _, _, _, told in metrics._of_findings(with_two_pauses()):
        labels = [key for key, _ in told]
        assert len(labels) == len(set(labels))
        assert "periodic_pause" in {one[0] for one in labels}


def test_a_page_stays_with_its_pause_whatever_the_two_cost_now() -> None:
    """The dearer of two came first and had the shorter key: when that changed the page showed the other one."""
    view = with_two_pauses()
    one, two = (
        replace(each, subject=subject)
        for each, subject in zip(view.findings[1:3], ("evaluation", "periodic"), strict=True)
    )
    keyboard = Keyboard(views.live(replace(view, findings=(one, two))))
    keyboard.press("n")
    assert "pause of one" in keyboard.press("enter")
    for findings in ((two, one), (one,), (two, one)):
        keyboard.place.take_state(views.live(replace(view, findings=findings)))
        assert "pause of one" in keyboard.draw()
    keyboard.place.take_state(views.live(replace(view, findings=(two,))))
    assert "no longer holds" in keyboard.draw()


def test_a_key_is_the_same_in_whatever_order_they_come() -> None:
    """By their subject, else by their ranks; what differs in nothing has a number."""
    found = views.straggler().findings[0]
    told = [
        replace(found, subject="evaluation"),
        replace(found, subject="periodic", ranks=(0,)),
        replace(found, subject="periodic", ranks=(1, 2)),
    ]
    names = {f"{found.id} evaluation", f"{found.id} periodic 0", f"{found.id} periodic 1,2"}
    assert names == set(keyed(told))
    assert keyed(told) == keyed(told[::-1])
    assert [found.id] == list(keyed([found]))
    assert [f"{found.id} 2", f"{found.id} 2 2"] == list(keyed([found, found]))


def test_two_pauses_of_the_same_ranks_are_told_apart_by_the_rules() -> None:
    """Rank 0 pauses every 50 steps and, shorter, every 33: one rule, one rank, and two troubles."""
    faults = (Fault("other", (0,), 300 * MS, every=50), Fault("other", (0,), 100 * MS, every=33))
    found = [each for each in final_view(Job(num_steps=600, faults=faults)).findings if each.ranks == (0,)]
    assert ["periodic_pause", "periodic_pause"] == [each.id for each in found]
    assert {50.0: "periodic 2", 33.0: "periodic"} == {
        each.evidence["period_steps"]: each.subject for each in found
    }
