"""Times that cannot be: of operation tables, flight-recorder dumps and step logs, as of profiler traces."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from test_import_flight_recorder import stuck
from test_import_ops import COLUMNS, Row, pipeline
from test_import_steplog import titan

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import STEP_COLUMNS
from tuiadvisor.importers.hangreport import hang_document
from tuiadvisor.importers.opsreport import ops_document
from tuiadvisor.importers.steplog import steplog_document, steplog_run
from tuiadvisor.metrics.series.plausible import in_order, together

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY_S = 86_400
YEARS_S = 73 * 365.25 * DAY_S
NOW_NS = 1_700_000_000 * 10**9


def table(path: Path, change: Callable[[Row], None]) -> dict[str, Any]:
    """The document of a pipeline's table in which rank 2 is slow, some rows changed."""
    rows = pipeline(range(6))
    for row in rows:
        change(row)
    with path.open("w") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return ops_document(path)


@pytest.mark.parametrize(
    ("column", "by_s"), [("start_s", -YEARS_S), ("start_s", YEARS_S), ("dur_s", YEARS_S)]
)
def test_a_step_whose_operations_lie_years_apart_is_no_step(tmp_path: Path, column: str, by_s: float) -> None:
    """One operation of rank 1 made the mean step twelve years, and rank 1 the straggler in place of rank 2."""

    def wrong(row: Row) -> None:
        if (row["step"], row["rank"], row["optype"]) == (2, 1, "optimizer"):
            row[column] = float(str(row[column])) + by_s

    document = table(tmp_path / "ops.csv", wrong)
    assert (14.5, 5) == (pytest.approx(document["step"]["mean_s"]), document["window"]["steps"])
    assert [2] == [row["rank"] for row in document["stragglers"]["ranks"]]
    assert ["steps whose operations span up to 73 years, left out, for their times are wrong: 2"] == document[
        "losses"
    ]


def test_a_table_in_another_unit_than_it_says_is_refused(tmp_path: Path) -> None:
    """Microseconds taken for seconds: steps of half a year."""

    def in_us(row: Row) -> None:
        for column in ("start_s", "dur_s"):
            row[column] = 1e6 * float(str(row[column]))

    with pytest.raises(
        TuiadvisorError, match=r"every step span more than a step can take \(167\.8 days in one\)"
    ):
        table(tmp_path / "ops.csv", in_us)


def dumps(folder: Path, by_s: dict[int, float], only: slice = slice(None)) -> dict[str, Any]:
    """The document of a hang in which rank 3 is missing, some ranks' times moved."""
    for path in stuck(folder).iterdir():
        content = json.loads(path.read_text())
        for one in content["entries"]:
            one["time_created_ns"] += NOW_NS
        for one in content["entries"][only]:
            one["time_created_ns"] += int(by_s.get(int(path.stem[4:]), 0) * 1e9)
        path.write_text(json.dumps(content))
    return hang_document(folder)


@pytest.mark.parametrize("by_s", [-50 * 365.25 * DAY_S, YEARS_S])
@pytest.mark.parametrize("only", [slice(0, 1), slice(-1, None)])
def test_a_call_years_from_the_others_has_no_time(tmp_path: Path, by_s: float, only: slice) -> None:
    """The hang was said to last since 1973, or the dump to be of another one; its sequence numbers are as good."""
    document = dumps(tmp_path, {0: by_s}, only)
    assert ([3], []) == (document["hang"]["missing_ranks"], document["run"]["missing_ranks"])
    assert [NOW_NS + 8 * 10**9] == [one["since_wall_ns"] for one in document["hang"]["collectives"]]
    says = "times of 1 of 2 calls in the dump of rank 0 are not used: they lie more than half a day from the others"
    assert [says] == document["losses"]


def test_calls_without_a_time_do_not_outvote_those_with_one(tmp_path: Path) -> None:
    """0 is written where none was recorded: most calls had it, so the only known times were those left out."""
    for path in stuck(tmp_path).iterdir():
        content = json.loads(path.read_text())
        content["entries"] = [
            {**content["entries"][0], "record_id": -n, "collective_seq_id": 7 - n} for n in range(7)
        ] + (content["entries"][1:])
        for one in content["entries"]:
            one["time_created_ns"] = NOW_NS if one["state"] == "scheduled" else 0
        path.write_text(json.dumps(content))
    document = hang_document(tmp_path)
    assert [NOW_NS] == [one["since_wall_ns"] for one in document["hang"]["collectives"]]
    assert ([3], []) == (document["hang"]["missing_ranks"], document["losses"])


@pytest.mark.parametrize(("of_others", "used"), [((3,), 4), ((3, 4), 3)])
def test_dumps_of_most_ranks_are_the_hang(tmp_path: Path, of_others: tuple[int, ...], used: int) -> None:
    """Of five dumps two are of yesterday's job: the other three were refused with them."""
    folder = tmp_path / "dumps"
    folder.mkdir()
    stuck(folder, late=9)
    content = json.loads((folder / "rank00.json").read_text())
    for rank in range(5):
        content["pg_config"]["0"]["ranks"] = "[0, 1, 2, 3, 4]"
        at_ns = NOW_NS - (DAY_S * 10**9 if rank in of_others else 0)
        for one in content["entries"]:
            one["time_created_ns"] = at_ns
        (folder / f"rank{rank:02d}.json").write_text(json.dumps(content))
    assert list(of_others) == hang_document(folder)["run"]["missing_ranks"]
    assert used == hang_document(folder)["source"]["files"]


MEGATRON = " iteration {number}/ 100 | elapsed time per iteration (ms): {ms:.1f} | global batch size: 8 |"


def mlperf(steps: list[float]) -> list[str]:
    fields = {"namespace": "", "event_type": "POINT_IN_TIME", "time_ms": NOW_NS // 10**6}
    lines = [{**fields, "key": "global_batch_size", "value": 16, "metadata": {}}]
    for number, seconds in enumerate(steps):
        value, metadata = {"train_step_time": seconds}, {"step": number}
        lines.append({**fields, "key": "tracked_stats", "value": value, "metadata": metadata})
    return [f":::MLLOG {json.dumps(one)}" for one in lines]


LOGS: dict[str, Callable[[list[float]], list[str]]] = {
    "steps.csv": lambda steps: ["step,step_time_s", *(f"{n},{one}" for n, one in enumerate(steps))],
    "megatron.log": lambda steps: [
        MEGATRON.format(number=n + 1, ms=1e3 * one) for n, one in enumerate(steps)
    ],
    "result_0.txt": mlperf,
}


@pytest.mark.parametrize("name", LOGS)
def test_a_step_of_years_is_left_out_of_a_log_and_said(tmp_path: Path, name: str) -> None:
    """A table's was the longest step, and lost 73 years; printed ones went without a word."""
    steps = [1 + 0.01 * (number % 3) for number in range(30)]
    steps[9] = 3 * 365.25 * DAY_S
    path = tmp_path / name
    path.write_text("\n".join(LOGS[name](steps)) + "\n")
    document = steplog_document(path)
    assert (29, 1.02) == (document["window"]["steps"], pytest.approx(document["step"]["max_s"]))
    assert "1 step left out, of lengths that no step has (3 years): times are wrong" in document["losses"]


def changed_titan(
    folder: Path, name: str, set_us: Callable[[int], int], ranks: tuple[int, ...] = (1,)
) -> None:
    """Logs of torchtitan's, four ranks, in which some ranks' records of this name in step 5 have another time."""
    for path in titan(folder).iterdir():
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for one in records:
            if one["rank"] in ranks and (not name or (one.get("step") == 5 and one["log_type_name"] == name)):
                one["time_us"] = set_us(one["time_us"])
        path.write_text("\n".join(map(json.dumps, records)) + "\n")


@pytest.mark.parametrize("name", ["step_start", "step_end", "optim_end"])
@pytest.mark.parametrize("by_s", [-50 * 365.25 * DAY_S, 365.25 * DAY_S])
def test_a_rank_loses_the_step_whose_times_are_wrong(tmp_path: Path, name: str, by_s: float) -> None:
    """A step that ended a year late hid all that followed, and an optimizer of a year was one."""
    changed_titan(tmp_path / "logs", name, lambda at_us: at_us + int(by_s * 1e6))
    document, run = steplog_run(tmp_path / "logs")
    (mine,) = [rank for rank in run.ranks if rank.rank == 1]
    assert {number for number in range(1, 31) if number != 5} <= {row[0] for row in mine.steps}
    begin, end, optimizer = (STEP_COLUMNS.index(f"{column}_ns") for column in ("begin", "end", "optimizer"))
    assert 1e9 > max(row[end] - row[begin] for row in mine.steps)
    assert 1e9 > max(row[optimizer] for row in mine.steps)
    is_told = any("rank 1: 1 step left out, of lengths that no step has" in one for one in document["losses"])
    assert is_told == (len(mine.steps) == 29)
    assert is_told or (name, by_s < 0) == ("optim_end", True)  # of no length, as one that began late


def test_records_without_a_usable_time_are_counted(tmp_path: Path) -> None:
    """Before the epoch: the step around it has no end, and is told to be missing."""
    changed_titan(tmp_path / "logs", "step_end", lambda _: -5)
    assert "left out, records without a usable time: 1" in steplog_document(tmp_path / "logs")["losses"]


@pytest.mark.parametrize(("by_s", "is_one_job"), [(DAY_S, False), (3600, True)])
def test_logs_of_ranks_a_day_apart_are_of_two_jobs(tmp_path: Path, by_s: int, *, is_one_job: bool) -> None:
    """They were put into one run; clocks an hour apart are no reason."""
    changed_titan(tmp_path / "logs", "", lambda at_us: at_us + by_s * 10**6, ranks=(2, 3))
    if is_one_job:
        assert 4 == steplog_document(tmp_path / "logs")["run"]["num_ranks"]
        return
    with pytest.raises(TuiadvisorError, match=r"logs of different times, 1\.0 days from rank 0 to rank 3"):
        steplog_document(tmp_path / "logs")


@pytest.mark.parametrize("which", [slice(9, 10), slice(0, 1), slice(29, None), slice(0, 3)])
@pytest.mark.parametrize("by_s", [-50 * 365.25 * DAY_S, YEARS_S])
def test_a_clock_that_jumps_moves_no_other_step(tmp_path: Path, which: slice, by_s: float) -> None:
    """One row stamped years ahead put all rows behind it there; the first ones stand before those that fit."""
    wall_ms = NOW_NS // 10**6 + 1000 * np.arange(1, 31)
    wall_ms[which] += int(by_s * 1000)
    path = tmp_path / "steps.csv"
    path.write_text(
        "step,step_time_s,wall_ms\n" + "".join(f"{number},1.0,{at}\n" for number, at in enumerate(wall_ms))
    )
    _, run = steplog_run(path)
    at = STEP_COLUMNS.index("begin_ns")
    assert [NOW_NS + number * 10**9 for number in range(30)] == [row[at] for row in run.ranks[0].steps]


def test_the_larger_part_lies_together_and_of_equal_ones_none() -> None:
    assert [True, True, False] == together(np.array([5, 7, 90]), 10).tolist()
    assert [False, False] == together(np.array([5, 90]), 10).tolist()
    assert [] == together(np.array([], dtype=np.int64)).tolist()


@pytest.mark.slow
@given(some.lists(some.integers(-20, 20), max_size=9))
def test_what_is_in_order_is_as_much_as_can_be(times: list[int]) -> None:
    """Held against every choice that there is."""
    mask = in_order(np.array(times, dtype=np.int64))
    kept = [time for time, is_kept in zip(times, mask.tolist(), strict=True) if is_kept]
    assert sorted(kept) == kept
    choices = [[time for at, time in enumerate(times) if bits >> at & 1] for bits in range(1 << len(times))]
    assert max(len(one) for one in choices if sorted(one) == one) == len(kept)
