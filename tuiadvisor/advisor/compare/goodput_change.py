"""Did goodput improve? Two useful shares, compared where they are of the same stretch of a run.

In: two RunViews.  Out: GoodputChange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.compare.bottlenecks import TWO_MODELS
from tuiadvisor.views.comparison import GoodputChange

if TYPE_CHECKING:
    from tuiadvisor.views.goodput import Goodput
    from tuiadvisor.views.run_view import RunView

STEPS, PAUSES = "steps", "pauses"
SAME_SPAN: Final = 1.5  # start-up weighs more in a shorter recording: beyond this spans are not compared


def goodput_change(
    before: RunView, after: RunView, floor: float, *, apart: str = "", by_chance: str = ""
) -> GoodputChange | None:
    """None where neither run has a figure. floor: what runs of one code may differ by; apart: as of `bottleneck`.

    by_chance: what may make a difference of the two by itself: STEPS any, PAUSES none that could be seen.
    """
    one, other = before.wall, after.wall
    if one is None or other is None:
        return None
    spans = one.span_s - one.unknown_s, other.span_s - other.unknown_s
    longer, shorter = max(spans), min(spans)
    is_same = one.from_start == other.from_start and shorter > 0 and longer <= SAME_SPAN * shorter
    is_same = is_same and one.end_to_end is not None and other.end_to_end is not None
    old, new = (one.end_to_end, other.end_to_end) if is_same else (one.steady, other.steady)
    improved = None
    if old is not None and new is not None and abs(new - old) > floor and not apart and by_chance != STEPS:
        improved = new > old
    is_open = bool(by_chance) and not apart and improved is None and None not in (old, new)
    return GoodputChange(
        before=one.end_to_end,
        after=other.end_to_end,
        before_steady=one.steady,
        after_steady=other.steady,
        is_end_to_end=is_same,
        improved=improved,
        sentence=_of_two(one, other, is_other_model=apart == TWO_MODELS)
        if apart
        else _sentence(old, new, improved, is_same=is_same, by_chance=by_chance if is_open else ""),
        is_other_model=apart == TWO_MODELS,
        is_apart=bool(apart),
        is_open=is_open,
    )


def _sentence(
    old: float | None, new: float | None, improved: bool | None, *, is_same: bool, by_chance: str = ""
) -> str:
    of = "" if is_same else " of the steady steps"
    if old is None or new is None:
        which = "neither run could" if old is None and new is None else "one of the runs could not"
        return f"Whether goodput{of} improved is unknown: {which} be judged."
    told = f"{100 * old:.0f} % before, {100 * new:.0f} % after"
    if by_chance:
        which = "it is" if is_same else "of the steady steps it is"
        left_out = "" if is_same else "the recordings are not of equal stretches, and "
        why = {
            STEPS: "whether a step became longer or shorter is not decided, either",
            PAUSES: "what pauses make of it may be chance",
        }[by_chance]
        return f"Whether goodput improved is not decided: {which} {told}; {left_out}{why}."
    words = {True: "improved", False: "became worse", None: "did not change beyond noise"}[improved]
    why = (
        "" if is_same else "; the recordings are not of equal stretches, so start-up and pauses are left out"
    )
    return f"Goodput{of} {words}: {told}{why}."


def _of_two(before: Goodput, after: Goodput, *, is_other_model: bool) -> str:
    """Their figures stand beside each other; another model's larger share is no improvement of this one's."""
    if before.steady is None or after.steady is None:
        return _sentence(before.steady, after.steady, None, is_same=False)
    told = f"{100 * before.steady:.0f} % before, {100 * after.steady:.0f} % after"
    which = "two models" if is_other_model else "runs that are not comparable"
    return f"Goodput of the steady steps: {told}; whether that is better is not judged between {which}."
