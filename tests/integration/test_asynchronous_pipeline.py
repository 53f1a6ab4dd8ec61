"""A real pipeline on asynchronous devices: the stage that is slow and no other, the bubble by the devices' clocks.

Torchrun on torch's own Schedule1F1B whose messages are queued on streams, as NCCL's are
(tests/asynchronous_pipeline_training.py), under the real commands. What is true follows from the settings, and from the
stages' own events, by device clocks that are one; the diagnosis compares no two devices' clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tuiadvisor.metrics.pipeline.pipeline_balance import ideal_bubble

pytest.importorskip("torch")
import asynchronous_pipeline_training
from asynchronous_runs import OwnChunks, Training, diagnosed, own_chunks

pytestmark = [pytest.mark.slow, pytest.mark.alone]
SCRIPT = Path(__file__).parents[1] / "asynchronous_pipeline_training.py"
NUM_STEPS = 40  # some fifteen of them are told chunk by chunk
FEW_MS = ("--forward-ms", "4", "--backward-ms", "8")  # of which a step is short
# By stages: enough micro-batches that filling and draining is next to nothing.
SETTINGS = {
    2: ("--micro-batches", "16"),
    4: ("--micro-batches", "24", *FEW_MS),
}
SYNCED = ("--sync-every", "1")


@dataclass(frozen=True)
class Row:
    """A pipeline as it is told, and whom a finding may name."""

    name: str
    num_stages: int
    arguments: tuple[str, ...] = ()
    rank: int = -1  # nobody

    def training(self) -> Training:
        """With its command line."""
        whose = ("--fault-rank", str(self.rank)) if self.rank >= 0 else ()
        return Training(SCRIPT, self.num_stages, (*SETTINGS[self.num_stages], *self.arguments, *whose))


def seen(row: Row, folder: Path) -> tuple[dict[str, Any], OwnChunks]:
    """The diagnosis, and what the stages saw; whatever is slow nobody else is named, and the bubble is the devices'."""
    document, own = diagnosed(row.training(), folder, NUM_STEPS), own_chunks(folder, NUM_STEPS)
    assert document["losses"]["hooks_disabled"] == 0, document["losses"]
    assert (document["run"]["device"], document["clock"]) == ("asynchronous", "device"), document["unknown"]
    assert document["stragglers"]["ranks"] == []
    assert {rank for found in serious(document) for rank in found["ranks"]} <= {row.rank}
    pipeline = document["pipeline"]
    assert pipeline["ideal_bubble"] == pytest.approx(ideal(row))
    assert pipeline["bubble"] == pytest.approx(own.bubble, abs=0.03)
    # The copy is the first stage's; what the others' devices wait for their first message is none.
    options = asynchronous_pipeline_training.parse(list(row.training().arguments))
    assert document["step"]["seconds"]["h2d"] < 5e-3 + 1e-3 * options.launch_ms * options.host_factor
    return document, own


def serious(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Findings above a remark."""
    return [found for found in document["findings"] if found["severity"] != "info"]


def ideal(row: Row) -> float:
    """Of equal stages and messages that take no time."""
    return ideal_bubble(row.num_stages, int(SETTINGS[row.num_stages][1]))


# Twenty seconds: the others run with `make test-all`.
ALWAYS = {"device of one of two stages"}


def rows(table: list[Row]) -> list[object]:
    """As parameters."""
    return [
        pytest.param(row, id=row.name, marks=() if row.name in ALWAYS else pytest.mark.extended)
        for row in table
    ]


HEALTHY = [
    Row(f"{num} stages, {name}", num, sync)
    for num in SETTINGS
    for name, sync in (("host ahead", ()), ("synced", SYNCED))
]


@pytest.mark.parametrize("row", rows(HEALTHY))
def test_equal_stages_are_kept_and_their_bubble_is_next_to_the_ideal(row: Row, tmp_path: Path) -> None:
    """Nothing above a remark; where the machine gives a thread its core late the stages are not seen to be alike."""
    document, _ = seen(row, tmp_path)
    assert serious(document) == []
    assert document["verdict"]["decision"] in {"keep", None}, document["verdict"]
    assert 0 <= document["pipeline"]["bubble"] - ideal(row) < 0.05


SLOW = [
    Row("device of one of two stages", 2, ("--device-factor", "1.6", *FEW_MS), 1),
    Row("device of the first of two stages, synced", 2, ("--device-factor", "1.6", *SYNCED), 0),
    Row("device of one of four stages", 4, ("--device-factor", "1.6"), 2),
    Row("device of one of four stages, synced", 4, ("--device-factor", "1.6", *SYNCED), 2),
]


@pytest.mark.parametrize("row", rows(SLOW))
def test_a_slow_device_is_the_heavy_stage_at_what_it_costs(row: Row, tmp_path: Path) -> None:
    """By its settings: the step of equal stages is known."""
    document, own = seen(row, tmp_path)
    (found,) = serious(document)
    assert (found["id"], found["ranks"]) == ("heavy_stage", [row.rank])
    assert document["verdict"]["decision"] == "tune"
    lightest_s = min(own.chunks_s)
    assert own.chunks_s[row.rank] == pytest.approx(1.6 * lightest_s, rel=0.1)
    healthy_s = lightest_s / (1 - ideal(row))
    # Whether its work or its rank is slow one pipeline does not tell: what mending the rank brings is the most.
    assert found["evidence"]["pace_loss_s"] == pytest.approx(own.step_s - healthy_s, rel=0.15)
    assert 0 < found["loss_s_per_step"] < found["evidence"]["pace_loss_s"]
    assert "if it is not its work but its rank that is slow" in document["verdict"]["sentence"]


LATE = [
    Row("data of the first of four stages", 4, ("--data-extra-ms", "350"), 0),
    Row("data of the first of four stages, synced", 4, ("--data-extra-ms", "100", *SYNCED), 0),
    Row("data of the last of two stages", 2, ("--data-extra-ms", "350"), 1),
    Row("data of the last of two stages, synced", 2, ("--data-extra-ms", "100", *SYNCED), 1),
    Row("host of one of four stages", 4, ("--host-factor", "60"), 1),
    Row("host of one of four stages, synced", 4, ("--host-factor", "60", *SYNCED), 1),
    Row("host of one of two stages", 2, ("--host-factor", "60"), 1),
    Row("host of one of two stages, synced", 2, ("--host-factor", "60", *SYNCED), 1),
]


@pytest.mark.parametrize("row", rows(LATE))
def test_a_stage_whose_host_is_slow_is_named_or_the_run_is_not_decided(row: Row, tmp_path: Path) -> None:
    """Never kept, and never another one."""
    document, _ = seen(row, tmp_path)
    named = {rank for found in serious(document) for rank in found["ranks"]}
    assert document["verdict"]["decision"] == ("tune" if named else None), document["verdict"]
    if "--data-extra-ms" in row.arguments and row.arguments[-2:] == SYNCED:
        assert [found["id"] for found in serious(document)] == ["held_rank"]
