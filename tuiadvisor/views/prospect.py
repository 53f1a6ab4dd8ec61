"""What a step would take if one thing were changed: a place of the slider on the step's picture.

In: nothing.  Out: Prospect; nothing computes after it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prospect:
    """Seconds of a step now and then."""

    words: str  # "rank 2 fixed", "twice the buckets"
    now_s: float
    step_s: float  # expected; where at_best, the least it could be
    low_s: float
    high_s: float
    at_best: bool  # a bound, not a prediction
    basis: str  # what it rests on
    share: float  # step_s of now_s
