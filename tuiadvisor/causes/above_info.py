"""What may stand above info: findings whose interval of what a cure brings leaves out zero, and these few beside.

A finding above info makes the verdict. What it would bring is the only reason to act on one about the pace of steps; of
what is not about their pace nothing can be gained, and each of these says here why it counts nevertheless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.registry import cause_of
from tuiadvisor.causes.serving import SERVING

if TYPE_CHECKING:
    from tuiadvisor.metrics.series.what_if import Gain

WITHOUT_GAIN: Final = {
    "hang": "no step ends, so there is no step that could be shorter",
    "memory_creep": "the run ends when the memory is full: what is at stake is the run, and no step of it",
    **dict.fromkeys(SERVING.rules, "requests miss what was stated for them or wait; there are no steps"),
}
# Verdicts that rest on no finding's gain, and why: what they say is a fact, and what could help is told as a bound.
OF_NO_FINDING: Final = {
    "a limit that is missed": "even the shortest step as it is misses it; what could keep it is said to be at best",
    "a rank that died": "the job ended; nothing of its steps is promised",
    "stop, rescale": "the whole interval is a gain: what it costs to go on, or what fewer devices save",
}
OF_USERS: Final = "how grave it is was stated by whoever wrote the rule"


def why_without_gain(rule_id: str) -> str:
    """Why a finding of this rule may stand above info though its gain is not known; empty: it may not."""
    return OF_USERS if cause_of(rule_id) is None else WITHOUT_GAIN.get(rule_id, "")


def is_worth_acting(rule_id: str, gain: Gain | None) -> bool:
    """Whether a finding of this rule may stand above info. gain: what its cure brings, None: unknown.

    Where a gain is known its interval decides, whatever the rule.
    """
    if gain is None:
        return bool(why_without_gain(rule_id))
    return gain.loss_low_s > 0 and gain.speedup_low > 1
