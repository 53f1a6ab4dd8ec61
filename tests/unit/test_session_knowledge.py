"""Everything the advisor should know is carried by a rule or by a question of the session."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tuiadvisor_rules.condition import RuleError
from tuiadvisor_rules.evaluate import check
from tuiadvisor_rules.loader import load_catalog
from tuiadvisor_rules.questions import IMBALANCES, PITFALLS, Question, load_questions, questions_dir

PATTERNS = ("P1", "P2", "P3", "P4", "P5", "P6")
LENSES = ("L-AMORT", "L-CODESIGN", "L-BALANCE", "L-PURPOSE")
LAYERS = (
    "gpu-compute",
    "gpu-memory",
    "cpu-os",
    "network",
    "storage",
    "runtime",
    "scheduler",
    "application",
)
SITUATIONS = (
    "B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9",
    "G1", "G2", "G3", "G4", "G5",
    "F1", "F2", "F3", "F4", "F5", "F6", "F7",
)  # fmt: skip
KINDS = (
    "static-partition",
    "variable-length",
    "uneven-device",
    "slow-host",
    "uneven-stages",
    "pipeline-bubble",
)
TRAPS = (
    "compute-on-memory-bound",
    "free-communication",
    "no-profile",
    "linear-scaling",
    "trusting-utilization",
    "judging-warmup",
    "different-work",
    "blaming-the-waiting",
)
MEASURED = ("B1", "B4", "B5", "F1", "F3", "F5", "F6", "G1", "G2")


def test_every_row_is_carried_by_a_rule_or_a_question() -> None:
    """Patterns, lenses, layers, behaviours, goodput, first suspects, imbalance and pitfalls."""
    carried = set()
    for rule in load_catalog():
        carried |= {rule.pattern, rule.lens, *rule.secondary_lenses, rule.layer, *rule.situations}
    for question in load_questions():
        carried |= {question.pattern, question.lens, question.layer, *question.covers}
    rows = (*PATTERNS, *LENSES, *LAYERS, *SITUATIONS, *KINDS, *TRAPS)
    assert [] == [row for row in rows if row not in carried]


def test_what_named_metrics_can_show_is_a_rule() -> None:
    """Asking is for what cannot be measured."""
    by_rules = {row for rule in load_catalog() for row in rule.situations}
    assert [] == [row for row in MEASURED if row not in by_rules]


def test_the_lists_of_our_own_are_complete() -> None:
    """Imbalance and pitfalls have no ids elsewhere: ours may not lose one."""
    assert set(KINDS) == set(IMBALANCES)
    assert set(TRAPS) == set(PITFALLS)


@pytest.mark.parametrize("question", load_questions(), ids=lambda question: question.id)
def test_every_question_ends_in_a_question_and_says_what_answers_mean(question: Question) -> None:
    """And names the command that would measure it."""
    asked = question
    assert asked.ask.endswith("?")
    answers = {"yes_no": {"yes", "no"}, "choice": set(asked.choices)}.get(asked.kind, {"any"})
    assert answers == set(asked.means)
    assert len(asked.measure) > 10


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('kind = "yes_no"', 'kind = "yesno"', "no kind 'yesno'; did you mean 'yes_no'"),
        ('layer = "cpu-os"', 'layer = "cpu"', "no layer 'cpu'"),
        ('covers = ["B1",', 'covers = ["B11",', "covers no 'B11'; did you mean 'B1'"),
        ("data_wait_share >= 0.05", "data_wait >= 0.05", "no metric 'data_wait'; did you mean 'data_wait_share'"),
        ('no = "tune"', 'no = "tunes"', "suggests no 'tunes'; did you mean 'tune'"),
        ("ask = ", "asks = ", "unknown key 'asks'; did you mean 'ask'"),
        ('pattern = "P1"', 'pattern = "P9"', "'pattern' must be one of"),
        ('id = "storage_at_ceiling"', 'id = "host_cpus_full"', "'host_cpus_full' is there twice"),
        ("[[questions]]", "[[questions", "not TOML"),
        ('covers = ["B1", "F1", "trusting-utilization"]', "covers = 1", "'covers' must be a list of texts"),
        ('pattern = "P1"', 'patern = "P1"', "must hold pattern and [[questions]]"),
        ('kind = "yes_no"', 'kind = "choice"', "a choice needs choices"),
        ("ask = ", "ask = ' ' # ", "'ask' must be a text"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_one_line_with_the_nearest_name(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    """As for rules."""
    text = (questions_dir() / "p1.toml").read_text()
    assert old in text
    (tmp_path / "mine.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(RuleError, match=re.escape(says)) as caught:
        load_questions(tmp_path)
    assert "mine.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


QUESTION = {
    "id": "x", "lens": "L-BALANCE", "layer": "storage", "covers": ["B1"], "kind": "yes_no",
    "ask": "Is it?", "measure": "iostat -x 1", "means": {"yes": "so", "no": "not"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, ""),
        ({"means": "so"}, "means and suggests must be tables of texts"),
        ({"suggests": {"yes": 1}}, "means and suggests must be tables of texts"),
        ({"favours": ["+ more"]}, "favours must be a table of lists"),
        ({"favours": {"maybe": ["+more workers"]}}, "no answer 'maybe'"),
        ({"favours": {"yes": ["more workers"]}}, "favours lists +words or -words of an action"),
        ({"favours": {"yes": ["+"]}}, "favours lists +words or -words of an action"),
    ],
)
def test_what_answers_do_is_checked(tmp_path: Path, more: dict[str, object], says: str) -> None:
    """A wish for an action that is written wrongly would favour none, silently."""
    entry = {**QUESTION, **more}

    def toml(value: object) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{name} = {toml(each)}" for name, each in value.items()) + "}"
        return json.dumps(value)

    lines = [f"{name} = {toml(value)}" for name, value in entry.items()]
    (tmp_path / "mine.toml").write_text("\n".join(['pattern = "P1"', "[[questions]]", *lines]))
    if not says:
        assert ["x"] == [question.id for question in load_questions(tmp_path)]
        return
    with pytest.raises(RuleError, match=re.escape(f"question 'x': {says}")):
        load_questions(tmp_path)


def test_a_folder_without_questions_is_said(tmp_path: Path) -> None:
    """A session without any would ask nothing and seem content."""
    with pytest.raises(RuleError, match=r"no files of questions \(\*\.toml\) in it"):
        load_questions(tmp_path)


def test_rules_check_reads_the_questions_too(tmp_path: Path) -> None:
    """`rules check DIR` names a wrong file of questions."""
    rule = (questions_dir().parent / "input_bound.toml").read_text()
    (tmp_path / "input_bound.toml").write_text(rule)
    (tmp_path / "questions").mkdir()
    (tmp_path / "questions" / "p1.toml").write_text('pattern = "P1"\nquestions = [1]\n')
    assert ["[[questions]] must be tables"] == [problem.rpartition(": ")[2] for problem in check(tmp_path)]


def test_a_question_is_asked_where_its_evidence_is_missing() -> None:
    """Unknown is no reason to leave it out; a measured "no" is."""
    (question,) = [one for one in load_questions() if one.id == "host_cpus_full"]
    assert question.concerns({})
    assert question.concerns({"data_wait_share": 0.2})
    assert not question.concerns({"data_wait_share": 0.01})
