"""FSDP2 on asynchronous devices: whose fault it is, why, and what it costs, by waits within forward and backward.

A step of many collectives at which all ranks meet, simulated for 8 and 64 ranks, with the lead that a device may have
between two of them. Whoever waits least over the step is last, unless ranks come last in turns within it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_devices import (
    EVENT_NAMES,
    MS,
    DeviceJob,
    Fault,
    Ints,
    edited,
    folded,
    frames,
    simulate,
    true_loss_s,
    view_of,
)
from test_device_situations import NAMES, SYNCS, check, check_healthy, named, said, situations
from thinned import crossed

from tuiadvisor.events import WAIT_PARTS_BITS

pytestmark = pytest.mark.slow

LAYERS = 16


def job(num_ranks: int, sync: int = 1, **options: object) -> DeviceJob:
    """A healthy one of so many ranks, with a look at the loss every so many steps."""
    return replace(
        DeviceJob(num_ranks=num_ranks, sync_every=sync, layers=LAYERS, layer_noise=0.01),
        **options,  # type: ignore[arg-type]
    )


# -- the simulation -----------------------------------------------------------------------------------------------


def test_a_device_leads_others_by_no_more_than_a_layer_or_two() -> None:
    """Parameters are gathered ahead, and a reduction is waited for a layer later: no rank may be further ahead."""
    slow = job(8).with_faults(Fault("device", (1,), factor=1.5))
    run = simulate(slow)
    lead_s = np.ptp(run.passed[20:], axis=2).max()
    a_layer_s = 1.5 * slow.backward_s / LAYERS

    assert 0.5 * a_layer_s < lead_s < 3 * a_layer_s


def test_who_works_longer_waits_so_much_less() -> None:
    """Over a step each rank takes as long, so that waits and own work sum to the same."""
    run = simulate(job(8).with_faults(Fault("device", (1,), factor=1.2)))
    own_s = np.diff(run.passed[:, [0, -1]], axis=1)[20:, 0] - run.waits_s()[20:]

    assert np.ptp((own_s + run.waits_s()[20:]).mean(axis=0)) < 0.1 * MS
    assert run.waits_s()[20:].mean(axis=0).argmin() == 1
    assert own_s.mean(axis=0).argmax() == 1


# -- what is said -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "sync", "num_ranks"), crossed(NAMES, SYNCS, [8, 64]))
def test_each_situation_is_told_with_its_rank_and_its_price(name: str, sync: int, num_ranks: int) -> None:
    """As under DDP."""
    one = situations(num_ranks)[name]
    check(job(num_ranks, sync).with_faults(one.fault), one)


@pytest.mark.parametrize(("sync", "num_ranks"), crossed(SYNCS, [2, 8, 64]))
def test_healthy_is_kept(sync: int, num_ranks: int) -> None:
    """What no rank could hide is the transfer, and nobody is named, though each layer takes longer on another rank."""
    healthy = replace(job(num_ranks, sync), layer_noise=0.05)
    view = view_of(healthy)

    check_healthy(view)
    assert view.overlap.transfer_s == pytest.approx(exposed_s(healthy), abs=0.2 * MS)


def exposed_s(one: DeviceJob) -> float:
    """The first gathering, which follows on the optimizer, and the last reduction: all others are behind compute."""
    return 2 * one.transfer_s / (3 * one.layers)


IN_TURNS = {
    "forward, backward": (Fault("forward", (1,), factor=1.5), Fault("backward", (2,), factor=1.3)),
    "copy, backward": (Fault("copy", (1,), amount_s=15 * MS), Fault("backward", (2,), factor=1.3)),
}


@pytest.mark.parametrize(("num_ranks", "name"), crossed([8, 64], IN_TURNS))
def test_two_that_are_late_in_turns_within_a_step_are_no_slow_network(num_ranks: int, name: str) -> None:
    """Each waits for the other by as much: that is no transfer, and both are named, by their own phases.

    What each costs is more than its lead over the other, so the step is promised to be no longer than said.
    """
    slow = job(num_ranks).with_faults(*IN_TURNS[name])
    view = view_of(slow)
    phases = [{"copy": "h2d"}.get(fault.kind, fault.kind) for fault in slow.faults]

    assert named(view) == {1, 2}, said(view)
    assert {late.rank: late.cause for late in view.stragglers} == dict(zip((1, 2), phases, strict=True))
    assert view.overlap.transfer_s == pytest.approx(exposed_s(slow), abs=0.2 * MS)
    assert simulate(slow).waits_s()[20:].min(axis=1).mean() > 10 * MS
    assert "at most" in view.verdict.sentence
    assert sum(late.loss_s_per_step for late in view.stragglers) < true_loss_s(slow)


def test_two_ranks_that_are_late_in_turns_are_not_kept() -> None:
    """Of two neither is late over the whole step, and each costs the other what it works longer."""
    slow = job(2).with_faults(Fault("copy", (0,), 15 * MS), Fault("backward", (1,), factor=1.3))
    view = view_of(slow)

    assert view.verdict.decision is None, said(view)
    assert "for one another" in view.verdict.sentence
    assert named(view) == set()


def test_waits_that_are_not_told_apart_are_taken_together() -> None:
    """As of a probe that does not say which wait it is: what the least waiting rank waits may be the network."""
    column = EVENT_NAMES.index("num_bytes")
    slow = job(8).with_faults(*IN_TURNS["copy, backward"])

    def together(rows: Ints) -> Ints:
        rows[:, column] = -1
        return rows

    view = folded(edited(frames(simulate(slow)), together))
    least_s = simulate(slow).waits_s()[20:].min(axis=1).mean()

    assert view.overlap.transfer_s == pytest.approx(least_s, rel=0.1)


def test_waits_of_ranks_that_wait_at_other_places_are_not_compared() -> None:
    """Where one has more of them than the others, the nth is not the same one: again they are taken together."""
    rank, column = EVENT_NAMES.index("rank"), EVENT_NAMES.index("num_bytes")
    slow = job(8).with_faults(*IN_TURNS["copy, backward"])

    def one_has_more(rows: Ints) -> Ints:
        told = (rows[:, rank] == 3) & (rows[:, column] >= 0)
        rows[told, column] += 2 << WAIT_PARTS_BITS
        return rows

    view = folded(edited(frames(simulate(slow)), one_has_more))
    least_s = simulate(slow).waits_s()[20:].min(axis=1).mean()

    assert view.overlap.transfer_s == pytest.approx(least_s, rel=0.1)
