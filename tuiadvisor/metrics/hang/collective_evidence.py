"""Who of a standing job has not entered which collective, by the flight recorders of its ranks.

In: the ranks' answers.  Out: the collectives that ranks wait in, judged by the code that judges dumps in files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.hang.dumps_together import side_by_side
from tuiadvisor.metrics.hang.missing_ranks import Hang, Waiting, diagnose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.hang.asked_recorder import Asked

# Nothing moves for 5 s before anybody is asked: a younger call is of ranks that go on where no phase shows it.
YOUNG_NS: Final = 2 * 10**9
# So is one of the last quarter of the time that its rank has stood: an evaluation's collective every half a minute. Who
# hangs is asked at three times its longest step, with its last call in the first of them.
YOUNG_SHARE: Final = 4
ON_CPU: Final = "gloo:"  # calls of it
MAX_JOINED: Final = 4096  # ranks; each is held against all of its groups


@dataclass(frozen=True, slots=True)
class CollectiveEvidence:
    """hang: as of dumps. unasked: rank -> why nothing is known of it. is_moving: calls were still being entered."""

    hang: Hang
    unasked: tuple[tuple[int, str], ...]
    is_moving: bool = False
    is_dumped: bool = (
        False  # of an import: when the dumps were written, and what ranks did since, is not known
    )

    @property
    def is_whole(self) -> bool:
        """Whether every rank has told, so that who is missing nowhere is missing from nothing."""
        return (
            not self.unasked
            and not self.is_moving
            and not self.hang.beside
            and not any(wait.unrecorded for wait in self.hang.waits)
        )

    @property
    def waiting(self) -> frozenset[int]:
        """Ranks that are inside a collective, or in another call that may wait for somebody."""
        inside = {rank for wait in self.hang.waits for rank in wait.waiting}
        return frozenset(inside | {rank for rank, _ in self.hang.beside})

    def named(self) -> list[tuple[Waiting, tuple[int, ...]]]:
        """The collectives that ranks who wait for nobody have not entered, with those ranks; each rank once."""
        told: set[int] = set()
        found = []
        for wait in self.hang.waits:
            fresh = tuple(rank for rank in wait.missing if rank in self.hang.missing and rank not in told)
            if wait.origin and fresh:
                told |= set(fresh)
                found.append((wait, fresh))
        return found


def collective_evidence(
    answers: tuple[Asked, ...], silent: tuple[tuple[int, str], ...]
) -> CollectiveEvidence | None:
    """What the answers say together; None where nobody has been asked. silent: ranks without an answer, and why."""
    if not answers:
        return None
    beyond = tuple(
        (answer.rank, f"of {len(answers)} ranks {MAX_JOINED} are compared") for answer in answers[MAX_JOINED:]
    )
    return _joined(answers[:MAX_JOINED], (*silent, *beyond))


@lru_cache(maxsize=4)  # pictures are made twice a second, answers come once a stall
def _joined(answers: tuple[Asked, ...], silent: tuple[tuple[int, str], ...]) -> CollectiveEvidence:
    unasked = dict(silent) | {one.rank: one.why for one in answers if one.dump is None}
    usable = [(one.dump, dict(one.groups)) for one in answers if one.dump is not None]
    if _is_moving([one for one in answers if one.dump is not None]):
        return CollectiveEvidence(Hang((), (), "", ""), tuple(sorted(unasked.items())), is_moving=True)
    dumps, groups, stale = side_by_side(usable)
    unasked |= {rank: f"it contradicts the others: {why}" for rank, why in stale.items()}
    hang = diagnose([dumps[rank] for rank in sorted(dumps)], groups) if dumps else Hang((), (), "", "")
    if _is_of_two_moments(hang, answers):
        return CollectiveEvidence(Hang((), (), "", ""), tuple(sorted(unasked.items())), is_moving=True)
    return CollectiveEvidence(hang, tuple(sorted(unasked.items())))


@lru_cache(maxsize=4)
def dumped_evidence(answers: tuple[Asked, ...], silent: tuple[tuple[int, str], ...]) -> CollectiveEvidence:
    """What imported dumps say together: the import has left out those that are of another moment or job."""
    groups = {name: group for one in answers for name, group in one.groups.items()}
    dumps = [one.dump for one in answers if one.dump is not None]
    unasked = dict(silent) | {one.rank: one.why for one in answers if one.dump is None}
    hang = diagnose(dumps, groups) if dumps else Hang((), (), "", "")
    return CollectiveEvidence(hang, tuple(sorted(unasked.items())), is_dumped=True)


def waiting_ranks(answers: tuple[Asked, ...]) -> tuple[int, ...]:
    """Ranks with a call that is not completed: a collective, a send or a receive."""
    return tuple(
        one.rank
        for one in answers
        if one.dump is not None and any(not op.completed for op in one.dump.operations)
    )


def is_recorded(answers: tuple[Asked, ...], before_s: float) -> bool:
    """Whether these tell of a collective that some ranks have entered and others not, and that holds their threads.

    before_s: so long before a rank came to stand it may have entered it, with its thread ahead of its device. What it
    entered earlier it has made steps with: a save in the background, which waits for who still writes. A collective on
    the CPU holds the thread that called it: the training's only if that was met in a call.
    """
    evidence = collective_evidence(answers, ())
    if evidence is None or not evidence.hang.missing:
        return False
    answer_of = {answer.rank: answer for answer in answers}
    return any(
        _began_with(answer_of[rank], wait, before_s)
        for wait in evidence.hang.waits
        for rank in wait.waiting
        if rank in answer_of
    )


def never_ends(answers: tuple[Asked, ...]) -> bool:
    """Whether these tell of what no patience resolves: ranks that call different collectives under one number.

    Not of a rank that has not entered what the others wait in: it may come, as whoever alone writes a checkpoint does.
    """
    evidence = collective_evidence(answers, ())
    return evidence is not None and evidence.hang.different is not None


def _began_with(answer: Asked, wait: Waiting, before_s: float) -> bool:
    """Whether it entered this collective as it came to stand, as far as that is known."""
    operations = answer.dump.operations if answer.dump is not None else ()
    if wait.operation.name.startswith(ON_CPU) and not (answer.dump is not None and answer.dump.beside):
        return False
    entered_ns = max(
        (
            op.created_ns or 0
            for op in operations
            if not op.completed and (op.group, op.seq) == (wait.operation.group, wait.operation.seq)
        ),
        default=0,
    )
    return not (entered_ns and answer.stood_ns) or (
        entered_ns >= answer.wall_ns - answer.stood_ns - before_s * 1e9
    )


def _is_of_two_moments(hang: Hang, answers: Sequence[Asked]) -> bool:
    """Whether a rank was asked before the one that is seen to have completed its call: that may have ended between."""
    asked_ns = {one.rank: one.wall_ns for one in answers}
    return any(asked_ns[one.peer] - asked_ns[one.rank] > YOUNG_NS for one in hang.stopped)


def _is_moving(answers: Sequence[Asked]) -> bool:
    """Whether calls were still being entered when the ranks were asked, or after the first of them was."""
    newest_ns = max((one.newest_ns for one in answers), default=0)
    return any(
        newest_ns > one.wall_ns - YOUNG_NS or one.newest_ns > one.wall_ns - one.stood_ns // YOUNG_SHARE
        for one in answers
    )
