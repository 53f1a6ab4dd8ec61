"""Rates of a machine from counters we make up, and a real reading."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tuiadvisor.agent import procfs
from tuiadvisor.agent.host import (
    Counters,
    HostSampler,
    rank_counters,
    rates,
    read_counters,
    run_queue,
)
from tuiadvisor.agent.topology import cores_of
from tuiadvisor.stream.frames import FrameKind
from tuiadvisor.stream.shapes import check_payload

BEFORE = Counters(
    mono_ns=10**9,
    busy_s=(10.0, 20.0),
    total_s=(100.0, 100.0),
    iowait_s=5.0,
    disk_read_bytes=1000,
    disk_write_bytes=0,
    net_bytes=500,
)
LATER = Counters(
    mono_ns=3 * 10**9,
    busy_s=(11.0, 22.0),
    total_s=(102.0, 102.0),
    iowait_s=5.4,
    disk_read_bytes=5000,
    disk_write_bytes=200,
    net_bytes=400,
)


def test_rates_are_differences_over_time() -> None:
    """Two seconds: 3 of 4 core seconds busy, 0.4 waiting for a disk, 4000 bytes read."""
    found = rates(BEFORE, LATER)

    assert pytest.approx(0.75) == found["cpu"]
    assert pytest.approx([0.5, 1.0]) == found["cpu_per_core"]
    assert pytest.approx(0.1) == found["iowait"]
    assert (found["disk_read_bytes_s"], found["disk_write_bytes_s"]) == (2000.0, 100.0)


def test_counter_that_runs_backwards_is_no_rate() -> None:
    """A network card went away with its count: unknown, not negative and not zero."""
    assert rates(BEFORE, LATER)["net_bytes_s"] is None


def test_first_sample_has_no_rates() -> None:
    """Nothing to subtract from is unknown."""
    assert {None} == set(rates(None, LATER).values())


def test_core_switched_on_between_samples_makes_rates_unknown() -> None:
    """Cores that cannot be paired are not compared."""
    more = replace(LATER, busy_s=(1.0, 2.0, 3.0), total_s=(1.0, 2.0, 3.0))

    assert {None} == set(rates(BEFORE, more).values())


def test_absent_disk_counters_stay_unknown() -> None:
    """A machine without real disks has no disk rate."""
    found = rates(replace(BEFORE, disk_read_bytes=None), replace(LATER, disk_read_bytes=None))

    assert found["disk_read_bytes_s"] is None


def test_sampler_gives_payloads_a_frame_may_carry() -> None:
    """The first has no cpu share, the second has; both pass the frame's own check."""
    readings = iter([BEFORE, LATER])
    sampler = HostSampler("node1", lambda: next(readings))

    first, second = sampler.sample([], []), sampler.sample([], [{"index": 0}])

    assert first["cpu"] is None
    assert second["cpu"] == pytest.approx(0.75)
    assert (second["host"], second["gpus"]) == ("node1", [{"index": 0}])
    for payload in (first, second):
        assert payload is check_payload(FrameKind.HOST, payload)


def test_real_counters_hold_one_entry_a_core() -> None:
    """What the kernel tells has the shape that rates() needs."""
    found = read_counters()

    assert len(found.busy_s) == len(found.total_s) > 0
    assert all(0 <= busy <= total for busy, total in zip(found.busy_s, found.total_s, strict=True))


def test_counters_of_a_real_process() -> None:
    """This process has used CPU, memory, threads and switches."""
    found = rank_counters(os.getpid(), 3)

    assert found["rank"] == 3
    for name in ("cpu_s", "rss_bytes", "num_threads", "voluntary_switches"):
        assert found[name] > 0, name  # type: ignore[operator]
    assert found["run_delay_s"] >= 0  # type: ignore[operator]
    assert 0 < found["run_s"] <= found["cpu_s"] + 0.02  # type: ignore[operator]  # of one thread, in finer ticks


def test_run_queue_is_the_kernels_count_of_runnable_threads() -> None:
    """Found by its name wherever it stands; absent or odd is unknown."""
    assert run_queue("cpu  1 2 3\nprocs_running 17\nprocs_blocked 0\n") == 17
    assert run_queue("procs_running\n") is None
    assert run_queue("") is None


def test_cores_of_a_node_are_the_kernels_list() -> None:
    """Ranges and single cores; an empty node has none."""
    assert cores_of("0-3,8,10-11\n") == [0, 1, 2, 3, 8, 10, 11]
    assert cores_of("\n") == []
    with pytest.raises(ValueError, match="invalid literal"):
        cores_of("a-b")


def test_rank_stands_on_a_core() -> None:
    """The one this process last ran on."""
    assert rank_counters(os.getpid(), 0)["last_cpu"] in range(1 << 16)


def test_a_nice_value_is_the_training_threads_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A priority is a thread's: the others of its process may have another.

    The kernel's own line of this thread, with another value in the file of a thread that does not exist: who runs the
    suite may already have the lowest priority, and would need a privilege to give a real thread a higher one.
    """
    real, other = procfs.read, (1 << 22) + 1

    def reading(pid: int, name: str) -> bytes | None:
        if name != f"task/{other}/stat":
            return real(pid, name)
        words = (real(pid, f"task/{pid}/stat") or b"").rpartition(b")")
        fields = words[2].split()
        fields[16] = b"7"
        return words[0] + b") " + b" ".join(fields)

    monkeypatch.setattr(procfs, "read", reading)
    pid = os.getpid()
    assert rank_counters(pid, 0, other)["nice"] == 7
    assert rank_counters(pid, 0)["nice"] == os.getpriority(os.PRIO_PROCESS, pid)


def test_counters_of_a_process_that_is_gone_are_unknown() -> None:
    """Only the rank is told."""
    assert rank_counters(1 << 22, 3) == {"rank": 3}
