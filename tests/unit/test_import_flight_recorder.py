"""Flight-recorder dumps: who has not entered which collective, and when nobody can be named."""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from shared_data import SHARED, needs_data

from tuiadvisor.cli import import_
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.flight_recorder import read_dump, read_flight_recorder
from tuiadvisor.importers.hangreport import hang_document, hang_summary
from tuiadvisor.importers.plain_pickle import plain
from tuiadvisor.metrics.hang import recorder_dump
from tuiadvisor.metrics.hang.missing_ranks import diagnose

Entry = dict[str, Any]
WORLD = {"0": [0, 1, 2, 3]}
PAIRS = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3]}


def entry(
    seq: int, group: str = "0", name: str = "nccl:all_reduce", state: str = "scheduled", **more: object
) -> Entry:
    return {
        "record_id": seq,
        "pg_id": int(group),
        "process_group": [group, f"group_{group}"],
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "profiling_name": name,
        "input_sizes": [[8, 4]],
        "input_dtypes": ["Float"],
        "state": state,
        "time_created_ns": 1_000_000_000 * seq,
        "retired": state == "completed",
        "is_p2p": False,
    } | more


def dump(
    folder: Path, rank: int, entries: list[Entry], groups: dict[str, list[int]] | None = None, **more: object
) -> Path:
    mine = {name: members for name, members in (groups or WORLD).items() if rank in members}
    config = {
        name: {"name": name, "desc": f"group_{name}", "ranks": str(members)} for name, members in mine.items()
    }
    path = folder / f"rank{rank:02d}.json"
    path.write_text(json.dumps({"version": "2.9", "pg_config": config, "entries": entries} | more))
    return path


def stuck(folder: Path, late: int = 3) -> Path:
    """All ranks finished all-reduce 7; all but `late` wait in 8."""
    for rank in range(4):
        waiting = [] if rank == late else [entry(8)]
        dump(folder, rank, [entry(7, state="completed"), *waiting])
    return folder


def test_what_a_communicator_tells_of_itself_changes_nothing(tmp_path: Path) -> None:
    """The state that ncclCommDump adds, texts that each library makes up: of NCCLX and of ROCm's library."""
    hangs = []
    state = {"0x7f00": {"rank": "3", "nRanks": "4", "CT_pendingColls": "[]", "commHash": '"ab"'}}
    for more in ({}, {"nccl_comm_state": state}):
        for rank in range(4):
            waiting = [] if rank == 3 else [entry(8)]
            dump(tmp_path, rank, [entry(7, state="completed"), *waiting], **more)
        hangs.append(hang_document(tmp_path)["hang"])
    assert hangs[0] == hangs[1]
    assert [3] == hangs[1]["missing_ranks"]


def test_the_rank_that_has_not_entered_is_named_with_its_collective(tmp_path: Path) -> None:
    """Three of four ranks wait in all-reduce 8 of group 0 since second 8."""
    document = hang_document(stuck(tmp_path))
    assert [3] == document["hang"]["missing_ranks"]
    (collective,) = document["hang"]["collectives"]
    assert {
        "group": "0",
        "description": "group_0",
        "operation": "nccl:all_reduce",
        "size": "8x4",
        "dtype": "Float",
        "seq": 8,
        "waiting_ranks": [0, 1, 2],
        "missing_ranks": [3],
        "unrecorded_ranks": [],
        "origin": True,
        "since_wall_ns": 8_000_000_000,
    } == collective


def test_a_rank_without_a_dump_is_not_named(tmp_path: Path) -> None:
    """Rank 3's file is gone: the dumps say who waits, not who is missing."""
    (stuck(tmp_path) / "rank03.json").unlink()
    document = hang_document(tmp_path)
    assert [] == document["hang"]["missing_ranks"]
    assert [3] == document["hang"]["collectives"][0]["unrecorded_ranks"]
    assert "of rank 3 there is no usable dump" in document["hang"]["because"]


def test_a_truncated_dump_is_as_good_as_none_and_named(tmp_path: Path) -> None:
    """The other ranks are not blamed for it."""
    path = stuck(tmp_path) / "rank03.json"
    path.write_text(path.read_text()[:60])
    document = hang_document(tmp_path)
    assert [] == document["hang"]["missing_ranks"]
    assert [3] == document["run"]["missing_ranks"]
    assert document["losses"][0].startswith("rank03.json: truncated or not JSON")


def test_a_victim_that_is_itself_blocked_is_not_the_origin(tmp_path: Path) -> None:
    """Rank 2 waits for rank 3 in their pair; 0 and 1 wait for both in the world's group."""
    for rank in (0, 1):
        dump(tmp_path, rank, [entry(7, state="completed"), entry(8)], PAIRS)
    dump(tmp_path, 2, [entry(7, state="completed"), entry(5, "2")], PAIRS)
    dump(tmp_path, 3, [entry(7, state="completed"), entry(4, "2", state="completed")], PAIRS)
    document = hang_document(tmp_path)
    assert [3] == document["hang"]["missing_ranks"]
    assert {"0", "2"} == {wait["group"] for wait in document["hang"]["collectives"]}


def test_a_victim_is_not_named_when_the_origin_has_no_dump(tmp_path: Path) -> None:
    """As above without rank 3's dump: rank 2 has not entered group 0, but it is not the origin."""
    for rank in (0, 1):
        dump(tmp_path, rank, [entry(7, state="completed"), entry(8)], PAIRS)
    dump(tmp_path, 2, [entry(7, state="completed"), entry(5, "2")], PAIRS)
    document = hang_document(tmp_path)
    assert [] == document["hang"]["missing_ranks"]
    assert document["unknown"] != []


def test_counters_speak_for_a_rank_whose_entries_are_gone(tmp_path: Path) -> None:
    """Dumps of active operations only: rank 3 has none, but its counter stands at 7."""
    for rank in range(4):
        entered = 7 if rank == 3 else 8
        status = {"0": {"last_enqueued_collective": entered, "last_completed_collective": 7}}
        dump(tmp_path, rank, [] if rank == 3 else [entry(8)], pg_status=status)
    assert [3] == hang_document(tmp_path)["hang"]["missing_ranks"]


def test_an_empty_dump_without_counters_proves_nothing(tmp_path: Path) -> None:
    """Rank 3's dump is there but says nothing: an abstention."""
    stuck(tmp_path)
    dump(tmp_path, 3, [])
    document = hang_document(tmp_path)
    assert [] == document["hang"]["missing_ranks"]
    assert [3] == document["hang"]["collectives"][0]["unrecorded_ranks"]


def test_all_inside_means_nobody_is_missing(tmp_path: Path) -> None:
    """Every rank has entered and none has left: the network, not a rank."""
    for rank in range(4):
        dump(tmp_path, rank, [entry(8)])
    document = hang_document(tmp_path)
    assert [] == document["hang"]["missing_ranks"]
    assert "look at the network" in document["hang"]["because"]


def stopped_device(folder: Path, operation: str = "nccl:all_gather") -> Path:
    """Rank 2's device stopped in call 5 of its pair; its thread is as far as the others', who wait in group 0."""
    for rank in range(4):
        group = "2" if rank in PAIRS["2"] else "1"
        done = 4 if rank == 2 else 7
        pair = [
            entry(seq, group, operation, "completed" if seq <= done else "scheduled", record_id=seq)
            for seq in range(4, 8)
        ]
        dump(folder, rank, [*pair, entry(8, record_id=8)], PAIRS)
    return folder


def test_a_stopped_device_is_told_by_what_its_peers_have_completed(tmp_path: Path) -> None:
    """All ranks have entered everything; rank 3 has completed call 7 of the pair, rank 2 not even call 5."""
    hang = (document := hang_document(stopped_device(tmp_path)))["hang"]
    assert [2] == hang["missing_ranks"]
    assert [{"rank": 2, "group": "2", "seq": 5, "peer": 3, "peer_completed_seq": 7}] == hang[
        "stopped_devices"
    ]
    assert "the device of rank 2 has stopped" in hang["because"]
    assert "waiting rank 2; rank 3 has completed it, the device of rank 2 stopped" in hang_summary(document)


@pytest.mark.parametrize("name", ["nccl:all_reduce", None])
def test_a_damaged_number_of_the_late_rank_stops_no_other_device(tmp_path: Path, name: str | None) -> None:
    """That it has completed a call of 2^53 is no sign that it has completed the one that the others wait in."""
    path = stuck(tmp_path) / "rank03.json"
    found = json.loads(path.read_text())
    found["entries"][0] |= {"collective_seq_id": 1 << 53, "profiling_name": name}
    path.write_text(json.dumps(found))
    hang = hang_document(tmp_path)["hang"]
    assert ([], []) == (hang["missing_ranks"], hang["stopped_devices"])


@pytest.mark.parametrize(
    "ranks", ["[0, 1, 2,\x1e3]", "[0, 1, 2,\u00a03]", "[0, 1, 2, \u0663]", "[0, 1, 2, 3\n]"]
)
def test_members_that_are_no_plain_numbers_are_unknown(tmp_path: Path, ranks: str) -> None:
    """Of one dump: what the others say of the group stands, and no exception."""
    path = stuck(tmp_path) / "rank03.json"
    found = json.loads(path.read_text())
    found["pg_config"]["0"]["ranks"] = ranks
    path.write_text(json.dumps(found))
    assert [3] == hang_document(tmp_path)["hang"]["missing_ranks"]


def test_who_may_leave_a_collective_early_stops_no_device(tmp_path: Path) -> None:
    """The root of a broadcast is done before the others have it: nobody is named."""
    hang = hang_document(stopped_device(tmp_path, "nccl:broadcast"))["hang"]
    assert ([], []) == (hang["missing_ranks"], hang["stopped_devices"])


def test_each_missing_rank_is_said_with_its_own_group(tmp_path: Path) -> None:
    """Rank 1 is missing from the first pair's collective, rank 3 from the second's."""
    for rank in range(4):
        group = "2" if rank in PAIRS["2"] else "1"
        waiting = [entry(8, group)] if rank in (0, 2) else []
        dump(tmp_path, rank, [entry(7, group, state="completed"), *waiting], PAIRS)
    hang = hang_document(tmp_path)["hang"]
    assert [1, 3] == hang["missing_ranks"]
    first, second = hang["because"].split("; ")
    assert first.startswith("rank 1 has not entered nccl:all_reduce of group 1 ")
    assert second.startswith("rank 3 has not entered nccl:all_reduce of group 2 ")


def test_ranks_that_call_different_operations_are_told_apart(tmp_path: Path) -> None:
    """Rank 1 gathers where the others reduce."""
    for rank in range(4):
        name = "nccl:all_gather" if rank == 1 else "nccl:all_reduce"
        dump(tmp_path, rank, [entry(8, name=name)])
    document = hang_document(tmp_path)
    assert "rank 1 in nccl:all_gather; ranks 0, 2, 3 in nccl:all_reduce" in document["hang"]["mismatch"]


def test_completed_operations_are_no_hang(tmp_path: Path) -> None:
    """A healthy job's dumps."""
    for rank in range(4):
        dump(tmp_path, rank, [entry(7, state="completed"), entry(8, state="completed")])
    document = hang_document(tmp_path)
    assert [] == document["hang"]["collectives"]
    assert "no hang" in document["hang"]["because"]


def test_the_dump_of_one_rank_alone_clears_nobody(tmp_path: Path) -> None:
    """The rank that all others wait for has nothing pending: "no hang in these dumps" cleared the culprit."""
    dump(tmp_path, 3, [entry(7, state="completed")])
    because = hang_document(tmp_path)["hang"]["because"]
    assert "no operation is pending on rank 3; whether others wait" in because
    assert "3 of 4 ranks gave none" in because
    assert "no hang" not in because


RECORDED = (
    Path(__file__).parents[1] / "recordings" / "nccl_trace"
)  # two of NCCL's of one hang, most calls cut out


def pickled(folder: Path, target: Path, protocol: int = 2, named: str = "nccl_trace_rank_{}") -> Path:
    """A folder's JSON dumps as NCCL leaves them: values alike, the group's name and purpose a tuple."""
    target.mkdir(exist_ok=True)
    for path in folder.glob("rank*.json"):
        document = json.loads(path.read_text())
        for call in document["entries"]:
            call["process_group"] = tuple(call["process_group"])
        (target / named.format(int(path.stem[4:]))).write_bytes(pickle.dumps(document, protocol))
    return target


def test_what_nccl_left_of_a_real_hang_names_the_rank() -> None:
    """Rank 1 never entered all-reduce 1087; rank 0 waits there with three more behind it."""
    document = hang_document(RECORDED)
    (collective,) = document["hang"]["collectives"]
    assert {
        "group": "0",
        "description": "default_pg",
        "operation": "nccl:all_reduce",
        "size": "1050624",
        "dtype": "Float",
        "seq": 1087,
        "waiting_ranks": [0],
        "missing_ranks": [1],
        "unrecorded_ranks": [],
        "origin": True,
        "since_wall_ns": 1795668952856135949,
    } == collective
    assert (2, [], [], []) == (
        document["run"]["world_size"], document["run"]["missing_ranks"], document["losses"], document["unknown"],
    )  # fmt: skip
    assert [
        f"{RECORDED}: 2 dumps of 2 ranks",
        "rank 1 has not entered nccl:all_reduce of group 0 (default_pg), sequence 1087",
        "hangs: nccl:all_reduce 1050624 Float, group 0 default_pg, sequence 1087: waiting rank 0; missing rank 1",
    ] == hang_summary(document).splitlines()


@pytest.mark.parametrize(
    ("rank", "says"), [(0, "of rank 1 there is no usable dump"), (1, "1 of 2 ranks gave none")]
)
def test_one_of_nccls_dumps_alone_names_nobody(rank: int, says: str) -> None:
    document = hang_document(RECORDED / f"nccl_trace_rank_{rank}")
    assert [] == document["hang"]["missing_ranks"]
    assert "ranks wait" not in document["hang"]["because"]  # one does, that is known of
    assert says in document["hang"]["because"]
    assert "nccl_trace_rank_" + str(rank) + ": 1 dump of 2 ranks" in hang_summary(document)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "named",
    [
        "nccl_trace_rank_{}",
        "comm_lib_trace_rank_{}",
        "job7-fr_{}",
        "rank{:02d}.pkl",
        "rank_{}.pickle",
        "t_rank_{}.gz",
    ],
)
def test_a_pickled_dump_says_what_its_json_says(tmp_path: Path, protocol: int, named: str) -> None:
    """By each protocol and under each name that a prefix gives; packed, too."""
    (tmp_path / "json").mkdir()
    folder = pickled(stuck(tmp_path / "json"), tmp_path / "pickled", protocol, named)
    if named.endswith(".gz"):
        for path in folder.iterdir():
            path.write_bytes(gzip.compress(path.read_bytes()))
    said = [hang_document(path) for path in (tmp_path / "json", folder)]
    assert [3] == said[0]["hang"]["missing_ranks"]
    for key in ("run", "hang", "unknown", "losses"):
        assert said[0][key] == said[1][key]


@pytest.mark.parametrize("is_pickled", [False, True])
def test_calls_that_cannot_be_told_apart_are_no_sign_of_health(tmp_path: Path, is_pickled: bool) -> None:
    """Dumps of an older torch: without the group's name nothing was pending, and "no hang in these dumps" was said."""
    folder = stuck(tmp_path)
    for path in folder.glob("rank*.json"):
        document = json.loads(path.read_text())
        for call in document["entries"]:
            call["seq_id"] = call.pop("collective_seq_id")
            del call["process_group"]
        path.write_bytes(pickle.dumps(document, 2) if is_pickled else json.dumps(document).encode())
    with pytest.raises(TuiadvisorError, match=r"rank00.json: none of its calls names its process group"):
        hang_document(folder)


def test_other_files_of_a_folder_are_one_line(tmp_path: Path) -> None:
    """Where NCCL leaves its dumps much else may lie; an empty dump is a loss of its own."""
    folder = tmp_path / "pickled"
    pickled(stuck(tmp_path), folder)
    (folder / "nccl_trace_rank_2").write_bytes(b"")
    for name in ("go", "ready-0", "notes.txt"):
        (folder / name).write_bytes(b"")
    (folder / "model.pt").write_bytes(pickle.dumps(Path("x")))
    document = hang_document(folder)
    assert [3] == document["hang"]["missing_ranks"]
    empty, others = document["losses"]
    assert empty.startswith("nccl_trace_rank_2: truncated or not JSON")
    assert "no dumps, by their names and contents: go, model.pt, notes.txt, ready-0" == others


@pytest.mark.parametrize("kind", [list, tuple, str])
def test_members_that_every_group_shares_are_read_within_a_bound(
    monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    """A pickle says a list of a million ranks once and uses it in a hundred thousand groups."""
    monkeypatch.setattr(recorder_dump, "MAX_LISTED", 5_000)
    members = kind([1000 + number for number in range(1000)])
    config = {str(group): {"name": str(group), "desc": "", "ranks": members} for group in range(100)}
    sizes = [len(group.members) for group in recorder_dump.groups_of({"pg_config": config}).values()]
    num_told = 6 if kind is str else 5  # of six characters a member
    assert [1000] * num_told + [0] * (100 - num_told) == sizes


def test_a_pickle_of_more_than_plain_data_is_refused_and_nothing_runs(tmp_path: Path) -> None:
    """Unpickling would run this file's code; it must not run."""
    trap = tmp_path / "sprung"
    path = tmp_path / "nccl_trace_rank_0"

    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (type(tmp_path)(str(trap)).write_text, ("x",))

    path.write_bytes(pickle.dumps({"entries": [], "more": Trap()}))
    with pytest.raises(
        TuiadvisorError,
        match=r"STACK_GLOBAL at byte \d+ makes something else than plain data.*never unpickled",
    ) as caught:
        read_flight_recorder(tmp_path)
    assert "\n" not in str(caught.value)
    assert not trap.exists()


def test_a_refused_pickle_among_json_dumps_is_a_loss(tmp_path: Path) -> None:
    """One refused file does not fail the folder."""
    path = stuck(tmp_path) / "rank01.json"
    path.write_bytes(pickle.dumps({"entries": [tmp_path]}))
    document = hang_document(tmp_path)
    assert [3] == document["hang"]["missing_ranks"]
    assert "something else than plain data" in document["losses"][0]


def test_a_file_named_after_another_rank_is_not_believed(tmp_path: Path) -> None:
    """Rank 3's dump under the name of rank 1, who is in none of its pairs."""
    path = dump(tmp_path, 3, [entry(8)], PAIRS).rename(tmp_path / "rank01.json")
    with pytest.raises(TuiadvisorError, match="its name says rank 1, its groups say otherwise"):
        read_dump(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"entries": 3}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"entries": [], "pg_config": 5}',
    ],
)
def test_anything_else_is_one_line(tmp_path: Path, content: bytes) -> None:
    """No traceback, whatever the file holds."""
    (tmp_path / "dump").write_bytes(content)
    with pytest.raises(TuiadvisorError) as caught:
        read_flight_recorder(tmp_path)
    assert "\n" not in str(caught.value)


def test_odd_entries_are_harmless(tmp_path: Path) -> None:
    """Wrong types in every field: nothing is believed, and the good entries still count."""
    stuck(tmp_path)
    odd: list[Any] = [
        None,
        {},
        {"process_group": 3},
        entry(8) | {"collective_seq_id": "8"},
        entry(8) | {"collective_seq_id": -1},
        entry(8) | {"collective_seq_id": True},
        entry(7, state="completed")
        | {"profiling_name": 5, "input_sizes": "x", "input_dtypes": [1], "record_id": []},
    ]
    dump(tmp_path, 3, odd, pg_status={"x": 1})
    assert [3] == hang_document(tmp_path)["hang"]["missing_ranks"]


def test_the_command_prints_text_or_one_document(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """--json is one document of schema 1; the text says who is missing."""
    parser = argparse.ArgumentParser()
    import_.add_options(parser)
    folder = str(stuck(tmp_path))
    assert import_.run(parser.parse_args(["flight-recorder", folder, "--json"])) == 0
    assert json.loads(capfd.readouterr().out)["schema"] == 1
    assert import_.run(parser.parse_args(["flight-recorder", folder])) == 0
    assert "rank 3 has not entered nccl:all_reduce of group 0" in capfd.readouterr().out


@needs_data
@pytest.mark.parametrize(("case", "seq"), [("gpu_error_2nd", 44791), ("lock_gil_1st", 45265)])
def test_real_fault_injections_give_the_reference(case: str, seq: int) -> None:
    """16 ranks, faults injected into 9 and 14: the reference's group, operation, size, type and ranks."""
    document = hang_document(SHARED / "flight_recorder" / case)
    reference = (
        SHARED / "answers" / "flight_recorder" / f"{case[:-4]}_{case[-3:]}_nvrx_reference.txt"
    ).read_text()
    cells = [cell.strip() for cell in reference.splitlines()[1].split("|")]
    origin = document["hang"]["collectives"][0]
    assert cells == [
        origin["group"],
        f"{origin['description']},0",
        origin["operation"],
        origin["size"],
        origin["dtype"],
        ",".join(map(str, document["hang"]["missing_ranks"])),
    ]
    assert seq == origin["seq"]
    injected = (SHARED / "answers" / "flight_recorder" / f"{case}_fault_injection.log").read_text()
    assert f"Fault ranks: {document['hang']['missing_ranks']}" in injected


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("case", ["gpu_error_2nd", "lock_gil_1st"])
def test_real_dumps_with_any_three_missing_never_name_a_healthy_rank(case: str) -> None:
    """All 696 ways to lose up to three of the sixteen files."""
    folder = read_flight_recorder(SHARED / "flight_recorder" / case)
    for num_lost in (1, 2, 3):
        for lost in itertools.combinations(range(16), num_lost):
            kept = [dump for dump in folder.dumps if dump.rank not in lost]
            named = set(diagnose(kept, folder.groups).missing)
            assert named <= {9, 14} - set(lost), lost
            if {9, 14} <= set(lost):
                assert set() == named


def gloo_dump(folder: Path, rank: int, calls: list[tuple[str, str, int, bool]], ranks: str = "[]") -> None:
    """As torch 2.13 writes it of Gloo: no group described, completion told by `retired` alone, counters as text.

    calls: group, its description, sequence number, whether it is done.
    """
    numbers = {group: number for number, group in enumerate(dict.fromkeys(call[0] for call in calls))}
    entries = [
        {
            "record_id": record,
            "pg_id": numbers[group],
            "process_group": [group, description],
            "collective_seq_id": seq,
            "p2p_seq_id": 0,
            "profiling_name": "gloo:all_reduce",
            "input_sizes": [[3000]],
            "input_dtypes": ["Float"],
            "state": "scheduled",
            "retired": is_done,
            "time_created_ns": 1_795_622_503_110_476_446 + record,
            "time_discovered_started_ns": 0,
            "time_discovered_completed_ns": 0,
            "is_p2p": False,
        }
        for record, (group, description, seq, is_done) in enumerate(calls)
    ]
    status = {
        str(number): {
            "last_enqueued_collective": str(max(call[2] for call in calls if call[0] == group)),
            "last_started_collective": "-1",
            "last_completed_collective": str(
                max((call[2] for call in calls if call[0] == group and call[3]), default=-1)
            ),
        }
        for group, number in numbers.items()
    }
    document = {
        "version": "2.10",
        "pg_config": {"": {"name": "", "desc": "", "ranks": ranks}},
        "pg_status": status,
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(document | {"entries": entries}))


WHOLE = ("0", "default_pg")
PAIR = ("1", "undefined")


def test_gloo_dumps_name_who_has_not_entered(tmp_path: Path) -> None:
    """A 0 in place of the time of completion was taken for one: "no hang in these dumps" of a job that hung."""
    for rank in range(3):
        waits = [(*WHOLE, 6, False)] if rank < 2 else []
        gloo_dump(tmp_path, rank, [(*WHOLE, 5, True), *waits])
    found = hang_document(tmp_path)["hang"]
    assert found["missing_ranks"] == [2]
    assert "rank 2 has not entered gloo:all_reduce of group 0 (default_pg), sequence 6" in found["because"]


def test_of_a_group_without_members_nobody_is_missing_for_certain(tmp_path: Path) -> None:
    """Rank 2's dump is not there, and nothing says that the job had one: no word of the network."""
    for rank in range(2):
        gloo_dump(tmp_path, rank, [(*WHOLE, 5, True), (*WHOLE, 6, False)])
    found = hang_document(tmp_path)["hang"]
    assert found["missing_ranks"] == []
    assert "do not say which ranks belong to its group" in found["because"]


def test_a_number_that_is_no_rank_makes_no_job_of_that_size(tmp_path: Path) -> None:
    """Members of the group of all are counted up to the largest rank: that of a date took gigabytes."""
    gloo_dump(tmp_path, 0, [(*WHOLE, 5, True), (*WHOLE, 6, False)])
    gloo_dump(tmp_path, 20261126, [(*WHOLE, 5, True)])
    document = hang_document(tmp_path)
    assert [
        "rank20261126.json: its name says rank 20261126, which no job has: name it after its rank"
    ] == document["losses"]
    assert [] == document["hang"]["missing_ranks"]


@pytest.mark.slow
def test_calls_are_gone_through_once_however_many_groups_there_are(tmp_path: Path) -> None:
    """Of groups without members all calls were looked through for each group: minutes for some ten thousand."""
    for rank in (0, 1):
        calls = [
            {"process_group": [f"pair {group}", ""], "collective_seq_id": 3 + rank, "state": "completed"}
            for group in range(8_000)
        ]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"entries": calls}))
    begin_s = time.process_time()
    hang_document(tmp_path)
    assert time.process_time() - begin_s < 6


def test_a_rank_behind_in_a_smaller_group_is_named_and_its_victim_is_not(tmp_path: Path) -> None:
    """Rank 1 has not entered the pair's third call; rank 0 waits there and is missing from the call of all."""
    gloo_dump(tmp_path, 0, [(*WHOLE, 5, True), (*PAIR, 2, True), (*PAIR, 3, False)])
    gloo_dump(tmp_path, 1, [(*WHOLE, 5, True), (*PAIR, 2, True)])
    gloo_dump(tmp_path, 2, [(*WHOLE, 5, True), (*WHOLE, 6, False)])
    found = hang_document(tmp_path)["hang"]
    assert found["missing_ranks"] == [1]
    assert [(wait["group"], wait["missing_ranks"]) for wait in found["collectives"]] == [
        ("1", [1]),
        ("0", [0, 1]),
    ]
    assert "of group 1" in found["because"]


def test_counters_that_are_text_speak_as_numbers_do(tmp_path: Path) -> None:
    """NCCL's, as JSON of newer versions has them: the entries of rank 3 are gone."""
    for rank in range(4):
        entered, done = (7, 7) if rank == 3 else (8, 7)
        status = {"0": {"last_enqueued_collective": str(entered), "last_completed_collective": str(done)}}
        calls = [] if rank == 3 else [entry(8, time_discovered_completed_ns=0)]
        dump(tmp_path, rank, calls, pg_status=status)
    assert hang_document(tmp_path)["hang"]["missing_ranks"] == [3]


def test_counters_of_more_completed_than_entered_calls_are_not_believed(tmp_path: Path) -> None:
    """One bit of NCCL's dump of rank 1 flipped: the device of rank 0 had stopped, was said beside rank 1."""
    for rank in (0, 1):
        data = (RECORDED / f"nccl_trace_rank_{rank}").read_bytes()
        document = plain(data)
        counters = document["pg_status"]["0"]
        if rank == 1:
            counters["last_completed_collective"] += 2048
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document))
    hang = hang_document(tmp_path)["hang"]
    assert ([1], []) == (hang["missing_ranks"], hang["stopped_devices"])


def test_gloos_counters_are_not_believed_beside_messages(tmp_path: Path) -> None:
    """Gloo counts sends and receives and records none: rank 3 sent five messages and has not entered all-reduce 8."""
    for rank in range(4):
        num_messages = 5 if rank == 3 else 0
        last = 7 if rank == 3 else 8
        calls = [entry(7, name="gloo:all_reduce", state="completed", op_id=7 + num_messages)]
        calls += [entry(8, name="gloo:all_reduce", op_id=8)] if rank != 3 else []
        status = {"0": {"last_enqueued_collective": last + num_messages, "last_completed_collective": 7}}
        dump(tmp_path, rank, calls, pg_status=status)
    assert [3] == hang_document(tmp_path)["hang"]["missing_ranks"]


def test_who_called_another_operation_and_left_it_is_told(tmp_path: Path) -> None:
    """The root of a broadcast may leave it: rank 0 waits in all-reduce 9 by now, the others called 8 differently."""
    for rank in range(4):
        name = "gloo:broadcast" if rank == 0 else "gloo:all_reduce"
        calls = [entry(8, name=name, state="completed" if rank == 0 else "scheduled")]
        dump(tmp_path, rank, [*calls, *([entry(9, name="gloo:all_reduce")] if rank == 0 else [])])
    hang = hang_document(tmp_path)["hang"]
    assert [] == hang["missing_ranks"]
    assert "rank 0 in gloo:broadcast; ranks 1, 2, 3 in gloo:all_reduce" in hang["because"]


def lived(seq: int, life: int, at_s: float, state: str = "completed", **more: object) -> Entry:
    """A call of the life-th group that was given the name "0"."""
    return entry(seq, state=state, pg_id=life, time_created_ns=int(at_s * 1e9), record_id=int(at_s)) | more


def test_a_group_that_was_destroyed_and_made_anew_is_not_its_namesake(tmp_path: Path) -> None:
    """900 calls before, 3 since: rank 3 has not entered the third, though it has called 900 under that name."""
    before = [lived(seq, 0, seq) for seq in (899, 900)]
    for rank in range(4):
        life = 1 + rank % 2  # processes count their groups each for itself
        now = [lived(seq, life, 1000 + seq) for seq in (1, 2)]
        waiting = [] if rank == 3 else [lived(3, life, 1003, "scheduled")]
        dump(tmp_path, rank, [*before, *now, *waiting])
    document = hang_document(tmp_path)
    assert [3] == document["hang"]["missing_ranks"]
    (collective,) = document["hang"]["collectives"]
    assert ("0", 3, [0, 1, 2]) == (collective["group"], collective["seq"], collective["waiting_ranks"])


def test_what_was_left_pending_in_a_group_that_is_no_more_holds_up_nobody(tmp_path: Path) -> None:
    """An elastic restart within the process: the call that failed is pending in the recorder for ever."""
    for rank in range(4):
        left = lived(900, 0, 900, "scheduled") if rank else lived(900, 0, 900)
        waiting = [] if rank == 2 else [lived(2, 1, 1002, "scheduled")]
        dump(tmp_path, rank, [left, lived(1, 1, 1001), *waiting])
    document = hang_document(tmp_path)
    assert [2] == document["hang"]["missing_ranks"]
    assert [2] == [collective["seq"] for collective in document["hang"]["collectives"]]


def test_a_rank_that_is_still_in_the_former_group_is_where_it_hangs(tmp_path: Path) -> None:
    """The others have completed its call, destroyed the group and made it anew: they wait for it there."""
    for rank in range(4):
        former = lived(900, 0, 900, "scheduled" if rank == 1 else "completed")
        anew = [] if rank == 1 else [lived(1, 1, 1000, "scheduled")]
        dump(tmp_path, rank, [lived(899, 0, 899), former, *anew])
    document = hang_document(tmp_path)
    assert [1] == document["hang"]["missing_ranks"]
    assert "900" in document["hang"]["because"]


def test_a_dump_that_tells_nothing_of_the_group_is_not_said_to_be_missing(tmp_path: Path) -> None:
    """Rank 3's dump is there: it holds no call of the group and no counters, and more dumps would not help."""
    for rank in range(4):
        calls = [] if rank == 3 else [entry(7, "1", state="completed"), entry(8, "1")]
        dump(tmp_path, rank, [entry(5, state="completed"), *calls], WORLD | {"1": [0, 1, 2, 3]})
    because = hang_document(tmp_path)["hang"]["because"]
    assert "the dump of rank 3 holds no call of that group, nor a counter (pg_status) that tells" in because
    assert "usable dump" not in because
    assert "collect" not in because
    (tmp_path / "rank03.json").unlink()
    assert "of rank 3 there is no usable dump" in hang_document(tmp_path)["hang"]["because"]


def test_a_rank_whose_device_stopped_is_said_to_be_missing_where_the_others_are(tmp_path: Path) -> None:
    """Rank 2 may wait for rank 3, of which there is no dump; others have completed what its device has not."""
    groups = {"0": [0, 1, 2, 4, 5], "1": [2, 3, 4]}
    for rank in (0, 1, 4, 5):
        more = [entry(21, "1", state="completed", record_id=1)] if rank == 4 else []
        calls = [] if rank == 5 else [entry(8, record_id=9)]
        dump(tmp_path, rank, [*more, entry(7, state="completed", record_id=3), *calls], groups)
    pending = [entry(20, "1", record_id=4), entry(21, "1", record_id=5)]
    stopped = [entry(7, state="completed", record_id=3), *pending]
    dump(tmp_path, 2, stopped, groups)
    found = hang_document(tmp_path)["hang"]
    assert [2, 5] == found["missing_ranks"]
    assert "ranks 2, 5 have not entered nccl:all_reduce of group 0" in found["because"]


def test_what_a_dump_calls_its_collective_stays_on_its_line(tmp_path: Path) -> None:
    """A name with the end of a line in it would print a line of the dump's own."""
    for rank in range(4):
        waiting = [] if rank == 3 else [entry(8, name="nccl:all_reduce\nrank 0 is missing\x1b[2J")]
        path = dump(tmp_path, rank, [entry(7, state="completed"), *waiting])
        path.write_text(path.read_text().replace("group_0", "data\\nrank 1 is missing"))
    lines = hang_summary(hang_document(tmp_path)).split("\n")
    assert not [line for line in lines if line.startswith(("rank 0", "rank 1"))]
    assert all(line.isprintable() for line in lines)
    assert "rank 3 has not entered nccl:all_reduce rank 0 is missing" in lines[1]
