"""Who of a standing job has not entered which collective, by the flight recorders of its ranks.

In: what stands still, as phases and threads tell it, and the ranks' answers.  Out: the same with the collectives and,
where the recorders tell whom the others wait for, with those ranks as the missing. The recorders win over phases: a
phase says that a rank is in no collective that we know of, a recorder that it is in one, or is not. Who is dead or
stopped could not be asked and stays named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.hang.dumps_together import side_by_side
from tuiadvisor.metrics.hang.missing_ranks import Hang, Waiting, diagnose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.hang.asked_recorder import Asked
    from tuiadvisor.metrics.hang.detection import Standstill

# Nothing moves for 5 s before anybody is asked: a younger call is of ranks that go on where no phase shows it.
YOUNG_NS: Final = 2 * 10**9
MAX_JOINED: Final = 4096  # ranks; each is held against all of its groups


@dataclass(frozen=True, slots=True)
class CollectiveEvidence:
    """hang: as of dumps. unasked: rank -> why nothing is known of it. is_moving: calls were still being entered."""

    hang: Hang
    unasked: tuple[tuple[int, str], ...]
    is_moving: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether every rank has told, so that who is missing nowhere is missing from nothing."""
        return (
            not self.unasked and not self.is_moving and not any(wait.unrecorded for wait in self.hang.waits)
        )

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
    return _joined(answers[:MAX_JOINED], silent)


@lru_cache(maxsize=4)  # pictures are made twice a second, answers come once a stall
def _joined(answers: tuple[Asked, ...], silent: tuple[tuple[int, str], ...]) -> CollectiveEvidence:
    unasked = dict(silent) | {one.rank: one.why for one in answers if one.dump is None}
    usable = [(one.dump, dict(one.groups)) for one in answers if one.dump is not None]
    if any(one.newest_ns > one.wall_ns - YOUNG_NS for one in answers if one.dump is not None):
        return CollectiveEvidence(Hang((), (), "", ""), tuple(sorted(unasked.items())), is_moving=True)
    dumps, groups, stale = side_by_side(usable)
    unasked |= stale
    hang = diagnose([dumps[rank] for rank in sorted(dumps)], groups) if dumps else Hang((), (), "", "")
    return CollectiveEvidence(hang, tuple(sorted(unasked.items())))


def informed(
    found: Standstill, evidence: CollectiveEvidence | None, phase_of: Mapping[int, str | None]
) -> Standstill:
    """The standstill with what the recorders add. phase_of: each rank's."""
    if evidence is None:
        return found
    missing = _missing(found, evidence)
    if missing == found.missing:
        return replace(found, evidence=evidence)
    waiting = tuple(rank for rank in sorted({*found.waiting, *found.missing}) if rank not in missing)
    phases = {phase_of.get(rank) for rank in missing or waiting}
    return replace(
        found,
        missing=missing,
        waiting=waiting,
        phase=phases.pop() if len(phases) == 1 else None,
        thread=None,
        evidence=evidence,
    )


def _missing(found: Standstill, evidence: CollectiveEvidence) -> tuple[int, ...]:
    if found.is_death or found.thread == "stopped":
        return found.missing
    if evidence.hang.missing:
        return evidence.hang.missing
    return () if evidence.hang.waits and evidence.is_whole else found.missing
