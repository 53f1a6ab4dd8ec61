"""A file system without room for a ring: the training goes on, the place is said, nothing is left behind.

One training in a mount namespace of its own, over whose /dev/shm and /tmp small file systems come and go.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from patience import PATIENCE_S, wait_until
from training import running

from tuiadvisor.agent.discovery import RankProcess
from tuiadvisor.agent.room import PLACES
from tuiadvisor.agent.session import mapped_rings
from tuiadvisor.app.survey import surveyed
from tuiadvisor.views.run_view import RunView

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

TIMED = Path(__file__).parents[1] / "timed_training.py"
OWN_MOUNTS = ("unshare", "--mount")
MEMORY, DISK, OTHER_DISK = PLACES  # in a mount namespace of the test's own


class Job:
    """A training of two ranks with its own mounts."""

    def __init__(self, pid: int, ranks: list[RankProcess], prefix: Path) -> None:
        self.pid, self.ranks, self.prefix = pid, ranks, prefix

    def num_steps(self) -> int:
        """Steps that rank 0 has written down."""
        return Path(f"{self.prefix}.0").read_bytes().count(b"\n")

    def inside(self, *command: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command that sees the mounts of the training."""
        return subprocess.run(
            [str(shutil.which("nsenter")), f"--target={self.ranks[0].pid}", "--mount", *command],
            capture_output=True,
            check=False,
        )

    @contextmanager
    def small(self, place: str, size: str) -> Iterator[None]:
        """The training sees a new file system of that size there, empty afterwards as it was before."""
        mount = self.inside("mount", "-t", "tmpfs", "-o", f"size={size}", "tuiadvisor-test", place)
        assert (0, b"") == (mount.returncode, mount.stderr)
        try:
            yield
            assert [] == [name for name in self.names(place) if name.startswith("tuiadvisor-")]
        finally:
            self.inside("umount", "--lazy", place)

    def names(self, place: str) -> list[str]:
        """What lies there as the training sees it."""
        return [path.name for path in Path(f"/proc/{self.ranks[0].pid}/root{place}").iterdir()]

    def fill(self, place: str, leave_kib: int = 0) -> None:
        """Take all room there but so much."""
        everything = f"dd if=/dev/zero of={place}/ballast bs=64k 2>/dev/null; truncate -s -{leave_kib}K {place}/ballast"
        self.inside("sh", "-c", everything)

    def rings(self) -> list[str]:
        """The rings the ranks have mapped and that are not deleted."""
        return [path for rank in self.ranks for path, gone in mapped_rings(rank.pid) if not gone]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    if (
        os.geteuid() != 0
        or subprocess.run([*OWN_MOUNTS, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no file system of its own (be root)")
    prefix = tmp_path_factory.mktemp("training") / "steps"
    arguments = ("--step-ms", "40", "--seconds", "9000", "--step-times", str(prefix))
    with running(2, *arguments, script=TIMED, prefix=OWN_MOUNTS) as (training, ranks):
        made = Job(training.pid, ranks, prefix)
        wait_until(
            lambda: all(Path(f"{prefix}.{rank}").exists() for rank in range(2))
        )  # before mounts hide the folder
        yield made


def record(job: Job, output: Path, *until: str) -> subprocess.Popen[str]:
    """`tuiadvisor record` of this training; until: as its options say it, else until it is told to end."""
    command = [
        sys.executable,
        "-m",
        "tuiadvisor",
        "record",
        "--pid",
        str(job.pid),
        "-o",
        str(output),
        *until,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_trains(job: Job) -> None:
    """Both ranks live and go on from step to step."""
    before = job.num_steps()
    wait_until(lambda: job.num_steps() > before + 20)
    assert all(Path(f"/proc/{rank.pid}/exe").exists() for rank in job.ranks)


def seen(output: Path) -> RunView:
    """What the recording says at its end."""
    view = surveyed(output).view
    assert view is not None
    return view


@pytest.mark.parametrize(
    ("size", "leave_kib"),
    [
        ("64k", None),
        pytest.param("1m", None, marks=pytest.mark.extended),
        pytest.param("64m", 700, marks=pytest.mark.extended),
        ("64m", 3000),
    ],
)
def test_a_small_or_nearly_full_shared_memory_is_not_used(
    job: Job, tmp_path: Path, size: str, leave_kib: int | None
) -> None:
    """A ring there would end the rank or take the last room from its loaders: the next place is taken, and named."""
    output = tmp_path / "run.tuirec"
    with job.small(MEMORY, size), job.small(DISK, "200m"):
        if leave_kib is not None:
            job.fill(MEMORY, leave_kib)
        recording = record(job, output, "--steps", "40")
        wait_until(lambda: len(job.rings()) == 2 or recording.poll() is not None)
        places = {Path(path).parent.parent for path in job.rings()}
        said, complaint = recording.communicate(timeout=PATIENCE_S)
        check_trains(job)
        assert recording.returncode == 0, said + complaint
        assert {Path(DISK)} == places
        for rank in seen(output).ranks:
            assert "its files lie in /tmp (/dev/shm: " in rank.state_detail
            assert " MiB needed)" in rank.state_detail


def test_a_shared_memory_that_fills_later_is_not_the_end(job: Job, tmp_path: Path) -> None:
    """Pages that the ring has not used yet are there although nobody else gets one any more."""
    output = tmp_path / "run.tuirec"
    with job.small(MEMORY, "64m"):
        recording = record(job, output)
        wait_until(lambda: len(job.rings()) == 2)
        job.fill(MEMORY)
        full_since = job.num_steps()
        assert {Path(MEMORY)} == {Path(path).parent.parent for path in job.rings()}
        wait_until(lambda: job.num_steps() > full_since + 120)
        recording.send_signal(signal.SIGINT)
        said, complaint = recording.communicate(timeout=PATIENCE_S)
        check_trains(job)
        assert recording.returncode == 0, said + complaint
    view = seen(output)
    assert {"detached"} == {rank.state for rank in view.ranks}
    assert (view.last_step or 0) > 100


def test_no_room_anywhere_is_a_refusal_in_one_line(job: Job, tmp_path: Path) -> None:
    """What, where and what next; the training is not touched and nothing is left."""
    output = tmp_path / "run.tuirec"
    with ExitStack() as mounts:
        for place in (MEMORY, DISK, OTHER_DISK):
            mounts.enter_context(job.small(place, "1m"))
        recording = record(job, output, "--steps", "40")
        said, complaint = recording.communicate(timeout=PATIENCE_S)
        check_trains(job)
        assert [] == job.rings()
    assert (1, "") == (recording.returncode, said)
    assert 1 == complaint.count("\n")
    assert "no room for its ring (/dev/shm: " in complaint
    assert f"{DISK}: " in complaint
    assert "free space in one of them" in complaint


def test_a_rank_killed_while_it_is_recorded_is_in_the_result(job: Job, tmp_path: Path) -> None:
    """With its signal, if its end was seen before its launcher asked; never "Keep". The last test: it ends the job."""
    output = tmp_path / "run.tuirec"
    recording = record(job, output, "--for", "60s")
    wait_until(lambda: len(job.rings()) == 2 or recording.poll() is not None)
    before = job.num_steps()
    wait_until(lambda: job.num_steps() > before + 50)
    os.kill(job.ranks[1].pid, signal.SIGBUS)
    said, complaint = recording.communicate(timeout=PATIENCE_S)
    assert recording.returncode == 0, complaint
    sentence = said.splitlines()[-1]
    assert re.search(
        r"rank 1 (was killed by SIGBUS|is gone without its exit hooks) after step \d+",
        sentence,
        re.IGNORECASE,
    )
    assert not sentence.startswith("Keep")
    diagnosed = [sys.executable, "-m", "tuiadvisor", "diagnose", "--json", str(output)]
    document = subprocess.run(diagnosed, capture_output=True, check=True, timeout=PATIENCE_S).stdout
    assert sentence == orjson.loads(document)["verdict"]["sentence"]
