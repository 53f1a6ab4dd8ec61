"""A session as its screen shows it: six stages, one card with the decision, all of it in words.

In: Session.  Out: Guided, frozen; nothing computes after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.session.markdown import UNKNOWN, cost_words, gain_words, steps_words
from tuiadvisor.views.names import limit_name

if TYPE_CHECKING:
    from tuiadvisor.session.answer import Why
    from tuiadvisor.session.case import Kind
    from tuiadvisor.session.conduct import Session
    from tuiadvisor.session.dialogue import Dialogue
    from tuiadvisor.session.stages import Stage

# What stands in the list of patterns, where there is no room for a sentence.
SHORT: Final = {
    "P1": "Bottleneck",
    "P2": "Overheads",
    "P3": "Objective",
    "P4": "Size of work",
    "P5": "Effort",
    "P6": "Cost",
}


SKIP: Final = "skip"  # instead of an answer: not to be asked again


@dataclass(frozen=True, slots=True)
class Guided:
    """One moment of a session."""

    run: str
    stages: tuple[Stage, ...]
    decision: Kind
    why: str
    card: tuple[tuple[str, str], ...]  # (name, text): gain, cost, break-even, next constraint
    would_change: tuple[str, ...]
    verify: str
    loop: tuple[tuple[str, str], ...]  # (name, text): baseline, hypothesis, one change, commands
    saved: str  # where the answers are kept, or why they are not
    dialogue: Dialogue | None = None  # one question at a time
    judged: str = ""  # what of the run the evidence is of
    whys: tuple[Why, ...] = ()  # questions in plain words, with what the run says
    is_open: bool = False  # nothing is decided yet


def guided(session: Session, saved: str, judged: str = "") -> Guided:
    """The session for the screen."""
    decision, loop = session.decision, session.loop
    return Guided(
        run=session.run,
        stages=session.stages,
        decision=decision.decision,
        is_open=decision.is_open,
        why=decision.why,
        card=(
            ("gain", gain_words(decision, session.intent.currency)),
            ("cost", cost_words(decision, session.intent.currency)),
            ("break-even", steps_words(decision)),
            ("then", limit_name(session.next_constraint or UNKNOWN)),
        ),
        would_change=session.would_change,
        verify=session.verify,
        loop=(
            ("baseline", loop.baseline),
            ("hypothesis", loop.hypothesis),
            ("ONE change", loop.change),
            *(("run" if place == 0 else "then", command) for place, command in enumerate(loop.commands)),
        ),
        saved=saved,
        dialogue=session.dialogue,
        judged=judged,
        whys=session.whys,
    )
