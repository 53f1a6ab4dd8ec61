"""A short self-test on the run that is shown: questions whose answers are figures of this run.

In: RunView.  Out: Question; only those that the run can answer, and of which no two choices read alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.text import format as text_of
from tuiadvisor.text.glossary import worst

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView

FEWEST: Final = 2  # choices
WHO: Final = "Which rank holds the others up?"
NOBODY: Final = "none of them"


@dataclass(frozen=True, slots=True)
class Question:
    """One question. choices are in an order that gives nothing away."""

    ask: str
    choices: tuple[str, ...]
    right: str
    because: str


def questions(view: RunView) -> tuple[Question, ...]:
    """Those that this run answers, the most telling first."""
    asked = (
        _who(view),
        _victim(view),
        _largest(view),
        _network(view),
        _without(view),
        _next(view),
        _useful(view),
        _bubble(view),
        _stage(view),
        _steady(view),
    )
    return tuple(question for question in asked if question is not None)


def _asked(ask: str, right: str, others: tuple[str | None, ...], because: str) -> Question | None:
    """None where a choice is unknown or reads like another."""
    wrong = tuple(dict.fromkeys(one for one in others if one and one not in {right, text_of.UNKNOWN}))
    choices = tuple(sorted((right, *wrong)))
    if right == text_of.UNKNOWN or len(choices) < FEWEST:
        return None
    return Question(ask, choices, right, because)


def _who(view: RunView) -> Question | None:
    found = worst(view)
    if len(view.ranks) < FEWEST:
        return None
    if found is None:
        return _nobody(view)
    others = [row for row in view.ranks if row.rank not in {one.rank for one in view.stragglers}]
    waiting = sorted(others, key=lambda row: (-(row.wait_s or 0.0), row.rank))[:2]
    return _asked(
        WHO,
        f"rank {found.rank}",
        (*(f"rank {row.rank}" for row in waiting), NOBODY),
        f"Rank {found.rank} arrives last at the gradient barrier and costs "
        f"{text_of.seconds(found.loss_s_per_step)} a step; those that wait are its victims.",
    )


def _nobody(view: RunView) -> Question | None:
    """Of a run that was judged; None where a part of the ranks is named for something else that others wait for."""
    is_unknown = not view.window.enough or any(entry.metric == "stragglers" for entry in view.unknown)
    is_some = any(0 < len(each.ranks) < len(view.ranks) for each in view.findings)
    waiting = [row for row in view.ranks if row.wait_s is not None]
    if is_unknown or is_some or view.stall is not None or len(waiting) < FEWEST:
        return None
    ordered = sorted(waiting, key=lambda row: (row.wait_s or 0.0, row.rank))
    return _asked(
        WHO,
        NOBODY,
        (f"rank {ordered[0].rank}", f"rank {ordered[-1].rank}"),
        "One of them is last at the gradient barrier in every step, but no single one late often enough, or by "
        "enough, to be named.",
    )


def _victim(view: RunView) -> Question | None:
    culprits = {one.rank for one in view.stragglers}
    waiting = [row for row in view.ranks if row.wait_s and row.rank not in culprits]
    if not waiting or not culprits:
        return None
    most = max(waiting, key=lambda row: (row.wait_s or 0.0, -row.rank))
    return _asked(
        f"Rank {most.rank} waits {text_of.seconds(most.wait_s)} of each step. Is it the slow one?",
        "no, it waits for a later one",
        ("yes, it wastes that time",),
        "Who waits arrived early. In a synchronous job all steps are equally long, and only the order of arrival "
        "tells who is late.",
    )


def _largest(view: RunView) -> Question | None:
    known = {phase: share for phase, share in view.step.shares.items() if share}
    ordered = sorted(known, key=lambda phase: -known[phase])[:3]
    if len(ordered) < FEWEST or text_of.share(known[ordered[0]]) == text_of.share(known[ordered[1]]):
        return None
    first = ordered[0]
    return _asked(
        "On what does a mean step spend most?",
        text_of.phase_name(first),
        tuple(text_of.phase_name(phase) for phase in ordered[1:]),
        f"{text_of.phase_name(first)} takes {text_of.seconds(view.step.seconds.get(first))}, "
        f"{text_of.share(known[first])} of it. The largest part is not always the one that can be shortened.",
    )


def _network(view: RunView) -> Question | None:
    held = view.overlap
    if not held.comm_exposed_s or held.transfer_s is None or held.skew_s is None:
        return None
    return _asked(
        "An infinitely fast network would shorten a step by how much at most?",
        text_of.seconds(held.transfer_s),
        (text_of.seconds(held.comm_exposed_s), text_of.seconds(held.skew_s)),
        f"Of {text_of.seconds(held.comm_exposed_s)} exposed communication {text_of.seconds(held.skew_s)} is waiting "
        f"for the last rank: only the transfer, {text_of.seconds(held.transfer_s)}, is the network's.",
    )


def _without(view: RunView) -> Question | None:
    speedup, mean_s = view.verdict.speedup, view.step.mean_s or view.step.median_s
    if speedup is None or mean_s is None or speedup.expected <= 1.0:
        return None
    right = text_of.seconds(mean_s / speedup.expected)
    return _asked(
        f"A step takes {text_of.seconds(mean_s)}. How long without what the verdict names?",
        right,
        (text_of.seconds(mean_s), text_of.seconds(mean_s / speedup.expected**2)),
        f"{text_of.factor(speedup.expected)} as fast ({text_of.factor(speedup.low)} to "
        f"{text_of.factor(speedup.high)}): {right}. More is not to be had there.",
    )


def _next(view: RunView) -> Question | None:
    following = view.verdict.next_constraint
    if not following:
        return None
    others = [text_of.phase_name(phase) for phase in ("optimizer", "data_wait", "comm_exposed", "forward")]
    right = text_of.phase_name(following)
    return _asked(
        "That is fixed. What limits the step next?",
        right,
        tuple(name for name in others if name != right)[:2],
        f"{right}: a bottleneck that is removed gives way to the next one, and further work on the first is lost.",
    )


def _useful(view: RunView) -> Question | None:
    useful = view.useful_share
    if useful is None:
        return None
    right = text_of.share(useful)
    return _asked(
        "Which share of the time brought the training forward?",
        right,
        (text_of.share(1.0), text_of.share(1.0 - useful)),
        f"Goodput is {right}: start-up, waiting, pauses and restarts are time, too, however busy the devices look.",
    )


def _bubble(view: RunView) -> Question | None:
    held = view.pipeline
    if held is None or held.bubble is None or held.ideal_bubble is None:
        return None
    return _asked(
        f"With {text_of.count(held.num_stages, 'stage')} and "
        f"{text_of.count(held.num_micro_batches, 'micro-batch', 'micro-batches')}, "
        "how much idling has even a perfect pipeline?",
        text_of.share(held.ideal_bubble),
        (text_of.share(held.bubble), text_of.share(0.0)),
        f"{text_of.share(held.ideal_bubble)} is filling and draining; measured were {text_of.share(held.bubble)}. "
        "More micro-batches lower the first, even stages the rest.",
    )


def _stage(view: RunView) -> Question | None:
    held = view.pipeline
    if held is None or held.split_stage is None:
        return None
    others = [stage.stage for stage in held.stages if not stage.is_heavy][:2]
    return _asked(
        "Which stage should be split?",
        f"stage {held.split_stage}",
        tuple(f"stage {stage}" for stage in others),
        f"Stage {held.split_stage} takes longest; all others wait for it with every micro-batch.",
    )


def _steady(view: RunView) -> Question | None:
    left_out = sum(view.window.excluded.values())
    if not left_out or not view.window.num_steps:
        return None
    return _asked(
        f"{text_of.count(left_out, 'step')} of warm-up and the like: are they in the mean above?",
        "no",
        ("yes",),
        f"It rests on {text_of.count(view.window.num_steps, 'steady step')}. To judge by the first steps is to judge "
        "compilation and caches.",
    )
