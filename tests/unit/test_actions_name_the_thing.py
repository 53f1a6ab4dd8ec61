"""What is to be done less often, given or let go is named: as the ONE change a sentence stands alone."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest
from snapshot import views
from synthetic_run import Fault, Job, final_view

from tuiadvisor.session.conduct import Session, conduct
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.spoken import moment_lines
from tuiadvisor_rules.loader import catalog_dir, load_catalog
from tuiadvisor_rules.questions import load_questions

# "Do it less often", "Let it go on", "If it stays slow", "If it is validation": what "it" is stands elsewhere.
OPEN = re.compile(r"(?:[A-Z][a-z]+|If) it\b(?! (?:is not|pays))")


def texts() -> list[str]:
    found = []
    for path in sorted(catalog_dir().glob("*.toml")):
        found += re.findall(r'^text = "(.*)"$', path.read_text(encoding="utf-8"), re.MULTILINE)
    return found


def test_no_action_begins_with_a_thing_that_is_not_named() -> None:
    assert load_catalog(catalog_dir())
    assert len(texts()) > 100
    assert [] == [text for text in texts() if OPEN.match(text)]


def test_a_pause_is_named_by_its_length_and_distance() -> None:
    """ONE change: Do it less often, on all ranks at once, or outside the training thread."""
    view = final_view(Job(num_ranks=4, num_steps=400, faults=(Fault("other", None, 0.3, every=50),)))
    found = next(one for one in view.findings if one.id == "periodic_pause")
    assert found.actions[0].text.startswith("Do what takes ")
    assert "every 50 steps less often, on all ranks at once" in found.actions[0].text


@pytest.mark.parametrize("answer", ["useless", "worse but usable"])
def test_an_answer_that_moves_nothing_is_told_what_it_means(answer: str) -> None:
    """Answering 'useless' gave "That moved nothing by itself." and nothing else."""
    questions = load_questions()

    def hold(given: dict[str, str | float], last: str, skipped: Collection[str]) -> Session:
        run = Recorded("a.tuirec", views.straggler())
        return conduct([run], Intent(objective="cost"), given, questions, last=last, skipped=skipped)

    session = hold({"run_worth_finishing": answer}, "run_worth_finishing", ())
    told = " ".join(moment_lines(session.dialogue, is_first=False))
    meant = {"useless": "The run must finish", "worse but usable": "Weigh the remaining improvement"}[answer]
    assert meant in told
    assert "It is kept; causes, change and decision stay as they were." in told
