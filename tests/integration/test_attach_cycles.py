"""Attached to and detached from again and again, a live training has no trace of it, and the same weights bit for bit.

Three times in each run, for threads and descriptors; a hundred times with `make test-all`, for memory, too.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from patience import INJECT_S, PATIENCE_S, wait_until
from training import launch, running

from tuiadvisor.agent.payload import NATIVE_NAME, attach_code, detach_code, write_native
from tuiadvisor.inject import inject as inject_within
from tuiadvisor_probes import ring

torch = pytest.importorskip("torch")

inject = partial(inject_within, timeout_s=INJECT_S)
CYCLES_A_COLLECTION = 10
# The first cycles fill the allocator's arenas, which the process keeps and uses again: memory rises by some MiB and
# stands from there on. What would leak goes on rising with each cycle.
NUM_WARM_CYCLES = {2: 1, 100: 12}


def footprint(pid: int, mark: Path) -> tuple[int, int, int]:
    """(threads, file descriptors, resident bytes) of a process after a full garbage collection.

    A module and its functions hold each other: what is left of a detached probe waits for the interpreter's next full
    collection, which comes when its garbage is a quarter of all objects. That is no leak, and would hide one.
    """
    collect(pid, mark)
    process = psutil.Process(pid)
    threads = []
    for _ in range(20):  # the thread that collected may not have ended yet
        threads.append(process.num_threads())
        time.sleep(0.01)
    return min(threads), process.num_fds(), process.memory_info().rss


def collect(pid: int, mark: Path) -> None:
    """A full garbage collection in a process; mark: file that says it is done."""
    inject(pid, f"import gc; gc.collect(); open({str(mark)!r}, 'w').close()")
    wait_until(mark.exists, "the process did not collect its garbage")
    mark.unlink()


def cycle(pid: int, path: Path, *, by_command: bool) -> int:
    """One attach, at least two observed steps, one detach; returns the steps seen."""
    ring.create_ring_file(str(path))
    reader = ring.RingReader(str(path))
    (path.parent / NATIVE_NAME).unlink(missing_ok=True)
    write_native(path.parent)
    inject(pid, attach_code(str(path)))
    state = ring.OFFSET_STATE
    wait_until(lambda: reader.get_u64(state) == ring.STATE_LIVE, "the probe did not come up")
    wait_until(lambda: reader.get_u64(ring.OFFSET_STEP_HEAD) >= 2, "no steps were seen")
    if by_command:
        reader.put_u64(ring.OFFSET_COMMAND, ring.COMMAND_DETACH)
    else:
        inject(pid, detach_code())
    wait_until(lambda: reader.get_u64(state) == ring.STATE_DETACHED, "the probe did not leave")
    steps = reader.take_steps()
    assert reader.get_u64(ring.OFFSET_ERRORS) == 0, reader.info()
    reader.close()
    path.unlink()
    return len(steps)


@pytest.mark.slow
@pytest.mark.parametrize("num_cycles", [2, pytest.param(100, marks=pytest.mark.extended)])
def test_cycles_leave_no_trace(num_cycles: int, tmp_path: Path) -> None:
    """Threads and descriptors as before, memory not growing with a hundred, weights equal to an undisturbed run."""
    disturbed, reference = tmp_path / "disturbed.pt", tmp_path / "reference.pt"
    stop = tmp_path / "stop"
    end = ["--stop-file", str(stop), "--result", str(disturbed)]
    with running(2, "--seed", "5", "--step-ms", "15", *end) as (training, ranks):
        pids = [rank.pid for rank in ranks]
        for number in range(NUM_WARM_CYCLES[num_cycles]):
            for pid in pids:
                cycle(pid, tmp_path / "ring", by_command=True)
                if number % CYCLES_A_COLLECTION == 0:
                    collect(pid, tmp_path / "collected")
        before = [footprint(pid, tmp_path / "collected") for pid in pids]
        num_steps_seen = 0
        for number in range(num_cycles):
            for pid in pids:
                num_steps_seen += cycle(pid, tmp_path / "ring", by_command=number % 2 == 0)
                if number % CYCLES_A_COLLECTION == 0:
                    collect(pid, tmp_path / "collected")
        after = [footprint(pid, tmp_path / "collected") for pid in pids]
        assert num_steps_seen >= 2 * num_cycles * len(pids)
        for (threads, descriptors, resident), (threads_after, descriptors_after, resident_after) in zip(
            before, after, strict=True
        ):
            assert threads == threads_after
            assert descriptors == descriptors_after
            # One ring is 2.3 MiB and the probe's code 0.3: keeping either of a hundred cycles would show. Where the
            # arenas are not full yet, nothing can be said.
            assert resident_after - resident < 8 << 20 or num_cycles < 100
        stop.touch()
        assert training.wait(PATIENCE_S) == 0, "the training itself must end well"
    left = torch.load(disturbed)
    as_many = ["--steps", str(left["steps"]), "--seed", "5"]
    undisturbed = launch(2, ["--print-every", "0", *as_many, "--step-ms", "0", "--result", str(reference)])
    assert undisturbed.wait(PATIENCE_S) == 0
    right = torch.load(reference)
    assert left["steps"] == right["steps"] > num_steps_seen // len(pids)
    assert torch.equal(left["weights"], right["weights"])
