"""What rules beside `input_bound` say of a data wait: no second number of workers, no look for time that is none."""

from __future__ import annotations

import re

import pytest

from tuiadvisor_rules.evaluate import judge
from tuiadvisor_rules.loader import Rule, load_catalog


def rule(name: str) -> Rule:
    return next(one for one in load_catalog() if one.id == name)


def test_a_loader_without_workers_names_no_number_of_its_own() -> None:
    """It said num_workers=4 beside `input_bound`, which said that 20 would keep up."""
    found = rule("loader_without_workers")
    texts = [found.message, *(one.text for one in found.actions)]
    assert not [text for text in texts if re.search(r"num_workers=[1-9]", text)]


@pytest.mark.parametrize(("other", "is_asked"), [(0.003, False), (0.04, False), (0.2, True), (None, True)])
def test_time_without_a_hook_is_looked_into_where_there_is_some(other: float | None, is_asked: bool) -> None:
    """It was offered where that time was 0.3 % of the step and the wait for data 94 %."""
    values = {"compute_share": 0.05, "steady_steps": 100, "step_s": 0.05, "unseen_share": other}
    outcome = judge(rule("little_compute"), values)
    assert outcome.fires
    assert is_asked == any("py-spy record" in text for text in outcome.rule.measure_next)
