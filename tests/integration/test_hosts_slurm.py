"""`--slurm JOBID` on a real Slurm: slurmctld, munge and two slurmd here, a torchrun training across both nodes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from nodes import PYTHONPATH, SCRIPT, can_make_nodes
from patience import PATIENCE_S, complaints, wait_until
from ports import free_port, free_ports
from rank_loops import is_late, recorded_until
from traps import Traps

import tuiadvisor

pytest.importorskip("torch")
NEEDED = ("slurmctld", "slurmd", "munged", "srun", "sbatch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(shutil.which, NEEDED)), reason="no Slurm (apt-get install slurm-wlm munge)"
    ),
    pytest.mark.skipif(os.geteuid() != 0 or not can_make_nodes(), reason="no namespaces (be root)"),
]
UP = Path(__file__).parents[1] / "cluster" / "slurm_up.sh"
# Rank 2 is on the second node.
FAULT = "--step-ms 20 --fault slow-data --fault-rank 2 --delay-ms 200"


@dataclass
class Slurm:
    """A running Slurm and the job that trains on it."""

    folder: Path
    env: dict[str, str]
    up_pid: int
    job: str = ""

    def family(self) -> list[psutil.Process]:
        """Every process of this Slurm's nodes; another one on this machine has jobs of the same numbers."""
        return psutil.Process(self.up_pid).children(recursive=True)

    def ask(self, *command: str) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout.strip()

    def steps(self) -> list[str]:
        """Names of the job's steps that run."""
        return self.ask("squeue", "--steps", "--noheader", "--format=%j", f"--jobs={self.job}").split()

    def command(self, *arguments: str, start: Sequence[str] = ("-m",)) -> list[str]:
        """Our command line on the job."""
        return [sys.executable, *start, "tuiadvisor", *arguments, "--slurm", self.job]

    def submit(self, script: str, *options: str) -> str:
        """Hand a batch script in; the job's number."""
        path = self.folder / "job.sh"
        path.write_text("#!/bin/sh\n" + script)
        log = f"--output={self.folder}/job.%j.log"
        return self.ask("sbatch", "--parsable", log, *options, str(path))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)  # munge trusts no socket below a folder it may not pass
    env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PYTHONPATH": PYTHONPATH}
    env |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
    up = _started(folder, env)
    try:
        made = Slurm(folder, env, up.pid)
        launch = f"{sys.executable} -m torch.distributed.run --nnodes=2 --nproc-per-node=2 --node-rank=$SLURM_NODEID"
        meet = f"--master-addr=127.0.0.1 --master-port={free_port()}"
        script = f"{SCRIPT} --seconds 3600 --print-every 10 {FAULT}"
        made.job = made.submit(
            f"exec srun sh -c 'exec {launch} {meet} {script}'\n", "-N2", "--ntasks-per-node=1"
        )
        _wait_for_ranks(made)
        yield made
        made.ask("scancel", made.job)
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(PATIENCE_S)
        if up.stdout is not None:
            up.stdout.close()


def _started(folder: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    """Both nodes answer; again with other ports where somebody else has taken one meanwhile."""
    for attempt in range(3):
        up = subprocess.Popen(
            [str(UP), str(folder / str(attempt))],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**env, "SLURM_TEST_PORT": str(free_ports(3))}, start_new_session=True,
        )  # fmt: skip
        assert up.stdout is not None
        env["SLURM_CONF"] = str(folder / str(attempt) / "slurm.conf")
        said = up.stdout.readline().strip()
        if said == "up":
            return up
        up.send_signal(signal.SIGTERM)
        up.wait(PATIENCE_S)
        up.stdout.close()
    raise AssertionError(said)


def _wait_for_ranks(slurm: Slurm) -> None:
    def steps() -> bool:
        return len(_training(slurm)) >= 4 and any("step " in log.read_text() for log in _logs(slurm))

    try:
        wait_until(steps, "four ranks and a step of theirs", 0.2)
    except AssertionError:
        raise AssertionError([log.read_text() for log in _logs(slurm)]) from None


def _logs(slurm: Slurm) -> list[Path]:
    return list(slurm.folder.glob("job.*.log"))


def _training(slurm: Slurm) -> list[int]:
    """Ranks of the job that have a process group."""
    found = []
    for process in slurm.family():
        try:
            environment = process.environ()
            if environment.get("SLURM_JOB_ID") == slurm.job and "RANK" in environment:
                threads = Path(f"/proc/{process.pid}/task").iterdir()
                if any("gloo" in (thread / "comm").read_text() for thread in threads):
                    found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def agents(slurm: Slurm) -> list[int]:
    """Our agents inside the job."""
    found = []
    for process in slurm.family():
        try:
            is_agent = process.cmdline()[1:4] == ["-P", "-m", "tuiadvisor.agent"]
            if is_agent and process.environ().get("SLURM_JOB_ID") == slurm.job:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def wait_until_alone(slurm: Slurm) -> None:
    """Until no agent and no step of ours is left in the job."""
    deadline_s = time.monotonic() + PATIENCE_S
    while agents(slurm) or "tuiadvisor" in slurm.steps():
        assert time.monotonic() < deadline_s, (agents(slurm), slurm.steps())
        time.sleep(0.2)


def test_every_node_of_the_job_is_watched_and_the_slow_rank_is_named(slurm: Slurm, tmp_path: Path) -> None:
    """Four ranks on two nodes, rank 2 waits for its data: named with its host; the job runs on, nothing is left.

    srun starts the agents in the folder where we stand, which holds modules with the names of those they import.
    """
    output, traps = slurm.folder / "run.tuirec", Traps(tmp_path)
    document, complaint = recorded_until(
        slurm.command("record", "-o", str(output), start=["-P", "-m"]),
        output,
        lambda document: is_late(document, 2, "data_wait"),
        cwd=traps.folder,
        env=slurm.env,
    )
    assert ("", []) == (complaints(complaint), traps.sprung())
    assert (4, ["slurm1", "slurm2"]) == (document["run"]["world_size"], sorted(document["run"]["hosts"]))
    assert ["slurm1", "slurm1", "slurm2", "slurm2"] == [row["host"] for row in document["per_rank"]]
    assert 0 == document["losses"]["frames_lost"]
    wait_until_alone(slurm)
    assert 4 == len(_training(slurm))


def test_doctor_asks_every_node_of_the_job(slurm: Slurm) -> None:
    done = subprocess.run(
        slurm.command("doctor", "--json"),
        env=slurm.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    nodes = json.loads(done.stdout)["nodes"]
    assert [node["name"] for node in nodes] == ["slurm1", "slurm2"]
    for node in nodes:
        states = {check["name"]: check["state"] for check in node["checks"]}
        assert {states[name] for name in ("version", "files", "ports", "clock")} == {"ok"}


def test_a_killed_command_leaves_nothing_in_the_job(slurm: Slurm) -> None:
    """Kill -9 of the recording: the step ends with its agents, the training runs on, no key was to be seen."""
    recording = subprocess.Popen(
        slurm.command("record", "-o", str(slurm.folder / "killed.tuirec")),
        env=slurm.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while len(agents(slurm)) < 2:
            assert time.monotonic() < deadline_s
            assert recording.poll() is None
            time.sleep(0.1)
        assert "tuiadvisor" in slurm.steps()
    finally:
        recording.send_signal(signal.SIGKILL)
        recording.wait()
    wait_until_alone(slurm)
    assert 4 == len(_training(slurm))


def test_jobs_that_cannot_be_watched_are_refused_in_one_line(slurm: Slurm) -> None:
    """No such job, one that waits, a word that is no number: what is wrong and what to do."""
    waiting = slurm.submit("sleep 60\n", "-N2", "--exclusive", "--begin=now+1hour")
    for job, words in [("999999", "squeue"), (waiting, "pending"), ("$(reboot)", "not a job's number")]:
        command = [sys.executable, "-m", "tuiadvisor", "watch", "--once", "--slurm", job]
        done = subprocess.run(
            command, env=slurm.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (2, 1) == (done.returncode, done.stderr.count("\n")), done.stderr
        assert words in done.stderr
    slurm.ask("scancel", waiting)


@pytest.mark.extended
def test_a_step_with_our_prolog_ends_with_a_line_of_verdict(slurm: Slurm) -> None:
    """As a user: two variables in the job script, no administrator."""
    recipe = Path(__file__).parents[2] / "deploy" / "slurm"
    launch = (
        f"{sys.executable} -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --node-rank=$SLURM_NODEID"
    )
    meet = f"--master-addr=127.0.0.1 --master-port={free_port()}"
    fault = "--step-ms 20 --fault slow-data --fault-rank 1 --delay-ms 60 --seconds 3000 --print-every 0"
    number = slurm.submit(
        f"export SLURM_PROLOG={recipe}/prolog.sh SLURM_EPILOG={recipe}/epilog.sh TUIADVISOR_FOLDER={slurm.folder}\n"
        f"export TUIADVISOR='{sys.executable} -m tuiadvisor'\n"
        f"srun sh -c 'exec {launch} {meet} {SCRIPT} {fault}'\necho over\n",
        "-N2", "--ntasks-per-node=1",
    )  # fmt: skip
    run = slurm.folder / f"tuiadvisor-{number}.0.tuirec"
    log = slurm.folder / f"job.{number}.log"
    noted = run.with_name(f"{run.name}.log")
    wait_until(lambda: _is_decided(run), "a recording with a verdict", 1.0)
    slurm.ask("scancel", f"{number}.0")
    wait_until(lambda: "over" in log.read_text().split(), "the end of the job", 0.2)
    lines = [line for line in log.read_text().splitlines() if line.startswith("tuiadvisor: ")]
    assert len(lines) == 2, (log.read_text(), noted.read_text())
    assert "rank 1" in lines[0], (lines, noted.read_text())
    assert str(run) in lines[1]
    assert not run.with_name(f"{run.name}.pid").exists()


def _is_decided(run: Path) -> bool:
    """Whether somebody who looks now is told what to do."""
    return run.exists() and tuiadvisor.open(run).verdict.decision is not None
