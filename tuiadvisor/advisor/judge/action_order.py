"""What was measured of hosts and devices orders what a finding advises, as it does in the guided session.

In: judged findings, what was seen of the hosts.  Out: the same; an action that a measurement speaks against stands
behind those it does not. Where looks at processes chose the actions they are of what is slow itself, and stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tuiadvisor.views.measured import is_looked_into, of_hosts
from tuiadvisor_rules.questions import load_questions

if TYPE_CHECKING:
    from tuiadvisor.advisor.judge.findings import Judged
    from tuiadvisor.views.measured import Watched
    from tuiadvisor.views.run_view import Action


def in_measured_order(judged: list[Judged], seen: Watched) -> list[Judged]:
    """Findings with their actions in the order in which to try them."""
    answers = of_hosts(seen)
    asked = (
        [(one, answers[one.id].answer) for one in load_questions() if one.id in answers] if answers else []
    )
    if not asked:
        return judged

    def place(action: Action) -> tuple[bool, int]:
        speaks = (sum(one.speaks(answer, action.text, action.risk)) for one, answer in asked)
        return action.last_resort, -sum(speaks)

    return [
        entry
        if is_looked_into(entry.finding)
        else replace(
            entry, finding=replace(entry.finding, actions=tuple(sorted(entry.finding.actions, key=place)))
        )
        for entry in judged
    ]
