"""Where every rank is late in its own steps, nobody is left that stands for normal but their other steps."""

from __future__ import annotations

import pytest
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.views.run_view import Finding, RunView


def stragglers(view: RunView) -> dict[tuple[int, ...], Finding]:
    return {found.ranks: found for found in view.findings if found.id == "straggler"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("often", "phase", "always"),
    [
        (Fault("forward", (0,), 40 * MS, every=5), "forward", Fault("backward", (1,), 8 * MS)),
        (Fault("forward", (0,), 20 * MS, every=3), "forward", Fault("backward", (1,), 5 * MS)),
        (Fault("forward", (0,), 40 * MS, every=10), "forward", Fault("backward", (1,), 5 * MS)),
        (Fault("gc", (0,), 40 * MS, chance=0.15), "host", Fault("backward", (1,), 3 * MS)),
        (Fault("data", (0,), 35 * MS, chance=0.2), "data_wait", Fault("optimizer", (1,), 3 * MS)),
    ],
)
def test_of_two_ranks_one_is_late_now_and_then_and_the_other_always(
    seed: int, often: Fault, phase: str, always: Fault
) -> None:
    """Each is named with its own phase, and without both a step is as of the healthy twin."""
    job = Job(num_ranks=2, num_steps=400, seed=seed)
    view, twin = final_view(job.with_faults(often, always)), final_view(job)
    found = stragglers(view)
    assert {(0,), (1,)} == set(found)
    assert phase == found[0,].phase
    assert always.kind == found[1,].phase
    mean_s, healthy_s = view.step.mean_s, twin.step.mean_s
    assert mean_s is not None
    assert healthy_s is not None
    lost_s = sum(each.loss_s_per_step or 0.0 for each in found.values())
    assert mean_s - lost_s == pytest.approx(healthy_s, rel=0.06)
    assert "tune" == view.decided.decision


@pytest.mark.parametrize("seed", range(3))
def test_of_three_ranks_each_may_be_late(seed: int) -> None:
    """It was a traceback for one seed in ten."""
    faults = (
        Fault("forward", (0,), 40 * MS, every=5),
        Fault("backward", (1,), 5 * MS),
        Fault("data", (2,), 20 * MS, chance=0.3),
    )
    view = final_view(Job(num_ranks=3, num_steps=400, seed=seed, faults=faults))
    assert (0,) in stragglers(view)
    assert "tune" == view.decided.decision


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("restless", [{"noise": 0.3}, {"spike_chance": 0.15, "spike_s": 15 * MS}])
def test_two_restless_ranks_are_not_late_in_turn(seed: int, restless: dict[str, float]) -> None:
    """Noise makes one rank's steps long now, now the other's: nobody is to blame."""
    view = final_view(Job(num_ranks=2, num_steps=400, seed=seed, **restless))  # type: ignore[arg-type]
    assert not stragglers(view)


@pytest.mark.parametrize("num_ranks", [4, 8])
def test_two_ranks_that_collect_garbage_are_named_and_not_all(num_ranks: int) -> None:
    """The same seconds were told again as collections of all ranks at different steps."""
    faults = (Fault("gc", (1,), 20 * MS, chance=0.15), Fault("gc", (2,), 20 * MS, chance=0.15))
    view = final_view(Job(num_ranks=num_ranks, num_steps=300, faults=faults))
    assert "while Python collects garbage" in stragglers(view)[1, 2].message
    assert not any(found.id == "unaligned_collection" for found in view.findings)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("other", "onset"),
    [
        (Fault("decay", None, 8 * MS), 0),
        (Fault("forward", (2,), 8 * MS, until=200), 0),
        (Fault("data", None, 8 * MS, onset=200), 0),
        (Fault("data", None, 8 * MS, onset=200), 250),
    ],
)
def test_rare_stalls_begin_where_they_began_though_the_window_begins_later(
    seed: int, other: Fault, onset: int
) -> None:
    """Of another trouble that began the window in the middle of the run they were said to have begun there, too."""
    rare = Fault("backward", (1,), 60 * MS, every=10, onset=onset)
    view = final_view(Job(num_steps=400, seed=seed, faults=(rare, other)))
    since = stragglers(view)[1,].since_step
    assert since is not None
    assert onset <= since <= onset + 10


def test_of_two_ranks_one_loader_alone_may_decay() -> None:
    """The mean of both was called the wait of each."""
    view = final_view(Job(num_ranks=2, num_steps=400, faults=(Fault("decay", (1,), 12 * MS),)))
    assert "data_wait" == stragglers(view)[1,].phase
    assert not any(found.id == "loader_decays" for found in view.findings)
