"""Dumps that would name an innocent rank: of another job, of another moment, of another rank, of a victim."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from test_import_flight_recorder import PAIRS, Entry, dump, entry, stuck

from tuiadvisor.importers.hangreport import hang_document

if TYPE_CHECKING:
    from pathlib import Path

NOW_NS = 1_758_580_155_000_000_000


def finished(first: int, last: int, at_ns: int = NOW_NS) -> list[Entry]:
    """Finished all-reduces, a second apart, the last one at `at_ns`."""
    seconds = 1_000_000_000
    return [
        entry(seq, state="completed", time_created_ns=at_ns - seconds * (last - seq))
        for seq in range(first, last + 1)
    ]


def stuck_late(folder: Path, stale: dict[int, list[Entry]], late: int = 3) -> Path:
    """Four ranks, `late` has not entered all-reduce 5000; some ranks' dumps are stale."""
    for rank in range(4):
        waiting = [] if rank == late else [entry(5000, time_created_ns=NOW_NS + 500_000_000)]
        dump(folder, rank, stale.get(rank, [*finished(4990, 4999), *waiting]))
    return folder


@pytest.mark.parametrize("age_s", [0, 3 * 3600])
def test_a_dump_of_an_earlier_moment_names_nobody(tmp_path: Path, age_s: int) -> None:
    """Rank 1's dump ends at 109, but the others finished 4999 with it: it is no sign that rank 1 is missing."""
    stale = finished(100, 109, NOW_NS - age_s * 10**9)
    document = hang_document(stuck_late(tmp_path, {1: stale}))
    assert [3] == document["hang"]["missing_ranks"]
    assert [1] == document["run"]["missing_ranks"]
    assert any("rank 1 is not of this hang" in loss for loss in document["losses"])


def test_a_dump_of_a_longer_job_before_is_no_sign_of_having_entered(tmp_path: Path) -> None:
    """Rank 3's dump is of a job that came to 9009: not "every rank has entered, look at the network"."""
    document = hang_document(stuck_late(tmp_path, {3: finished(9000, 9009)}))
    assert [] == document["hang"]["missing_ranks"]
    assert "of rank 3 there is no usable dump" in document["hang"]["because"]


def test_two_ranks_that_contradict_each_other_are_both_unknown(tmp_path: Path) -> None:
    """Which of the two dumps is the stale one nobody can tell."""
    world = {"0": [0, 1]}
    dump(tmp_path, 0, finished(100, 109), world)
    dump(tmp_path, 1, [*finished(190, 199), entry(200, time_created_ns=NOW_NS)], world)
    with pytest.raises(Exception, match=r"no usable dump.*is not of this hang"):
        hang_document(tmp_path)


def test_a_finished_broadcast_does_not_contradict_a_late_rank(tmp_path: Path) -> None:
    """The root leaves before the others enter: rank 3 is late, its dump is good."""
    for rank in range(4):
        state = "completed" if rank == 0 else "scheduled"
        mine = [] if rank == 3 else [entry(8, name="nccl:broadcast", state=state)]
        dump(tmp_path, rank, [entry(7, state="completed"), *mine])
    assert [3] == hang_document(tmp_path)["hang"]["missing_ranks"]


def test_of_two_different_dumps_of_a_rank_none_is_believed(tmp_path: Path) -> None:
    """The one that comes first by its name is stale."""
    folder = stuck(tmp_path)
    (folder / "rank00.json").rename(folder / "rank0_later.json")
    dump(folder, 0, [entry(3, state="completed")])
    document = hang_document(folder)
    assert [3] == document["hang"]["missing_ranks"]
    assert [0] == document["run"]["missing_ranks"]
    assert "different dumps of rank 0, none used" in document["losses"][0]


def test_a_copy_of_a_dump_does_no_harm(tmp_path: Path) -> None:
    """The same bytes twice are one dump."""
    folder = stuck(tmp_path)
    (folder / "copy_of_rank3.json").write_bytes((folder / "rank03.json").read_bytes())
    document = hang_document(folder)
    assert [3] == document["hang"]["missing_ranks"]
    assert [] == document["losses"]


@pytest.mark.parametrize("name", ["rank{0}_node{1}.json", "node{1}_rank{0}.json", "node_{1}.nccl_trace_{0}"])
def test_a_rank_is_told_from_other_numbers_of_the_name(tmp_path: Path, name: str) -> None:
    """rank3_node0 is rank 3, not rank 0."""
    folder = stuck(tmp_path)
    paths = [folder / f"rank{rank:02d}.json" for rank in range(4)]
    for rank, path in enumerate(paths):
        path.rename(folder / name.format(rank, 3 - rank))
    assert [3] == hang_document(folder)["hang"]["missing_ranks"]


@pytest.mark.parametrize("name", ["node1_local_rank_0.json", "rank2_of_rank3.json"])
def test_a_name_that_does_not_tell_its_rank_is_a_loss(tmp_path: Path, name: str) -> None:
    """A local rank is none, and two numbers are one too many."""
    folder = stuck(tmp_path)
    (folder / "rank00.json").rename(folder / name)
    document = hang_document(folder)
    assert [3] == document["hang"]["missing_ranks"]
    assert "cannot tell its rank" in document["losses"][0]


def test_groups_of_one_name_and_other_ranks_are_two_groups(tmp_path: Path) -> None:
    """PyTorch 2.4 numbers the groups of one split alike: rank 3 is missing from [2, 3], not 0 and 1."""
    left, right = {"0": [0, 1, 2, 3], "1": [0, 1]}, {"0": [0, 1, 2, 3], "1": [2, 3]}
    for rank in (0, 1):
        dump(tmp_path, rank, [entry(4, "1", state="completed")], left)
    dump(tmp_path, 2, [entry(5, "1")], right)
    path = dump(tmp_path, 3, [entry(4, "1", state="completed")], right)
    assert [3] == hang_document(tmp_path)["hang"]["missing_ranks"]
    path.unlink()
    assert [] == hang_document(tmp_path)["hang"]["missing_ranks"]


def test_a_victim_whose_other_side_is_not_told_is_not_named(tmp_path: Path) -> None:
    """Rank 2 waits in sends and receives together, which name no peer; rank 3 waits for nobody."""
    for rank in (0, 1):
        dump(tmp_path, rank, [entry(7, state="completed"), entry(8)], PAIRS)
    together = entry(5, "2", name="nccl:coalesced", is_p2p=True, p2p_seq_id=5)
    dump(tmp_path, 2, [entry(7, state="completed"), together], PAIRS)
    dump(tmp_path, 3, [entry(7, state="completed")], PAIRS)
    assert [3] == hang_document(tmp_path)["hang"]["missing_ranks"]


def test_stages_that_wait_for_a_stage_are_not_the_origin(tmp_path: Path) -> None:
    """Two pipelines of four stages; stage 2 of the second hangs, its neighbours wait in receives."""
    groups = {"0": list(range(8)), "1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}
    groups |= {str(3 + stage): [stage, 4 + stage] for stage in range(4)}
    receives = {4: "nccl:recv 0<-1", 5: "nccl:recv 1<-2", 7: "nccl:recv 3<-2"}
    for rank in range(8):
        pair = str(3 + rank % 4)
        entries = [entry(5, pair, state="completed", record_id=1)]
        if rank < 4:
            entries.append(entry(6, pair, record_id=9))
        elif rank in receives:
            entries.append(entry(0, "2", name=receives[rank], is_p2p=True, p2p_seq_id=40, record_id=9))
        dump(tmp_path, rank, entries, groups)
    assert [6] == hang_document(tmp_path)["hang"]["missing_ranks"]


MINUTE_NS = 60_000_000_000


def of_two_jobs(folder: Path, others: tuple[int, ...], apart_ns: int) -> Path:
    """Eight ranks, 7 has not entered 109 of group "1"; some dumps are of another job's hang in 209, as much later.

    Torch's counters alone tell of the group of all ranks. Timeouts of 3 minutes.
    """
    groups = {"0": list(range(8)), "1": list(range(8))}
    for rank in range(8):
        late = rank in others
        at_ns = NOW_NS + (apart_ns if late else 0)
        seq = 209 if late else 109
        more = [] if rank == 7 else [entry(seq, "1", time_created_ns=at_ns, timeout_ms=180_000)]
        before = entry(seq - 1, "1", state="completed", time_created_ns=at_ns - 1000, timeout_ms=180_000)
        all_ranks = {"last_enqueued_collective": 60 if late else 50}
        all_ranks["last_completed_collective"] = all_ranks["last_enqueued_collective"]
        own = {"last_enqueued_collective": seq - (rank == 7), "last_completed_collective": seq - 1}
        status = {"0": all_ranks, "1": own}
        dump(folder, rank, [before, *more], groups, pg_status=status)
    return folder


@pytest.mark.parametrize(
    ("apart_ns", "says"),
    [
        (18 * MINUTE_NS, "it is 18 min newer than the others'"),
        (-18 * MINUTE_NS, "it is 18 min older than the others'"),
    ],
)
def test_a_dump_many_timeouts_from_the_others_is_of_another_hang(
    tmp_path: Path, apart_ns: int, says: str
) -> None:
    """Rank 2's would make the six of the hang late, or be late itself: it is no usable dump and names nobody."""
    document = hang_document(of_two_jobs(tmp_path, (2,), apart_ns))
    assert ([7], [2]) == (document["hang"]["missing_ranks"], document["run"]["missing_ranks"])
    assert "of rank 2 there is no usable dump" in document["hang"]["because"]
    assert [f"the dump of rank 2 is not of this hang, not used: {says}"] == document["losses"]


def test_dumps_within_torchs_timeout_are_of_one_hang(tmp_path: Path) -> None:
    """A rank that has stood for as long as a step may take is late, not of another job."""
    for rank in range(4):
        at_ns = NOW_NS - (9 * MINUTE_NS if rank == 3 else 0)
        waiting = [] if rank == 3 else [entry(8, time_created_ns=at_ns, timeout_ms=180_000)]
        dump(tmp_path, rank, [entry(7, state="completed", time_created_ns=at_ns - 1000), *waiting])
    document = hang_document(tmp_path)
    assert ([3], []) == (document["hang"]["missing_ranks"], document["losses"])


def counted_by(folder: Path, *, name: str) -> Path:
    """Four ranks without times; by its counters rank 1 is at 40 of group "1", the others have completed 60 there."""
    groups = {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    for rank in range(4):
        calls = [entry(7, state="completed", time_created_ns=0)]
        calls += [] if rank in (1, 3) else [entry(8, time_created_ns=0)]
        if rank == 2:
            calls.append(entry(30, "1", name=name, state="completed", time_created_ns=0))
        seq = 40 if rank == 1 else 60
        entered = 7 if rank in (1, 3) else 8
        status = {
            "0": {"last_enqueued_collective": entered, "last_completed_collective": 7},
            "1": {"last_enqueued_collective": seq, "last_completed_collective": seq},
        }
        dump(folder, rank, calls, groups, pg_status=status)
    return folder


def test_counters_alone_tell_that_a_dump_is_older(tmp_path: Path) -> None:
    """What three ranks have completed with it rank 1 must have entered."""
    document = hang_document(counted_by(tmp_path, name="nccl:all_reduce"))
    assert ([3], [1]) == (document["hang"]["missing_ranks"], document["run"]["missing_ranks"])


def test_counters_of_broadcasts_do_not_tell_that_a_dump_is_older(tmp_path: Path) -> None:
    """Their root leaves before the others enter: rank 1 may be late there."""
    document = hang_document(counted_by(tmp_path, name="nccl:broadcast"))
    assert [] == document["run"]["missing_ranks"]
    assert 1 in document["hang"]["missing_ranks"]
