"""What trains on this machine, and what the user runs in Slurm, as rows of the home screen.

In: /proc, squeue where it is there.  Out: JobEntry. Nothing is put into any process; squeue gets a few seconds.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent.discovery import trainings
from tuiadvisor.agent.procfs import maps_file
from tuiadvisor.agent.session import mapped_rings
from tuiadvisor.ownpython import own_environment
from tuiadvisor.views.job_list import JobEntry

if TYPE_CHECKING:
    from tuiadvisor.agent.discovery import FoundTraining

NO_CLUSTER: Final = "Could not establish a configuration source"  # a client alone is installed
SQUEUE_S: Final = 5.0
_FIELDS: Final = "%i|%T|%D|%M|%j"  # the name last: it may hold anything
DEVICE_FILES: Final = (b"/dev/nvidia", b"/dev/kfd")


def jobs_here() -> tuple[tuple[JobEntry, ...], str]:
    """The trainings of this machine, and what could not be seen."""
    found, num_unreadable = trainings()
    note = ""
    if num_unreadable:
        what = "process" if num_unreadable == 1 else "processes"
        note = f"{num_unreadable} Python {what} of other users: seen as root"
    entries = sorted((_entry(training) for training in found), key=lambda entry: not entry.is_ours)
    return tuple(entries), note


def _entry(training: FoundTraining) -> JobEntry:
    first = training.ranks[0]
    own_uid = os.getuid()
    is_on_device = any(maps_file(first.pid, name) for name in DEVICE_FILES)
    started_ns = min((rank.start_wall_ns for rank in training.ranks if rank.start_wall_ns), default=None)
    return JobEntry(
        key=f"{first.pid}.{first.start_ticks}",
        label=first.label,
        command=first.command,
        owner="you" if first.uid == own_uid else _user(first.uid),
        num_ranks=len(training.ranks),
        device="gpu" if is_on_device else "cpu",
        since="" if started_ns is None else age(time.time() - started_ns * 1e-9),
        pids=training.pids,
        is_ours=own_uid in (0, first.uid),
        is_watched=any(mapped_rings(rank.pid) for rank in training.ranks),
        rank_pids=tuple(rank.pid for rank in training.ranks),
        apart=training.apart,
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def age(seconds: float) -> str:
    """How long something has run: 40 s, 12 m, 2 h 14 m, 3 d 4 h."""
    whole = int(max(seconds, 0.0))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def slurm_jobs() -> tuple[tuple[JobEntry, ...], str]:
    """The user's jobs in Slurm, and why there are none; nothing is said where there is no squeue, or no cluster."""
    if shutil.which("squeue") is None:
        return (), ""
    command = ["squeue", "--me", "--noheader", f"--format={_FIELDS}"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=SQUEUE_S,
            check=False, env=own_environment(),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return (), f"squeue gave no answer in {SQUEUE_S:.0f} s"
    except OSError as error:
        return (), f"squeue: {error.strerror}"
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["failed"])[-1]
        if NO_CLUSTER in why:
            return (), ""
        return (), f"squeue: {why.removeprefix('squeue: ')}"
    return parsed_queue(done.stdout), ""


def parsed_queue(text: str) -> tuple[JobEntry, ...]:
    """The rows of squeue in the format asked for; others are left out."""
    entries = []
    for row in text.splitlines():
        number, state, nodes, since, name = [*row.strip().split("|", 4), "", "", "", ""][:5]
        if not number or not name:
            continue
        where = f"{nodes} node{'' if nodes == '1' else 's'}, {state.lower()}"
        entries.append(
            JobEntry(
                f"slurm {number}", name, "", "you", None, "", since, slurm=number, where=where,
                is_running=state == "RUNNING",
            )
        )  # fmt: skip
    return tuple(entries)
