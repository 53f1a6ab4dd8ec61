"""Which processes are ranks, on machines made of a dictionary."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tuiadvisor.agent import candidates, procfs
from tuiadvisor.agent.discovery import (
    LeftOut,
    NoRanksError,
    RankFinder,
    find_ranks,
    label_of,
    trainings,
)
from tuiadvisor.cli import watching
from tuiadvisor.errors import SeveralTrainingsError, TuiadvisorError
from tuiadvisor.events import RankState

TORCHRUN = ["/venv/bin/python", "/venv/bin/torchrun", "--nproc-per-node", "2", "train.py"]
TRAIN = ["/venv/bin/python", "-u", "train.py"]
SPAWN = ["/venv/bin/python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"]
TRACKER = ["/venv/bin/python", "-c", "from multiprocessing.resource_tracker import main;main(3)"]


@dataclass
class Machine:
    """Processes by pid, as procfs would tell them."""

    stats: dict[int, procfs.Stat] = field(default_factory=dict)
    arguments: dict[int, list[str]] = field(default_factory=dict)
    environments: dict[int, dict[str, str] | None] = field(default_factory=dict)
    files: dict[int, bytes] = field(default_factory=dict)
    threads: dict[int, list[str]] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=dict)
    homes: dict[int, str] = field(default_factory=dict)
    folders: dict[int, str] = field(default_factory=dict)

    def add(
        self,
        pid: int,
        ppid: int,
        arguments: list[str],
        environment: dict[str, str] | None = None,
        *,
        torch: bool = True,
        threads: tuple[str, ...] = (),
        comm: str = "python",
        state: str = "S",
        start_ticks: int | None = None,
        readable: bool = True,
        uid: int = 1000,
        home: str = "the host",
    ) -> int:
        """A process; its pid."""
        self.stats[pid] = procfs.Stat(
            pid, ppid, comm, state, False, start_ticks or pid, 0, 1, (300 if torch else 9) << 20, 0
        )
        self.arguments[pid] = arguments
        self.environments[pid] = (environment or {}) if readable else None
        self.files[pid] = b"/site-packages/torch/lib/libtorch_python.so" if torch else b"/lib/libc.so.6"
        self.threads[pid] = list(threads)
        self.owners[pid], self.homes[pid] = uid, home
        return pid

    def remove(self, *pids: int) -> None:
        """They have ended."""
        for pid in pids:
            del self.stats[pid]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    there = Machine()
    programs = {"bash": None, "sh": None}

    def python_version(pid: int) -> str | None:
        return programs.get(there.arguments[pid][0].rpartition("/")[2], "3.11")

    def environment(pid: int, names: frozenset[str]) -> dict[str, str] | None:
        known = there.environments[pid]
        return known if known is None else {name: known[name] for name in names if name in known}

    monkeypatch.setattr(os, "geteuid", lambda: 500)  # neither root nor whose processes these are
    monkeypatch.setattr(procfs, "snapshot", lambda: dict(there.stats))
    monkeypatch.setattr(procfs, "stat", there.stats.get)
    monkeypatch.setattr(procfs, "environment", environment)
    monkeypatch.setattr(procfs, "arguments", lambda pid: there.arguments.get(pid, []))
    monkeypatch.setattr(procfs, "python_version", python_version)
    monkeypatch.setattr(procfs, "maps_file", lambda pid, name: name in there.files[pid])
    monkeypatch.setattr(procfs, "thread_names", lambda pid: there.threads[pid])
    monkeypatch.setattr(procfs, "owner", there.owners.get)
    monkeypatch.setattr(procfs, "working_folder", lambda pid: there.folders.get(pid, "/exp"))
    monkeypatch.setattr(procfs, "start_wall_ns", lambda _: None)
    monkeypatch.setattr(procfs, "namespace_links", lambda pid, names: tuple(there.homes[pid] for _ in names))
    monkeypatch.setattr(procfs, "read", lambda pid, _: None if there.environments[pid] is None else b"x")
    return there


def rank_variables(rank: int, world_size: int = 2, run: str = "job1", port: int = 29500) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": run,
    }


def add_torchrun(machine: Machine, first_pid: int, run: str = "job1", port: int = 29500) -> None:
    """A launcher at first_pid, and below it two ranks with two loader workers and a helper each."""
    machine.add(first_pid, 1, TORCHRUN, comm="pt_elastic")
    for rank in range(2):
        variables = rank_variables(rank, run=run, port=port)
        rank_pid = machine.add(first_pid + 10 + rank, first_pid, TRAIN, variables)
        for worker in range(2):
            machine.add(first_pid + 20 + 2 * rank + worker, rank_pid, TRAIN, variables)
        machine.add(first_pid + 30 + rank, rank_pid, TRACKER, variables, torch=False)


def found(finder: RankFinder | None = None) -> list[tuple[int, int | None]]:
    return [(process.pid, process.rank) for process in (finder.first() if finder else find_ranks())]


def test_torchrun_job_gives_its_ranks_and_nothing_else(machine: Machine) -> None:
    """Launcher, loader workers and the resource tracker share environment or parentage and are no ranks."""
    add_torchrun(machine, 100)

    assert found() == [(110, 0), (111, 1)]


def test_rank_process_carries_what_the_environment_tells(machine: Machine) -> None:
    """Numbers, rendezvous and run id come from the variables, the label from the command line."""
    add_torchrun(machine, 100)

    process = find_ranks()[1]

    assert (process.rank, process.local_rank, process.world_size, process.local_world_size) == (1, 1, 2, 2)
    assert (process.master, process.run_id, process.label) == ("127.0.0.1:29500", "job1", "train.py")
    assert (process.python, process.uid, process.ppid) == ("3.11", 1000, 100)


def test_spawned_loader_workers_are_no_ranks(machine: Machine) -> None:
    """Workers of multiprocessing_context="spawn" have another command line but the rank's environment."""
    machine.add(110, 1, TRAIN, rank_variables(0))
    machine.add(120, 110, SPAWN, rank_variables(0))
    machine.add(121, 120, SPAWN, rank_variables(0))

    assert found() == [(110, 0)]


def test_launcher_under_a_scheduler_is_no_rank(machine: Machine) -> None:
    """Srun's variables are on the launcher and on its ranks; only torch's make a rank."""
    scheduler = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_ID": "77"}
    machine.add(100, 1, ["/venv/bin/python", "launch.py"], scheduler)
    machine.add(110, 100, TRAIN, {**scheduler, **rank_variables(0)})
    machine.add(111, 100, TRAIN, {**scheduler, **rank_variables(1)})

    assert found() == [(110, 0), (111, 1)]


@pytest.mark.parametrize(
    ("names", "job"),
    [
        (("SLURM_PROCID", "SLURM_NTASKS"), {"SLURM_JOB_ID": "77"}),
        (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), {"PMIX_NAMESPACE": "7@host"}),
        (("PMI_RANK", "PMI_SIZE"), {"MASTER_ADDR": "host"}),
    ],
)
def test_scheduler_variables_make_ranks_of_processes_with_torch(
    machine: Machine, names: tuple[str, str], job: dict[str, str]
) -> None:
    """Without RANK the scheduler's number counts, but a script without torch in the same job is no rank."""
    for rank in range(2):
        machine.add(110 + rank, 1, TRAIN, {names[0]: str(rank), names[1]: "2", **job})
    machine.add(
        120, 1, ["/venv/bin/python", "copy_data.py"], {names[0]: "0", names[1]: "2", **job}, torch=False
    )

    assert found() == [(110, 0), (111, 1)]


def test_children_of_mp_spawn_are_ranks_without_a_number(machine: Machine) -> None:
    """No variables at all: threads of a process group are the sign; their loader workers have none."""
    machine.add(100, 1, ["/venv/bin/python", "spawn_train.py"])
    for pid in (110, 111):
        machine.add(pid, 100, SPAWN, threads=("python", "pt_gloo_runloop"))
        machine.add(pid + 10, pid, SPAWN, threads=("python", "pt_data_worker"), comm="pt_data_worker")

    assert found() == [(110, None), (111, None)]
    assert find_ranks()[0].label == "spawn_train.py"


def test_spawned_worker_of_a_plain_training_is_no_rank(machine: Machine) -> None:
    """A loader worker loads torch as well; without a process group it is not one to inject into."""
    machine.add(100, 1, TRAIN)
    machine.add(110, 100, SPAWN, threads=("python",))

    assert found() == [(100, None)]


def test_a_training_of_one_process_is_found_like_any_other(machine: Machine) -> None:
    """A script or a notebook's kernel with torch; not its workers, helpers, a launcher, or what has no torch."""
    machine.add(50, 1, ["/venv/bin/python", "-m", "jupyterlab"], torch=False)
    machine.add(60, 50, ["/venv/bin/python", "-m", "ipykernel_launcher", "-f", "kernel.json"])
    machine.add(61, 60, TRAIN, comm="pt_data_worker")
    machine.add(62, 60, TRACKER)
    machine.add(70, 1, ["/venv/bin/python", "-m", "torch.distributed.run", "train.py"])
    machine.add(80, 1, ["/bin/sh", "serve.sh"], comm="sh")

    assert found() == [(60, None)]
    assert find_ranks()[0].label == "ipykernel_launcher"
    assert find_ranks()[0].is_alone
    with pytest.raises(NoRanksError):  # an agent on a job's node takes nobody's notebook for its rank
        RankFinder().first()


def test_several_processes_with_torch_are_listed(machine: Machine) -> None:
    """Under one shell as well; named together they are said to be two trainings."""
    machine.add(50, 1, ["/bin/bash"], torch=False, comm="bash")
    machine.add(60, 50, TRAIN)
    machine.add(61, 50, ["/venv/bin/python", "other.py"])
    listed = "train.py, a process with torch (--pid 60); other.py, a process with torch (--pid 61)"

    with pytest.raises(TuiadvisorError, match="2 trainings or processes with torch run here") as error:
        find_ranks()
    assert listed in str(error.value)
    with pytest.raises(TuiadvisorError, match="--pid: these processes are of 2 trainings") as error:
        find_ranks([60, 61])
    assert listed in str(error.value)
    assert found(RankFinder((61,))) == [(61, None)]


def test_an_agent_of_a_slurm_job_sees_no_ranks_of_another_job_on_its_node(machine: Machine) -> None:
    machine.add(60, 1, TRAIN, {"RANK": "0", "WORLD_SIZE": "1", "SLURM_JOB_ID": "7"})
    assert found(RankFinder()) == [(60, 0)]
    with pytest.raises(NoRanksError):
        RankFinder(slurm_job="8").first()
    machine.add(70, 1, TRAIN, {"RANK": "0", "WORLD_SIZE": "1", "SLURM_JOB_ID": "8"})
    assert found(RankFinder(slurm_job="8")) == [(70, 0)]
    machine.remove(60, 70)
    machine.add(
        80, 1, TRAIN, {"RANK": "0", "WORLD_SIZE": "1"}
    )  # its variables were taken away: no job's for sure
    assert found(RankFinder(slurm_job="8")) == [(80, 0)]


def test_beside_ranks_a_process_with_torch_is_not_asked_about(machine: Machine) -> None:
    """A server, or the script that has spawned the ranks; where there is a choice anyhow it is one more."""
    add_torchrun(machine, 100)
    machine.add(60, 1, ["/venv/bin/python", "serve.py"])
    assert found() == [(110, 0), (111, 1)]
    machine.add(200, 1, ["/venv/bin/python", "spawn_train.py"])
    for pid in (210, 211):
        machine.add(pid, 200, SPAWN, threads=("python", "pt_gloo_runloop"))
    machine.remove(100, *range(110, 112), *range(120, 124), *range(130, 132))
    assert found() == [(210, None), (211, None)]
    add_torchrun(machine, 300)
    with pytest.raises(
        TuiadvisorError,
        match=r"3 trainings or processes with torch run here: .*; serve.py, a process with torch \(--pid 60\)",
    ):
        find_ranks()


def test_pids_of_several_trainings_do_not_belong_together(machine: Machine) -> None:
    """Any number of one training's is fine, its launcher's among them."""
    add_torchrun(machine, 100, run="job1")
    add_torchrun(machine, 200, run="job2", port=29501)

    assert found(RankFinder((111, 110, 100))) == [(110, 0), (111, 1)]
    with pytest.raises(
        TuiadvisorError, match=r"2 trainings: train.py, .*\(--pid 110\); train.py, .*\(--pid 200\)"
    ):
        find_ranks([110, 200])


def test_shell_with_exported_variables_is_no_rank(machine: Machine) -> None:
    """RANK exported by hand or by --no-python is on the shell too; the Python below it is the rank."""
    machine.add(100, 1, ["/bin/bash", "run.sh"], rank_variables(0), torch=False, comm="bash")
    machine.add(110, 100, TRAIN, rank_variables(0))

    assert found() == [(110, 0)]


def test_wrapper_without_torch_gives_way_to_the_training_below_it(machine: Machine) -> None:
    """A Python wrapper that starts the script has the rank's variables and no torch."""
    machine.add(100, 1, ["/venv/bin/python", "wrap.py"], rank_variables(0), torch=False)
    machine.add(110, 100, TRAIN, rank_variables(0))
    machine.add(120, 110, TRAIN, rank_variables(0))

    assert found() == [(110, 0)]


def test_rank_that_has_not_imported_torch_is_found_by_its_variables(machine: Machine) -> None:
    """Torch's own variables are sign enough while the imports still run."""
    machine.add(110, 1, TRAIN, rank_variables(0), torch=False)

    assert found() == [(110, 0)]


def test_zombies_and_launchers_as_modules_are_skipped(machine: Machine) -> None:
    """Neither an ended rank nor python -m torch.distributed.run counts."""
    machine.add(100, 1, ["/venv/bin/python", "-m", "torch.distributed.run", "train.py"], rank_variables(0))
    machine.add(110, 100, TRAIN, rank_variables(0), state="Z")
    machine.add(111, 100, TRAIN, rank_variables(1))

    assert found() == [(111, 1)]


@pytest.mark.parametrize(("rank", "size"), [("x", "2"), ("-1", "2"), ("", "2"), ("0", ""), ("9" * 30, "2")])
def test_nonsense_in_the_variables_makes_no_rank(machine: Machine, rank: str, size: str) -> None:
    """Variables that are no numbers are ignored, not crashed on."""
    machine.add(110, 1, TRAIN, {"RANK": rank, "WORLD_SIZE": size}, torch=False)

    with pytest.raises(NoRanksError):
        find_ranks()


def test_rank_beyond_its_world_is_not_believed(machine: Machine) -> None:
    """A process that claims rank 5 of 4 is watched, its number left to the probe."""
    machine.add(110, 1, TRAIN, rank_variables(5, world_size=4))

    assert found() == [(110, None)]


def test_several_trainings_are_listed_with_a_pid_to_choose(machine: Machine) -> None:
    """One line names each training by script, what tells it from others of that script, size and launcher."""
    add_torchrun(machine, 100, run="job1")
    add_torchrun(machine, 200, run="job2", port=29501)
    machine.folders = dict.fromkeys((110, 111), "/exp/a") | dict.fromkeys((210, 211), "/exp/b")

    with pytest.raises(TuiadvisorError) as error:
        find_ranks()

    expected = "2 trainings run here: train.py in /exp/a, 2 ranks (--pid 100); train.py in /exp/b, 2 ranks (--pid 200);"
    assert str(error.value).startswith(expected)
    assert [process.pid for process in find_ranks([200])] == [210, 211]


def test_an_agent_on_a_node_says_where_one_of_several_trainings_is_named(machine: Machine) -> None:
    """`--hosts` takes no `--pid`, so that a node's line may not ask for one."""
    with pytest.raises(NoRanksError) as none:
        RankFinder().first()
    assert "--pid" not in str(none.value)
    add_torchrun(machine, 100, run="job1")
    add_torchrun(machine, 200, run="job2", port=29501)
    with pytest.raises(SeveralTrainingsError) as several:
        RankFinder().first()
    assert str(several.value).endswith("; name one with --pid in a command on that machine itself")


def test_a_rank_of_another_user_is_none_of_the_training(machine: Machine) -> None:
    """The same names in its variables make it no rank of somebody else's: who looks at both has to choose."""
    add_torchrun(machine, 100)
    machine.add(90, 1, ["/venv/bin/python", "fake.py"], rank_variables(1), uid=12345)

    with pytest.raises(TuiadvisorError) as error:
        find_ranks()

    users = "fake.py, 1 rank of user 12345 (--pid 90); train.py, 2 ranks of user 1000 (--pid 100)"
    assert str(error.value) == f"2 trainings run here: {users}; choose one with --pid"
    assert found(RankFinder((100,))) == [(110, 0), (111, 1)]


def test_a_rank_in_another_container_is_none_of_the_training(machine: Machine) -> None:
    """Root in one container and root in the next have one user id; loopback in each is another network."""
    add_torchrun(machine, 100)
    machine.add(90, 1, ["/venv/bin/python", "fake.py"], rank_variables(1), home="a container")

    with pytest.raises(TuiadvisorError, match=r"2 trainings run here: fake.py, 1 rank \(--pid 90\); train"):
        find_ranks()


def test_ranks_in_containers_of_their_own_are_one_job_when_all_are_named(machine: Machine) -> None:
    """As pods with a device each on one node. Who names only one of them has named only that one."""
    for rank in (0, 1):
        machine.add(90 + rank, 1, TRAIN, rank_variables(rank), home=f"pod {rank}")

    assert found(RankFinder((90, 91))) == [(90, 0), (91, 1)]
    assert found(RankFinder((91,))) == [(91, 1)]
    with pytest.raises(TuiadvisorError, match="2 trainings run here"):
        find_ranks()


@pytest.mark.parametrize(
    "other",
    [
        {"environment": rank_variables(1, run="job2")},
        {"environment": rank_variables(0)},
        {"environment": rank_variables(1) | {"WORLD_SIZE": "4"}},
        {"environment": rank_variables(1), "uid": 12345},
    ],
    ids=["another rendezvous", "the same rank", "another size", "another user"],
)
def test_containers_of_different_jobs_are_no_job(machine: Machine, other: dict[str, Any]) -> None:
    machine.add(90, 1, TRAIN, rank_variables(0), home="pod 0")
    machine.add(91, 1, TRAIN, home="pod 1", **other)
    with pytest.raises(TuiadvisorError, match="these processes are of 2 trainings"):
        find_ranks((90, 91))


@pytest.mark.parametrize("pids", [(), (100,)])
def test_a_rank_of_another_user_does_not_join(machine: Machine, pids: tuple[int, ...]) -> None:
    """Neither by names in its variables, nor as a child of whoever has the id of the launcher that ended."""
    add_torchrun(machine, 100)
    finder = RankFinder(pids)
    finder.first()
    machine.add(90, 1, TRAIN, rank_variables(1), uid=12345)
    machine.add(100, 1, TRAIN, torch=False, uid=12345, start_ticks=5000)
    machine.add(91, 100, TRAIN, rank_variables(0), uid=12345)

    assert finder.again() == []


def test_trainings_under_one_shell_are_told_apart_by_their_own_pids(machine: Machine) -> None:
    """A parent that stands for two trainings is not offered as the choice for one."""
    machine.add(100, 1, ["/bin/bash"], torch=False, comm="bash")
    machine.add(110, 100, TRAIN, rank_variables(0, 1, run="a"))
    machine.add(111, 100, TRAIN, rank_variables(0, 1, run="b"))

    with pytest.raises(TuiadvisorError, match=r"\(--pid 110\); train.py, 1 rank \(--pid 111\)"):
        find_ranks()


def test_pythons_own_flags_tell_no_trainings_apart(machine: Machine) -> None:
    """Torchrun starts ranks with -u: home listed "train.py -u /work/…/train.py"."""
    machine.add(100, 1, ["/bin/bash"], torch=False, comm="bash")
    machine.add(110, 100, ["/venv/bin/python", "-u", "/a/train.py"], rank_variables(0, 1, run="a"))
    machine.add(111, 100, ["/venv/bin/python", "-uB", "/b/train.py", "-x"], rank_variables(0, 1, run="b"))

    with pytest.raises(TuiadvisorError, match=r"/a/train.py.*/b/train.py -x") as error:
        find_ranks()
    assert "-u" not in str(error.value)


def test_a_scripts_bare_name_is_not_said_twice(machine: Machine) -> None:
    """Beside one that was started by its path: "train.py train.py in /exp/b, 2 ranks" was listed."""
    machine.add(100, 1, ["/bin/bash"], torch=False, comm="bash")
    machine.add(110, 100, ["/venv/bin/python", "/exp/a/train.py", "-x"], rank_variables(0, 1, run="a"))
    machine.add(111, 100, ["/venv/bin/python", "train.py"], rank_variables(0, 1, run="b"))
    machine.folders = {110: "/exp/a", 111: "/exp/b"}

    with pytest.raises(SeveralTrainingsError) as error:
        find_ranks()
    listed = (
        "train.py /exp/a/train.py -x in /exp/a, 1 rank (--pid 110); train.py in /exp/b, 1 rank (--pid 111)"
    )
    assert f"2 trainings run here: {listed};" in str(error.value)


def test_empty_machine_says_what_to_do_next(machine: Machine) -> None:
    """No ranks is an error of one line with the three ways on."""
    machine.add(50, 1, ["/bin/bash"], torch=False, comm="bash")

    with pytest.raises(NoRanksError, match=r"start the training.*--pid.*tuiadvisor run") as error:
        find_ranks()

    assert "\n" not in str(error.value)


def test_processes_of_other_users_are_mentioned(machine: Machine) -> None:
    """An environment that may not be read could be a rank's: the message says so."""
    machine.add(60, 1, TRAIN, readable=False)

    with pytest.raises(NoRanksError, match=r"1 Python process of other users: look as root"):
        find_ranks()


def test_pid_of_a_rank_gives_that_rank(machine: Machine) -> None:
    """A user may watch a single rank of a job."""
    add_torchrun(machine, 100)

    assert found(RankFinder((111,))) == [(111, 1)]


def test_pid_of_a_worker_names_its_rank_instead(machine: Machine) -> None:
    """Loader workers are never injected into."""
    add_torchrun(machine, 100)

    with pytest.raises(
        TuiadvisorError, match=r"--pid 120: a worker of the rank in process 110; use --pid 110"
    ):
        find_ranks([120])


@pytest.mark.parametrize(
    ("pid", "message"),
    [(999, "no such process"), (60, "belongs to another user"), (50, "bash is not a Python process")],
)
def test_pid_that_cannot_be_a_rank_is_refused(machine: Machine, pid: int, message: str) -> None:
    """What, where and what next, for each way to be wrong."""
    machine.add(50, 1, ["/bin/bash"], torch=False, comm="bash")
    machine.add(60, 1, TRAIN, readable=False)

    with pytest.raises(TuiadvisorError, match=f"--pid {pid}: .*{message}"):
        find_ranks([pid])


def test_single_training_given_by_pid_has_no_rank_yet(machine: Machine) -> None:
    """Only its probe can say that it is rank 0 of 1."""
    machine.add(70, 1, TRAIN)

    assert found(RankFinder((70,))) == [(70, None)]


def test_launcher_of_another_user_is_not_waited_for(machine: Machine) -> None:
    """Its ranks would never come into sight: said at once."""
    machine.add(100, 1, TORCHRUN, torch=False, comm="pt_elastic", readable=False)
    machine.add(110, 100, TRAIN, readable=False)
    with pytest.raises(TuiadvisorError, match="--pid 100: it belongs to another user") as caught:
        find_ranks([100])
    assert not isinstance(caught.value, NoRanksError)


@pytest.mark.parametrize("user", [0, 1000])
def test_what_the_system_lets_nobody_read_is_not_called_another_users(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    """Root in a container without the capability, or a process that has more rights than its user."""
    machine.add(60, 1, TRAIN, readable=False)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(TuiadvisorError, match="--pid 60: the system lets nobody here read it"):
        find_ranks([60])


@pytest.mark.parametrize(
    "change", [{"state": "Z"}, {"has_memory": False}, None], ids=["zombie", "within its exit", "gone"]
)
def test_what_ends_between_two_looks_is_not_called_unreadable(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any] | None
) -> None:
    """The kernel takes a process's memory before its parent can ask for the exit code."""
    machine.add(60, 1, TRAIN, readable=False)
    later = None if change is None else replace(machine.stats[60], **change)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(procfs, "stat", {60: later}.get)
    with pytest.raises(TuiadvisorError, match="--pid 60: it has just ended"):
        find_ranks([60])
    assert trainings() == ([], 0)


def test_what_ends_after_its_environment_was_read_is_not_called_another_program(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program and mappings are gone with its memory; older kernels show an empty environment then."""
    machine.add(60, 1, ["/bin/bash"], comm="python", torch=False)
    monkeypatch.setattr(procfs, "stat", {60: replace(machine.stats[60], has_memory=False)}.get)
    with pytest.raises(TuiadvisorError, match="--pid 60: it has just ended"):
        find_ranks([60])
    machine.arguments[60] = TRAIN
    with pytest.raises(TuiadvisorError, match="--pid 60: it has just ended"):
        watching.refuse_without_torch([60])


def test_launcher_without_ranks_can_be_waited_for(machine: Machine) -> None:
    """NoRanksError, not a refusal: the ranks may come."""
    machine.add(100, 1, TORCHRUN)

    with pytest.raises(NoRanksError, match="launcher without ranks yet"):
        find_ranks([100])


@pytest.mark.parametrize("pids", [(), (100,)])
def test_elastic_restart_brings_new_ranks_of_the_same_job(machine: Machine, pids: tuple[int, ...]) -> None:
    """The same launcher's new children are found, though run id and port may tell nothing."""
    add_torchrun(machine, 100, run="none", port=29500)
    finder = RankFinder(pids)
    finder.first()
    machine.remove(*[pid for pid in machine.stats if pid > 100])
    for rank in range(2):
        machine.add(310 + rank, 100, TRAIN, rank_variables(rank, run="none", port=29777))

    assert [(process.pid, process.rank) for process in finder.again()] == [(310, 0), (311, 1)]
    assert finder.again() == []


def test_ranks_of_another_job_do_not_join(machine: Machine) -> None:
    """A second training that starts later is not mixed in."""
    add_torchrun(machine, 100, run="job1")
    finder = RankFinder()
    finder.first()
    add_torchrun(machine, 200, run="job2", port=29501)

    assert finder.again() == []


def test_worker_orphaned_by_a_killed_rank_is_not_taken_for_a_rank(machine: Machine) -> None:
    """After SIGKILL of a rank its workers live on for seconds with its environment and no parent."""
    add_torchrun(machine, 100)
    finder = RankFinder()
    finder.first()
    machine.remove(110)
    for pid in (120, 121):
        machine.add(pid, 1, TRAIN, rank_variables(0), start_ticks=pid)

    assert finder.again() == []


def test_reused_pid_is_a_new_process(machine: Machine) -> None:
    """The start time tells a restarted rank from the old one with the same id."""
    add_torchrun(machine, 100)
    finder = RankFinder()
    finder.first()
    machine.add(110, 100, TRAIN, rank_variables(0), start_ticks=9999)

    assert [(process.pid, process.rank) for process in finder.again()] == [(110, 0)]


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        (["python", "-u", "/home/me/train.py", "--lr", "1"], "train.py"),
        (["python", "-m", "package.train", "x"], "package.train"),
        (["python", "-W", "ignore", "-X", "dev", "run.py"], "run.py"),
        (["python", "-c", "pass"], "python -c"),
        (["/opt/trainer"], "trainer"),
        ([], "?"),
    ],
)
def test_label_is_the_name_people_know(arguments: list[str], label: str) -> None:
    """The script's file name, or the module."""
    assert label == label_of(arguments)


def test_label_of_code_on_the_command_line_is_no_shells(machine: Machine) -> None:
    """`python -c` under a shell is not named after the shell's script; a spawned rank is, after its parent's."""
    machine.add(100, 1, ["bash", "/dev/fd/3"])
    machine.add(101, 1, ["/usr/bin/python3", "train.py"])
    assert "python -c" == label_of(["python", "-c", "pass"], 100)
    assert "train.py" == label_of(["python", "-c", "from multiprocessing.spawn import ..."], 101)


def test_all_public_fields_of_a_rank_have_a_state(machine: Machine) -> None:
    """A rank that was just found is FOUND."""
    add_torchrun(machine, 100)

    assert {RankState.FOUND} == {process.state for process in find_ranks()}


GLOO = ("python", "pt_gloo_runloop")
PL_CHILD = {
    "LOCAL_RANK": "1",
    "NODE_RANK": "0",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "4242",
}


def add_own_launcher(machine: Machine, ports: dict[int, set[int]], node: int = 0) -> None:
    """As Lightning starts itself: the script is rank 0 and the parent of rank 1, and carries no variables."""
    machine.add(100, 50, TRAIN, threads=GLOO)
    machine.add(110, 100, TRAIN, {**PL_CHILD, "NODE_RANK": str(node)}, threads=GLOO)
    machine.add(120, 110, TRAIN, {**PL_CHILD, "NODE_RANK": str(node)}, threads=("pt_data_worker",))
    machine.add(121, 100, TRAIN, threads=("pt_data_worker",), comm="pt_data_worker")
    ports[100] = {4242, 33000}


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> dict[int, set[int]]:
    """TCP ports by process."""
    held: dict[int, set[int]] = {}
    monkeypatch.setattr(candidates, "_tcp_ports", lambda pid: frozenset(held.get(pid, ())))
    return held


def test_a_script_that_starts_the_other_ranks_is_of_their_training(
    machine: Machine, ports: dict[int, set[int]]
) -> None:
    """By the rendezvous it listens at; once, and its pid stands for all of them."""
    add_own_launcher(machine, ports)
    assert found() == [(110, 1), (100, None)]
    assert [110, 100] == [process.pid for process in find_ranks([100])]
    assert [(110, 1)] == [(process.pid, process.rank) for process in find_ranks([110])]
    assert {"127.0.0.1:4242"} == {process.master for process in find_ranks()}


def test_on_another_node_its_ranks_have_no_number_yet(machine: Machine, ports: dict[int, set[int]]) -> None:
    """Local rank 1 of the second node may be any rank: the process itself tells."""
    add_own_launcher(machine, ports, node=1)
    assert found() == [(100, None), (110, None)]


def test_a_training_below_another_is_not_joined_to_it(machine: Machine, ports: dict[int, set[int]]) -> None:
    """A rank that starts another training holds no connection of its rendezvous; nor does another user's."""
    add_own_launcher(machine, ports)
    ports[100] = {33000}
    with pytest.raises(TuiadvisorError, match="2 trainings run here") as refused:
        find_ranks()
    assert "(--pid 100)" in str(refused.value)
    assert "(--pid 110)" in str(refused.value)
    ports[100] = {4242}
    machine.owners[110] = machine.owners[120] = 2000
    with pytest.raises(TuiadvisorError, match="2 trainings run here"):
        find_ranks()


def test_all_trainings_are_found_with_what_means_each(machine: Machine) -> None:
    """For a list of them: ranks in order, and the launcher that stands for them; who was unreadable is counted."""
    add_torchrun(machine, 100)
    add_torchrun(machine, 200, run="job2", port=29600)
    machine.add(300, 1, ["python", "secret.py"], readable=False)
    machine.add(400, 1, ["/venv/bin/python", "-m", "ipykernel_launcher", "-f", "kernel.json"])
    machine.add(
        500, 1, ["/venv/bin/python", "spawn_train.py"]
    )  # the script of ranks, no training beside them
    machine.add(510, 500, SPAWN, threads=("python", "pt_gloo_runloop"))
    listed, num_unreadable = trainings()
    assert [2, 2, 1, 1] == [len(training.ranks) for training in listed]
    assert [(100,), (200,), (400,)] == [training.pids for training in listed[:3]]
    assert [510] == [rank.pid for rank in listed[3].ranks]
    assert 1 == num_unreadable


def test_whoever_names_one_of_two_launchers_of_a_job_hears_of_the_other(machine: Machine) -> None:
    """As of two nodes that one machine stands for: its own ranks alone are meant, and the others are told."""
    for launcher in (100, 200):
        machine.add(launcher, 1, TORCHRUN, comm="pt_elastic")
    for rank, pid in enumerate((110, 111, 210, 211)):
        machine.add(pid, 100 if pid < 200 else 200, TRAIN, rank_variables(rank, world_size=4))
    finder = RankFinder((100,))
    assert [(110, 0), (111, 1)] == found(finder)
    assert LeftOut(((2, 210), (3, 211)), (100, 200)) == finder.left_out
    finder = RankFinder((100, 200))
    assert [0, 1, 2, 3] == [rank for _, rank in found(finder)]
    assert LeftOut() == finder.left_out
    finder = RankFinder((110,))
    assert [(110, 0)] == found(finder)
    assert (1, 111) == finder.left_out.ranks[0]
    machine.remove(111, 200, 210, 211)
    assert [] == finder.again()
    assert LeftOut() == finder.left_out


RAY_WORKER = ["ray::RayTrainWorker"]
HERE, HEAD, OTHER = b"0A000005", b"0A000001", b"0A000006"
Sockets = dict[int, list[list[bytes]]]


def connected(sockets: Sockets, one: int, other: int, port: int) -> None:
    """Two processes of this machine hold the ends of a connection."""
    here, there = b"%s:%04X" % (HERE, port), b"%s:%04X" % (b"0" * 16 + b"FFFF0000" + HERE, 29500)
    sockets.setdefault(one, []).append([b"0:", here, there, b"01"])
    sockets.setdefault(other, []).append([b"0:", there, here, b"01"])


def reaching(sockets: Sockets, pid: int, address: bytes, port: int) -> None:
    """A process is connected to another machine."""
    local = b"%s:%04X" % (HERE, 30000 + pid)
    sockets.setdefault(pid, []).append([b"0:", local, b"%s:%04X" % (address, port), b"01"])


@pytest.fixture
def sockets(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Sockets:
    """Two Ray trainings below one raylet: all of them know the cluster's head, the ranks of each know each other."""
    held: Sockets = {}
    monkeypatch.setattr(candidates, "_tcp_sockets", lambda pid: iter(held.get(pid, [])))
    machine.add(50, 1, ["/ray/raylet"], torch=False, comm="raylet")
    for pid in (100, 101, 200, 201):
        machine.add(pid, 50, RAY_WORKER, threads=GLOO)
        reaching(held, pid, HEAD, 6379)
    reaching(held, 50, HEAD, 6379)
    return held


def test_two_ray_trainings_on_one_node_are_two(machine: Machine, sockets: Sockets) -> None:
    """By the connections of their ranks: one raylet is the parent of all."""
    connected(sockets, 101, 100, 40001)
    connected(sockets, 201, 200, 40002)
    with pytest.raises(TuiadvisorError, match="2 trainings run here") as refused:
        find_ranks()
    assert "(--pid 100 101)" in str(refused.value)
    with pytest.raises(TuiadvisorError, match="2 trainings run below it"):
        find_ranks([50])
    assert [100, 101] == sorted(process.pid for process in find_ranks([100, 101]))
    with pytest.raises(TuiadvisorError, match="these processes are of 2 trainings"):
        find_ranks([100, 200])


def meeting_itself(sockets: Sockets, pid: int, port: int) -> None:
    """The first rank is connected to its own store, too."""
    here, there = b"%s:%04X" % (HERE, 50000 + pid), b"%s:%04X" % (HERE, port)
    sockets.setdefault(pid, []).extend([[b"0:", here, there, b"01"], [b"0:", there, here, b"01"]])


@pytest.fixture
def second_raylet(machine: Machine, sockets: Sockets) -> None:
    """Two workers each below two raylets of one machine, each with a connection between them."""
    machine.add(60, 1, ["/ray/raylet"], torch=False, comm="raylet")
    reaching(sockets, 60, HEAD, 6379)
    for pid in (200, 201):
        machine.add(pid, 60, RAY_WORKER, threads=GLOO)
    connected(sockets, 101, 100, 40001)
    connected(sockets, 201, 200, 40002)


@pytest.mark.usefixtures("second_raylet")
def test_ray_trainings_below_two_raylets_are_not_mixed(sockets: Sockets) -> None:
    """Named together, each with a rendezvous of its own: they are refused, as on one raylet."""
    for pid, port in ((100, 29500), (200, 29500)):
        meeting_itself(sockets, pid, port)
    for pid in (101, 201):
        sockets[pid].append([b"0:", b"%s:%04X" % (HERE, 41000 + pid), b"%s:%04X" % (HERE, 29500), b"01"])
    with pytest.raises(TuiadvisorError, match="2 trainings run here"):
        find_ranks()
    with pytest.raises(TuiadvisorError, match="these processes are of 2 trainings"):
        find_ranks([50, 60])
    assert [200, 201] == sorted(process.pid for process in find_ranks([60]))


@pytest.mark.usefixtures("second_raylet")
def test_one_ray_training_below_two_raylets_is_one(sockets: Sockets) -> None:
    """As where a machine stands for two nodes: a connection between them joins them."""
    connected(sockets, 200, 100, 40003)
    assert 4 == len(find_ranks())
    assert 4 == len(find_ranks([50, 60]))


@pytest.mark.usefixtures("second_raylet")
def test_whose_rendezvous_is_not_seen_may_be_named_together() -> None:
    """Translated addresses hide a connection between containers: what was named is believed."""
    assert 4 == len(find_ranks([50, 60]))


def test_ranks_whose_rendezvous_is_on_another_node_belong_together(
    machine: Machine, sockets: Sockets
) -> None:
    """They are connected to the same place there; that all know the cluster's head tells nothing."""
    for pid, port in ((100, 5001), (101, 5001), (200, 5002), (201, 5002)):
        reaching(sockets, pid, OTHER, port)
    listed, _ = trainings()
    assert [(100, 101), (200, 201)] == sorted(training.pids for training in listed)


def test_one_ray_training_stays_one(machine: Machine, sockets: Sockets) -> None:
    """Through its first rank, and where the sockets of any cannot be seen."""
    for number, pid in enumerate((101, 200, 201)):
        connected(sockets, pid, 100, 40001 + number)
    assert 4 == len(find_ranks())
    for pid in (101, 200, 201):
        sockets[pid] = sockets[pid][:1]
    sockets[100] = []
    assert 4 == len(find_ranks())


def test_a_second_ray_training_does_not_join_the_one_that_is_watched(
    machine: Machine, sockets: Sockets
) -> None:
    """It starts later below the same raylet; a new rank of the first one does join."""
    connected(sockets, 101, 100, 40001)
    machine.remove(200, 201)
    finder = RankFinder((50,))
    assert [100, 101] == sorted(process.pid for process in finder.first())
    for pid, other in ((200, 201), (102, 100)):
        machine.add(pid, 50, RAY_WORKER, threads=GLOO)
        connected(sockets, pid, other, 40000 + pid)
    machine.add(201, 50, RAY_WORKER, threads=GLOO)
    assert [102] == [process.pid for process in finder.again()]
