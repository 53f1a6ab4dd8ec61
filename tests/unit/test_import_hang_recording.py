"""Flight-recorder dumps as a recording: the screens say of the hang what the import says, and no more."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import pytest
from shared_data import SHARED, needs_data
from test_import_flight_recorder import PAIRS, WORLD, dump, entry, stuck

from tuiadvisor.app.whole_recording import whole_view
from tuiadvisor.cli import main
from tuiadvisor.importers.flight_recorder import DumpFolder, read_flight_recorder
from tuiadvisor.importers.hangreport import hang_document
from tuiadvisor.importers.hangrun import recorder_entries
from tuiadvisor.metrics.hang.asked_recorder import asked
from tuiadvisor.metrics.hang.collective_evidence import dumped_evidence
from tuiadvisor.metrics.hang.missing_ranks import Hang, diagnose
from tuiadvisor.tui.contract.feed import FeedState, ReplayState
from tuiadvisor.tui.control.alerts import Alerts
from tuiadvisor.tui.pages.details import rank_lines
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.tui.pages.overlap import OverlapPage

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.views.run_view import RunView

INJECTED = ["gpu_error_2nd", "lock_gil_1st"]  # ranks 9 and 14 in both


def recorded(source: Path, folder: Path) -> RunView:
    """What its recording shows."""
    path = folder / "hang.tuirec"
    assert main(["import", "flight-recorder", str(source), "-o", str(path)]) == 0
    return whole_view(str(path))


def facts(found: Hang) -> dict[str, Any]:
    """All that is concluded."""
    return {
        "missing": found.missing,
        "because": found.because,
        "mismatch": found.mismatch,
        "waits": [
            (
                one.group,
                one.operation.seq,
                one.operation.name,
                one.waiting,
                one.missing,
                one.unrecorded,
                one.origin,
            )
            for one in found.waits
        ],
        "stopped": [(one.rank, one.operation.seq, one.peer, one.peer_completed) for one in found.stopped],
    }


def carried(folder: DumpFolder) -> Hang:
    """What is concluded from the part of the dumps that a recording holds."""
    answers = tuple(asked(told, rank) for rank, told in sorted(recorder_entries(folder).items()))
    return dumped_evidence(answers, ()).hang


def test_the_recording_of_a_hang_says_who_has_not_entered_what(tmp_path: Path) -> None:
    """Three of four ranks wait in all-reduce 8: the verdict, the finding and the stall name rank 3."""
    view = recorded(stuck(tmp_path), tmp_path)
    assert view.verdict.decision == "hang"
    assert view.verdict.sentence == (
        "Stalled: ranks 0, 1 and 2 wait for rank 3, which has not entered all_reduce "
        "(collective 8 of group group_0, ranks 0, 1, 2 and 3)."
    )
    assert [("hang", "critical", (3,))] == [(one.id, one.severity, one.ranks) for one in view.findings]
    assert view.stall is not None
    assert ((0, 1, 2), (3,)) == (view.stall.waiting, view.stall.missing)
    (collective,) = view.stall.collectives
    assert ("nccl:all_reduce", 8, "8x4", (3,)) == (
        collective.operation,
        collective.seq,
        collective.size,
        collective.missing,
    )
    assert ["waits", "waits", "waits", "missing"] == [row.held for row in view.ranks]


def test_nothing_is_invented(tmp_path: Path) -> None:
    """Dumps hold no steps and no moment at which they were written: neither is said."""
    view = recorded(stuck(tmp_path), tmp_path)
    assert view.stall is not None
    assert (None, None, None) == (view.stall.for_s, view.stall.step, view.last_step)
    assert view.step.mean_s is None
    assert set(view.step.shares.values()) == {None}
    text = plain_summary(view)
    assert not re.search(r"\d s\b|host clock|yet", text), text
    # The job is over: nothing that is asked of its processes is advised.
    told = [one.command or one.text for one in view.findings[0].actions] + [*view.findings[0].measure_next]
    assert not [text for text in told if re.search(r"stacks|py-spy|kill", text)]


def test_the_screens_say_it(tmp_path: Path) -> None:
    """Banner, the collectives' table, and each rank's page."""
    view = recorded(stuck(tmp_path), tmp_path)
    state = FeedState(
        view, "replay", "ended", "", None, ReplayState(1.0, None, None, None, 1.0, paused=False, marks=()), 1
    )
    banner = "\n".join(row.text for row in Alerts(lambda: 0.0).rows(state, 120))
    assert "STALLED: ranks 0, 1 and 2 wait for rank 3" in banner
    page = "\n".join(row.text for row in OverlapPage().lines(state, 110, 40))
    assert "all_reduce 8x4 Float, collective 8 of group 0 (group_0)" in page
    assert "not entered by rank 3" in page
    waits = "\n".join(row.text for row in rank_lines(view, view.ranks[0], 100))
    assert "in all_reduce, collective 8 of group 0 (group_0)" in waits
    assert "in no call that its recorder holds" in "\n".join(
        row.text for row in rank_lines(view, view.ranks[3], 100)
    )


@needs_data
@pytest.mark.parametrize("case", INJECTED)
def test_the_screens_name_whom_the_import_names(case: str, tmp_path: Path) -> None:
    """Both public injections, whole and with the dump of rank 9 gone."""
    source = SHARED / "flight_recorder" / case
    view = recorded(source, tmp_path)
    assert view.stall is not None
    assert (9, 14) == view.stall.missing == tuple(hang_document(source)["hang"]["missing_ranks"])
    assert ("the device of rank 9 has not completed" in view.verdict.sentence) == (case == "gpu_error_2nd")
    part = tmp_path / "part"
    part.mkdir()
    for path in source.iterdir():
        if path.name != "rank09.json":
            (part / path.name).write_bytes(path.read_bytes())
    view = recorded(part, part)
    assert view.stall is not None
    assert (14,) == view.stall.missing
    assert "of rank 9 there is no usable dump" in view.verdict.sentence


@pytest.mark.slow
def test_what_a_recording_holds_of_dumps_leads_to_the_same_conclusion(tmp_path: Path) -> None:
    """150 simulated jobs: pairs and the world's group, calls of other names, counters, ranks without a dump."""
    kinds = set()
    for seed in range(150):
        folder = tmp_path / str(seed)
        folder.mkdir()
        simulated(folder, random.Random(seed))  # noqa: S311
        read = read_flight_recorder(folder)
        found = diagnose(read.dumps, read.groups)
        assert facts(found) == facts(carried(read)), seed
        kinds |= {
            "missing" if found.missing else "nobody",
            "stopped" if found.stopped else "",
            "different" if found.mismatch else "",
        }
    assert {"missing", "nobody", "stopped", "different"} < kinds


def simulated(folder: Path, chance: random.Random) -> None:
    """Four ranks; each in its groups up to a number, with the last calls pending, some of another name."""
    has_counters = chance.random() < 0.5
    for rank in range(4):
        if chance.random() < 0.1:
            continue
        entries, status, order = [], {}, 0
        for name, members in PAIRS.items():
            if rank not in members:
                continue
            entered = chance.randint(6, 9)
            done = chance.randint(4, 6)  # nobody leaves what another one has not entered
            for seq in range(max(entered - chance.randint(1, 9), 1), entered + 1):
                call = "nccl:broadcast" if chance.random() < 0.03 else "nccl:all_reduce"
                more = {"is_p2p": True, "p2p_seq_id": seq} if name != "0" and chance.random() < 0.15 else {}
                call = f"nccl:send {members.index(rank)}->{1 - members.index(rank)}" if more else call
                order += 1
                state = "completed" if seq <= done else "scheduled"
                entries.append(entry(seq, name, call, state, **{"record_id": order, **more}))
            if has_counters:
                status[name] = {"last_enqueued_collective": entered, "last_completed_collective": done}
        dump(folder, rank, entries, PAIRS, **({"pg_status": status} if has_counters else {}))
    if not list(folder.iterdir()):
        dump(folder, 0, [entry(3)], PAIRS)


def test_dumps_in_which_nothing_pends_are_no_hang(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and no file."""
    for rank in range(4):
        dump(tmp_path, rank, [entry(7, state="completed")])
    path = tmp_path / "hang.tuirec"
    assert main(["import", "flight-recorder", str(tmp_path), "-o", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no operation is pending on any recorded rank: no hang in these dumps, so no recording; " in said
    assert not path.exists()


def test_every_command_takes_a_hang(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the folder of dumps itself, as of any other trace."""
    source = tmp_path / "dumps"
    source.mkdir()
    stuck(source)
    for words in (
        ["replay", "--once", str(source)],
        ["diagnose", str(source)],
        ["advise", str(source)],
        ["compare", str(source), str(source)],
        ["import", "flight-recorder", "--json", "--verdict", str(source)],
    ):
        assert main(words) == 0, words
        out = capsys.readouterr().out
        is_comparison = words[0] == "compare"
        who = "do not end (rank 3)" if is_comparison else "rank 3, which has not entered all_reduce"
        assert who in " ".join(out.split()), out
    for words in (["report", str(source), "-o"], ["export", str(source), "--format", "parquet", "-o"]):
        assert main([*words, str(tmp_path / f"{words[0]}.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "rank 3, which has not entered all_reduce" in page
    assert "no steps yet" not in page


def test_an_anonymized_hang_is_the_same_hang_without_its_words(tmp_path: Path) -> None:
    """Who waits, in the how-manieth call, of what type and size stays; names of groups and calls of one's own go."""
    source = tmp_path / "dumps"
    source.mkdir()
    for rank in range(4):
        group = ["zebra", "zebra purpose"]
        calls = [entry(7, "0", "nccl:zebra_gather", state="completed", process_group=group)]
        calls += [] if rank == 3 else [entry(8, "0", process_group=group)]
        path = dump(source, rank, calls, {"zebra": WORLD["0"]})
        assert "zebra" in path.read_text()
    plain = recorded(source, tmp_path)
    other = tmp_path / "shared.tuirec"
    assert main(["anonymize", str(tmp_path / "hang.tuirec"), "-o", str(other)]) == 0
    view = whole_view(str(other))
    assert plain.stall is not None
    assert view.stall is not None
    assert (plain.stall.missing, plain.stall.waiting) == (view.stall.missing, view.stall.waiting)
    (told,) = view.stall.collectives
    assert ("nccl:all_reduce", 8, "8x4", "Float") == (told.operation, told.seq, told.size, told.dtype)
    assert "zebra" not in plain_summary(view)
    assert "zebra" in plain_summary(plain)


def test_a_session_on_a_trace_goes_on_with_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What hung does not move again; the recording to make is one of ours, here, whatever the trace is called."""
    source = tmp_path / "dumps.of.monday"
    source.mkdir()
    stuck(source)
    assert main(["advise", str(source)]) == 0
    said = capsys.readouterr().out
    assert "moves again" not in said
    assert "-o dumps-after.tuirec" in said
    log = tmp_path / "log.csv"
    log.write_text("step,step_time_s\n" + "".join(f"{step},1.0\n" for step in range(30)))
    assert main(["advise", str(log)]) == 0
    said = capsys.readouterr().out
    assert "runs on as it is" not in said
    assert "-o log-after.tuirec" in said
