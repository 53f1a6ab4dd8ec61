"""Goodput in words: the figure, what it is of, and what it leaves out.

In: Goodput.  Out: sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.phases import PAUSES
from tuiadvisor.text import format as text_of
from tuiadvisor.views.goodput import kind_words
from tuiadvisor.views.lost_by import late_stretches

if TYPE_CHECKING:
    from tuiadvisor.views.goodput import Goodput
    from tuiadvisor.views.lost_by import LateStretch
    from tuiadvisor.views.run_view import RunView

MAX_LATE: Final = 4  # stretches in one sentence
NO_STEPS = "no step was seen yet"
# What no steady step has a part of; pauses beside them.
BESIDE_STEADY_STEPS: Final = frozenset(
    {"startup", "warmup", "before_change", "unnamed", "done_again", "restart", "gap", "hang", *PAUSES}
)
WORTH_SAYING: Final = 0.1  # of the step: as rule communication_bound, from where exposed time deserves a look
EARLIER = "an earlier moment is shown, and the whole wall time is accounted for at the newest one alone; End goes there"


def name_of(view: RunView) -> str:
    """What the one figure of goodput is called: of the wall time, or of steady steps where that is not known."""
    return (
        "goodput of steady steps" if view.is_goodput_of_steps and view.useful_share is not None else "goodput"
    )


def headline(found: Goodput) -> str:
    """The figure and its base."""
    if found.end_to_end is None:
        return f"goodput {text_of.UNKNOWN}: too little of {text_of.seconds(found.span_s)} could be judged"
    base = "from the start of the process" if found.from_start else "that was watched"
    known = text_of.seconds(found.span_s - found.unknown_s)
    whole = f", leaving out {text_of.seconds(found.unknown_s)} that are not known" if found.unknown_s else ""
    return f"goodput {text_of.share(found.end_to_end)}: useful steps in {known} of wall time {base}{whole}"


def title(found: Goodput) -> str:
    """Over the waterfall: what its shares are of, where that is not what the figure is of."""
    name = "where the wall time went"
    return f"{name}, shares of all {text_of.seconds(found.span_s)}" if found.unknown_s else name


def _why_not_as_useful(found: Goodput) -> str:
    """As the steady steps: what only the rest of the run lost, by what was seen of it."""
    if found.end_to_end is not None and (found.steady or 0.0) < found.end_to_end:
        return "they lose more than the rest of the run did"
    lost = [kind_words(part.kind) for part in found.waterfall if _is_beside_steady_steps(part.kind)]
    if not lost:
        return "the rest of the run lost more"
    return f"beside them {'; '.join(lost)}"


def _is_beside_steady_steps(kind: str) -> bool:
    return kind in BESIDE_STEADY_STEPS or kind.startswith(("pause", "periodic_pause"))


def late_words(view: RunView) -> str:
    """For whom the others waited, stretch by stretch: "" where it was one rank all along, for that stands elsewhere."""
    found = late_stretches(view)
    if all(one.last_step is None for one in found):
        return ""
    told = [f"{text_of.ranks(one.ranks)} {_when(one)}" for one in found[-MAX_LATE:]]
    left = len(found) - MAX_LATE
    more = f" ({text_of.count(left, 'earlier stretch', 'earlier stretches')} not listed)" if left > 0 else ""
    return f"the others waited for {'; for '.join(told)}{more}"


def _when(one: LateStretch) -> str:
    if one.last_step is None:
        return "by now" if one.first_step is None else f"since step {one.first_step:,}"
    begun = "" if one.first_step is None else f"from step {one.first_step:,} "
    return f"{begun}until about step {one.last_step:,}"


def notes(found: Goodput) -> list[str]:
    """What belongs beside it."""
    said = []
    if found.steady is not None:
        steady = text_of.share(found.steady)
        alone = f"of the steady steps that the verdict rests on, {steady} is useful"
        said.append(
            alone if steady == text_of.share(found.end_to_end) else f"{alone}: {_why_not_as_useful(found)}"
        )
    if found.steady is not None and (found.unseen or 0.0) >= WORTH_SAYING:
        said.append(
            f"{text_of.share(found.unseen)} of a steady step passes in code that no hook sees: counted as useful, "
            "though it may sleep or wait there"
        )
    if found.unknown_s > 0:
        said.append(
            f"{text_of.seconds(found.unknown_s)} were not seen or not judged: neither useful nor lost"
        )
    if not found.from_start:
        said.append("start-up was not seen; start the job with tuiadvisor run to have it in the figure")
    if found.num_restarts:
        said.append(f"{text_of.count(found.num_restarts, 'restart')} seen; {_again(found)}")
    return said


def _again(found: Goodput) -> str:
    if found.num_stepless:
        return "no step since: how many will be done again is unknown"
    if found.steps_done_again is None:
        return "how many steps were done again is unknown: the optimizer gives no count"
    after = "it" if found.num_restarts == 1 else "them"
    return f"{text_of.count(found.steps_done_again, 'step')} done again after {after}"
