"""Two findings of one rule are two: on the screens each has its row, its page and its place in what is counted."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from snapshot import views
from unit.test_tui_navigator import Keyboard

from tuiadvisor.outlets import metrics
from tuiadvisor.tui.contract.feed import FeedState
from tuiadvisor.tui.pages.overview import Overview
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
