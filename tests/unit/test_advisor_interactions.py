"""Several faults at once, on the same rank or not, in the same steps or not: their shares never exceed the step."""

from __future__ import annotations

import random

import pytest
from synthetic_run import MS, Fault, Job, final_view, simulate
from thinned import crossed, thinned

KINDS = ("data", "forward", "backward", "optimizer", "other", "comm")


def drawn(seed: int) -> Job:
    """Two or three faults by lot: kind, ranks, size, onset, how often."""
    lot = random.Random(seed)  # noqa: S311 - the same faults every time
    num_ranks = lot.choice((2, 4, 4, 8))
    same = (lot.randrange(num_ranks),)
    faults = []
    for _ in range(lot.choice((2, 2, 3))):
        ranks = lot.choice((same, same, (lot.randrange(num_ranks),), None))
        faults.append(
            Fault(
                lot.choice(KINDS),
                ranks,
                lot.choice((2, 6, 15, 40)) * MS,
                onset=lot.choice((0, 0, 120)),
                every=lot.choice((1, 1, 2, 3)),
                chance=lot.choice((1.0, 1.0, 0.3)),
            )
        )
    return Job(num_ranks=num_ranks, num_steps=240, seed=seed, faults=tuple(faults))


@pytest.mark.slow
@pytest.mark.parametrize("seed", thinned(range(24), range(0, 24, 4)))
def test_losses_together_are_no_more_than_the_step(seed: int) -> None:
    """Findings, goodput and the verdict: each share within 0..1, and their sum."""
    job = drawn(seed)
    view = final_view(job)
    first, last = view.window.first_step, view.window.last_step
    assert first is not None
    assert last is not None
    step_s = float(simulate(job).cycle_s[first : last + 1].mean())
    named = [finding for finding in view.findings if finding.id in ("straggler", "wandering_lateness")]
    losses = [finding.loss_s_per_step or 0.0 for finding in named]
    assert all(loss >= 0 for loss in losses), job.faults
    assert sum(losses) < step_s, job.faults
    for finding in view.findings:
        assert (finding.loss_s_per_step or 0.0) < step_s, (finding.id, job.faults)
    assert all(0 <= share <= 1 for share in view.goodput_losses.values()), job.faults
    assert 1 == pytest.approx(view.goodput + sum(view.goodput_losses.values()))
    speedup = view.verdict.speedup
    if speedup is not None:
        assert 1 <= speedup.expected <= 100
        assert speedup.low <= speedup.expected <= speedup.high


@pytest.mark.slow
@pytest.mark.parametrize(("every", "onset"), crossed([1, 3], [0, 120]))
def test_two_faults_of_one_rank_in_the_same_steps_are_one_loss(every: int, onset: int) -> None:
    """Data and backward of rank 1: named once, with what both cost."""
    healthy = Job(num_steps=280)
    job = healthy.with_faults(
        Fault("data", (1,), 6 * MS, onset=onset, every=every),
        Fault("backward", (1,), 9 * MS, onset=onset, every=every),
    )
    view = final_view(job)
    (late,) = view.stragglers
    assert 1 == late.rank
    first = view.window.first_step or 0
    lost_s = (simulate(job).cycle_s - simulate(healthy).cycle_s)[max(first, 2) :].mean()
    assert lost_s == pytest.approx(late.loss_s_per_step, rel=0.1)
