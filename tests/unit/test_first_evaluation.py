"""An evaluation that passed by every hook is told as one once the next have shown what it was."""

from __future__ import annotations

import pytest
from synthetic_run import MS, Fault, Job, folded, frames

from tuiadvisor.app.event_log import EventLog

EVERY = 80
SEEN = Fault("eval", (0,), 300 * MS, onset=EVERY + 1, every=EVERY)
OBSERVED = (*Job().observed, "eval")


def job(*unseen: Fault, num_steps: int = 500) -> Job:
    """Rank 0 evaluates every 80 steps, seen from the second time on."""
    return Job(num_steps=num_steps, observed=OBSERVED, faults=(*unseen, SEEN))


def paused(step: int, length_s: float) -> Fault:
    """Rank 0 once does something that no hook sees."""
    return Fault("other", (0,), length_s, onset=step, until=step + 1)


def pauses(found: Job) -> dict[str, tuple[int, ...]]:
    return {each.kind: each.steps for each in folded(frames(found)).view().pauses}


@pytest.mark.parametrize("length_s", [0.3, 0.2, 0.45])
def test_the_first_is_told_with_the_others(length_s: float) -> None:
    """It stayed a pause of unknown cause, beside a finding of evaluations every 80 steps."""
    view = folded(frames(job(paused(EVERY, length_s)))).view()
    assert {"eval": (80, 160, 240, 320, 400, 480)} == {each.kind: each.steps for each in view.pauses}
    assert ["periodic_pause"] == [each.id for each in view.findings if each.ranks == (0,)]


@pytest.mark.parametrize(
    "unseen",
    [
        (paused(EVERY, 0.9),),
        (paused(EVERY // 2, 0.3),),
        (paused(EVERY, 0.3), paused(EVERY // 2, 0.3)),
        (Fault("other", (1,), 0.3, onset=EVERY, until=EVERY + 1),),
        (Fault("forward", (0,), 0.3, onset=EVERY, until=EVERY + 1),),
    ],
    ids=["far longer", "another distance", "one of several", "another rank", "within a hook"],
)
def test_another_pause_stays_unexplained(unseen: tuple[Fault, ...]) -> None:
    """That it comes before the first evaluation that was seen is not enough."""
    found = pauses(job(*unseen))
    assert EVERY not in found["eval"]
    assert "irregular" in found


def test_one_evaluation_has_no_distance() -> None:
    """Until the second has been seen nobody knows whether the first pause was one."""
    found = pauses(job(paused(EVERY, 0.3), num_steps=2 * EVERY + 40))
    assert (2 * EVERY,) == found["eval"]
    assert (EVERY,) == found["irregular"]


def test_a_pause_that_is_explained_later_is_one_event() -> None:
    log, advisor = EventLog(), folded([])
    kinds = []
    for frame in frames(job(paused(EVERY, 0.3))):
        advisor.feed_frame(frame)
        log.take(advisor.view())
        kinds.append([each.kind for each in log.events if each.step == EVERY and each.ranks == (0,)])
    assert ["pause"] in kinds
    assert ["evaluation"] == kinds[-1]
