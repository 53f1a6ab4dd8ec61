"""Questions that the recording answers itself: nobody is asked what was seen.

In: Facts.  Out: answers with what they rest on. Between two thresholds a measurement decides nothing, and is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.session.evidence import Facts

EXPOSED: Final = 0.1  # of the step: the kineto plugin's "deserves a look"
CPUS_FULL, CPUS_FREE = 0.9, 0.8  # shares of all processors of the busiest host
MEMORY_FULL, MEMORY_FREE = 0.9, 0.8  # 0.9: the kineto plugin's threshold
DEVICE_BUSY, DEVICE_IDLE = 0.8, 0.5
DISK_BUSY: Final = 0.9  # of the time: below it says nothing, for data may come over the network
STACKS: Final = "sampled_stacks"
# No request to a file server is in it: a host whose readers all wait for NFS or FUSE has 0 %.
IOWAIT: Final = "of local disks alone"
INPUT_BOUND: Final = "input_bound"  # the finding whose evidence has the looks at whoever reads for all ranks


@dataclass(frozen=True, slots=True)
class Measured:
    """An answer, and the figures behind it."""

    answer: str
    because: str


def measured_answers(run: Facts) -> dict[str, Measured]:
    """By the question's id."""
    found = {
        "host_cpus_full": _host_cpus(run),
        "storage_at_ceiling": _storage(run),
        "memory_nearly_full": _memory(run),
        "spins_in_collective": _spins(run),
        STACKS: _stacks(run),
    }
    return {name: answer for name, answer in found.items() if answer is not None}


def with_measured(run: Facts, answers: Mapping[str, str | float]) -> dict[str, str | float]:
    """What was answered, and what was measured where nothing was."""
    return {**{name: found.answer for name, found in measured_answers(run).items()}, **answers}


def readers_do(run: Facts) -> dict[str, float]:
    """Shares of the wait of all ranks for data in which whoever reads waits for storage, computes, or does neither.

    Empty where nobody looked. A training thread reads in its wait alone and has other work in the rest of the step:
    what it does beside waiting for storage is not known, and may be either.
    """
    found = next((one.evidence for one in (*run.findings, *run.notes) if one.id == INPUT_BOUND), {})
    storage, running = (
        _share(found.get(name)) for name in ("readers_storage_share", "readers_running_share")
    )
    if storage is None:
        return {}
    if running is None:
        wait = _share(found.get("data_wait_share"))
        storage = min(storage / wait, 1.0) if wait else storage
        return {"storage": storage, "computing": 1.0 - storage, "neither": 1.0 - storage}
    return {"storage": storage, "computing": running, "neither": max(1.0 - storage - running, 0.0)}


def _share(value: float | str | None) -> float | None:
    return min(max(value, 0.0), 1.0) if isinstance(value, int | float) else None


def _host_cpus(run: Facts) -> Measured | None:
    busy = run.host_busy
    if busy is None or CPUS_FREE <= busy < CPUS_FULL:
        return None
    waits = "" if run.iowait is None else f", {100 * run.iowait:.0f} % of the time in iowait ({IOWAIT})"
    because = f"processors of the busiest host {100 * busy:.0f} % busy in the mean{waits}"
    return Measured("yes" if busy >= CPUS_FULL else "no", because)


def _storage(run: Facts) -> Measured | None:
    """A disk that always has a request under way is at its limit; one that has not proves nothing."""
    if run.disk_busy is None or run.disk_busy < DISK_BUSY:
        return None
    reads = "" if run.disk_reads_s is None else f", {run.disk_reads_s:.3g} reads a second"
    return Measured(
        "yes", f"the busiest disk had a request under way {100 * run.disk_busy:.0f} % of the time{reads}"
    )


def _memory(run: Facts) -> Measured | None:
    share, retries = run.device_memory, run.alloc_retries
    if share is None or retries is None:
        return None
    because = f"at most {100 * share:.0f} % of a device's memory in use, {retries} allocations tried again"
    if share >= MEMORY_FULL and retries:
        return Measured("yes", because)
    return Measured("no", because) if share < MEMORY_FREE and not retries else None


def _spins(run: Facts) -> Measured | None:
    busy, exposed = run.device_busy, run.shares.get("comm_exposed")
    if busy is None or exposed is None or exposed < EXPOSED:
        return None
    because = f"devices {100 * busy:.0f} % busy in the mean, {100 * exposed:.0f} % of the step in exposed communication"
    if busy >= DEVICE_BUSY:
        return Measured("yes", because)
    return Measured("no", because) if busy < DEVICE_IDLE else None


def _stacks(run: Facts) -> Measured | None:
    """Where the rank in question spends the time that its peer does not."""
    return None if run.look is None else Measured(run.look.kind, run.look.words)
