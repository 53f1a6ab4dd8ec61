"""A pause passes in a phase of its own record, unless a barrier makes the next step pay for it."""

from __future__ import annotations

import pytest
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.views.run_view import RunView

PHASE_OF = {"data": "data_wait", "forward": "forward", "optimizer": "optimizer", "other": "other"}
UNSEEN = ("data_wait", "forward", "backward", "optimizer", "other")  # waits are in backward
NO_LOADER = ("forward", "backward", "comm_exposed", "optimizer", "other")
# One process without a barrier and in one of its own; several without arrivals: of known waits, and of none.
JOBS = {
    "one process": Job(num_ranks=1, num_steps=400, barrier_seen=False, observed=UNSEEN),
    "one process in a group of its own": Job(num_ranks=1, num_steps=400),
    "two ranks, waits seen": Job(num_ranks=2, num_steps=400, barrier_seen=False),
    "four ranks, waits seen": Job(num_ranks=4, num_steps=400, barrier_seen=False),
    "four ranks, no waits seen": Job(num_ranks=4, num_steps=400, barrier_seen=False, observed=UNSEEN),
    "four ranks, arrivals seen": Job(num_ranks=4, num_steps=400),
}
EVERY, ONCE = {"every": 20}, {"onset": 203, "until": 204}


def phases_of(job: Job, fault: Fault, kind: str, seed: int) -> list[str | None]:
    """Phases of the pauses of a kind."""
    view = final_view(Job(**{**job.__dict__, "seed": seed, "faults": (fault,)}))
    return [pause.phase for pause in view.pauses if pause.kind == kind]


def tuned(view: RunView) -> set[str]:
    """What is said of pauses."""
    return {finding.id for finding in view.findings if finding.id.startswith(("periodic", "irregular"))}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", list(PHASE_OF))
@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_what_all_do_now_and_then_passes_in_its_own_phase(job: Job, kind: str, seed: int) -> None:
    """0.3 s every 20 steps, and 0.5 s once."""
    every, once = Fault(kind, None, 0.3, **EVERY), Fault(kind, None, 0.5, **ONCE)
    assert [PHASE_OF[kind]] == phases_of(job, every, "periodic", seed)
    assert [PHASE_OF[kind]] == phases_of(job, once, "irregular", seed)


@pytest.mark.parametrize("num_ranks", [1, 4])
def test_a_pause_in_the_body_of_the_loop_is_no_wait_for_data(num_ranks: int) -> None:
    """A data wait whose noise is a millisecond in the same steps."""
    job = Job(num_ranks=num_ranks, num_steps=400, barrier_seen=False, observed=UNSEEN, data_s=4 * MS)
    faults = (Fault("other", None, 0.3, every=20), Fault("data", None, 1 * MS, every=20))
    view = final_view(job.with_faults(*faults))
    assert {"periodic_pause"} == tuned(view)
    assert ["other"] == [pause.phase for pause in view.pauses]


@pytest.mark.parametrize("is_seen", [True, False], ids=["arrivals", "waits"])
@pytest.mark.parametrize("kind", ["optimizer", "other"])
def test_what_one_rank_does_after_its_barrier_makes_the_next_step_longer(kind: str, *, is_seen: bool) -> None:
    """The others wait for it there, be it by their clocks or by how long they wait."""
    job = Job(num_ranks=4, num_steps=400, barrier_seen=is_seen)
    assert [kind] == phases_of(job, Fault(kind, (1,), 0.5, **ONCE), "irregular", 0)


@pytest.mark.parametrize("ranks", [None, (1,)], ids=["all ranks", "one rank"])
@pytest.mark.parametrize("is_seen", [True, False], ids=["arrivals", "waits"])
def test_code_without_a_hook_may_stand_before_the_barrier(
    ranks: tuple[int, ...] | None, *, is_seen: bool
) -> None:
    """A loader that nothing hooks: its time is in `other`, of the step that it makes longer."""
    job = Job(num_ranks=4, num_steps=400, barrier_seen=is_seen, observed=NO_LOADER)
    assert ["other"] == phases_of(job, Fault("data", ranks, 0.3, **EVERY), "periodic", 0)
    assert ["other"] == phases_of(job, Fault("data", ranks, 0.5, **ONCE), "irregular", 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_ranks", [1, 4])
def test_a_phase_that_explains_little_of_a_pause_is_not_named(num_ranks: int, seed: int) -> None:
    """The exchange takes 0.3 s longer, and of the work only noise grows."""
    job = Job(num_ranks=num_ranks, num_steps=400)
    assert ["comm_exposed"] == phases_of(job, Fault("comm", None, 0.3, **EVERY), "periodic", seed)


def test_half_of_a_pause_is_not_most_of_it() -> None:
    """0.15 s of data and 0.15 s of forward: in more than one phase."""
    job = Job(num_ranks=1, num_steps=400)
    faults = (Fault("data", None, 0.15, every=20), Fault("forward", None, 0.15, every=20))
    view = final_view(job.with_faults(*faults))
    assert [None] == [pause.phase for pause in view.pauses]
    assert {"periodic_pause"} == tuned(view)


def test_ranks_that_pause_for_unequal_times_pause_in_one_phase() -> None:
    """All ranks wait for data, one of four 0.15 s longer: it is waited for."""
    for kind, when in (("periodic", EVERY), ("irregular", ONCE)):
        faults = (Fault("data", None, 0.4, **when), Fault("data", (2,), 0.15, **when))
        view = final_view(Job(num_ranks=4, num_steps=400).with_faults(*faults))
        assert ["data_wait"] == [pause.phase for pause in view.pauses if pause.kind == kind]
