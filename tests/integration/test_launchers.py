"""Ranks that others than torchrun start, and an agent beside them: MPI, a pod with a sidecar, what the guide says."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from nodes import (
    TRAINING_ENV,
    can_make_nodes,
    start_node,
    torchrun,
    wait_for_training,
    wait_until_no_agents,
)
from patience import PATIENCE_S, complaints
from ports import free_port
from rank_loops import is_late, recorded_until
from training import end

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.live_session import Session
from tuiadvisor.launch.invited import InvitedLauncher

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[1] / "mpi_training.py"
SIDECAR = Path(__file__).parents[2] / "deploy" / "kubernetes" / "sidecar.yaml"
OPEN_MPI = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")


@contextmanager
def started(command: list[str], **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A training under way, ended with all it started."""
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    plain = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    training = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**plain, **TRAINING_ENV, **meet, **variables}, start_new_session=True,
    )  # fmt: skip
    try:
        yield training
    finally:
        end(training)


def wait_until_it_trains(training: subprocess.Popen[bytes], num_ranks: int) -> None:
    """Until so many processes have a process group."""
    deadline_s = time.monotonic() + PATIENCE_S
    while _num_training(training.pid) < num_ranks:
        assert time.monotonic() < deadline_s
        assert training.poll() is None
        time.sleep(0.2)


def _num_training(pid: int) -> int:
    found = 0
    for process in psutil.Process(pid).children(recursive=True):
        try:
            tasks = Path(f"/proc/{process.pid}/task").iterdir()
            found += any("gloo" in (task / "comm").read_text() for task in tasks)
        except OSError:
            continue
    return found


def diagnosed(pid: int, folder: Path) -> dict[str, object]:
    """What `record` and `diagnose` say of the training with this launcher."""
    output = folder / "run.tuirec"
    command = [sys.executable, "-m", "tuiadvisor", "record", "-o", str(output), "--pid", str(pid)]
    found, complaint = recorded_until(command, output, lambda document: is_late(document, 1, "backward"))
    assert "" == complaints(complaint)
    return found


ARGUMENTS = [str(SCRIPT), "--step-ms", "20", "--print-every", "0"]
ARGUMENTS += ["--fault", "slow-backward", "--fault-rank", "1", "--delay-ms", "200"]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun (apt-get install openmpi-bin)")
def test_ranks_of_mpirun_are_found_and_the_slow_one_is_named(tmp_path: Path) -> None:
    """A real mpirun: rank and size are what it set, and rank 1 is late in backward."""
    command = ["mpirun", *OPEN_MPI, "-n", "2", sys.executable, *ARGUMENTS]
    with started(command) as training:
        wait_until_it_trains(training, 2)
        found = diagnosed(training.pid, tmp_path)
        assert training.poll() is None
    check(found)


def check(found: dict[str, object]) -> None:
    """Two ranks, the second one late."""
    run, stragglers, rows = found["run"], found["stragglers"], found["per_rank"]
    assert isinstance(run, dict)
    assert isinstance(stragglers, dict)
    assert isinstance(rows, list)
    assert 2 == run["world_size"]
    assert [0, 1] == [row["rank"] for row in rows]
    assert [1] == [one["rank"] for one in stragglers["ranks"]]


@pytest.mark.skipif(os.geteuid() != 0 or not can_make_nodes(), reason="no namespaces (be root)")
def test_an_agent_beside_a_pods_training_watches_it(tmp_path: Path) -> None:
    """As shareProcessNamespace does it: one process namespace, a mount namespace each; it comes by an invitation."""
    file = tmp_path / "invitation"
    training = torchrun(0, 1, 2, free_port(), ["--step-ms", "20"])
    pod = start_node("pod", training, tmp_path / "pod.log")
    try:
        wait_for_training([pod], 2)
        inside = min(process.pid for process in pod.family())
        enter = [
            "nsenter",
            f"--target={inside}",
            "--pid",
            "--uts",
            "unshare",
            "--mount-proc",
            "--fork",
            "--kill-child",
        ]
        with Session((), None, "pod", "", launcher=InvitedLauncher(file, "127.0.0.1")) as session:
            agent = subprocess.Popen(
                [
                    *enter,
                    sys.executable,
                    "-m",
                    "tuiadvisor.agent",
                    "--invitation",
                    str(file),
                    "--wait",
                    str(PATIENCE_S),
                ]
            )
            source, advisor = session.source(), Advisor()
            try:
                deadline_s = time.monotonic() + PATIENCE_S
                while {row.state for row in advisor.view().ranks} != {"live"} or not advisor.view().last_step:
                    assert time.monotonic() < deadline_s
                    assert agent.poll() is None
                    for frame in source.read(0.2):
                        advisor.feed(frame)
                assert [(0, "pod"), (1, "pod")] == [(row.rank, row.host) for row in advisor.view().ranks]
                (watching,) = [one for one in pod.agents() if one.cmdline()[1:2] == ["-m"]]
                watching.send_signal(signal.SIGTERM)
                assert 0 == agent.wait(PATIENCE_S)
                while {row.state for row in advisor.view().ranks} != {"detached"}:
                    assert time.monotonic() < deadline_s
                    for frame in source.read(0.2):
                        advisor.feed(frame)
            finally:
                source.close()
                agent.kill()
                agent.wait()
        assert [] == wait_until_no_agents([pod])
        assert pod.process.poll() is None
    finally:
        pod.end()


def test_the_sidecars_agent_takes_its_command_line() -> None:
    """It reads its key where the manifest mounts it, and says in one line that nothing lies there."""
    yaml = pytest.importorskip("yaml")
    spec = yaml.safe_load(SIDECAR.read_text())["spec"]
    assert spec["shareProcessNamespace"] is True
    train, agent = spec["containers"]
    assert {"runAsUser": 0, "capabilities": {"add": ["SYS_PTRACE"]}} == agent["securityContext"]
    (mount,), (volume,) = agent["volumeMounts"], spec["volumes"]
    assert {"name", "mountPath", "readOnly"} == set(mount)
    assert (mount["name"], {"secretName", "defaultMode"}) == (volume["name"], set(volume["secret"]))
    assert 0o400 == volume["secret"]["defaultMode"]
    assert all(isinstance(word, str) for container in (train, agent) for word in container["command"])
    assert str(mount["mountPath"]) in agent["command"][agent["command"].index("--invitation") + 1]
    done = subprocess.run(
        [sys.executable, *agent["command"][1:]],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (2, 1) == (done.returncode, done.stderr.count("\n"))
    assert "/keys/invitation" in done.stderr
