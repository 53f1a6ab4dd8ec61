"""A rank whose batches are larger is late for that: neither its host nor its device, and the work has to be done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import MS, STEP_NAMES, Fault, Job, Simulated, folded, frames, simulate

from tuiadvisor.views.run_view import Finding, RunView

LARGER = 4 / 3


def seen(job: Job, counts: dict[int, int], column: str = "samples") -> RunView:
    """The view of the job whose ranks have so many samples or tokens a step, the others 32."""
    run, at = simulate(job), STEP_NAMES.index(column)
    rows = {
        rank: [(*row[:at], counts.get(rank, 32), *row[at + 1 :]) for row in records]
        for rank, records in run.rows.items()
    }
    return folded(frames(job, simulated=Simulated(rows, run.cycle_s))).view()


def larger(num_ranks: int, *ranks: int, factor: float = LARGER) -> Job:
    """Ranks whose compute takes that much longer."""
    fast = Job(num_ranks=num_ranks, optimizer_s=0.1 * MS, other_s=0.1 * MS, ranks_per_host=2, spike_chance=0)
    return replace(fast, faults=(Fault("spread", ranks, factor),))


def straggler(view: RunView) -> Finding:
    """The one."""
    (found,) = (finding for finding in view.findings if finding.id == "straggler")
    return found


@pytest.mark.parametrize("column", ["samples", "tokens"])
def test_a_larger_batch_is_neither_host_nor_device(column: str) -> None:
    """Rank 1 has 43 of 32 samples and computes for a third longer."""
    finding = straggler(seen(larger(4, 1), {1: 43}, column))
    assert ((1,), "backward") == (finding.ranks, finding.phase)
    assert f"with 1.34 times the {column} of the others" in finding.message
    assert pytest.approx(43 / 32) == finding.evidence[f"{column}_ratio"]


@pytest.mark.parametrize("counts", [{}, {1: 33}, {1: 20}])
def test_without_a_batch_that_explains_it_it_is_the_host_or_the_device(counts: dict[int, int]) -> None:
    """As many samples as the others, one more, or fewer."""
    finding = straggler(seen(larger(4, 1), counts))
    assert "host" == finding.phase
    assert "times the" not in finding.message


def test_a_larger_batch_does_not_explain_waiting_for_data() -> None:
    """What it waits for its loader the model's work does not tell."""
    job = replace(larger(4, 1), faults=(Fault("data", (1,), 5 * MS),))
    finding = straggler(seen(job, {1: 43}))
    assert "data_wait" == finding.phase
    assert "times the" not in finding.message


def test_all_ranks_of_a_host_with_larger_batches_are_no_slow_host() -> None:
    """Ranks 2 and 3 are all of node1."""
    view = seen(larger(4, 2, 3), {2: 43, 3: 43})
    assert (2, 3) == straggler(view).ranks
    assert "slow_host" not in {finding.id for finding in view.findings}


@pytest.mark.slow
@pytest.mark.parametrize(("num_ranks", "ranks"), [(2, (0,)), (4, (1,)), (4, (0, 2, 3))])
def test_the_gain_is_that_of_spreading_the_work(num_ranks: int, ranks: tuple[int, ...]) -> None:
    """Twice the batch on some ranks: a step without it does the same samples, evenly."""
    job = larger(num_ranks, *ranks, factor=2)
    even = larger(num_ranks, *range(num_ranks), factor=1 + len(ranks) / num_ranks)
    gained_s = (simulate(job).cycle_s - simulate(even).cycle_s)[2:].mean()
    view = seen(job, dict.fromkeys(ranks, 64))
    finding = straggler(view)
    assert ranks == finding.ranks
    assert gained_s == pytest.approx(finding.loss_s_per_step, rel=0.15)
    assert finding.loss_s_per_step == pytest.approx(sum(row.loss_s_per_step for row in view.stragglers))
    assert view.goodput_losses["straggler"] * (view.step.mean_s or 0) == pytest.approx(
        finding.loss_s_per_step, rel=0.05
    )
