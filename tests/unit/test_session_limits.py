"""A stop holds against everything that was found; a limit that is missed is said, and nothing is saved by an end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tuiadvisor.app.whole_recording import whole_view
from tuiadvisor.session.against_intent import with_intent
from tuiadvisor.session.conduct import conduct
from tuiadvisor.session.economy import economy
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.limits import Least, Rest, missed
from tuiadvisor.session.recorded import Recorded
from tuiadvisor_rules.questions import load_questions

RECORDED = Path(__file__).parents[1] / "recordings" / "h200"
PAYS = Intent(objective="cost", budget=10.0, price_per_device_hour=2.0, remaining_steps=1e6)


@pytest.mark.parametrize("name", ["compiled-look-every-10", "host-hidden"])
def test_a_budget_that_another_precision_could_keep_ends_nothing(name: str) -> None:
    """16 as it is; by the remark on bf16 a sixth of that."""
    view = whole_view(str(RECORDED / f"{name}.tuirec"))
    assert view.verdict.decision == "keep"
    decided = with_intent(view, PAYS).decided
    assert (decided.decision, decided.finding) == ("tune", "full_precision")
    assert "beyond the budget of 10" in decided.sentence
    session = conduct([Recorded("a", view)], PAYS, {}, load_questions())
    assert session.decision.decision == "tune"
    assert "bf16" in session.loop.change
    poorer = with_intent(view, replace(PAYS, budget=0.01)).decided
    assert poorer.decision == "stop"


def test_what_is_to_end_saves_nothing_and_is_not_verified_by_the_tuning() -> None:
    view = whole_view(str(RECORDED / "device-ahead.tuirec"))
    poor = replace(PAYS, budget=0.01)
    ended = with_intent(view, poor)
    assert ended.decided.decision == "stop"
    assert economy(ended, poor)["saved_h"] is None
    assert economy(with_intent(view, replace(poor, budget=1e3)), poor)["saved_h"] is not None
    session = conduct([Recorded("a", view)], poor, {}, load_questions())
    assert session.verify == ended.decided.verify
    assert session.verify != view.verdict.verify


@pytest.mark.slow
def test_a_deadline_that_is_missed_is_said_beside_the_decision() -> None:
    view = whole_view(str(RECORDED / "device-ahead.tuirec"))
    late = Intent(objective="time", deadline_h=0.001, remaining_steps=1e6)
    decided = with_intent(view, late).decided
    assert decided.decision == "tune"
    assert "but the deadline is in 0.001 h" in decided.sentence
    assert "still not within it" in decided.sentence
    assert decided.speedup == view.verdict.speedup
    session = conduct([Recorded("a", view)], late, {}, load_questions())
    assert "but the deadline is in 0.001 h" in session.decision.why


def test_what_the_rest_could_take_at_best_says_what_the_named_losses_are_of_it() -> None:
    """It named two losses as "every loss that was found", which together were a third of the hours."""
    waits = Least(0.4, None, "A waits; B pauses", (("A waits", 0.2), ("B pauses", 0.1)))
    told = missed(Rest(10.0, None, 0.0, waits), Intent(deadline_h=8), 1.0)
    assert told is not None
    assert told.reachable
    assert told.words.startswith(
        "the rest of the run takes 10 h, but the deadline is in 8 h; without all losses"
    )
    assert "at best, within it: " in told.words
    assert (
        "of which 2 h by “A waits” and 1 h by “B pauses”, the rest by smaller losses and chance" in told.words
    )
    late = missed(Rest(10.0, None, 0.0, waits), Intent(deadline_h=2), 1.0)
    assert late is not None
    assert "still not within it" in late.words
    nothing = missed(Rest(10.0, None, 0.0, Least()), Intent(deadline_h=2), 1.0)
    assert nothing is not None
    assert nothing.words.endswith("in 2 h; nothing that was found would change that")
    dear = missed(Rest(10.0, 100.0, 0.0, waits), Intent(deadline_h=2, budget=50), 1.0)
    assert dear is not None
    assert "costs 100, beyond the budget of 50 and takes 10 h, but the deadline is in 2 h" in dear.words
