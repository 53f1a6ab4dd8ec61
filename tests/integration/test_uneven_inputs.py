"""Ranks with uneven inputs under Join: they make unequal numbers of steps, so no step of one is another's."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from live_views import follow
from training import running

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.live_session import Session
from tuiadvisor.views.run_view import RunView

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "uneven_training.py"


def test_a_rank_with_fewer_batches_is_not_compared_and_nobody_is_late_by_seconds(tmp_path: Path) -> None:
    """Rank 2 was "late by 6.72 s in 100 % of the steps", critical; its steps fell behind by 20 an epoch."""
    seen: list[RunView] = []

    def has_told(view: RunView) -> bool:
        seen.append(view)
        is_told = [f"rank {rank} is not compared with the others: it makes fewer" for rank in (1, 2)]
        return (view.last_step or 0) > 300 and all(
            any(note.startswith(words) for note in view.losses.notes) for words in is_told
        )

    with (
        running(3, script=SCRIPT) as (training, _),
        Session([training.pid], str(tmp_path / "run.tuirec"), "uneven", "") as session,
        closing(session.source()) as source,
    ):
        follow(source, Advisor(), has_told)
    # On a crowded host one may lack a core for a while, and is compared in the steps that it shares.
    late = [each for view in seen for each in view.findings if each.id == "straggler"]
    assert [] == [each.ranks for each in late if each.evidence["excess_s"] > 1]
