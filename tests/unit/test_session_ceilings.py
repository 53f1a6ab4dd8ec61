"""Is the link slow or the message small? Answered from the run's own numbers against the machine's ceiling."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import Job, final_view

from tuiadvisor.session.ceilings import link, storage
from tuiadvisor.session.evidence import Facts, facts
from tuiadvisor.session.machine import Machine, Network, Storage

MB = 1e6
LATENCY, RATE = 50e-6, 10e9  # of a message at the ceiling
SIZES = [float(1 << exponent) for exponent in range(10, 31)]
NETWORK = Network(8, 1, tuple((size, LATENCY + size / RATE) for size in SIZES))
MACHINE = Machine((NETWORK,), Storage(1e9, None, is_direct=True))
RUN = replace(
    facts("a.tuirec", final_view(Job(num_ranks=8))),
    backend="nccl",
    gradient_bytes=400_000_000,
    num_collectives=16,
    num_hosts=1,
)
IDEAL = 16 * LATENCY + 400 * MB / RATE


def run(**changes: object) -> Facts:
    """The run with an exchange of its own."""
    return replace(RUN, **changes)  # type: ignore[arg-type]


def test_a_slow_link_with_large_messages() -> None:
    """25 MB messages at a third of what the benchmark got: it is the link."""
    answer = link(run(transfer_s=3 * IDEAL), MACHINE).answer
    assert "400 MB in 16 messages of 25 MB on average" in answer
    assert "The link is slow" in answer
    assert "3.0x what it could" in answer
    assert "small" not in answer


def test_small_messages_on_a_good_link() -> None:
    """4000 messages of 100 kB at the ceiling's own time: it is the messages, and the size that would do is named."""
    ideal = 4000 * LATENCY + 400 * MB / RATE
    answer = link(run(num_collectives=4000, transfer_s=ideal), MACHINE).answer
    assert "The messages are small: such a message gets 17 % of the link's best rate" in answer
    assert "DDP(bucket_cap_mb=2)" in answer
    assert "slow" not in answer


def test_both_and_neither() -> None:
    """They do not exclude each other."""
    both = link(run(num_collectives=4000, transfer_s=1.0), MACHINE).answer
    assert "The link is slow" in both
    assert "The messages are small" in both
    assert "Neither" in link(run(transfer_s=1.1 * IDEAL), MACHINE).answer


def test_what_was_not_seen_is_said() -> None:
    """Only the exposed part, no count of messages, another number of ranks."""
    found = link(run(transfer_s=IDEAL / 4, num_collectives=None, num_devices=4), MACHINE)
    assert "that nothing hides" in found.answer
    assert "How many messages a step sends was not observed" in found.unknown
    assert "The ceiling is of 8 ranks" in found.unknown
    assert "Communication that compute hides was not observed" in found.unknown
    seen = link(run(comm_total_s=3 * IDEAL, skew_sampled_s=IDEAL, skew_s=9 * IDEAL, transfer_s=0.0), MACHINE)
    assert "The link is slow" in seen.answer
    assert "2.0x" in seen.answer
    assert "" == seen.unknown


@pytest.mark.parametrize(
    ("changes", "machine", "says"),
    [
        ({}, Machine(), "what the link within one host can do was not measured"),
        ({"num_hosts": 2}, MACHINE, "what the link between hosts can do was not measured"),
        ({"gradient_bytes": None}, MACHINE, "how many bytes a step sends was not observed"),
        ({"transfer_s": None}, MACHINE, "when the last rank arrived was not observed"),
        ({"backend": "gloo"}, MACHINE, "the training communicates by gloo, the ceiling is NCCL's"),
        ({"num_devices": 1}, MACHINE, "Neither: the job has one rank"),
    ],
)  # fmt: skip
def test_without_the_evidence_there_is_no_answer(
    changes: dict[str, object], machine: Machine, says: str
) -> None:
    """Nothing is concluded from what was not measured; the way to measure it is named."""
    found = link(run(**changes), machine)
    assert says in found.answer
    assert found.unknown or found.answer.startswith("Neither")


def test_the_storage_is_judged_by_what_the_busiest_host_reads() -> None:
    """Only where the step waits for input, and only where disks were seen."""
    waiting = replace(
        RUN, seconds=RUN.seconds | {"data_wait": 0.5 * (RUN.step_s or 0)}, disk_read_bytes_s=9e8
    )
    assert "It is at its limit" in storage(waiting, MACHINE).answer
    assert "It is not" in storage(replace(waiting, disk_read_bytes_s=1e8), MACHINE).answer
    assert "was not observed" in storage(replace(waiting, disk_read_bytes_s=None), MACHINE).answer
    assert "was not measured" in storage(waiting, Machine()).answer
    assert "It does not matter" in storage(RUN, MACHINE).answer
    indirect = Machine((), Storage(1e9, None, is_direct=False))
    assert "not known to be measured with --direct=1" in storage(waiting, indirect).unknown
