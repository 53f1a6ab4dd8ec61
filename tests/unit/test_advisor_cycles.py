"""Faults that go and come back after long: a device throttled in cycles, a neighbour's job that runs now and then."""

from __future__ import annotations

import itertools

import pytest
from synthetic_run import MS, Fault, Job, above_info, folded, frames, simulate
from thinned import thinned

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.views.run_view import RunView


def cycles(
    kind: str, ranks: tuple[int, ...], amount_s: float, stretch: int, num_steps: int
) -> tuple[Fault, ...]:
    """So many steps without, as many with it, again and again."""
    return tuple(
        Fault(kind, ranks, amount_s, onset=at, until=at + stretch)
        for at in range(stretch, num_steps, 2 * stretch)
    )


def views(job: Job) -> dict[int, RunView]:
    """The view after every twenty steps, by its last step."""
    advisor, found = Advisor(), {}
    for frame in frames(job, 20):
        advisor.feed_frame(frame)
        view = advisor.view()
        found[view.window.last_step or 0] = view
    return found


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("stretch", thinned([40, 60, 100], [40]))
def test_a_rank_that_is_late_again_is_named_each_time(num_ranks: int, stretch: int) -> None:
    """A third of the step for as many steps as it was quiet: it was named in the first stretch only."""
    num_steps = 7 * stretch
    healthy = Job(num_ranks=num_ranks, num_steps=num_steps, seed=stretch)
    job = healthy.with_faults(*cycles("forward", (1,), 6 * MS, stretch, num_steps))
    lost_s = simulate(job).cycle_s - simulate(healthy).cycle_s
    num_late = 0
    for step, view in views(job).items():
        since = step - step % stretch
        if step // stretch % 2 == 0 or step < since + 19:
            continue
        num_late += 1
        assert [("straggler", (1,), "forward")] == above_info(view), step
        (finding,) = (one for one in view.findings if one.id == "straggler")
        first = finding.since_step or 0
        assert min(abs(first - since), abs(first - stretch)) <= 5
        assert lost_s[view.window.first_step : step + 1].mean() == pytest.approx(
            finding.loss_s_per_step, rel=0.15
        )
    assert num_late >= 3 * (stretch // 20 - 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", thinned(range(4), [0]))
def test_ranks_that_are_late_together_in_cycles_do_not_take_turns(seed: int) -> None:
    """Two of a host: who of them is last by a hair changes, and the others were last for a moment by chance."""
    healthy = Job(num_ranks=8, num_steps=320, ranks_per_host=2, seed=seed)
    job = healthy.with_faults(*cycles("spread", (2, 3), 1.3, 30, 320))
    for view in list(views(job).values())[6:]:
        assert "wandering_lateness" not in {finding.id for finding in view.findings}
        assert {rank for _, ranks, _ in above_info(view) for rank in ranks} <= {2, 3}
    assert [(2, 3)] == [ranks for _, ranks, _ in above_info(view)]


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", thinned([2, 4, 8], [4]))
@pytest.mark.parametrize("quiet", [6, 12, 19])
def test_who_has_just_recovered_did_not_take_turns(num_ranks: int, quiet: int) -> None:
    """Late since 250, in time for the last steps: whether that lasts is not known yet, but it was one rank's doing."""
    fault = Fault("optimizer", (0,), 8 * MS, onset=250, until=320 - quiet)
    view = views(Job(num_ranks=num_ranks, num_steps=320, noise=0.03, seed=num_ranks, faults=(fault,)))[319]
    assert "taking_turns" not in {finding.id for finding in view.findings}
    assert {rank for _, ranks, _ in above_info(view) for rank in ranks} <= {0}


def test_two_ranks_that_are_late_in_turn_are_both_named() -> None:
    """Each for 400 steps: once the first was seen to come and go, the second one stood for what is normal: KEEP."""
    edges, slower = (0, 100, 540, 1000, 1450, 1600), 12 * MS
    turns = [
        Fault("backward", (number % 2,), slower, onset=begin, until=end)
        for number, (begin, end) in enumerate(itertools.pairwise(edges))
    ]
    view = folded(frames(Job(num_ranks=3, num_steps=1600, faults=tuple(turns)))).view()
    assert ("tune", (0, 1)) == (view.verdict.decision, view.findings[0].ranks)
    assert "straggler" == view.findings[0].id
    # Neither would alone be worth the other's: without both the step is what it was made to be.
    calm = folded(frames(Job(num_ranks=3, num_steps=1600))).view().step.mean_s
    assert view.step.mean_s is not None
    assert view.verdict.speedup is not None
    assert view.step.mean_s / view.verdict.speedup.expected == pytest.approx(calm, rel=0.03)
