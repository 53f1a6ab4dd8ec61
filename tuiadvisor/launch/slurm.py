"""One agent on each node of a running Slurm job, as a step inside the job's own allocation.

The step overlaps the training's, asks for nothing of its own and ends with us. Agents connect back to an address of
this machine with keys that srun hands to each of them on standard input.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor import log
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.launch.address import address_towards
from tuiadvisor.launch.command import agent_command
from tuiadvisor.launch.one_step import OneStepLauncher
from tuiadvisor.ownpython import own_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWER_S: Final = 30.0
_JOB: Final = re.compile(r"\d+(?:_\d+)?(?:\+\d+)?")
_NODE_ADDRESS: Final = re.compile(r"\bNodeAddr=(\S+)")
_NOT_INSTALLED: Final = re.compile(r"No module named '?tuiadvisor|execve\(\): .*No such file")


@dataclass(frozen=True, slots=True)
class Job:
    """Where a running job runs."""

    job: str
    num_nodes: int
    first_address: str
    nodes: tuple[str, ...] = ()


class SlurmLauncher(OneStepLauncher):
    """One srun for all nodes."""

    def __init__(self, job: str, remote_python: str = "", hub_address: str = "") -> None:
        """Ask Slurm where the job runs. TuiadvisorError if it does not run."""
        self._job = find_job(job)
        self._python = remote_python
        ours = hub_address or address_towards(self._job.first_address)
        super().__init__(f"slurm job {self._job.job}", ours, _NOT_INSTALLED)

    def command(self) -> Sequence[str]:
        """The whole of srun's command line: no key is on it."""
        size = [f"--nodes={self._job.num_nodes}", f"--ntasks={self._job.num_nodes}", "--ntasks-per-node=1"]
        # A node whose ranks have ended, or that has none, must not end the watching of the others.
        patience = ["--kill-on-bad-exit=0", "--wait=0", "--input=all", "--label", "--job-name=tuiadvisor"]
        place = ["srun", f"--jobid={self._job.job}", "--overlap", "--cpu-bind=none"]
        agent = agent_command(self._python, log_options=log.for_remote(), own_job=True)
        return [*place, *size, *patience, *agent]


def find_job(job: str) -> Job:
    """Where this job runs, as Slurm says."""
    if not _JOB.fullmatch(job):
        raise TuiadvisorError(f"--slurm {job!r}: not a job's number; `squeue --me` lists yours")
    said = _ask(["squeue", "--noheader", f"--jobs={job}", "--format=%T|%D|%N"], job).strip()
    if not said:
        raise TuiadvisorError(f"--slurm {job}: no such job; `squeue --me` lists yours")
    state, num_nodes, nodes = [*said.splitlines()[0].split("|"), "", ""][:3]
    if state != "RUNNING" or not num_nodes.isdecimal():
        raise TuiadvisorError(f"--slurm {job}: the job is {state.lower()}, not running; wait until it runs")
    names = tuple(_ask(["scontrol", "show", "hostnames", nodes], job).split())
    found = _NODE_ADDRESS.search(_ask(["scontrol", "--oneliner", "show", "node", names[0]], job))
    return Job(job, int(num_nodes), found[1] if found else names[0], names)


def step_command(job: Job, node: str, words: Sequence[str]) -> list[str]:
    """A command on one node of a job, inside its allocation and without a part of it."""
    where = [f"--jobid={job.job}", f"--nodelist={node}", "--nodes=1", "--ntasks=1"]
    return ["srun", *where, "--overlap", "--cpu-bind=none", "--job-name=tuiadvisor", *words]


def _ask(command: Sequence[str], job: str) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S, check=False,
            env=own_environment(),
        )  # fmt: skip
    except FileNotFoundError:
        raise TuiadvisorError(
            f"--slurm {job}: {command[0]} is not on this machine; run it on the cluster's login node"
        ) from None
    except subprocess.TimeoutExpired:
        raise FailureError(
            f"--slurm {job}: {command[0]} gave no answer in {ANSWER_S:.0f} s; try again"
        ) from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise TuiadvisorError(f"--slurm {job}: {command[0]}: {why}")
    return done.stdout
