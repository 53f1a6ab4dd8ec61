"""The lines of code a rank spends its time at, beside a peer's: what the card of a straggler, a loader or a hang shows.

In: nothing.  Out: StackCard, every figure from samples; None means that it was not observed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CardLine:
    """One line of code. *seconds: share of the samples times the step's time."""

    place: str  # "train.py:49"
    name: str  # the function it is in
    calls: str  # what it was calling most often, "" for nothing in Python
    num: int
    share: float
    seconds: float | None
    margin_s: float | None  # of the seconds, either way, at 95 %: what so few samples leave open
    peer_num: int | None
    peer_share: float | None
    peer_seconds: float | None
    differs: bool  # beyond sampling noise


@dataclass(frozen=True, slots=True)
class StandsAt:
    """Where one rank of a job that hangs is."""

    rank: int
    place: str  # "" where it could not be seen
    name: str
    calls: str
    share: float | None
    native: tuple[str, ...]  # Python and C, innermost first
    why: str


@dataclass(frozen=True, slots=True)
class StackCard:
    """What one look at the stacks showed."""

    look: int
    subject: str  # straggler | input | host | hang
    rank: int
    peer: int | None
    words: str  # the one sentence
    basis: str  # how many samples of whom, how they were taken
    step_s: float | None
    num_samples: int
    num_peer_samples: int | None
    lines: tuple[CardLine, ...]
    workers: tuple[CardLine, ...]  # of the loader's processes, all together
    num_workers: int
    num_worker_samples: int
    stands: tuple[StandsAt, ...]
    notes: tuple[str, ...]  # what could not be had
    # What the rank does where its peer does not: loader, by what its workers are at dataset | collate | idle workers,
    # collective (it waits for others), own code; "" where samples do not tell.
    kind: str = ""
    step: int | None = (
        None  # of the job, at which its rank was when the look ended; None: not among the steps held
    )
