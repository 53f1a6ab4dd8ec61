"""Goodput in words: the figure, what it is of, and what it leaves out.

In: Goodput.  Out: sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.text import format as text_of

if TYPE_CHECKING:
    from tuiadvisor.views.goodput import Goodput

NO_STEPS = "no step was seen yet"
EARLIER = "an earlier moment is shown; End goes to the newest"


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


def notes(found: Goodput) -> list[str]:
    """What belongs beside it."""
    said = []
    if found.steady is not None:
        alone = f"of the steady steps that the verdict rests on {text_of.share(found.steady)} is useful"
        is_worse = found.end_to_end is not None and found.steady < found.end_to_end
        why = (
            "they lose more than the rest of the run did"
            if is_worse
            else "start-up, warm-up, pauses and restarts are the difference"
        )
        said.append(f"{alone}: {why}")
    if found.unknown_s > 0:
        said.append(
            f"{text_of.seconds(found.unknown_s)} were not seen or not judged: neither useful nor lost"
        )
    if not found.from_start:
        said.append("start-up was not seen; start the job with tuiadvisor run to have it in the figure")
    if found.num_restarts:
        again = (
            "how many steps were done again is unknown: the optimizer tells no count"
            if found.steps_done_again is None
            else f"{text_of.count(found.steps_done_again, 'step')} done again after them"
        )
        said.append(f"{text_of.count(found.num_restarts, 'restart')} seen; {again}")
    return said
