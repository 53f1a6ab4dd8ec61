"""Equal tokens, unequal lengths: what a batch holds is not left out beside a late rank's phase, host or device."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, folded, frames

from tuiadvisor.causes.facts import Facts
from tuiadvisor.causes.straggler import measure
from tuiadvisor.metrics.diagnosing import diagnose_table
from tuiadvisor.views.efficiency import Stack

PACKED = Stack({"input": "1x4096", "packed": "cu_seqlens"})


def said(fault: Fault, stack: Stack | None, squares: dict[int, float] | None = None) -> str:
    """Where the delay of rank 1 is said to arise."""
    found = folded(frames(Job().with_faults(fault))).store.table()
    assert found is not None
    table, first = found
    alive = table.present_RK.any(axis=1)
    diagnosis = diagnose_table(table, alive, from_beginning=first, all_ranks_seen=True)
    seen = {rank: np.full(9, value) for rank, value in (squares or {}).items()}
    (late,) = measure(diagnosis, Facts(stack=stack, squares=seen), {})
    assert (1,) == late.ranks
    return str(late.values["phase_words"])


@pytest.mark.parametrize("fault", [Fault("forward", (1,), 8 * MS), Fault("spread", (1,), 1.6)])
def test_what_packed_batches_hold_is_said_beside_it(fault: Fault) -> None:
    """By what it was seen, too."""
    assert "packed sequences, by cu_seqlens" in said(fault, PACKED)


@pytest.mark.parametrize("fault", [Fault("forward", (1,), 8 * MS), Fault("spread", (1,), 1.6)])
def test_an_input_that_was_not_seen_is_not_cleared(fault: Fault) -> None:
    """While a plain one, of which each rank has as much, is."""
    assert "the model's input was not seen" in said(fault, Stack({"params": 1}))
    assert "batches hold" not in said(fault, Stack({"input": "4x1024"}))


def test_a_late_loader_is_no_matter_of_lengths() -> None:
    """Waiting for data does not depend on how attention is cut."""
    assert "batches hold" not in said(Fault("data", (1,), 8 * MS), PACKED)


@pytest.mark.parametrize("fault", [Fault("forward", (1,), 8 * MS), Fault("spread", (1,), 1.6)])
def test_lengths_that_were_read_say_how_much_more_it_is(fault: Fault) -> None:
    """The squares of the lengths against those of the typical other rank."""
    words = said(fault, PACKED, {0: 1e6, 1: 1.9e6, 2: 1e6, 3: 1.1e6})
    assert "packed sequences: 1.90 times the squared lengths of the others" in words
    assert "not equal lengths" not in words


@pytest.mark.parametrize("fault", [Fault("forward", (1,), 8 * MS), Fault("spread", (1,), 1.6)])
def test_lengths_that_are_alike_clear_the_batches(fault: Fault) -> None:
    """Nor are they suspected where only its own were read."""
    assert "batches hold" not in said(fault, PACKED, dict.fromkeys(range(4), 1e6))
    assert "not equal lengths" in said(fault, PACKED, {1: 1.9e6})
