"""What a change of phase costs with warm caches: the price until the training's own steps have told theirs."""

from __future__ import annotations

from time import monotonic_ns

from . import ring
from .phases import FORWARD
from .step_clock import StepClock

NUM_ROUNDS = 200


def calibrate() -> int:
    """Nanoseconds of one enter or leave, booked, on a scratch ring in memory."""
    scratch = StepClock(_NullRing(), 0, lambda: None)
    begin = monotonic_ns()
    for _ in range(NUM_ROUNDS):
        scratch.enter(FORWARD)
        scratch.leave()
    scratch.catch_up()
    return (monotonic_ns() - begin) // (2 * NUM_ROUNDS)


class _NullRing:
    """The header words of a ring, without a file."""

    def __init__(self) -> None:
        self.words = memoryview(bytearray(ring.INFO_OFFSET)).cast("q")
