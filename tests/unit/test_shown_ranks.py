"""Screens, text, reports and metrics show the same ranks of a large job, and the named one before all others."""

from __future__ import annotations

from dataclasses import replace

from snapshot import views

from tuiadvisor.outlets.metrics import told_ranks
from tuiadvisor.report.markdown import markdown_report
from tuiadvisor.report.page import Dossier, html_report
from tuiadvisor.text.wording import left_out_ranks
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.views.run_view import RankRow, RunView
from tuiadvisor.views.shown_ranks import shown_ranks, standing_out

CULPRIT = 200


def large(state: str, *, is_outlier: bool = False, num_ranks: int = 256) -> RunView:
    """One rank is named; all others are as it says."""
    view = views.many(num_ranks)

    def row_of(row: RankRow) -> RankRow:
        if row.rank == CULPRIT:
            return replace(row, is_culprit=True, is_outlier=True, host="named-host")
        return replace(row, state=state, is_culprit=False, is_outlier=is_outlier)

    return replace(view, ranks=tuple(map(row_of, view.ranks)))


def test_no_limit_hides_whom_the_verdict_names() -> None:
    """More ranks stand out than are shown: once the list of the odd ones was cut by number, and the culprit with it."""
    view = large("refused", is_outlier=True)
    shown, left = shown_ranks(view.ranks, 64)
    assert CULPRIT == shown[0].rank
    assert (64, 256 - 64) == (len(shown), len(left))
    assert told_ranks(view.ranks)[0].rank == CULPRIT
    for text in (
        plain_summary(view),
        markdown_report([Dossier("a.tuirec", view)], None, "tuiadvisor"),
        html_report([Dossier("a.tuirec", view)], None, "tuiadvisor"),
    ):
        assert "named-host" in text
        assert "more ranks, some of them late or lost too" in text


def test_ranks_that_ended_as_all_did_are_nothing_to_look_at() -> None:
    """Of a job that is over, the one that was late is listed, and nobody is called live."""
    view = large("exited")
    assert [CULPRIT] == [row.rank for row in standing_out(view.ranks)]
    assert "and 255 more ranks, on time" in plain_summary(view)


def test_each_rank_that_nobody_watches_stands_out() -> None:
    """Even where all are so, since each has its reason; who holds the job up, too."""
    view = large("waiting_to_attach")
    assert len(standing_out(view.ranks)) == 256
    held = replace(large("live").ranks[3], held="stopped")
    assert [held] == standing_out([held])


def test_a_few_ranks_are_all_shown_in_their_order() -> None:
    """Nothing is left out, so nothing is said of it."""
    rows = large("live").ranks[:8]
    shown, left = shown_ranks(rows, 8)
    assert (list(rows), []) == (list(shown), left)
    assert left_out_ranks(left) == ""
