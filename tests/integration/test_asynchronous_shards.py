"""The whole path on real trainings under FSDP2 with an asynchronous device: nothing but its waits tells who is late.

As test_asynchronous_device.py, with torch's own `fully_shard` (tests/asynchronous_sharded_training.py). What is found
has to agree with what the devices' own streams say of their waits: where the machine gives a rank its core late, others
do wait for it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from test_asynchronous_device import LEAST_MEASURED, SYNCED, SYNCS, Row, diagnosed, is_near, serious

pytest.importorskip("torch.distributed.fsdp._fully_shard._fsdp_param_group")

pytestmark = [pytest.mark.slow, pytest.mark.alone]
SCRIPT = Path(__file__).parents[1] / "asynchronous_sharded_training.py"
# Half a minute each: the others run with `make test-all`.
ALWAYS = {"device, host ahead"}


@dataclass(frozen=True)
class Own:
    """What the ranks' streams say of the steps that all of them have whole; seconds, R x K."""

    step_s: npt.NDArray[np.float64]
    wait_s: npt.NDArray[np.float64]

    def loss_s(self, rank: int) -> tuple[float, float]:
        """(what this rank works longer than all others, what the mean of a few steps may stray from it)."""
        work_s = self.step_s - self.wait_s
        loss_s = np.maximum(work_s[rank] - np.delete(work_s, rank, axis=0).max(axis=0), 0.0)
        return _mean(loss_s)

    def least_wait_s(self) -> tuple[float, float]:
        """The same of what even the last rank waits."""
        return _mean(self.wait_s.min(axis=0))

    def waits_s(self) -> tuple[float, float]:
        """The same of all ranks' waits."""
        return _mean(self.wait_s.mean(axis=0))


def _mean(values_s: npt.NDArray[np.float64]) -> tuple[float, float]:
    return float(values_s.mean()), 3 * float(values_s.std(ddof=1)) / math.sqrt(LEAST_MEASURED)


def own(folder: Path) -> Own:
    """As the training wrote it."""
    ranks = [
        [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        for path in sorted(folder.glob("times.*"))
    ]
    steps = list(zip(*ranks, strict=False))[10:]
    return Own(
        np.array([[one["step_ms"] / 1e3 for one in step] for step in steps]).T,
        np.array([[sum(one["waits_ms"]) / 1e3 for one in step] for step in steps]).T,
    )


def rows(table: list[Row]) -> list[object]:
    """As parameters."""
    return [
        pytest.param(row, id=row.name, marks=() if row.name in ALWAYS else pytest.mark.extended)
        for row in table
    ]


DEVICE = ("--device-factor", "1.25")
LATE = [
    Row("device, host ahead", 4, DEVICE, [2], "device"),
    Row("device, synced", 4, (*DEVICE, *SYNCED), [2], "device"),
    Row("device of one of two", 2, DEVICE, [1], "device"),
    Row("device, parameters kept whole", 4, (*DEVICE, "--keep-whole"), [1], "device"),
    Row("device, two layers gathered ahead", 4, (*DEVICE, "--prefetch", "2"), [0], "device"),
    Row("device, three micro-steps", 4, (*DEVICE, "--micro-steps", "3"), [2], "device"),
    Row("data, synced", 4, ("--data-extra-ms", "30", *SYNCED), [1], "data_wait"),
    Row("data, host ahead", 4, ("--data-extra-ms", "120"), [1], "data_wait"),
    Row("copy, host ahead", 4, ("--copy-extra-ms", "20"), [3], "h2d"),
    Row("copy, synced", 4, ("--copy-extra-ms", "20", *SYNCED), [3], "h2d"),
]
# What follows from the settings alone, where the device is what a step waits for: ms of kernels beyond the others'.
BY_SETTINGS = {
    "device, host ahead": 18.75,
    "device of one of two": 18.75,
    "device, parameters kept whole": 18.75,
    "device, two layers gathered ahead": 18.75,
    "device, three micro-steps": 53.25,
    "copy, host ahead": 20.0,
}


@pytest.mark.parametrize("row", rows(LATE))
def test_late_rank_is_named_with_its_cause_and_its_price(row: Row, tmp_path: Path) -> None:
    """That rank and no other, why it is late, and what it costs by the devices' own streams, and by its settings."""
    document = diagnosed(row, tmp_path, SCRIPT)
    (straggler,) = document["stragglers"]["ranks"]
    assert (straggler["rank"], straggler["cause"]) == (row.ranks[0], row.cause), straggler
    lost_s, astray_s = own(tmp_path).loss_s(row.ranks[0])
    assert is_near(lost_s, straggler["loss_s_per_step"], astray_s), (lost_s, astray_s, straggler)
    if row.name in BY_SETTINGS:
        assert is_near(BY_SETTINGS[row.name] / 1e3, straggler["loss_s_per_step"], astray_s), straggler
    assert document["verdict"]["decision"] == "tune", document["verdict"]
    (finding,) = serious(document)
    assert (finding["ranks"], finding["phase"]) == (row.ranks, row.cause)


NOBODY = [
    Row("healthy, host ahead", 4),
    Row("healthy, synced", 4, SYNCED),
    Row("healthy, a look at the loss every ten steps", 4, ("--sync-every", "10")),
    Row("two healthy", 2),
    Row("host three times slower, hidden", 4, ("--host-factor", "3", "--fault-rank", "2")),
]


@pytest.mark.parametrize("row", rows(NOBODY))
def test_where_nothing_is_wrong_nobody_is_named(row: Row, tmp_path: Path) -> None:
    """No finding above a remark; waits are what the streams stood still for."""
    document = diagnosed(row, tmp_path, SCRIPT)
    assert document["stragglers"]["ranks"] == []
    assert serious(document) == []
    assert document["verdict"]["decision"] == "keep", document["verdict"]
    waits_s, astray_s = own(tmp_path).waits_s()
    assert is_near(waits_s, document["step"]["seconds"]["comm_exposed"], astray_s)


@pytest.mark.parametrize("sync", SYNCS)
def test_a_slow_link_is_everybodys_exchange(sync: tuple[str, ...], tmp_path: Path) -> None:
    """Ten times slower: what neither forward nor backward hides is the transfer, and no rank is late."""
    document = diagnosed(Row("link", 4, ("--transfer-ms", "10", *sync)), tmp_path, SCRIPT)
    assert document["stragglers"]["ranks"] == []
    assert [finding["id"] for finding in serious(document)] == ["communication_bound"]
    assert document["verdict"]["decision"] in ("tune", "rescale"), document["verdict"]
    least_s, astray_s = own(tmp_path).least_wait_s()
    assert least_s > 0.05  # as told: 56 ms by the order of the collectives
    assert is_near(least_s, document["overlap"]["transfer_s"], astray_s)


@pytest.mark.extended
def test_a_thread_that_launches_late_is_named_or_open(tmp_path: Path) -> None:
    """FSDP2 queues so much that the other threads wait for room now and then: whose is slower takes more steps."""
    document = diagnosed(Row("host", 4, ("--host-factor", "30"), [2]), tmp_path, SCRIPT)
    verdict = document["verdict"]
    assert [(one["rank"], one["cause"]) for one in document["stragglers"]["ranks"]] in ([], [(2, "host")])
    assert verdict["finding"] == "straggler" or "rank 2 is" in verdict["sentence"], verdict


@pytest.mark.extended
def test_slow_data_on_all_costs_what_the_devices_wait(tmp_path: Path) -> None:
    """No rank is late, though now one thread is behind and now another."""
    row = Row("data on all", 4, ("--data-extra-ms", "106", "--fault-rank", "-1"))
    document = diagnosed(row, tmp_path, SCRIPT)
    assert document["stragglers"]["ranks"] == []
    assert [finding["id"] for finding in serious(document)] == ["input_bound"]


@pytest.mark.extended
def test_two_ranks_that_are_late_in_other_layers_are_no_slow_network(tmp_path: Path) -> None:
    """Both are named; what they wait for each other is no transfer."""
    slow = ("--fault-rank", "0", "--fault-layer", "0", "--device-factor", "3")
    row = Row("layers", 4, (*slow, "--other-fault-rank", "3", "--other-fault-layer", "3"))
    document = diagnosed(row, tmp_path, SCRIPT)
    assert {one["rank"] for one in document["stragglers"]["ranks"]} == {0, 3}, document["stragglers"]
    least_s, _ = own(tmp_path).least_wait_s()
    assert document["overlap"]["transfer_s"] < 0.7 * least_s
    assert {finding["id"] for finding in serious(document)} == {"straggler"}


@pytest.mark.extended
@pytest.mark.parametrize("fault", [(), (*DEVICE, "--fault-rank", "2")])
def test_replicated_shards_are_not_decided(fault: tuple[str, ...], tmp_path: Path) -> None:
    """HSDP: ranks wait in their own group first, and nothing is said of who is late."""
    document = diagnosed(Row("replicas", 4, (*fault, "--replicas", "2")), tmp_path, SCRIPT)
    assert document["stragglers"]["ranks"] == []
    assert document["verdict"]["decision"] is None, document["verdict"]
    assert document["overlap"]["transfer_s"] is None
