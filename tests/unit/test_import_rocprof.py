"""rocprofv3's CSV and rocpd: figures, ranks and recordings as of PyTorch's profiler; hostile files get one line.

Columns as in the documentation of rocprofiler-sdk (source/docs/data/*.csv), tables as in its rocpd_tables.sql.
"""

from __future__ import annotations

import csv
import gzip
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from fuzzing import chances, damaged
from test_import_recording import imported

from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.rocprofreport import rocprof_document, rocprof_summary

if TYPE_CHECKING:
    from pathlib import Path

COUNTERS = ["LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count"]
SHAPE = [f"{of}_Size_{axis}" for of in ("Workgroup", "Grid") for axis in "XYZ"]
TIMES = ["Correlation_Id", "Start_Timestamp", "End_Timestamp"]
PLACE = ["Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name"]
KERNEL = [*PLACE, *TIMES, *COUNTERS, *SHAPE]
COPY = ["Kind", "Direction", "Stream_Id", "Source_Agent_Id", "Destination_Agent_Id", *TIMES]
CALL = ["Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp"]
GEMM = "Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1_SN"
GENERIC = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"
BASE = 2_414_192_684_609_085
US = 1000
STEP_NS = 10_000 * US
RUN = "_00000450_565d_765d_bc41_19a2073d19ee"

Rows = dict[str, list[tuple[Any, ...]]]


def rows(rank: int, num_steps: int, late: bool, step: str = "step {}") -> Rows:
    """Steps of 10 ms: a copy of 0.4 ms, 12 matrix products of 0.5 ms, an all-reduce from 5 (late: 8.95) to 9 ms.

    HIP calls and RCCL's say which kernel is which collective; a broadcast of another group is over at once.
    """
    found: Rows = {"kernel": [], "memory_copy": [], "hip_api": [], "rccl_api": [], "marker_api": []}
    pid, agent, number = 700 + rank, f"Agent {2 + rank}", 0
    begin = 8950 if late else 5000

    def launch(name: str, span: tuple[int, int], queue: int, call: tuple[int, str] | None = None) -> None:
        nonlocal number
        number += 1
        at, stop = span
        hip = at - 300 * US if call is None else call[0] + 5 * US
        found["hip_api"].append(("HIP_RUNTIME_API", "hipLaunchKernel", pid, pid, number, hip, hip + 4 * US))
        if call is not None:
            found["rccl_api"].append(
                ("RCCL_API", "ncclGroupStart", pid, pid, 0, call[0] - 9 * US, call[0] - 8 * US)
            )
            found["rccl_api"].append(("RCCL_API", call[1], pid, pid, 0, call[0] - 7 * US, call[0] - 6 * US))
            found["rccl_api"].append(("RCCL_API", "ncclGroupEnd", pid, pid, 0, call[0], call[0] + 20 * US))
        shape = (0, 0, 8, 0, 16, 256, 1, 1, 1024, 1, 1)
        found["kernel"].append(
            ("KERNEL_DISPATCH", agent, queue, queue, pid, number, 11, name, number, at, stop, *shape)
        )

    for index in range(num_steps):
        at = BASE + STEP_NS * index + 17 * rank
        found["marker_api"].append(
            ("MARKER_CORE_RANGE_API", step.format(index), pid, pid, 1, at, at + STEP_NS)
        )
        number += 1
        found["memory_copy"].append(
            (
                "MEMORY_COPY",
                "MEMORY_COPY_HOST_TO_DEVICE",
                1,
                "Agent 0",
                agent,
                number,
                at + 600 * US,
                at + 1000 * US,
            )
        )
        for each in range(12):
            launch(GEMM, (at + (1100 + 500 * each) * US, at + (1600 + 500 * each) * US), 1)
        launch(GENERIC, (at + begin * US, at + 9000 * US), 2, (at + 900 * US, "ncclAllReduce"))
        launch(GENERIC, (at + 9100 * US, at + 9110 * US), 3, (at + 950 * US, "ncclBroadcast"))
    return found


def write(path: Path, names: list[str], lines: list[tuple[Any, ...]], *, packed: bool = False) -> None:
    """As rocprofv3 writes: text in quotes, numbers without."""
    opener = gzip.open if packed else open
    with opener(path, "wt", newline="") as file:  # type: ignore[operator]
        table = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        table.writerow(names)
        table.writerows(lines)


def traces(
    folder: Path, num_ranks: int = 3, num_steps: int = 30, *, late: int | None = 1, prefix: str = "rank{}"
) -> Path:
    """One process a rank, each its files."""
    folder.mkdir(exist_ok=True)
    for rank in range(num_ranks):
        held = rows(rank, num_steps, rank == late)
        for what, lines in held.items():
            names = {"kernel": KERNEL, "memory_copy": COPY}.get(what, CALL)
            write(folder / f"{prefix.format(rank)}_{what}_trace.csv", names, lines)
        write(folder / f"{prefix.format(rank)}_agent_info.csv", ["Node_Id", "Agent_Type"], [(0, "CPU")])
    return folder


def database(
    path: Path, rank: int = 0, num_steps: int = 30, *, tracks: bool = False, late: bool = False
) -> Path:
    """The same as rocpd: times in each row, or in tables of tracks and timestamps."""
    held = rows(rank, num_steps, late)
    place = "track_id, start_id, end_id" if tracks else "pid, tid, agent_id, queue_id, stream_id, start, end"
    with closing(sqlite3.connect(path)) as base, base:
        for table, columns in (
            ("string", "string"),
            ("info_process", "pid"),
            ("info_kernel_symbol", "display_name"),
            ("event", "category_id, stack_id, extdata"),
            ("track", "pid, tid, agent_id, queue_id, stream_id"),
            ("timestamp", "value"),
            ("region", f"name_id, event_id, {place}"),
            ("kernel_dispatch", f"kernel_id, event_id, {place}"),
            ("memory_copy", f"name_id, event_id, dst_agent_id, src_agent_id, {place}"),
        ):
            base.execute(f"CREATE TABLE rocpd_{table}{RUN} (id INTEGER PRIMARY KEY, {columns})")
        base.execute("CREATE VIEW kernels AS SELECT 1")
        ids: dict[tuple[Any, ...], int] = {}

        def key(table: str, *values: Any) -> int:
            if (table, *values) not in ids:
                marks = ",".join("?" * len(values))
                cursor = base.execute(f"INSERT INTO rocpd_{table}{RUN} VALUES (NULL,{marks})", values)  # noqa: S608 - names of this file
                ids[table, *values] = int(cursor.lastrowid or 0)
            return ids[table, *values]

        def placed(span: tuple[int, int], *where: Any) -> tuple[Any, ...]:
            if not tracks:
                return (*where, *span)
            return (key("track", *where), key("timestamp", span[0]), key("timestamp", span[1]))

        def row(table: str, *values: Any) -> None:
            marks = ",".join("?" * len(values))
            base.execute(f"INSERT INTO rocpd_{table}{RUN} VALUES (NULL,{marks})", values)  # noqa: S608 - as above

        pid = key("info_process", 4711)
        for what in ("hip_api", "rccl_api", "marker_api"):
            for domain, function, _, thread, number, begin, end in held[what]:
                is_range = what == "marker_api"
                said = f'{{"message": "{function}"}}' if is_range else "{}"
                name = key("string", "roctxThreadRangeA" if is_range else function)
                event = key("event", key("string", domain), number, said)
                row("region", name, event, *placed((begin, end), pid, thread, None, None, None))
        for _, agent, queue, stream, thread, _, _, name, number, begin, end, *_ in held["kernel"]:
            event = key("event", key("string", "KERNEL_DISPATCH"), number, "{}")
            where = placed((begin, end), pid, thread, int(agent[6:]), queue, stream)
            row("kernel_dispatch", key("info_kernel_symbol", name), event, *where)
        for _, direction, stream, of, to, number, begin, end in held["memory_copy"]:
            event = key("event", key("string", "MEMORY_COPY"), number, "{}")
            agents = int(to[6:]), int(of[6:])
            where = placed((begin, end), pid, 1, None, None, stream)
            row("memory_copy", key("string", direction), event, *agents, *where)
    return path


def figures(document: dict[str, Any]) -> list[tuple[float, ...]]:
    """Of each rank: what it computes, moves and exchanges, in seconds."""
    names = ("compute_s", "memory_s", "comm_s", "exposed_comm_s", "window_s")
    return [tuple(round(row["all"][name], 9) for name in names) for row in document["per_rank"]]


def test_the_figures_of_one_process(tmp_path: Path) -> None:
    """Its rank stands in its files' name; overlap is as laid out, copies are none of the computation."""
    document = rocprof_document(traces(tmp_path / "one", 1, late=None))
    (row,) = document["per_rank"]
    assert ("rocprof", 0, 30) == (document["source"]["kind"], row["rank"], len(row["steps"]))
    exchange = 4e-3 + 10e-6
    exposed = 4e-3 - (7.1 - 5) * 1e-3 + 10e-6
    assert [
        pytest.approx((30 * 6e-3, 30 * 0.4e-3, 30 * exchange, 30 * exposed, row["all"]["window_s"]))
    ] == figures(document)
    assert {"matrix product", "communication", "copies"} >= {kind["kind"] for kind in row["kernels_by_kind"]}


def test_the_late_rank_is_named_by_its_collectives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whom others wait for in the all-reduce; the call that launched a Generic kernel tells that it is one."""
    document, view = imported(traces(tmp_path / "job"), capsys, "rocprof")
    assert [1] == [row["rank"] for row in document["stragglers"]["ranks"]]
    assert 30 == document["stragglers"]["collectives"]
    assert [1] == [one.rank for one in view.stragglers]
    assert view.imported is not None
    assert "rocprofv3" in view.imported.words


def test_generic_kernels_without_the_calls_are_of_no_known_collective(tmp_path: Path) -> None:
    """They may be broadcasts, which nobody waits in: so they tell nobody late, and stay communication."""
    folder = traces(tmp_path / "job")
    whole = figures(rocprof_document(folder))
    for path in folder.glob("*_rccl_api_trace.csv"):
        path.unlink()
    document = rocprof_document(folder)
    assert whole == figures(document)
    assert [] == document["stragglers"]["ranks"]
    assert not document["stragglers"]["collectives"]


@pytest.mark.parametrize("tracks", [False, True], ids=["times in rows", "tracks"])
def test_rocpd_says_what_the_tables_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tracks: bool
) -> None:
    """Of each layout; recognised, and of several the late rank is named."""
    folder = traces(tmp_path / "csv")
    base = tmp_path / "db"
    base.mkdir()
    for rank in range(3):
        database(base / f"rank{rank}_results.db", rank, tracks=tracks, late=rank == 1)
    by_table, by_base = rocprof_document(folder), rocprof_document(base)
    assert figures(by_table) == figures(by_base)
    for name in ("stragglers", "says"):
        assert by_table[name] == by_base[name]
    assert 0 == main(["open", str(base / "rank1_results.db")])
    said = capsys.readouterr()
    assert "rocprofv3's traces; as: tuiadvisor import rocprof" in said.err


@pytest.mark.slow
def test_each_file_opens_and_a_folder_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any of a process's files stands for all of it."""
    folder = traces(tmp_path / "job")
    said = []
    for name in ("rank2_kernel_trace.csv", "rank2_hip_api_trace.csv", "rank2_marker_api_trace.csv"):
        assert 0 == main(["open", str(folder / name)])
        out = capsys.readouterr().out.partition("\n")[2]
        said.append(out.replace(name, ""))
    assert 1 == len(set(said))
    assert 0 == main(["open", str(folder)])
    assert "rank 1 " in capsys.readouterr().out.splitlines()[1]
    assert 0 == main(["diagnose", str(folder)])


def test_folders_by_rank_host_and_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As -d out/rank%env{RANK}% lays them: one job, each of the rank that its folder is named after."""
    folder = traces(tmp_path / "job")
    plain = rocprof_document(folder)
    for path in list(folder.iterdir()):
        rank, _, rest = path.name.partition("_")
        below = folder / rank / "node7"
        below.mkdir(parents=True, exist_ok=True)
        path.rename(below / f"77{rank[-1]}_{rest}")
    document = rocprof_document(folder)
    assert figures(plain) == figures(document)
    assert plain["stragglers"] == document["stragglers"]
    assert 0 == main(["open", str(folder)])
    assert f"tuiadvisor import rocprof {folder}" in capsys.readouterr().err


def test_processes_without_a_rank_are_not_compared(tmp_path: Path) -> None:
    """Their ids are none; the line says how their ranks come into the names."""
    document = rocprof_document(traces(tmp_path / "job", prefix="77{}"))
    assert [None] * 3 == [row["rank"] for row in document["per_rank"]]
    assert [] == document["stragglers"]["ranks"]
    assert "-o rank%env{RANK}%" in rocprof_summary(document)


def test_older_tables_and_what_is_not_in_them(tmp_path: Path) -> None:
    """Kernels alone, without streams or threads, agents as numbers: as rocprofv3 wrote first; and packed."""
    held = rows(0, 5, late=False)["kernel"]
    names = [
        "Kind",
        "Agent_Id",
        "Queue_Id",
        "Kernel_Id",
        "Kernel_Name",
        "Correlation_Id",
        "Start_Timestamp",
        "End_Timestamp",
    ]
    lines = [
        ("KERNEL_DISPATCH", 1, 139690710949888 + row[2], 15, row[7], row[8], row[9], row[10]) for row in held
    ]
    write(tmp_path / "kernel_trace.csv.gz", names, lines, packed=True)
    document = rocprof_document(tmp_path / "kernel_trace.csv.gz")
    (row,) = document["per_rank"]
    assert pytest.approx(5 * 6e-3) == row["all"]["compute_s"]
    assert [] == row["steps"]
    assert 3 == len(row["idle_by_stream"])
    assert None is row["rank"]


def test_kernels_that_copy_and_fill_are_memory(tmp_path: Path) -> None:
    """The runtime's own."""
    at = BASE
    lines = [
        (
            "KERNEL_DISPATCH",
            "Agent 4",
            1,
            0,
            7,
            1,
            3,
            name,
            1,
            at + 10 * n,
            at + 10 * n + 5,
            0,
            0,
            4,
            0,
            32,
            256,
            1,
            1,
            9,
            1,
            1,
        )
        for n, name in enumerate(["__amd_rocclr_copyBuffer", "__amd_rocclr_fillBufferAligned", GEMM])
    ]
    write(tmp_path / "a_kernel_trace.csv", KERNEL, lines)
    (row,) = rocprof_document(tmp_path)["per_rank"]
    assert (pytest.approx(5e-9), pytest.approx(10e-9)) == (row["all"]["compute_s"], row["all"]["memory_s"])


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("no kernels", "no kernel_trace.csv of the same process"),
        ("two runs", "several processes"),
        ("two guids", "several processes"),
        ("unknown layout", "a layout of rocpd that is not known here"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, says: str
) -> None:
    """What it is, and what to do."""
    path = tmp_path / "9_hip_api_trace.csv"
    if what == "no kernels":
        write(path, CALL, [("HIP_RUNTIME_API", "hipFree", 1, 1, 1, BASE, BASE + 1)])
    elif what == "two guids":
        path = tmp_path / "out_kernel_trace.csv"
        held = rows(0, 1, late=False)["kernel"]
        write(path, ["Guid", *KERNEL], [(f"g{n % 2}", *row) for n, row in enumerate(held)])
    else:
        path = database(tmp_path / "a.db", num_steps=1)
        with closing(sqlite3.connect(path)) as base, base:
            if what == "two runs":
                base.execute(f"CREATE TABLE rocpd_string{RUN.replace('450', '451')} (id INTEGER)")
            else:
                base.execute(f"ALTER TABLE rocpd_kernel_dispatch{RUN} RENAME COLUMN start TO began")
    assert 2 == main(["open", str(path)])
    err = capsys.readouterr().err.splitlines()[-1]
    assert re.search(says, err)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a_results.json", b'{"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": []}}]}'),
        ("a_results.pftrace", b"\n\x10\x08\x01\x12\x0ctrack"),
    ],
)
def test_its_other_formats_say_which_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    """One line, whatever was asked of them."""
    (tmp_path / name).write_bytes(content)
    for command in ("open", "diagnose"):
        assert 2 == main([command, str(tmp_path / name)])
        err = capsys.readouterr().err
        assert "rocprofv3 --output-format csv" in err
        assert 1 == err.count("\n")


@pytest.mark.parametrize("kind", ["csv", "db"])
def test_damaged_files_get_one_line(tmp_path: Path, kind: str) -> None:
    """Or are read as far as they go."""
    good = (
        (traces(tmp_path / "good", 1, 3) / "rank0_kernel_trace.csv")
        if kind == "csv"
        else database(tmp_path / "good.db", num_steps=3)
    ).read_bytes()
    path = tmp_path / ("rank0_kernel_trace.csv" if kind == "csv" else "hurt.db")
    for chance in chances(60):
        path.write_bytes(damaged(good, chance))
        try:
            rocprof_summary(rocprof_document(path))
        except TuiadvisorError as error:
            said = str(error)
        else:
            said = ""
        assert "\n" not in said
