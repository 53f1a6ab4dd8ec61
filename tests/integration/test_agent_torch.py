"""The agent with the real injection and the real probe, on real trainings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import zmq
from patience import PATIENCE_S

from tuiadvisor.agent import procfs
from tuiadvisor.agent.discovery import RankProcess, find_ranks
from tuiadvisor.agent.session import mapped_rings
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import STEP_COLUMNS
from tuiadvisor.stream.frames import Frame, FrameKind, decode, unpack_columns
from tuiadvisor.stream.voice import hear

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

TRAIN = Path(__file__).parents[2] / "demo" / "train.py"
SPAWN_TRAIN = """
import os, sys, time, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.utils.data import DataLoader

def train(rank, size, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        for batch in DataLoader(torch.randn(512, 16), batch_size=8, num_workers=1):
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.02)

if __name__ == "__main__":
    mp.spawn(train, (2, sys.argv[1]), 2)
"""
ALONE_TRAIN = """
import time, torch
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(8, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
"""

ENTER = 'mount -t tmpfs none /dev/shm && exec "$0" "$1"'


class Watch:
    """An agent on a process, and the frames it sends."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.frames: list[Frame] = []
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        endpoint = f"ipc://{folder}/hub"
        self._socket.bind(endpoint)
        command = [sys.executable, "-m", "tuiadvisor.agent", "--endpoint", endpoint, "--pid", str(pid)]
        self.agent = subprocess.Popen([*command, "--wait", str(PATIENCE_S)])

    def until(self, is_enough: Callable[[Watch], Any], limit_s: float = PATIENCE_S) -> None:
        """Receive until this holds."""
        deadline_s = time.monotonic() + limit_s
        while not is_enough(self):
            assert time.monotonic() < deadline_s, self.states()
            if self._socket.poll(100):
                self.frames.append(decode(hear(memoryview(self._socket.recv()))[1]))

    def of(self, kind: FrameKind) -> list[Any]:
        """Payloads of that kind so far."""
        return [frame.payload for frame in self.frames if frame.kind is kind]

    def states(self) -> dict[int | None, tuple[str, str]]:
        """Rank to (state, detail) by the latest status."""
        statuses = self.of(FrameKind.STATUS)
        return (
            {one["rank"]: (one["state"], one["detail"]) for one in statuses[-1]["ranks"]} if statuses else {}
        )

    def num_steps(self, rank: int) -> int:
        """Steps received of a rank."""
        tables = [unpack_columns(payload, ("rank", *STEP_COLUMNS)) for payload in self.of(FrameKind.STEPS)]
        return sum(int((table["rank"] == rank).sum()) for table in tables)

    def leave(self) -> int:
        """Stop the agent in order; its exit code."""
        self.agent.terminate()
        self.until(lambda watch: watch.of(FrameKind.BYE))
        return self.agent.wait(PATIENCE_S)

    def close(self) -> None:
        """Nothing of it is left."""
        self.agent.terminate()
        self.agent.wait(PATIENCE_S)
        self._context.destroy(linger=0)


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []

    def start(*command: str, **options: Any) -> subprocess.Popen[bytes]:
        variables = os.environ | {"OMP_NUM_THREADS": "1"}
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": variables}
        processes.append(subprocess.Popen([sys.executable, *command], **{**silent, **options}))
        return processes[-1]

    yield start
    for process in processes:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        for child in family:
            with suppress(psutil.NoSuchProcess):
                if "resource_tracker" not in " ".join(child.cmdline()):  # it removes the others' semaphores
                    child.kill()
        process.wait()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[[int], Watch]]:
    watches: list[Watch] = []

    def start(pid: int) -> Watch:
        watches.append(Watch(tmp_path, pid))
        return watches[-1]

    yield start
    for one in watches:
        one.close()


def torchrun(*more: str, num_ranks: int = 2) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    return [*launcher, str(TRAIN), "--seconds", "900", "--step-ms", "20", *more]


@pytest.mark.parametrize(
    "core", [pytest.param("python", marks=pytest.mark.extended), "native"], indirect=True
)
def test_torchrun_job_is_watched_from_its_launch_on_and_left_without_a_trace(
    core: str, started: Callable[..., subprocess.Popen[bytes]], watch: Callable[[int], Watch]
) -> None:
    """Ranks still importing torch are waited for; loader workers are left alone; all probes come out."""
    job = started(*torchrun("--workers", "1"))
    watching = watch(job.pid)
    watching.until(lambda watch: watch.num_steps(0) > 20 and watch.num_steps(1) > 20)
    hello = watching.of(FrameKind.HELLO)[-1]
    pids = [rank["pid"] for rank in hello["ranks"]]
    workers = [child.pid for pid in pids for child in psutil.Process(pid).children()]

    assert len(workers) >= 2
    assert [path for pid in workers for path, _ in mapped_rings(pid) if pid in pids] == []
    assert [(rank["rank"], rank["backend"], rank["label"]) for rank in hello["ranks"]] == [
        (0, "gloo", "train.py"),
        (1, "gloo", "train.py"),
    ]
    assert {(rank["core"], rank["core_why"]) for rank in hello["ranks"]} == {(core, None)}
    assert {rank["attach_way"] for rank in hello["ranks"]} <= {"thread", "pending_call"}
    rings = [path for pid in pids for path, _ in mapped_rings(pid)]

    assert watching.leave() == 0
    assert {state for state, _ in watching.states().values()} == {"detached"}
    assert [path for path in rings if Path(path).exists()] == []
    assert job.poll() is None


def test_killed_rank_is_told_with_its_signal_and_the_agent_ends_with_the_job(
    started: Callable[..., subprocess.Popen[bytes]], watch: Callable[[int], Watch]
) -> None:
    """Torchrun then stops the other rank: both ends are told."""
    job = started(*torchrun())
    watching = watch(job.pid)
    watching.until(lambda watch: watch.num_steps(0) > 20 and watch.num_steps(1) > 20)
    pids = [rank["pid"] for rank in watching.of(FrameKind.HELLO)[-1]["ranks"]]

    os.kill(pids[1], signal.SIGKILL)
    watching.until(lambda watch: watch.of(FrameKind.BYE))

    assert watching.of(FrameKind.BYE) == [{"reason": "all ranks ended"}]
    assert watching.states()[1][0] == "killed"
    assert "after step" in watching.states()[1][1]
    assert watching.states()[0][0] in {"killed", "exited"}


def test_elastic_restart_is_followed(
    started: Callable[..., subprocess.Popen[bytes]], watch: Callable[[int], Watch], tmp_path: Path
) -> None:
    """--max-restarts: torchrun starts new processes, and they are watched in place of the old ones."""
    script = tmp_path / "alone.py"  # without a process group: gloo's own reconnection is not what is tested
    script.write_text(ALONE_TRAIN)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    job = started(*launcher, str(script))
    watching = watch(job.pid)
    watching.until(lambda watch: watch.num_steps(0) > 20 and watch.num_steps(1) > 20)
    old = [rank["pid"] for rank in watching.of(FrameKind.HELLO)[-1]["ranks"]]
    os.kill(old[0], signal.SIGKILL)

    watching.until(
        lambda watch: (
            [state for state, _ in watch.states().values()] == ["live", "live"]
            and not {rank["pid"] for rank in watch.of(FrameKind.HELLO)[-1]["ranks"]} & set(old)
        )
    )

    assert [rank["rank"] for rank in watching.of(FrameKind.HELLO)[-1]["ranks"]] == [0, 1]


def test_ranks_of_mp_spawn_get_their_numbers_from_the_probe(
    started: Callable[..., subprocess.Popen[bytes]], watch: Callable[[int], Watch], tmp_path: Path
) -> None:
    """No variables outside; inside the process group knows. Loader workers are not taken for ranks."""
    script = tmp_path / "spawn_train.py"
    script.write_text(SPAWN_TRAIN)
    job = started(str(script), str(tmp_path))
    deadline_s = time.monotonic() + PATIENCE_S
    ranks: list[RankProcess] = []
    while len(ranks) < 2:
        assert time.monotonic() < deadline_s
        with suppress(TuiadvisorError):
            ranks = [process for process in find_ranks([job.pid]) if process.pid != job.pid]
        time.sleep(0.1)
    watching = watch(job.pid)

    watching.until(lambda watch: watch.num_steps(0) > 20 and watch.num_steps(1) > 20)

    assert [process.rank for process in ranks] == [None, None]
    assert sorted(rank["pid"] for rank in watching.of(FrameKind.HELLO)[-1]["ranks"]) == sorted(
        process.pid for process in ranks
    )
    assert watching.leave() == 0


def test_training_of_one_process_is_rank_zero_of_one(
    started: Callable[..., subprocess.Popen[bytes]], watch: Callable[[int], Watch], tmp_path: Path
) -> None:
    """Given by its pid; the number is assumed once it makes steps without a process group."""
    script = tmp_path / "alone.py"
    script.write_text(ALONE_TRAIN)
    job = started(str(script))
    watching = watch(job.pid)

    watching.until(lambda watch: watch.num_steps(0) > 20)

    (rank,) = watching.of(FrameKind.HELLO)[-1]["ranks"]
    assert (rank["rank"], rank["world_size"], rank["label"]) == (0, 1, "alone.py")
    assert watching.leave() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="no other user's training (be root)")
def test_another_users_training_is_watched_by_root(
    started: Callable[..., subprocess.Popen[bytes]], watch: Callable[[int], Watch], tmp_path: Path
) -> None:
    """The ring and a copy of the probe are handed over to that user."""
    script = tmp_path / "alone.py"
    # The interpreter may lie where only root can start it: the script gives its rights up after its imports.
    give_up = "while True:\n    if os.getuid() == 0 and optimizer.state: os.setgid(65534); os.setuid(65534)"
    script.write_text(
        "import json, os\n"
        + ALONE_TRAIN.replace("while True:", give_up).replace("0.1)", "0.1, momentum=0.9)")
    )
    job = started(str(script))
    while procfs.owner(job.pid) != 65534:
        assert job.poll() is None
        time.sleep(0.05)
    watching = watch(job.pid)

    watching.until(lambda watch: watch.num_steps(0) > 20)

    (path,) = {path for path, _ in mapped_rings(job.pid)}
    assert "/tuiadvisor-65534-" in path
    assert watching.leave() == 0
    assert not Path(path).parent.exists()
    assert job.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="no namespaces (be root)")
def test_training_in_a_container_is_watched_from_outside(
    started: Callable[..., subprocess.Popen[bytes]], watch: Callable[[int], Watch], tmp_path: Path
) -> None:
    """Its /dev/shm is another one: the ring and the probe's files lie there, and go from there."""
    script = tmp_path / "alone.py"
    script.write_text(ALONE_TRAIN)
    words = ["unshare", "-m", "sh", "-c", ENTER, sys.executable, str(script)]
    job = started("-c", f"import os; os.execvp('unshare', {words!r})")
    while procfs.python_version(job.pid) is None or "alone.py" not in " ".join(procfs.arguments(job.pid)[:2]):
        assert job.poll() is None
        time.sleep(0.05)
    shared = Path(f"/proc/{job.pid}/root/dev/shm")
    watching = watch(job.pid)

    watching.until(lambda watch: watch.num_steps(0) > 20)

    (path,) = {path for path, _ in mapped_rings(job.pid)}
    assert not Path(path).exists()
    assert (shared / Path(path).parent.name / Path(path).name).exists()
    assert watching.leave() == 0
    assert list(shared.iterdir()) == []
    assert job.poll() is None
