"""Situations on devices, by simulation: what is said is right, too small or, with a reason, unknown; never wrong.

`tests/accuracy/device_table.py` asks all of them at 2, 4, 8 and 64 ranks; here each is asked once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from device_troubles import TROUBLES
from device_worlds import FURTHER, TABLE, World, judged, said_of
from simulated_devices import DeviceJob, Fault, view_of

pytestmark = pytest.mark.slow

SITUATIONS = {**TABLE, **FURTHER, **TROUBLES}
NOT_RIGHT = {
    "FSDP2, healthy": "unknown",
    "FSDP2, one device slow": "unknown",
    "stages of a pipeline of unlike length beside data parallel": "unknown",  # they meet where no hook is
    "one device of a pipeline's stages slow, replicas of two stages": "unknown",
    "twelve measured steps so far, one device slow": "unknown",
    "one rank's device is not seen, and it is the slow one": "unknown",
    "memory is freed and asked for anew for 150 ms every fortieth step on one rank": "remark",  # 4 % of the step
    "SyncBatchNorm, one device slow": "size",  # half of it is seen in forward, the other half in no border of backward
}
# A third of them beside the situations of test_device_situations; the others run with `make test-all`.
ALWAYS = {
    "two devices slow, by 20 and by 10 %",
    "slow device alternates between two ranks, step by step",
    "well for fifty steps, slow for fifty, in turn",
    "accumulation over four micro-steps, one device slow",
    "thread five steps ahead, data late on one",
    "evaluation of 0.5 s every sixty steps, one device slow",
    "link six times slower and one device slow",
    "batches of very different lengths",
    "copy slow on all ranks",
    "slow device and slow data on another rank",
    "device grows slower by a quarter over four hundred steps",
    "one device of a tensor-parallel pair slow",
    "all devices grow slower by a quarter over four hundred steps",
    "sequences twice as long from step 300 on, by design",
    "one device of a pipeline's stages slow, replicas of two stages",
    "a device slow until step 150, from then on another rank's data",
    "NVML shows one clock held back, another rank's data is late",
}


def parameters() -> list[object]:
    """Every situation by name."""
    return [
        pytest.param(name, id=name, marks=() if name in ALWAYS else pytest.mark.extended)
        for name in SITUATIONS
    ]


@pytest.mark.parametrize("name", parameters())
def test_nothing_that_is_said_of_a_situation_is_wrong(name: str) -> None:
    """With 4 ranks and a look at the loss in every tenth step."""
    said = said_of(SITUATIONS[name], 4, 10)

    assert said.word == NOT_RIGHT.get(name, "right"), said.words


def test_loader_that_falls_behind_is_judged_by_the_steps_since_then() -> None:
    """Each rank waits 40 ms a step for data, one of them 120 ms since step 500 of 700: twice as long as the others."""
    name = "a loader's worker dies at step 500, data three times slower on one rank"
    said = said_of(SITUATIONS[name], 4, 1)

    assert said.word == "right", said.words


def test_rank_that_evaluates_alone_is_no_keep() -> None:
    """2 s every hundred steps, 17 % of the time of all; what all evaluate together stays a remark."""
    alone = view_of(SITUATIONS["rank 0 alone evaluates for 2 s every hundred steps"].build(DeviceJob()))
    together = view_of(replace(DeviceJob(), num_steps=300, eval_every=60, eval_s=0.5))
    above = [found for found in alone.findings if found.severity != "info"]

    assert [("periodic_pause", (0,), "eval")] == [(found.id, found.ranks, found.phase) for found in above]
    assert alone.verdict.decision == "tune"
    assert together.verdict.decision == "keep"


def test_an_innocent_rank_or_a_wrong_reason_is_scored_as_wrong() -> None:
    """What scores is held to what it must not let pass."""
    job = DeviceJob().with_faults(Fault("device", (2,), factor=1.2))
    view = view_of(job)

    assert judged(World(lambda job: job, lambda _job: (2,), frozenset({"device"})), job, view).word == "right"
    assert judged(World(lambda job: job, lambda _job: (1,), frozenset({"device"})), job, view).is_wrong
    assert judged(World(lambda job: job, lambda _job: (2,), frozenset({"data_wait"})), job, view).is_wrong
    assert judged(World(lambda job: job, lambda _job: (1, 2), frozenset({"device"})), job, view).is_wrong
    healthy = view_of(DeviceJob())
    assert judged(World(lambda job: job, lambda _job: (2,), frozenset({"device"})), job, healthy).is_wrong
