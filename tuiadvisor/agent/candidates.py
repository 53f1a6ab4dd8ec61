"""Which processes of a machine are ranks: the evidence, process by process.

In: /proc.  Out: candidates with the numbers their environment tells, and among them the ranks. Three signs, in
order of trust: torchrun's variables; a scheduler's variables in a process that has loaded torch; threads of a
process group (children of mp.spawn carry no variables at all). Loader workers share their rank's environment and
command line: only the process tree tells them apart. A rank that carries no variables, as the script that Lightning
makes its rank 0 and the parent of the others, belongs to the training whose rendezvous it holds a connection of.
"""

# Hundreds of links and names a scan: pathlib costs three times as much.
# ruff: noqa: PTH115, PTH119

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent import procfs
from tuiadvisor.agent.ray_trainings import RAYLET, Workers, across, ends_of, on_their_own
from tuiadvisor.log import Logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tuiadvisor.agent.procfs import Stat
    from tuiadvisor.agent.ray_trainings import Ends

logger: Final = Logger(__name__)
# (rank, world size, local rank, local size), launchers' own variables after torch's.
_TORCH: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_SCHEDULERS: Final = (
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_SIZE", "", ""),
)
_NODE_RANKS: Final = ("NODE_RANK", "GROUP_RANK")
SLURM_JOB: Final = "SLURM_JOB_ID"
_JOB_NAMES: Final = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", SLURM_JOB, "PMIX_NAMESPACE")
_NAMES: Final = frozenset(
    name for names in (_TORCH, *_SCHEDULERS, _NODE_RANKS, _JOB_NAMES) for name in names if name
)
_LAUNCHERS: Final = frozenset({"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "raylet"})
_LAUNCHER_MODULES: Final = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher",
)
_HELPERS: Final = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
LOADER_WORKER: Final = "pt_data_worker"  # name of the main thread, torch 2.5 and later
_GROUP_THREADS: Final = ("pt_gloo", "gloo_", "pt_nccl", "pt_mpi", "ucc")
TORCH_FILE: Final = b"/libtorch_python.so"
_MIN_TORCH_RSS_BYTES: Final = 50 << 20  # none with torch is smaller: spares reading the maps of the others
_SETTLED_AFTER_S: Final = 5.0  # a younger process may still be between fork and exec, or before its imports
WITHOUT_SIGNS: Final = "no rank in its environment, no torch with a process group in its memory"
_MAX_RANK: Final = 1 << 24
_HOME: Final = ("pid", "net")


Training = tuple[str, int, tuple[str, ...]]  # what its launcher called it, whose it is, and where

Life = tuple[int, int, tuple[int, int]]  # pid, start ticks, image


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Python process that looks like a rank or like one of a rank's workers."""

    pid: int
    ppid: int
    start_ticks: int
    uid: int
    rank: int | None
    world_size: int | None
    local_rank: int | None
    local_world_size: int | None
    source: str  # "torch", "scheduler", "threads", "named", "alone"
    run_id: str | None
    master: str | None
    job: str
    image: tuple[int, int] = (0, 0)  # as in Stat
    home: tuple[str, ...] = ()  # its PID and network namespace, "" where we may not see one

    @property
    def identity(self) -> tuple[str, int | None, int | None]:
        """What a rank shares with its workers and nobody else above or below it in the process tree."""
        return self.job, self.rank, self.local_rank

    @property
    def life(self) -> Life:
        """The process until it replaces itself by exec: what was learned of it holds no longer."""
        return self.pid, self.start_ticks, self.image

    @property
    def training(self) -> Training:
        """What the ranks of one training share: anybody may write the name of somebody else's into a variable."""
        return self.job, self.uid, self.home


class Scanner:
    """Looks at all processes; remembers what it learned of those that can no longer change."""

    def __init__(self, slurm_job: str = "") -> None:
        """slurm_job: processes of other Slurm jobs are none of ours."""
        self._slurm_job = slurm_job
        self.table: dict[int, Stat] = {}
        self.num_unreadable = 0
        self._known: dict[Life, Candidate | None] = {}
        self._workers: set[tuple[int, int]] = set()
        self._said: set[tuple[int, int]] = set()  # that they are no ranks
        self._candidates: dict[int, Candidate] = {}
        self.mates: dict[int, frozenset[int]] = {}  # workers of Ray that were told apart, by process
        self._joined: dict[Life, Candidate] = {}  # those whose training their connections have told

    def scan(self) -> None:
        """Look at what is there now."""
        self.table = procfs.snapshot()
        self.num_unreadable = 0
        own = {os.getpid(), *family(os.getpid(), self.table)}
        known, self._known, self._candidates = self._known, {}, {}
        settled_ticks = (time.clock_gettime(time.CLOCK_BOOTTIME) - _SETTLED_AFTER_S) * procfs.TICKS_PER_S
        for found in self.table.values():
            key = (found.pid, found.start_ticks, found.image)
            candidate = known[key] if key in known else self._examine(found)
            if found.start_ticks < settled_ticks and (candidate or not self._may_become_rank(found)):
                self._known[key] = candidate
            if candidate is not None and found.is_alive and found.pid not in own:
                self._candidates[found.pid] = candidate
        present = {(found.pid, found.start_ticks) for found in self.table.values()}
        self._join()
        self._part()
        self._workers &= present
        self._said &= present

    def _join(self) -> None:
        """Ranks without variables belong to the training whose rendezvous they hold a connection of."""
        joined, self._joined = self._joined, {}
        known = [one for one in self._candidates.values() if one.master]
        for pid, one in self._candidates.items():
            if one.master or one.source != "threads" or not known:
                continue
            found = joined.get(one.life)
            if found is None:
                theirs = [other for other in known if (other.uid, other.home) == (one.uid, one.home)]
                ports = _tcp_ports(pid) if theirs else frozenset()
                other = next((other for other in theirs if _port_of(other.master) in ports), None)
                found = other and replace(
                    one, job=other.job, master=other.master, run_id=other.run_id, world_size=other.world_size
                )
            if found is not None:
                self._joined[one.life] = self._candidates[pid] = found

    def _part(self) -> None:
        """Workers below raylets that are of several trainings, or of one; their parent alone says nothing."""
        self.mates = {}
        raylets = self.below_raylets()
        if sum(len(workers.ends) for workers in raylets.values()) < 2:
            return
        groups = across(raylets)
        own = on_their_own(groups, raylets)
        for group in groups:
            of = {raylet for raylet, _ in group}
            pids = frozenset(pid for _, pid in group)
            beside = any(pid not in pids for raylet in of for pid in raylets[raylet].ends)
            if beside or len(of) > 1 or (group in own and len(own) > 1):
                self.mates |= dict.fromkeys(pids, pids)
                job = f"Ray training with process {min(pids)}"
                self._candidates |= {pid: replace(self._candidates[pid], job=job) for pid in pids}

    def below_raylets(self) -> dict[int, Workers]:
        """What those that look like ranks are connected to, by the raylet that has started them."""
        below: dict[int, dict[int, Ends]] = {}
        for one in self._candidates.values():
            parent = self.table.get(one.ppid)
            if one.source == "threads" and not one.master and parent is not None and parent.comm == RAYLET:
                below.setdefault(one.ppid, {})[one.pid] = ends_of(_tcp_sockets(one.pid))
        return {raylet: Workers(ends, ends_of(_tcp_sockets(raylet))) for raylet, ends in below.items()}

    def ranks(self) -> list[Candidate]:
        """The candidates that are ranks: the topmost of each, without launchers and workers."""
        groups: dict[int, list[Candidate]] = {}
        for candidate in self._candidates.values():
            groups.setdefault(self._top(candidate).pid, []).append(candidate)
        found = []
        for top_pid, members in groups.items():
            chosen = self._trainers(self._candidates[top_pid], members)
            pids = {candidate.pid for candidate in chosen}
            for one in members:
                if one.pid not in pids and (one.pid, one.start_ticks) not in self._workers:
                    logger.debug("process %d is no rank: a worker or launcher of rank %s", one.pid, one.rank)
            self._workers.update((one.pid, one.start_ticks) for one in members if one.pid not in pids)
            found += chosen
        return [one for one in found if (one.pid, one.start_ticks) not in self._workers]

    def alone(self) -> list[Candidate]:
        """Python processes with torch and no sign of a rank: trainings of one process, notebooks, whatever else.

        The topmost of each family, none beside ranks in it. Dear, and only for whoever asks: maps are read of each.
        """
        own = {os.getpid(), *family(os.getpid(), self.table)}
        kin = {pid for one in self._candidates for pid in (one, *family(one, self.table))}
        found = {}
        for one in self.table.values():
            if one.pid in own or not one.is_alive or one.comm == LOADER_WORKER:
                continue
            if procfs.python_version(one.pid) is None or not self._has_torch(one):
                continue
            words, variables = procfs.arguments(one.pid), procfs.environment(one.pid, _NAMES)
            if variables is not None and not (
                is_launcher_command(words) or _is_helper(words) or _is_ours(words)
            ):
                found[one.pid] = self.of_one_process(self.as_candidate(one, variables, "alone"))
        above = self._candidates.keys() | found.keys()
        return [
            one
            for pid, one in found.items()
            if pid not in kin and not above.intersection(family(pid, self.table))
        ]

    def of_one_process(self, candidate: Candidate) -> Candidate:
        """A training of its own, unless a Python with torch has started it, perhaps with others."""
        parent = self.table.get(candidate.ppid)
        if candidate.rank is not None or (parent is not None and self._has_torch(parent)):
            return candidate
        return replace(candidate, job=f"process {candidate.pid}")

    def is_launcher(self, pid: int) -> bool:
        """Whether the command line is that of a program that starts ranks and trains nothing itself."""
        return is_launcher_command(procfs.arguments(pid))

    def is_python(self, pid: int) -> bool:
        """Whether it runs a Python interpreter, embedded ones included."""
        return procfs.python_version(pid) is not None or procfs.maps_file(pid, b"/libpython")

    def as_candidate(self, found: Stat, variables: Mapping[str, str], source: str = "named") -> Candidate:
        """The process with whatever numbers its variables tell."""
        names = next((names for names in (_TORCH, *_SCHEDULERS) if names[0] in variables), _TORCH)
        rank, world_size, local_rank, local_size = (_number(variables.get(name)) for name in names)
        if rank is not None and world_size is not None and rank >= world_size:
            rank = world_size = None  # nonsense is not believed, in neither half
        if rank is None and any(_number(variables.get(name)) == 0 for name in _NODE_RANKS):
            rank = local_rank  # of the first node
        run_id, master = _run_id(variables), _master(variables)
        return Candidate(
            pid=found.pid,
            ppid=found.ppid,
            start_ticks=found.start_ticks,
            uid=procfs.owner(found.pid) or 0,
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=local_size,
            source=source,
            run_id=run_id,
            master=master,
            job=_job(variables, run_id, master, found.ppid),
            image=found.image,
            home=procfs.namespace_links(found.pid, _HOME),
        )

    def _examine(self, found: Stat) -> Candidate | None:
        if not found.is_alive or found.comm == LOADER_WORKER:
            return None
        variables = procfs.environment(found.pid, _NAMES)
        if variables is None:
            if found.comm.startswith("python") and not procfs.is_at_its_end(found.pid):
                self.num_unreadable += 1
                self._say_no_rank(found, "of another user")
            return None
        if self._slurm_job and variables.get(SLURM_JOB, self._slurm_job) != self._slurm_job:
            self._say_no_rank(found, f"of Slurm job {variables[SLURM_JOB]}")
            return None
        source = self._source(found, variables)
        if not source:
            if variables or found.comm.startswith("python"):
                self._say_no_rank(found, WITHOUT_SIGNS)
            return None
        words = procfs.arguments(found.pid)
        if is_launcher_command(words) or _is_helper(words) or _is_ours(words):
            self._say_no_rank(found, "a launcher, a helper, or ours")
            return None
        return self.as_candidate(found, variables, source)

    def _say_no_rank(self, found: Stat, why: str) -> None:
        """Once a process, however often it is looked at."""
        if (found.pid, found.start_ticks) not in self._said:
            self._said.add((found.pid, found.start_ticks))
            logger.debug("process %d (%s) is no rank: %s", found.pid, found.comm, why)

    def _source(self, found: Stat, variables: Mapping[str, str]) -> str:
        """Which sign says that this is a rank; empty if none does."""
        if _number(variables.get("RANK")) is not None and _number(variables.get("WORLD_SIZE")) is not None:
            return "torch" if self.is_python(found.pid) or self._has_torch(found) else ""
        if not self._has_torch(found):
            return ""
        names = ("RANK", *(scheduler[0] for scheduler in _SCHEDULERS))
        if any(_number(variables.get(name)) is not None for name in names):
            return "scheduler"
        return "threads" if _has_group_threads(found.pid) else ""

    def _may_become_rank(self, found: Stat) -> bool:
        """A process without signs that may still import torch or join a process group."""
        return found.comm != LOADER_WORKER and procfs.python_version(found.pid) is not None

    def _has_torch(self, found: Stat) -> bool:
        return found.rss_bytes >= _MIN_TORCH_RSS_BYTES and procfs.maps_file(found.pid, TORCH_FILE)

    def _top(self, candidate: Candidate) -> Candidate:
        """The topmost ancestor that claims to be the same rank, or the candidate itself."""
        same = [
            above
            for pid in family(candidate.pid, self.table)
            if (above := self._candidates.get(pid)) and above.identity == candidate.identity
        ]
        return same[-1] if same else candidate

    def _trainers(self, top: Candidate, members: list[Candidate]) -> list[Candidate]:
        """Usually the topmost; the ones below it if only they have torch, or none if it launches ranks."""
        if top.source == "scheduler" and self._launches_ranks(top):
            return []
        if len(members) == 1 or self._has_torch(self.table[top.pid]):
            return [top]
        below = [one for one in members if self._has_torch(self.table[one.pid])]
        pids = {one.pid for one in below}
        highest = [one for one in below if not pids.intersection(family(one.pid, self.table))]
        return highest or [top]

    def _launches_ranks(self, top: Candidate) -> bool:
        """Schedulers start one launcher a node: only its children carry torch's variables."""
        return any(
            one.source == "torch" and top.pid in family(one.pid, self.table)
            for one in self._candidates.values()
        )


def family(pid: int, table: Mapping[int, Stat]) -> list[int]:
    """The ancestors of a process, nearest first."""
    found: list[int] = []
    while (one := table.get(pid)) and one.ppid > 0 and one.ppid not in found:
        pid = one.ppid
        found.append(pid)
    return found


def is_launcher_command(words: list[str]) -> bool:
    """True for torchrun and its like, called by name, as a module, or as a script under an interpreter."""
    for index, word in enumerate(words[:6]):
        if os.path.basename(word) in _LAUNCHERS and index < 2:
            return True
        if word == "-m":
            return words[index + 1 : index + 2] != [] and words[index + 1].startswith(_LAUNCHER_MODULES)
    return False


def _is_helper(words: list[str]) -> bool:
    return any(word.startswith("from ") and any(name in word for name in _HELPERS) for word in words[:6])


def _is_ours(words: list[str]) -> bool:
    return any(os.path.basename(word) == "tuiadvisor" or word.startswith("tuiadvisor.") for word in words[:4])


def _has_group_threads(pid: int) -> bool:
    names = procfs.thread_names(pid)
    if any(name.startswith(_GROUP_THREADS) for name in names):
        return True
    # Before torch 2.5 threads have no names: a child of multiprocessing that talks to peers is in a group.
    named = any(name.startswith("pt_") for name in names)
    return not named and _is_spawned(procfs.arguments(pid)) and _num_connections(pid) > 0


def _is_spawned(words: list[str]) -> bool:
    return any("multiprocessing.spawn import spawn_main" in word for word in words[:6])


def _num_connections(pid: int) -> int:
    """Established TCP connections of the process."""
    return sum(fields[3] == b"01" for fields in _tcp_sockets(pid))


def _tcp_ports(pid: int) -> frozenset[int]:
    """Both ends of the process's TCP sockets, those that listen included."""
    ends = (end for fields in _tcp_sockets(pid) for end in fields[1:3])
    return frozenset(int(end.rpartition(b":")[2], 16) for end in ends)


def _tcp_sockets(pid: int) -> Iterator[list[bytes]]:
    """The kernel's lines of the process's own sockets: number, local and remote end, state, ..."""
    open_inodes = set(_socket_inodes(pid))
    for name in ("net/tcp", "net/tcp6"):
        for line in (procfs.read(pid, name) or b"").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[9].decode() in open_inodes:
                yield fields


def _port_of(master: str | None) -> int | None:
    return _number((master or "").rpartition(":")[2])


def _socket_inodes(pid: int) -> Iterator[str]:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            links = [os.readlink(entry.path) for entry in entries]
    except OSError:
        return
    yield from (link[8:-1] for link in links if link.startswith("socket:["))


def _number(text: str | None) -> int | None:
    if not text or not text.isascii() or not text.isdigit() or len(text) > 8:
        return None
    number = int(text)
    return number if number < _MAX_RANK else None


def _run_id(variables: Mapping[str, str]) -> str | None:
    run_id = variables.get("TORCHELASTIC_RUN_ID", "")
    return run_id if run_id not in {"", "none"} else None  # torchrun's default for "not given"


def _master(variables: Mapping[str, str]) -> str | None:
    address, port = variables.get("MASTER_ADDR"), variables.get("MASTER_PORT")
    return f"{address or '?'}:{port or '?'}" if address or port else None


def _job(variables: Mapping[str, str], run_id: str | None, master: str | None, ppid: int) -> str:
    if run_id:
        return f"run {run_id}"
    if master:
        return f"master {master}"
    for name in ("SLURM_JOB_ID", "PMIX_NAMESPACE"):
        if variables.get(name):
            return f"{name} {variables[name]}"
    return f"parent {ppid}"
