"""What practitioners on GPU clusters meet: what is said is right or, with a reason, unknown; nobody wrong is named.

`tests/accuracy/device_table.py` asks all of it at several numbers of ranks; here each is asked once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from device_rigs import RIGS, TWINS
from device_worlds import judged, said_of
from simulated_devices import DeviceJob, folded, frames, simulate

pytestmark = pytest.mark.slow

NOT_RIGHT = {
    # Who waits least came last within a group that exchanges alone; which group's exchange is slow nothing tells.
    "one rail degraded: one of two groups exchanges eight times slower": "unknown",
}
# Of the 512 steps that are held two waves were seen to begin, and the run ends in a cool one: they are kept.
TWO_WAVES = {
    "one device held back by heat for 30 s, cool for 30 s, steps of 300 ms",
    "all devices held back by heat for 30 s, cool for 30 s, steps of 300 ms",
}
ALWAYS = {
    "one rail degraded: one of two groups exchanges eight times slower",
    "one card degraded: two of the ranks copy and exchange slower",
    "one rank alone waits for its device in each layer",
    "pinning thread starves: data 150 ms late in a third of the steps on one rank",
    "H100 and A100, and one of the fast ones waits for data",
    "one rank accumulates by mistake: twice the work a step",
    "hot expert: one rank's forward longer where ranks meet in forward",
    "tensor-parallel pairs whose halves exchange apart, healthy",
}


def parameters() -> list[object]:
    """Every situation by name, and the twins of those that change the job."""
    result = []
    for name in {**RIGS, **TWINS}:
        marks = [] if name in ALWAYS else [pytest.mark.extended]
        if name in TWO_WAVES:
            marks.append(pytest.mark.xfail(strict=True, reason="two waves may be two events"))
        result.append(pytest.param(name, id=name, marks=marks))
    return result


@pytest.mark.parametrize("name", parameters())
def test_nothing_that_is_said_of_a_cluster_is_wrong(name: str) -> None:
    """With 4 ranks and a look at the loss in every tenth step."""
    said = said_of({**RIGS, **TWINS}[name], 4, 10)

    assert said.word == NOT_RIGHT.get(name, "right"), said.words


@pytest.mark.parametrize("sync", [1, pytest.param(0, marks=pytest.mark.extended)])
@pytest.mark.parametrize("num_ranks", [8, pytest.param(64, marks=pytest.mark.extended)])
def test_ranks_of_the_quick_one_of_two_exchanges_are_not_called_late(num_ranks: int, sync: int) -> None:
    """They wait for their neighbours in the next step's backward, where no hook is."""
    name = "one rail degraded: one of two groups exchanges eight times slower"
    said = said_of(RIGS[name], num_ranks, sync)

    assert said.word == "unknown", said.words
    assert "of which nothing tells what is waiting for another rank" in said.words


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.extended), 3, 5])
def test_data_late_on_all_does_not_hide_that_a_device_is_slow_in_all_it_computes(seed: int) -> None:
    """Threads far ahead drift apart: the slow device happens to wait for data a little longer than most, too."""
    world = RIGS["data late on all and one device slow"]
    job = replace(world.build(DeviceJob(num_ranks=8, sync_every=0)), seed=seed)
    said = judged(world, job, folded(frames(simulate(job))))

    assert said.word == "right", said.words
    assert "r2 device" in said.words
