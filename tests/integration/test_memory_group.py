"""A watcher in or beside the memory group of a training that is nearly full: the kernel never takes the training.

One training of a rank in a control group of its own, whose limit is drawn close around it and given back.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE_S, wait_until
from training import running

from tuiadvisor.agent import cgroup
from tuiadvisor.agent.room import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

TIMED = Path(__file__).parents[1] / "timed_training.py"
# Of version 2 and of version 1.
PARENTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory"))
LIMITS = ("memory.max", "memory.limit_in_bytes")
NO_SWAP = (("memory.swap.max", "0"), ("memory.swappiness", "0"))
WIDE = 64 << 30
SETTLED_STEPS = 25  # then it has taken what it needs
MAPPED = 1200 << 20  # more than the whole group uses
MAPPING = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE))
print("mapped", flush=True)
time.sleep(600)
"""
ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


class Job:
    """A training of one rank in a group of its own."""

    def __init__(self, group: Path, pid: int, steps: Path) -> None:
        self.group, self.pid, self._steps = group, pid, steps

    def num_steps(self) -> int:
        """That the rank has written down."""
        return self._steps.read_bytes().count(b"\n") if self._steps.exists() else 0

    def check_trains(self) -> None:
        """The rank lives and goes on from step to step."""
        assert Path(f"/proc/{self.pid}/exe").exists()
        before = self.num_steps()
        wait_until(lambda: self.num_steps() > before + 5 or not Path(f"/proc/{self.pid}/exe").exists())
        assert self.num_steps() > before + 5

    @contextmanager
    def room(self, num_mib: int) -> Iterator[None]:
        """So much and no more is left in the group."""
        limit_file = next(self.group / name for name in LIMITS if (self.group / name).exists())
        limit = cgroup.memory_limits(self.pid)[0]
        limit_file.write_text(str(limit.limit - limit.free + num_mib * MIB))
        try:
            yield
        finally:
            limit_file.write_text(str(WIDE))

    def record(self, output: Path, *prefix: str) -> subprocess.CompletedProcess[str]:
        """`tuiadvisor record` of the rank, to its end."""
        command = [sys.executable, "-m", "tuiadvisor", "record", "--pid", str(self.pid), "-o", str(output)]
        return subprocess.run(
            [*prefix, *command, "--steps", "10", "--for", "20s"],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip


def new_group() -> Path | None:
    """With a limit of memory; None where none can be made here."""
    for parent in PARENTS:
        group = parent / f"tuiadvisor_test_{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            for name in LIMITS:
                if (group / name).exists():
                    (group / name).write_text(str(WIDE))
                    for more, text in NO_SWAP:
                        with suppress(OSError):
                            if (group / more).exists():
                                (group / more).write_text(text)
                    return group
            group.rmdir()
    return None


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    group = new_group()
    if group is None:
        pytest.skip("no memory limit can be set here (as root, with /sys/fs/cgroup writable)")
    prefix = tmp_path_factory.mktemp("training") / "steps"
    arguments = ("--step-ms", "20", "--seconds", "9000", "--step-times", str(prefix))
    try:
        enter = ("/bin/sh", "-c", ENTER, str(group))
        with running(1, *arguments, script=TIMED, prefix=enter) as (_, (rank,)):
            made = Job(group, rank.pid, Path(f"{prefix}.0"))
            wait_until(lambda: made.num_steps() > SETTLED_STEPS)
            yield made
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_a_rank_whose_group_is_nearly_full_is_refused_in_one_line(job: Job, tmp_path: Path) -> None:
    """From outside of the group, where the attach alone would take the last of it."""
    with job.room(2):
        done = job.record(tmp_path / "run.tuirec")
        job.check_trains()
    assert (1, "") == (done.returncode, done.stdout)
    assert 1 == done.stderr.count("\n")
    assert f"its control group {job.group} has " in done.stderr
    assert "; raise the limit or let the training take less, then watch again" in done.stderr


def test_a_watcher_in_the_group_goes_before_the_training(job: Job, tmp_path: Path) -> None:
    """Hub, agent and command take more than there is: the kernel ends one of them, never the rank."""
    with job.room(50):
        done = job.record(tmp_path / "run.tuirec", "/bin/sh", "-c", ENTER, str(job.group))
        job.check_trains()
    assert 0 != done.returncode
    assert "not touched" not in done.stderr


def test_a_process_larger_than_the_groups_use_is_not_taken_for_us(job: Job, tmp_path: Path) -> None:
    """It maps what another group has read or written, as a torch with CUDA its libraries: the kernel counts that."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(bytes(MAPPED))
        file.flush()
        command = [sys.executable, "-c", MAPPING, file.name]
        larger = subprocess.Popen(
            ["/bin/sh", "-c", ENTER, str(job.group), *command], stdout=subprocess.PIPE, text=True
        )
        try:
            assert larger.stdout is not None
            assert "mapped\n" == larger.stdout.readline()
            with job.room(50):
                done = job.record(tmp_path / "run.tuirec", "/bin/sh", "-c", ENTER, str(job.group))
                job.check_trains()
            assert larger.poll() is None
            assert 1 == done.returncode
            assert f"the kernel ends process {larger.pid} before us" in done.stderr
        finally:
            larger.kill()
            larger.communicate()


def test_a_capture_ends_before_it_takes_what_the_training_needs(job: Job, tmp_path: Path) -> None:
    """A thousand steps asked for where a trace of them has no room: those that fit, and the reason; else none."""
    command = [sys.executable, "-m", "tuiadvisor", "capture", "all", "--pid", str(job.pid), "--steps", "1000"]

    def capture(folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "-o", str(folder)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    with job.room(100):
        done = capture(tmp_path / "some")
        job.check_trains()
    assert 0 == done.returncode, done.stderr
    assert " of 1000 steps: more would take more memory than " in done.stdout
    assert f"(half of what its control group {job.group} has left)" in done.stdout
    assert [tmp_path / "some" / "rank0.json"] == list((tmp_path / "some").iterdir())
    with job.room(40):
        done = capture(tmp_path / "none")
        job.check_trains()
    assert 1 == done.returncode
    assert "no trace: rank 0: a trace takes 16 MiB of memory to begin with, more than " in done.stderr
    assert not (tmp_path / "none").exists()
