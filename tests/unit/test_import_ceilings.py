"""nccl-tests and fio as the machine's ceilings: read whatever the version, refuse what is no ceiling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.fio import fio_document, fio_summary
from tuiadvisor.importers.nccl_tests import nccl_document, nccl_summary
from tuiadvisor.session.machine import FILE_NAME, Machine, read_machine

LATENCY = 20e-6
BUS = 200e9  # bytes a second
HEADER = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong"
OLD_HEADER = "#   bytes   N   type   op   time  algbw  busbw  res   time  algbw  busbw  res"


NAMED = "# Collective test starting: all_reduce_perf\n"


def printed(num_ranks: int = 16, num_hosts: int = 2, *, prefix: str = "", old: bool = False) -> str:
    """What the program prints for a link of LATENCY and BUS."""
    factor = 2 * (num_ranks - 1) / num_ranks
    lines = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20",
        "#",
    ]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid   6899 on node{rank * num_hosts // num_ranks} device  {rank % 8} [0000:04:00] X"
        for rank in range(num_ranks)
    ]
    lines += [
        "#",
        OLD_HEADER if old else HEADER,
        "#  (B)  (elements)  (us)  (GB/s)  (GB/s)",
    ]
    for exponent in range(3, 31):
        size = 1 << exponent
        time = LATENCY + factor * size / BUS
        alg = size / time / 1e9
        shown = f"{time * 1e3:.6f}" if old else f"{time * 1e6:.1f}"
        half = f"{shown} {alg:.2f} {alg * factor:.2f} 0"
        lines.append(f"{size} {size // 4} float sum {'' if old else '-1 '}{half} {half}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 70.742", "#"]
    return "".join(f"{prefix}{line}\n" for line in lines)


def nccl(folder: Path, text: str) -> dict[str, Any]:
    """The document of this text."""
    path = folder / "nccl.txt"
    path.write_text(text)
    return nccl_document(path)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (printed(), 16),
        (printed(prefix="[1,0]<stdout>:"), 16),
        (printed(8, 1, prefix="0: "), 8),
        (printed(old=True), 16),
        ("NCCL version 2.21\n" + printed(4, 1) + printed(), 16),
    ],
    ids=["plain", "mpirun", "srun", "old", "two runs"],
)
def test_a_table_of_any_version_gives_the_link(tmp_path: Path, text: str, ranks: int) -> None:
    """Ranks, hosts, latency and bandwidth; of two runs the last."""
    found = nccl(tmp_path, text)
    assert ranks == found["num_ranks"]
    assert 28 == len(found["rows"])
    assert LATENCY == pytest.approx(found["latency_s"], rel=0.02)
    assert BUS == pytest.approx(found["bus_bytes_s"], rel=0.02)
    assert f"{ranks} ranks on {found['num_hosts']} host" in nccl_summary(found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no table of nccl-tests in it"),
        (HEADER + "\n# Out of bounds values : 0 OK\n", "no table"),
        (printed().replace("values : 0 OK", "values : 3 FAILED"), "counted 3 wrong results"),
        (
            printed(2, 1).replace("#\n", "#  Rank 2 Group 0 Pid 1 on x device 1\n", 1),
            "no all-reduce over 3 ranks",
        ),
        (printed(1, 1), "ran on one rank"),
        (
            printed(1, 1).replace("#  Rank  0", "#  Rank  0 Pid 5 on b device 0\n#  Rank  0"),
            "ran on one rank",
        ),
    ],
    ids=["empty", "no rows", "wrong results", "another rank count", "one rank", "two of one rank each"],
)
def test_what_is_no_ceiling_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """One line that says what is wrong."""
    with pytest.raises(TuiadvisorError, match=says):
        nccl(tmp_path, text)


def test_another_collective_is_refused(tmp_path: Path) -> None:
    """all_gather's busbw is half as much: as an all-reduce it would promise twice the link."""
    rows = [line.split() for line in printed().splitlines()]
    halved = [
        " ".join([*cells[:7], f"{float(cells[7]) / 2:.2f}", *cells[8:]])
        if cells[0].isdigit()
        else " ".join(cells)
        for cells in rows
    ]
    with pytest.raises(TuiadvisorError, match="which is no all-reduce over 16 ranks"):
        nccl(tmp_path, "\n".join(halved))


def test_times_that_do_not_fit_the_bandwidths_are_refused(tmp_path: Path) -> None:
    """A column that was cut or shifted."""
    text = "\n".join(
        line.replace(" -1 ", " -1 9", 1) if line[:1].isdigit() else line for line in printed().splitlines()
    )
    with pytest.raises(TuiadvisorError, match="its times do not fit its bandwidths"):
        nccl(tmp_path, text)


@pytest.mark.slow
@given(some.text(max_size=300) | some.binary(max_size=300).map(lambda raw: raw.decode("latin1")))
def test_no_text_is_more_than_one_line_of_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Pieces of anything between a header and a row."""
    folder = tmp_path_factory.mktemp("any")
    for content in (text, f"{HEADER}\n{text}\n", printed(2, 1)[:700] + text):
        (folder / "nccl.txt").write_bytes(content.encode("utf-8", "surrogatepass"))
        try:
            rows = nccl_document(folder / "nccl.txt")["rows"]
        except TuiadvisorError:
            continue
        assert all(row["bytes"] > 0 and row["time_s"] > 0 for row in rows)


def fio_text(*jobs: dict[str, Any], options: dict[str, str] | None = None) -> str:
    """What fio --output-format=json leaves in a file, warnings before it included."""
    table = {
        "fio version": "fio-3.36",
        "global options": options or {"bs": "256k", "direct": "1"},
        "jobs": list(jobs),
    }
    return "fio: this platform does not support process shared mutexes\n" + json.dumps(table)


def job(read: float = 0, write: float = 0, **more: Any) -> dict[str, Any]:
    """One job; bytes a second."""
    return {
        "jobname": "read", "groupid": 0, "error": 0,
        "read": {"bw_bytes": read, "bw": read / 1024, "iops": read / 262144},
        "write": {"bw_bytes": write, "bw": write / 1024, "iops": write / 262144},
    } | more  # fmt: skip


def test_fio_sums_what_ran_together(tmp_path: Path) -> None:
    """Four jobs of one group are one ceiling; groups one after another are not."""
    path = tmp_path / "fio.json"
    path.write_text(fio_text(*[job(1e9)] * 4, job(2e9, groupid=1), job(write=5e8, groupid=2)))
    found = fio_document(path)
    assert (4e9, 5e8) == (found["read_bytes_s"], found["write_bytes_s"])
    assert ("256k", True) == (found["block"], found["is_direct"])
    assert "4,000 MB/s" in fio_summary(found)
    path.write_text(fio_text(job(1e9), options={"bs": "1M"}))
    assert "may be the memory's speed" in fio_summary(fio_document(path))
    path.write_text(fio_text({"read": {"bw": 1000, "iops": 10.0}}))
    assert 1_024_000 == fio_document(path)["read_bytes_s"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON of fio"),
        ("{", "not JSON"),
        ("{}", "no jobs of fio"),
        ('{"jobs": []}', "no jobs of fio"),
        ('{"jobs": [1]}', "no jobs of fio"),
        (fio_text(job()), "no job read or wrote"),
        (fio_text(job(1e9), job(error=5)), "1 of 2 jobs failed"),
        (fio_text(job(1e300)), "no job read or wrote"),
        ("[" * 100_000, "no JSON of fio"),
    ],
    ids=["empty", "cut", "nothing", "no jobs", "no job", "idle", "failed", "absurd", "deep"],
)
def test_what_is_no_fio_result_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """One line each."""
    path = tmp_path / "fio.json"
    path.write_text(text)
    with pytest.raises(TuiadvisorError, match=says):
        fio_document(path)


def test_a_ceiling_is_kept_for_the_project_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written without --save; the same kind, ranks and hosts replace, others stand beside."""
    monkeypatch.chdir(tmp_path)
    Path("nccl.txt").write_text(printed())
    Path("fio.json").write_text(fio_text(job(1e9)))
    assert 0 == main(["import", "nccl-tests", "nccl.txt", "--json"])
    assert "nccl-tests" == json.loads(capsys.readouterr().out)["kind"]
    assert Machine() == read_machine()
    for _ in range(2):
        assert 0 == main(["import", "nccl-tests", "nccl.txt", "--save"])
    Path("nccl.txt").write_text(printed(8, 1))
    assert 0 == main(["import", "nccl-tests", "nccl.txt", "--save"])
    assert 0 == main(["import", "fio", "fio.json", "--save"])
    machine = read_machine()
    assert [(16, 2), (8, 1)] == [(one.num_ranks, one.num_hosts) for one in machine.networks]
    assert machine.storage is not None
    assert 1e9 == machine.storage.read_bytes_s
    assert machine.networks[1] == machine.network_for(4, 1)
    assert machine.networks[0] == machine.network_for(64, 8)
    assert machine.network_for(None, None) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"ceilings": 1}', '{"ceilings": [1]}', '{"ceilings": [{"kind": "other"}]}',
        '{"ceilings": [{"kind": "nccl-tests"}]}', '{"ceilings": [{"kind": "nccl-tests", "rows": [{"bytes": -1}]}]}',
        "[" * 100_000, "\0",
    ],
)  # fmt: skip
def test_a_damaged_file_of_ceilings_is_one_line(tmp_path: Path, text: str) -> None:
    """With the way out."""
    path = tmp_path / FILE_NAME
    path.write_text(text)
    with pytest.raises(TuiadvisorError, match="import again"):
        read_machine(path)


@pytest.mark.parametrize(
    "prefix",
    [
        *("[1,0]<stdout>:", "0: ", "node-17.rack: ", "[pod/job-0/main] ", "[0] "),
        *(
            "job-0-abcde main ",
            "team job-0-abcde main ",
            "2026-05-01T12:00:00.123456789Z ",
            "2026-05-01 12:00:00,123 INFO ",
        ),
        *("May  1 12:00:00 node7 slurmstepd[4711]: ", "[pod/job-0/main] 2026-05-01T12:00:00Z "),
    ],
)
def test_prefixes_of_every_launcher_are_taken_off(tmp_path: Path, prefix: str) -> None:
    """mpirun, srun -l, pdsh, kubectl logs --prefix, a bare rank; stern, times of ISO, syslog."""
    assert nccl(tmp_path, printed(prefix=prefix))["rows"] == nccl(tmp_path, printed())["rows"]


def test_a_list_of_ranks_with_its_middle_left_out_is_still_of_all(tmp_path: Path) -> None:
    """The last rank's number tells how many there are; on how many hosts is unknown then."""
    lines = printed().splitlines(keepends=True)
    found = nccl(tmp_path, "".join(line for line in lines if "Rank  " not in line or "Rank  0" in line))
    assert (16, None) == (found["num_ranks"], found["num_hosts"])
    assert "16 ranks on an unknown number of hosts" in nccl_summary(found)
    found = nccl(tmp_path, "".join(line for line in lines if "nThread" not in line and "Rank  3" not in line))
    assert (None, None) == (found["num_ranks"], found["num_hosts"])


def test_a_list_of_ranks_cut_in_each_process_is_still_of_all(tmp_path: Path) -> None:
    """Two processes of 32 ranks write 20 of them each: the last one listed is rank 51, of 64."""
    lines = printed(64, 2).replace("nGpus 1 ", "nGpus 32 ").splitlines(keepends=True)
    cut = [f"#  Rank {rank:2} " for rank in range(64) if rank % 32 >= 20]
    found = nccl(tmp_path, "".join(line for line in lines if not line.startswith(tuple(cut))))
    assert (64, None) == (found["num_ranks"], found["num_hosts"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("# nThread", "# Collective test starting: sendrecv_perf\n# nThread"), "sendrecv_perf"),
        ((" sum -1 ", " none -1 "), "redop none"),
        ((" sum -1 ", " sum 0 "), "a root rank"),
        (("#  Rank", "#  left out"), "list of ranks is missing"),
        ((NAMED, ""), "nothing names the test"),
    ],
)
def test_other_collectives_over_two_ranks_are_told_by_more_than_bandwidths(
    tmp_path: Path, change: tuple[str, str], says: str
) -> None:
    """Two ranks broadcast, send and receive at the busbw / algbw of an all-reduce."""
    text = NAMED + printed(2, 1)
    assert 2 == nccl(tmp_path, text)["num_ranks"]
    with pytest.raises(TuiadvisorError, match=says):
        nccl(tmp_path, text.replace(NAMED, "").replace(*change) if change[0] != NAMED else printed(2, 1))


def test_the_time_of_the_cpu_is_no_time_of_the_message(tmp_path: Path) -> None:
    """-C 1 prints another column."""
    with pytest.raises(TuiadvisorError, match="-C 1"):
        nccl(tmp_path, printed().replace(" time ", " cputime "))


def test_fio_as_its_options_make_it_print(tmp_path: Path) -> None:
    """normal,json; several documents of --status-interval; a client's servers beside their sum; options of 2.1."""
    path = tmp_path / "fio.json"
    one, two = fio_text(job(1e9)), fio_text(job(3e9))
    path.write_text(
        "read: (groupid=0) {text}\n" + two + "\nRun status group 0 (all jobs):\n  READ: bw=2861MiB/s\n"
    )
    assert 3e9 == fio_document(path)["read_bytes_s"]
    path.write_text(one + "\n" + two + "\n")
    assert 3e9 == fio_document(path)["read_bytes_s"]
    servers = [job(1e9), job(2e9), {**job(3e9), "jobname": "All clients"}]
    path.write_text(json.dumps({"fio version": "fio-3.36", "client_stats": servers}))
    assert 3e9 == fio_document(path)["read_bytes_s"]
    path.write_text(json.dumps({"fio version": "fio-2.1", "jobs": [job(1e9)]}))
    assert fio_document(path)["is_direct"] is None
    assert "direct or not is unknown" in fio_summary(fio_document(path))
    phases = [{**job(1e9), "job options": {"bs": bs, "direct": "1"}} for bs in ("4k", "1M")]
    path.write_text(json.dumps({"fio version": "fio-3.36", "jobs": phases}))
    assert (None, True) == (fio_document(path)["block"], fio_document(path)["is_direct"])
    path.write_text(json.dumps({"fio version": "fio-3.36", "jobs": [{"mixed": {"bw_bytes": 1e9}}]}))
    with pytest.raises(TuiadvisorError, match="unified_rw_reporting"):
        fio_document(path)


@pytest.mark.parametrize(
    ("way", "expected"),
    [("write", (None, 1e9)), ("randread", (1e9, None)), ("randrw", None), ("both", (3e9, 1e9))],
)
def test_fio_of_one_way_is_read_where_ways_are_added_up(
    tmp_path: Path, way: str, expected: tuple[float | None, float | None] | None
) -> None:
    """--unified_rw_reporting of writes alone are writes; beside its parts the sum says nothing more."""
    summed = {
        "jobname": "one",
        "error": 0,
        "job options": {"rw": way, "bs": "1M"},
        "mixed": {"bw_bytes": 1e9},
    }
    one = {**job(3e9, 1e9), "mixed": {"bw_bytes": 4e9}} if way == "both" else summed
    path = tmp_path / "fio.json"
    path.write_text(fio_text(one))
    if expected is None:
        with pytest.raises(TuiadvisorError, match="unified_rw_reporting"):
            fio_document(path)
        return
    found = fio_document(path)
    assert expected == (found["read_bytes_s"], found["write_bytes_s"])


@pytest.mark.parametrize("step", ["2(factor)", "536870912(bytes)"])
def test_a_table_that_was_cut_short_says_so(tmp_path: Path, step: str) -> None:
    """Its best bandwidth is no ceiling: small messages do not fill the link."""
    text = printed().replace("step: 2(factor)", f"step: {step}")
    assert not nccl(tmp_path, text)["losses"]
    lines = text.splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if line.startswith("262144 "))
    found = nccl(tmp_path, "".join(lines[:at]))
    assert ["the table ends at 131,072 of the 1,073,741,824 bytes asked for"] == [
        loss.partition(":")[0] for loss in found["losses"]
    ]
    assert "lost: the table ends at 131,072" in nccl_summary(found)
