"""Whether the memory of a rank's control group bears an attach: read as the kernel writes it, in both versions."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuiadvisor import expendable
from tuiadvisor.agent import cgroup, procfs, room
from tuiadvisor.agent.room import ATTACH_BYTES, CHARGED_AFTER_S, LEFT_TO_OTHERS_BYTES, MIB, MemoryRoom
from tuiadvisor.cli import commands, doctor
from tuiadvisor.errors import FailureError

RANK = 4711
UNLIMITED = "9223372036854771712"
RING = 2 * MIB
NEEDED = ATTACH_BYTES + LEFT_TO_OTHERS_BYTES
KINDS = {"1": "cgroup none rw,memory", "2": "cgroup2 none rw"}
LINES = {"1": "4:memory:{}\n3:cpu:/\n0::/\n", "2": "0::{}\n"}

# Of a rank of 232 MB below a limit of 292 MB, version 1 (Linux 6.18): the plain lines are of the group itself, the sums
# with those below it. 100 MiB of its pages are of files on disk.
STAT_1 = """\
cache 290816
rss 242728960
shmem 0
mapped_file 0
dirty 0
inactive_anon 242659328
active_anon 4096
inactive_file 0
active_file 0
unevictable 0
hierarchical_memory_limit 306184192
total_cache 104857600
total_rss 242728960
total_shmem 8388608
total_inactive_anon 242659328
total_active_anon 8388608
total_inactive_file 62914560
total_active_file 41943040
total_unevictable 0
"""
# In version 2 a group's lines are the sums.
STAT_2 = """\
anon 242728960
file 104857600
kernel 3145728
shmem 8388608
file_mapped 0
file_dirty 0
inactive_anon 242659328
active_anon 8388608
inactive_file 62914560
active_file 31457280
unevictable 0
slab_reclaimable 10485760
slab_unreclaimable 1048576
slab 11534336
"""


def files_of(version: str, limit_mib: int, used_mib: int) -> dict[str, str]:
    """Of a group with 100 MiB that can be given back."""
    limit, used = f"{limit_mib * MIB}\n", f"{used_mib * MIB}\n"
    if version == "2":
        return {"memory.max": limit, "memory.high": "max\n", "memory.current": used, "memory.stat": STAT_2}
    names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    uses = ("memory.usage_in_bytes", "memory.memsw.usage_in_bytes")
    files = {**dict(zip(names, (limit, f"{UNLIMITED}\n"), strict=True)), **dict.fromkeys(uses, used)}
    return {**files, "memory.stat": STAT_1, "memory.use_hierarchy": "1\n"}


class Groups:
    """A mounted hierarchy with the rank in /pod/box; we are in /other, unless it is said."""

    def __init__(self, version: str, point: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.version, self.point = version, point
        self.ours = "/other"
        self.of_rank = "/pod/box"
        self.held = ""  # of the rank, as /proc says it
        monkeypatch.setattr(procfs, "read", self._read)
        monkeypatch.setattr(cgroup, "_mounts", cgroup._mounts.__wrapped__)

    def put(self, group: str, **changed: str) -> None:
        """A group of 300 MiB with so little left that its files' pages are all its room: 100 MiB; with other files."""
        folder = self.point / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (files_of(self.version, 300, 300) | changed).items():
            (folder / name.replace("__", ".")).write_text(text)

    def use(self, group: str, free_mib: float) -> None:
        """So much is left there."""
        name = "memory.current" if self.version == "2" else "memory.usage_in_bytes"
        (self.point / group / name).write_text(f"{int((400 - free_mib) * MIB)}\n")

    def _read(self, pid: int, name: str) -> bytes | None:
        if name == "mountinfo":
            return f"30 20 0:26 / {self.point} rw - {KINDS[self.version]}\n".encode()
        if name == "status":
            return self.held.encode()
        group = {RANK: self.of_rank, os.getpid(): self.ours}[pid]
        return LINES[self.version].format(group).encode()


@pytest.fixture(params=["1", "2"])
def groups(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Groups:
    return Groups(request.param, tmp_path, monkeypatch)


def refusal(ring_bytes: int = RING) -> str:
    """Of one attach by an agent of its own; "" where it is let in."""
    try:
        MemoryRoom().take(RANK, ring_bytes, 0.0)
    except FailureError as error:
        return str(error)
    return ""


def test_what_can_be_given_back_is_room(groups: Groups) -> None:
    """Pages of files on disk, not of tmpfs: a group full of them to its limit has 100 MiB left."""
    groups.put("pod/box")
    (found,) = cgroup.memory_limits(RANK)
    assert (300 * MIB, 100 * MIB) == (found.limit, found.free)
    assert "" == refusal()


def test_a_trace_may_take_half_of_what_is_left_shared_by_its_ranks(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the group, the machine or the disk, whichever has less; never more than a minute's worth; never "no limit"."""
    available, on_disk = [64 << 30], [64 << 20]
    monkeypatch.setattr(room.psutil, "virtual_memory", lambda: SimpleNamespace(available=available[0]))
    disk = lambda _: SimpleNamespace(f_blocks=9, f_bavail=on_disk[0], f_frsize=1024)  # noqa: E731
    monkeypatch.setattr(room.os, "fstatvfs", disk)
    groups.put("pod/box")
    (group,) = cgroup.memory_limits(RANK)
    half = (100 * MIB - LEFT_TO_OTHERS_BYTES) // 2
    why = f"half of what its control group {group.folder} has left"
    assert (half, why) == room.trace_limit(RANK, 5, 1)
    assert (half // 4, f"{why}, shared by 4 ranks") == room.trace_limit(RANK, 5, 4)
    on_disk[0] = 12 << 10
    assert (22 * MIB, "half of what the folder of its files has left") == room.trace_limit(RANK, 5, 1)
    available[0] = 40 * MIB
    assert (12 * MIB, "half of what this machine's memory has left") == room.trace_limit(RANK, 5, 1)
    groups.use("pod/box", 3)
    assert (1, why) == room.trace_limit(RANK, 5, 1)
    groups.of_rank = "/without"
    available[0], on_disk[0] = 64 << 30, 64 << 20
    assert (2 << 30, "more would stand still for over a minute") == room.trace_limit(RANK, 5, 1)


def test_less_than_an_attach_takes_is_a_refusal_that_says_how_much(groups: Groups) -> None:
    """And where, and what to do."""
    groups.put("pod/box")
    groups.use("pod/box", NEEDED / MIB)
    assert "" == refusal()
    groups.use("pod/box", 3)
    said = refusal()
    assert (
        f"process {RANK}: its control group {groups.point}/pod/box has 3.0 MiB of memory left of 300 MiB"
        in said
    )
    assert "an attach needs 24.0 MiB; raise the limit or " in said
    groups.use("pod/box", -7)  # counted by each core for itself
    assert " has 0.0 MiB of memory left " in refusal()


def test_the_limit_of_a_group_above_counts_as_well(groups: Groups) -> None:
    """A pod's around its containers'."""
    groups.put("pod/box")
    groups.put("pod")
    groups.use("pod", 5)
    assert f"{groups.point}/pod has 5.0 MiB" in refusal()
    if groups.version == "1":  # unless it leaves those below it out of its account
        (groups.point / "pod/memory.use_hierarchy").write_text("0\n")
        assert "" == refusal()


def test_a_ring_counts_where_its_maker_is_in_the_group(groups: Groups) -> None:
    """Then it is that group's memory, too, and the watcher may as well be elsewhere."""
    groups.put("pod/box")
    groups.use("pod/box", NEEDED / MIB + 1)
    assert "" == refusal()
    groups.ours = "/pod/box"
    assert "needs 26.0 MiB; raise the limit, watch from outside of the group or " in refusal()
    groups.use("pod/box", NEEDED / MIB + 2)
    assert "" == refusal()


def test_attaches_that_were_just_let_in_are_counted(groups: Groups) -> None:
    """Many ranks of one container are attached to at once, before the kernel has any of it in its account."""
    groups.put("pod/box")
    groups.use("pod/box", (NEEDED + ATTACH_BYTES) / MIB)
    room = MemoryRoom()
    room.take(RANK, RING, 0.0)
    room.take(RANK, RING, 0.1)
    with pytest.raises(FailureError, match=r"needs 40\.0 MiB"):
        room.take(RANK, RING, 0.2)
    room.take(RANK, RING, 0.2 + CHARGED_AFTER_S)


def test_the_nearer_limit_counts(groups: Groups) -> None:
    """Of memory and swap together in version 1; in version 2 the one above which a group is slowed down."""
    groups.put("pod/box")
    name, used = {
        "1": ("memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"),
        "2": ("memory.high", "memory.current"),
    }[groups.version]
    folder = groups.point / "pod/box"
    (folder / name).write_text(f"{int((folder / used).read_text()) - 98 * MIB}\n")
    assert " has 2.0 MiB of memory left of 202 MiB" in refusal()


@pytest.mark.parametrize("lost", ["limit", "use", "all", "outside"])
def test_what_the_kernel_does_not_say_refuses_nobody(groups: Groups, lost: str) -> None:
    """No limit, unreadable files, a group of another namespace."""
    groups.put("pod/box")
    groups.use("pod/box", 1)
    assert refusal()
    folder = groups.point / "pod/box"
    limits = ("memory.max", "memory.limit_in_bytes")
    names = {"limit": limits, "use": ("memory.current", "memory.usage_in_bytes"), "all": ("memory.stat",)}
    for name in names.get(lost, ()):
        (folder / name).unlink(missing_ok=True)
    if lost == "outside":
        groups.of_rank = "/../box"
    assert "" == refusal()
    if lost == "limit" and groups.version == "2":
        (folder / "memory.max").write_text("max\n")
        assert "" == refusal()


def test_doctor_says_what_the_group_of_the_shell_leaves(groups: Groups) -> None:
    """With a remedy where no rank of the group could be attached to; a group without a limit is none."""
    groups.ours = "/pod/box"
    groups.put("pod/box")
    (group,) = cgroup.memory_limits(os.getpid())
    found = doctor.look_at_memory()
    assert ("ok", f"100 MiB left of 300 in {group.folder}", "") == (found.state, found.found, found.remedy)
    groups.use("pod/box", 12)
    found = doctor.look_at_memory()
    assert ("limited", f"12 MiB left of 300 in {group.folder}") == (found.state, found.found)
    assert "raise its limit, or watch from outside" in found.remedy
    limits = ("memory.max", "memory.limit_in_bytes")
    unlimited = {"1": f"{UNLIMITED}\n", "2": "max\n"}[groups.version]
    for name in limits:
        if (group.folder / name).exists():
            (group.folder / name).write_text(unlimited)
    assert "no control group limits it for this shell" == doctor.look_at_memory().found


def test_a_group_that_ends_as_a_whole_needs_room_for_all_of_us(
    groups: Groups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kubernetes sets a container: the kernel would take the training along with the watcher it chose."""
    groups.ours = "/pod/box"
    groups.put("pod/box")
    groups.put("pod")
    groups.use("pod", 150)
    own = tmp_path / "cgroup"
    own.write_text("0::/pod/box\n")
    monkeypatch.setattr(expendable, "_GROUP", own)
    monkeypatch.setattr(expendable, "_POINT", groups.point)

    def refused() -> str:
        try:
            room.check_own(expendable.groups_that_end_together())
        except FailureError as error:
            return str(error)
        return ""

    assert ("", []) == (refused(), expendable.groups_that_end_together())
    box, pod = (groups.point / name / "memory.oom.group" for name in ("pod/box", "pod"))
    box.write_text("1\n")
    said = refused()
    assert f"control group {box.parent} has 100 MiB of 300 left, less than the 192 MiB this may take" in said
    assert "raise the limit, or watch from outside of the group" in said
    assert 1 == len(said.splitlines())
    groups.use("pod/box", 250)
    assert f"control group {pod.parent} has 150 MiB" in refused()  # it ends the box as a whole, too
    groups.use("pod", 250)
    assert "" == refused()
    # Set above alone: what is used up below takes its own processes, one by one.
    box.write_text("0\n")
    pod.write_text("1\n")
    groups.use("pod/box", 20)
    assert [pod.parent] == expendable.groups_that_end_together()
    assert "" == refused()
    groups.use("pod", 20)
    assert f"control group {pod.parent} has 20 MiB" in refused()
    own.write_text("0::/../box\n")
    assert [] == expendable.groups_that_end_together()


@pytest.mark.parametrize(
    ("held_mib", "score", "is_refused"),
    [
        (150, 0, False),
        (250, 0, True),
        (60, 500, True),
        (30, 500, False),
        (900, -1000, False),
        (900, 1000, False),
    ],
)
def test_a_larger_process_of_the_group_would_be_taken_before_us(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, held_mib: int, score: int, is_refused: bool
) -> None:
    """Of 300 MiB 100 are left: who holds the other 200, or what with its score comes to it; pages of others count."""
    groups.ours = "/pod/box"
    groups.put("pod/box", cgroup__procs=f"{os.getpid()}\n0\n")
    groups.put("pod/box/below", cgroup__procs=f"{RANK}\n")
    groups.held = f"Name:\tpython\nVmRSS:\t{(held_mib - 2) * 1024} kB\nVmSwap:\t1024 kB\nVmPTE:\t1024 kB\n"
    scores = {os.getpid(): 1000, RANK: score}
    monkeypatch.setattr(expendable, "score_of", scores.get)
    if is_refused:
        with pytest.raises(
            FailureError, match=f"less than the 192 MiB .*the kernel ends process {RANK} before us"
        ):
            room.check_own([])
    else:
        room.check_own([])
    groups.use("pod/box", 200)
    room.check_own([])


@pytest.mark.parametrize("left_mib", [191, 193, None])
def test_only_where_a_limit_is_near_is_it_worth_a_look(
    groups: Groups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_mib: int | None
) -> None:
    """Of the group or one above it; as it is mounted."""
    own = tmp_path / "cgroup"
    own.write_text(LINES[groups.version].format("/pod/box"))
    monkeypatch.setattr(expendable, "_GROUP", own)
    monkeypatch.setattr(expendable, "_POINT", groups.point)
    monkeypatch.setattr(expendable, "_POINT_1", groups.point)
    groups.put("pod/box", **dict.fromkeys(("memory__max", "memory__limit_in_bytes"), "max\n"))
    groups.put("pod")
    groups.use("pod", 100 + (left_mib or 0))
    if left_mib is None:
        for name in ("memory.max", "memory.limit_in_bytes"):
            (groups.point / "pod" / name).write_text({"1": f"{UNLIMITED}\n", "2": "max\n"}[groups.version])
    assert (left_mib == 191) == expendable.may_run_short()


@pytest.mark.parametrize(("command", "code"), [("info", 1), ("detach", 0), ("rules", 0)])
def test_a_command_is_refused_before_anything_is_touched(
    command: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line; who leaves or looks is not."""

    def refuse(_groups: object) -> None:
        raise FailureError("too little")

    monkeypatch.setattr(commands, "groups_that_end_together", lambda: [Path("/sys/fs/cgroup/box")])
    monkeypatch.setattr(room, "check_own", refuse)
    monkeypatch.setattr(commands, "_logged", lambda *_, **__: 0)
    given = {"info": ["info", "run.tuirec"], "detach": ["detach"], "rules": ["rules", "list"]}
    assert code == commands.run(given[command])
    assert capsys.readouterr().err == (f"tuiadvisor {command}: too little\n" if code else "")
