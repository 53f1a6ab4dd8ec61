"""The ranks that run on this machine, found by environment and process tree.

In: /proc, and the process ids a user names.  Out: RankProcess, one a rank and only ranks: no launcher, no
loader worker, no multiprocessing helper. A rank whose number cannot be seen from outside has rank None.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent import procfs
from tuiadvisor.agent.candidates import TORCH_FILE, Candidate, Life, Scanner, Training, family
from tuiadvisor.agent.told_apart import Program, told_apart
from tuiadvisor.errors import SeveralTrainingsError, TuiadvisorError
from tuiadvisor.events import RankState
from tuiadvisor.inject.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_COMMAND_CHARS: Final = 2000
_FLAG_OF_PYTHON: Final = re.compile(
    r"-[bBdEiIOqsSuvxP]+"
)  # torchrun starts ranks with -u: no word of the user's
_SINGLE: Final = frozenset({"alone", "named"})  # sources of processes without any sign of a rank


class NoRanksError(TuiadvisorError):
    """Nothing to watch here, at least not yet."""


class LauncherWithoutRanksError(NoRanksError):
    """A launcher of ranks that has started none yet, or none any more: whoever has time waits for them."""

    def __init__(self, pid: int, start_ticks: int) -> None:
        super().__init__(f"--pid {pid}: a launcher without ranks yet; try again once they are up")
        self.pid, self.start_ticks = pid, start_ticks


@dataclass(frozen=True, slots=True)
class RankProcess:
    """One rank's process as seen from outside."""

    pid: int
    ppid: int
    start_ticks: int
    uid: int
    rank: int | None
    local_rank: int | None
    world_size: int | None
    local_world_size: int | None
    command: str
    label: str  # file name of the script
    python: str | None  # "3.11", where the interpreter's file name tells
    start_wall_ns: int | None
    master: str | None  # "address:port" of the rendezvous
    run_id: str | None
    job: str  # what its launcher calls the training; anybody else may call one so too
    state: RankState = RankState.FOUND
    namespaces: tuple[str, ...] = ()  # as in Identity
    image: tuple[int, int] = (0, 0)  # as in Stat
    ancestors: tuple[tuple[int, int], ...] = ()  # pid and start ticks when it was found, the nearest first
    is_launched: bool = False  # torchrun or its like is one of them
    is_alone: bool = False  # found without any sign of a rank: an agent takes it by its pid only

    @property
    def identity(self) -> Identity:
        """What has to be the same still whenever the process is touched."""
        return Identity(self.pid, self.start_ticks, self.uid, self.namespaces)


def find_ranks(pids: Sequence[int] | None = None) -> list[RankProcess]:
    """Ranks of the only training on this machine, or of those processes; by rank, unknown ones last.

    Where there are no ranks, the only Python process with torch. A launcher's pid stands for its ranks. NoRanksError
    when there are none; TuiadvisorError when several trainings run or a pid cannot be a rank; both say what to do next.
    """
    return RankFinder(tuple(pids or ()), takes_alone=True).first()


@dataclass(frozen=True, slots=True)
class FoundTraining:
    """One training of this machine."""

    ranks: tuple[RankProcess, ...]
    pids: tuple[int, ...]  # what --pid takes for it: its launcher, where that stands for these ranks alone
    apart: str = ""  # what tells it from others of the same script


def trainings() -> tuple[list[FoundTraining], int]:
    """All trainings of this machine, oldest first, and how many Python processes could not be looked at.

    Python processes with torch that belong to none, as trainings of one process and notebooks do, stand for one each.
    Nothing is put into any of them.
    """
    scanner = Scanner()
    scanner.scan()
    jobs = jobs_of([*scanner.ranks(), *scanner.alone()])
    found = [
        FoundTraining(tuple(_rank_process(one, scanner) for one in job), tuple(_pids_of(job, scanner)), apart)
        for job, apart in zip(jobs, told_apart([_program(job[0]) for job in jobs]), strict=True)
    ]
    return found, scanner.num_unreadable


def just_ended(pid: int) -> TuiadvisorError:
    """What to raise where a named process ended while it was looked at."""
    return TuiadvisorError(f"--pid {pid}: it has just ended; leave --pid out to list the trainings here")


def has_torch(pid: int) -> bool:
    """Whether the process has loaded torch."""
    return procfs.maps_file(pid, TORCH_FILE)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Ranks of the same training on this machine that were not named, and what --pid takes for all of it."""

    ranks: tuple[tuple[int | None, int], ...] = ()  # number and process
    pids: tuple[int, ...] = ()


class RankFinder:
    """Finds the ranks of one training at first, and those that an elastic restart brings later."""

    def __init__(self, pids: tuple[int, ...] = (), *, takes_alone: bool = False, slurm_job: str = "") -> None:
        """takes_alone: where there are no ranks, also the only Python process with torch.

        That is for whoever asks what runs here: on a node of a job, a process beside its ranks is another's.
        slurm_job: the only one whose processes count.
        """
        self.pids = pids
        self._takes_alone = takes_alone
        self._scanner = Scanner(slurm_job)
        self._trainings: set[Training] = set()
        self._launchers: dict[int, int] = {}  # pid -> start ticks
        self._seen: set[Life] = set()
        self._users: dict[tuple[int, int], int] = {}  # of the processes among them: (pid, start ticks) -> uid
        self.left_out = LeftOut()  # as last looked

    def first(self) -> list[RankProcess]:
        """As find_ranks."""
        self._scanner.scan()
        chosen = self._chosen_by_pid() if self.pids else self._only_job()
        self._remember(chosen)
        self.left_out = self._left_out(self._scanner.ranks())
        return [_rank_process(candidate, self._scanner) for candidate in chosen]

    def again(self) -> list[RankProcess]:
        """Ranks of the same training that were not there before; old processes are not looked at again."""
        self._scanner.scan()
        ranks = self._scanner.ranks()
        new = [candidate for candidate in [*ranks, *self._renewed(ranks)] if self._is_new(candidate)]
        self._remember(new)
        self.left_out = self._left_out(ranks)
        return [_rank_process(candidate, self._scanner) for candidate in _by_rank(new)]

    def _left_out(self, ranks: Iterable[Candidate]) -> LeftOut:
        """Of whoever names one of two launchers, as of two nodes that one machine stands for: they are one job."""
        whole = [one for one in ranks if one.training in self._trainings]
        left = [one for one in whole if (one.pid, one.start_ticks) not in self._users]
        if not self.pids or not left:
            return LeftOut()
        below: dict[int, list[Candidate]] = {}
        for one in whole:
            below.setdefault(one.ppid, []).append(one)
        pids = [pid for own in below.values() for pid in _pids_of(own, self._scanner)]
        return LeftOut(tuple((one.rank, one.pid) for one in _by_rank(left)), tuple(sorted(pids)))

    def _renewed(self, ranks: Iterable[Candidate]) -> list[Candidate]:
        """Named processes without any sign of a rank that may have replaced themselves by exec."""
        marked = {candidate.pid for candidate in ranks}
        there = (self._scanner.table.get(pid) for pid in self.pids if pid not in marked)
        return [
            self._scanner.as_candidate(found, {})
            for found in there
            if found is not None
            and found.is_alive
            and (found.pid, found.start_ticks) in self._users
            and (found.pid, found.start_ticks, found.image) not in self._seen
            and self._scanner.is_python(found.pid)
        ]

    def launcher_lives(self) -> bool:
        """Whether a launcher of these ranks still runs, and may start them again."""
        return any(
            (found := self._scanner.table.get(pid)) is not None
            and found.is_alive
            and found.start_ticks == ticks
            and self._scanner.is_launcher(pid)
            for pid, ticks in self._launchers.items()
        )

    def _add_launcher(self, pid: int) -> None:
        self._launchers[pid] = self._scanner.table[pid].start_ticks

    def _is_new(self, candidate: Candidate) -> bool:
        if candidate.life in self._seen:
            return False
        if self._users.get((candidate.pid, candidate.start_ticks)) == candidate.uid:
            return True  # it has replaced itself by exec
        mates = self._scanner.mates.get(candidate.pid)
        if mates is not None and not mates.intersection(pid for pid, _ in self._users):
            return False  # of another training below the same raylet
        if self.pids:
            return any(self._launched(pid) for pid in family(candidate.pid, self._scanner.table))
        return candidate.training in self._trainings or self._launched(candidate.ppid)

    def _launched(self, pid: int) -> bool:
        """Whether this process is a launcher of ours still: anybody may have its id once it has ended."""
        found = self._scanner.table.get(pid)
        return found is not None and self._launchers.get(pid) == found.start_ticks

    def _remember(self, chosen: Iterable[Candidate]) -> None:
        for candidate in chosen:
            self._seen.add(candidate.life)
            self._users[candidate.pid, candidate.start_ticks] = candidate.uid
            self._trainings.add(candidate.training)
            if not self.pids and candidate.ppid > 1 and self._scanner.is_launcher(candidate.ppid):
                self._add_launcher(candidate.ppid)

    def _only_job(self) -> list[Candidate]:
        jobs = jobs_of(self._scanner.ranks())
        if (
            self._takes_alone and len(jobs) != 1
        ):  # beside a job's ranks a process with torch is rather a server, or a job's script
            jobs += jobs_of(self._scanner.alone())
        if not jobs:
            raise NoRanksError(
                f"no training ranks on this machine{self._hidden()}: start the training" + self._or_else()
            )
        if len(jobs) > 1:
            what = (
                "trainings or processes with torch" if any(_is_single(job) for job in jobs) else "trainings"
            )
            raise SeveralTrainingsError(
                f"{len(jobs)} {what} run here: {_listed(jobs, self._scanner)}; {self._choice()}"
            )
        return jobs[0]

    def _choice(self) -> str:
        """An agent on a node was started without --pid by a command elsewhere, which takes none beside --hosts."""
        return (
            "choose one with --pid"
            if self._takes_alone
            else "name one with --pid in a command on that machine itself"
        )

    def _or_else(self) -> str:
        if not self._takes_alone:
            return ""
        return ", name its process with --pid, or start it with tuiadvisor run -- torchrun ..."

    def _hidden(self) -> str:
        num = self._scanner.num_unreadable
        return f" ({num} Python process{'es' if num > 1 else ''} of other users: look as root)" if num else ""

    def _chosen_by_pid(self) -> list[Candidate]:
        ranks = {candidate.pid: candidate for candidate in self._scanner.ranks()}
        chosen: dict[int, Candidate] = {}
        for pid in self.pids:
            for candidate in self._one_pid(pid, ranks):
                chosen[candidate.pid] = candidate
        jobs = jobs_of(chosen.values())
        ranks_told = [one.rank for one in chosen.values() if one.rank is not None]
        told_apart = [job for job in jobs if not job[0].job.startswith("parent ")]
        is_one = len(told_apart) < 2 or _is_one_in_containers(told_apart)
        if len(jobs) > 1 and (not is_one or len(set(ranks_told)) < len(ranks_told)):
            raise SeveralTrainingsError(
                f"--pid: these processes are of {len(jobs)} trainings: {_listed(jobs, self._scanner)}; "
                "name one of them, and watch the others by commands of their own"
            )
        return _by_rank(chosen.values())

    def _one_pid(self, pid: int, ranks: dict[int, Candidate]) -> list[Candidate]:
        below = [one for one in ranks.values() if pid in family(one.pid, self._scanner.table)]
        if pid in ranks:  # which may have started the other ranks of its training
            return [ranks[pid], *(one for one in below if one.training == ranks[pid].training)]
        jobs = jobs_of(below)
        if len(jobs) > 1:
            listed = _listed(jobs, self._scanner)
            raise SeveralTrainingsError(
                f"--pid {pid}: {len(jobs)} trainings run below it: {listed}; choose one of these"
            )
        if below:
            self._add_launcher(pid)
            return below
        above = next((ranks[up] for up in family(pid, self._scanner.table) if up in ranks), None)
        if above is not None:
            raise TuiadvisorError(
                f"--pid {pid}: a worker of the rank in process {above.pid}; use --pid {above.pid}"
            )
        there = pid in self._scanner.table
        return [(self._only_below(pid) if there else None) or self._unmarked(pid)]

    def _only_below(self, pid: int) -> Candidate | None:
        """The training of one process that a shell or another program has started; None: there is none."""
        if self._scanner.is_python(pid) and has_torch(pid):
            return None
        below = [one for one in self._scanner.alone() if pid in family(one.pid, self._scanner.table)]
        if len(below) > 1:
            listed = _listed(jobs_of(below), self._scanner)
            raise SeveralTrainingsError(
                f"--pid {pid}: {len(below)} processes with torch run below it: {listed}; choose one"
            )
        if below:
            self._add_launcher(pid)
        return below[0] if below else None

    def _unmarked(self, pid: int) -> Candidate:
        """A process without any sign of a rank that the user names: perhaps a training of one process."""
        found = self._scanner.table.get(pid)
        if found is None or not found.is_alive:
            raise TuiadvisorError(f"--pid {pid}: no such process; leave --pid out to list the trainings here")
        if procfs.read(pid, "environ") is None:
            if procfs.is_at_its_end(pid):
                raise just_ended(pid)
            # Root in a container, say, or a process with more rights than its user.
            if os.geteuid() in {0, procfs.owner(pid)}:
                raise TuiadvisorError(
                    f"--pid {pid}: the system lets nobody here read it (CAP_SYS_PTRACE); see: tuiadvisor doctor"
                )
            raise TuiadvisorError(f"--pid {pid}: it belongs to another user; run as that user or as root")
        if self._scanner.is_launcher(pid):
            self._add_launcher(pid)
            raise LauncherWithoutRanksError(pid, found.start_ticks)
        if not self._scanner.is_python(pid):
            if procfs.is_at_its_end(pid):  # older kernels show an empty environment then
                raise just_ended(pid)
            raise NoRanksError(
                f"--pid {pid}: {found.comm} is not a Python process and no training runs below it;"
                " name a rank's process"
            )
        return self._scanner.of_one_process(self._scanner.as_candidate(found, {}))


def jobs_of(ranks: Iterable[Candidate]) -> list[list[Candidate]]:
    """The ranks of each training, in the order of the trainings' first processes."""
    jobs: dict[Training, list[Candidate]] = {}
    for candidate in sorted(ranks, key=lambda one: (one.start_ticks, one.pid)):
        jobs.setdefault(candidate.training, []).append(candidate)
    return [_by_rank(job) for job in jobs.values()]


def _is_one_in_containers(jobs: list[list[Candidate]]) -> bool:
    """Whether ranks that a user named are those of one job, each in a container of its own, as pods on one node are.

    The same rendezvous, user and number of ranks, and no rank twice. Variables alone never join containers: anybody can
    write them. Here somebody has named each of these processes.
    """
    told = {(one.job, one.uid, one.world_size) for job in jobs for one in job}
    ranks = [one.rank for job in jobs for one in job]
    return (
        len(told) == 1
        and jobs[0][0].world_size is not None
        and None not in ranks
        and len(set(ranks)) == len(ranks)
    )


def _by_rank(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda one: (one.rank is None, one.rank or 0, one.pid))


def _listed(jobs: list[list[Candidate]], scanner: Scanner) -> str:
    """Each training; with its user where not all are of the same one."""
    several_users = len({job[0].uid for job in jobs}) > 1
    apart = told_apart([_program(job[0]) for job in jobs], with_pid=False)  # they are named below
    return "; ".join(
        _describe(job, scanner, each, f" of user {job[0].uid}" if several_users else "")
        for job, each in zip(jobs, apart, strict=True)
    )


def _program(first: Candidate) -> Program:
    """What may tell a training from others of the same script; of spawned ranks by the script that spawned them."""
    arguments = procfs.arguments(first.pid)
    label = label_of(arguments, first.ppid)
    if "-c" in arguments[1:2]:
        arguments = procfs.arguments(first.ppid)
    started_ns = procfs.start_wall_ns(first.start_ticks)
    own = list(itertools.dropwhile(_FLAG_OF_PYTHON.fullmatch, arguments[1:]))
    return Program(label, tuple(own), procfs.working_folder(first.pid), started_ns, first.pid)


def _is_single(job: list[Candidate]) -> bool:
    return job[0].source in _SINGLE


def _pids_of(ranks: list[Candidate], scanner: Scanner) -> list[int]:
    """The processes that mean these ranks and no others."""
    parents = {candidate.ppid for candidate in ranks}
    launcher = next(iter(parents)) if len(parents) == 1 else 0
    # A launcher that runs two trainings, a shell, or a rank of another training would stand for more than this job.
    there = scanner.ranks() if launcher else []
    others = sum(launcher in {one.pid, *family(one.pid, scanner.table)} for one in there)
    pids = [candidate.pid for candidate in ranks]
    if launcher > 1 and others == len(ranks) and not _is_single(ranks):
        return [launcher]
    return pids


def _describe(ranks: list[Candidate], scanner: Scanner, apart: str, whose: str) -> str:
    pids = _pids_of(ranks, scanner)
    size = f"{len(ranks)} rank{'s' if len(ranks) > 1 else ''}"
    if _is_single(ranks):
        size = "a process with torch"
    name = f"{label_of(procfs.arguments(ranks[0].pid), ranks[0].ppid)} {apart}".rstrip()
    return f"{name}, {size}{whose} (--pid {' '.join(map(str, pids))})"


def _rank_process(candidate: Candidate, scanner: Scanner) -> RankProcess:
    arguments = procfs.arguments(candidate.pid)
    above = family(candidate.pid, scanner.table)
    uid = procfs.owner(candidate.pid)  # the candidate may have been looked at before it changed its user
    return RankProcess(
        pid=candidate.pid,
        ppid=candidate.ppid,
        start_ticks=candidate.start_ticks,
        uid=candidate.uid if uid is None else uid,
        rank=candidate.rank,
        local_rank=candidate.local_rank,
        world_size=candidate.world_size,
        local_world_size=candidate.local_world_size,
        command=" ".join(arguments)[:MAX_COMMAND_CHARS],
        label=label_of(arguments, candidate.ppid),
        python=procfs.python_version(candidate.pid) or None,
        start_wall_ns=procfs.start_wall_ns(candidate.start_ticks),
        master=candidate.master,
        run_id=candidate.run_id,
        job=candidate.job,
        namespaces=procfs.namespaces(candidate.pid),
        image=candidate.image,
        ancestors=tuple((pid, scanner.table[pid].start_ticks) for pid in above if pid in scanner.table),
        is_launched=any(scanner.is_launcher(pid) for pid in above),
        is_alone=candidate.source in _SINGLE,
    )


def label_of(arguments: Sequence[str], ppid: int | None = None) -> str:
    """Short name of the program: the script's file name, or the module after -m."""
    words = iter(arguments[1:])
    for word in words:
        if word == "-m":
            return next(words, "python")
        if word == "-c":
            # A spawned child shows multiprocessing's own code: its parent has the script's name, if that is no shell.
            parent = procfs.arguments(ppid) if ppid else []
            is_python = bool(parent) and PurePath(parent[0]).name.startswith("python")
            return label_of(parent) if is_python else "python -c"
        if word in {"-W", "-X"}:
            next(words, None)
        elif not word.startswith("-"):
            return PurePath(word).name
    return PurePath(arguments[0]).name if arguments else "?"
