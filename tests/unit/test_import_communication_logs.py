"""Logs that hold no steps: NCCL's Inspector, DeepSpeed's communication logger, memory timelines, metrics of ranks.

Samples are laid out as the tools write them: NCCL ext-profiler/inspector/README.md and json.cc, DeepSpeed
deepspeed/utils/comms_logging.py (log_all), torch/profiler/_memory_profiler.py (export_memory_timeline).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fuzzing import chances, damaged
from shared_data import SHARED, needs_data

from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.deepspeed import deepspeed_document, deepspeed_summary
from tuiadvisor.importers.inspector import inspector_document, inspector_summary
from tuiadvisor.importers.memory_timeline import memory_document, memory_summary
from tuiadvisor.importers.metricsreport import metrics_document, metrics_summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def call(rank: int, number: int, took_us: int, group: str = "0x7f8c496ae9f661", **more: Any) -> str:
    """A line of the Inspector."""
    size = more.pop("n_ranks", 4)
    told = {
        "coll": more.pop("coll", "AllReduce"),
        "coll_sn": number,
        "coll_msg_size_bytes": 1 << 24,
        "coll_exec_time_us": took_us,
        "coll_timing_source": more.pop("source", "kernel_gpu"),
        "coll_algobw_gbs": 277.210914,
        "coll_busbw_gbs": 485.119099,
    }
    process = more.pop("pid", rank)
    return json.dumps(
        {
            "header": {"id": group, "rank": rank, "n_ranks": size, "nnodes": 1},
            "metadata": {
                "inspector_output_format_version": "v4.0",
                "git_rev": "",
                "rec_mechanism": "profiler_plugin",
                "dump_timestamp_us": 1748030377748202 + number,
                "hostname": "node01",
                "pid": 1639453 + process,
            },
            "coll_perf": told,
        }
    )


def inspected(folder: Path, late: int | None = 2, absent: tuple[int, ...] = (), **more: Any) -> Path:
    """Four ranks, 60 all-reduces of 100 us; the late one makes the others' take 1,900 us longer."""
    folder.mkdir(exist_ok=True)
    for rank in range(4):
        if rank in absent:
            continue
        lines = [
            call(rank, number, 100 + number % 7 + (0 if late in {None, rank} else 1900), **more)
            for number in range(60)
        ]
        (folder / f"node01-pid{1639453 + rank}.log").write_text("\n".join(lines) + "\n")
    return folder


def test_who_comes_last_is_whose_calls_are_short(tmp_path: Path) -> None:
    """The others wait for it in theirs; sizes with their bandwidth."""
    told = inspector_document(inspected(tmp_path / "logs"))
    assert [2] == [row["rank"] for row in told["stragglers"]["ranks"]]
    assert pytest.approx(60 * 1900e-6) == told["per_rank"][0]["wait_s"]
    assert pytest.approx(3 * 60 * 1900e-6) == told["per_rank"][2]["caused_wait_s"]
    (row,) = told["collectives"]
    assert ("AllReduce", 1 << 24, 240, 485.119099) == (
        row["op"],
        row["bytes"],
        row["calls"],
        row["busbw_gb_s"],
    )
    assert (60, 4) == (told["matched"], told["run"]["world_size"])
    assert "rank 2 comes last" in inspector_summary(told)


@pytest.mark.parametrize(
    ("late", "absent", "more", "says"),
    [
        (None, (), {}, "nobody waits for long"),
        (2, (2,), {}, "no log of rank 2:"),
        (2, (0,), {}, "no log of rank 0:"),
        (2, (), {"source": "collective_cpu"}, "times are the host's"),
        (2, (), {"coll": "Broadcast"}, "no collective was recorded on all of its ranks"),
    ],
)
def test_nobody_is_named_where_the_logs_do_not_tell(
    tmp_path: Path, late: int | None, absent: tuple[int, ...], more: dict[str, Any], says: str
) -> None:
    """Not in the place of a rank without a log; a broadcast's root leaves before the others come."""
    told = inspector_document(inspected(tmp_path / "logs", late, absent, **more))
    assert [] == told["stragglers"]["ranks"]
    assert says in told["stragglers"]["because"]


def test_ranks_of_a_smaller_communicator_are_called_by_the_largest(tmp_path: Path) -> None:
    """Rank 0 of the pair is rank 2 of the job; what is logged on one side alone is counted."""
    inspected(tmp_path / "logs")
    pair = [
        call(at, n, 100 + 900 * at, "0xe62dedaa97644a", n_ranks=2, pid=2 + at)
        for n in range(60)
        for at in (0, 1)
    ]
    pair.append(call(0, 99, 5, "0xe62dedaa97644a", n_ranks=2, pid=2))
    (tmp_path / "logs" / "pair.jsonl").write_text("\n".join([*pair, "no json", '{"p2p_perf": {}}']))
    told = inspector_document(tmp_path / "logs")
    assert [0, 1, 2, 3] == [row["rank"] for row in told["per_rank"]]
    assert [2] == [row["rank"] for row in told["stragglers"]["ranks"]]
    assert pytest.approx(3 * 60 * 1900e-6 + 60 * 900e-6) == told["per_rank"][2]["caused_wait_s"]
    assert told["losses"] == [
        "lines left out that are no calls: 1",
        "calls not compared that were not logged on all of their ranks: 1",
    ]


def test_pairs_without_a_communicator_of_all_name_nobody(tmp_path: Path) -> None:
    """Two processes are rank 1 of a pair then: which rank of the job the late one is, is not logged."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for pid in range(4):
        took = 100 if pid == 3 else 2000
        lines = [call(pid % 2, n, took, f"0x{pid // 2}", n_ranks=2, pid=pid) for n in range(60)]
        (folder / f"node01-pid{pid}.log").write_text("\n".join(lines))
    told = inspector_document(folder)
    assert (None, [], [], 240, 120) == (
        told["run"]["world_size"],
        told["per_rank"],
        told["stragglers"]["ranks"],
        told["calls"],
        told["matched"],
    )
    assert "several processes are rank 0 of their largest communicators" in told["stragglers"]["because"]
    assert "late rank" in [item["metric"] for item in told["unknown"]]
    assert "240 calls of unknown ranks" in inspector_summary(told)


def test_a_restarted_job_has_the_same_ranks(tmp_path: Path) -> None:
    """Of a process that begins once the one before it has ended the lines are those of the same rank."""
    folder = inspected(tmp_path / "logs")
    for rank in range(4):
        lines = [call(rank, n, 100 if rank == 2 else 2000, "0xafter", pid=rank + 4) for n in range(60)]
        later = [line.replace("17480303777", "17480304777") for line in lines]
        (folder / f"node01-pid{1639453 + 4 + rank}.log").write_text("\n".join(later))
    told = inspector_document(folder)
    assert ([0, 1, 2, 3], 120, 4) == (
        [row["rank"] for row in told["per_rank"]],
        told["matched"],
        told["run"]["world_size"],
    )
    assert [2] == [row["rank"] for row in told["stragglers"]["ranks"]]


def table(prefix: str = "", *, straggler: bool = True, times: float = 1.0) -> str:
    """As log_summary(show_straggler) prints it."""
    heads = ("Comm. Op", "Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)")
    lines = ["".join(f"{head: <20}" for head in (*heads, "tput_avg (Gbps)", "busbw_avg (Gbps)"))]
    for name, size, count, total in (
        ("all_reduce", "678.86 MB", 40, 1000.0),
        ("broadcast", "2.0 KB", 146, 11.12),
    ):
        rates = (1204.52, 1129.23)
        cells = "".join(f"{value * times: <20.2f}" for value in (total, total / count))
        lines += [
            name,
            f"{' ': <20}{size: <20}{count: <20}{cells}" + "".join(f"{rate: <20.2f}" for rate in rates),
        ]
    if straggler:
        lines += ["_" * 31, "Breakdown with straggler effect", "-" * 31]
        more = ("Total comm lat(ms)", "Total straggler(ms)", "Avg comm lat(ms)", "Avg straggler(ms)")
        lines.append("".join(f"{head: <20}" for head in (*heads[:3], *more)))
        cells = "".join(f"{value: <20.2f}" for value in (700.0, 300.0, 17.5, 7.5))
        lines += ["all_reduce", f"{' ': <20}{'678.86 MB': <20}{40: <20}{cells}"]
    return "".join(f"{prefix}{line}\n" for line in lines)


@pytest.mark.parametrize("prefix", ["", "node01: ", "[rank0]: "])
def test_deepspeeds_last_table_counts(tmp_path: Path, prefix: str) -> None:
    """Among other output, with what launchers put before it; time and waiting by operation and size."""
    path = tmp_path / "train.log"
    path.write_text(f"loss 3.1\n{table(prefix)}loss 3.0\n{table(prefix, times=2.0)}done\n")
    told = deepspeed_document(path)
    first, second = told["collectives"]
    assert ("all_reduce", round(678.86 * 2**20), 40, 2.0) == tuple(
        first[key] for key in ("op", "bytes", "calls", "total_s")
    )
    assert (0.3, 0.7, 1129.23) == (first["wait_s"], first["transfer_s"], first["busbw_gbit_s"])
    assert ("broadcast", 2048, 146, None) == tuple(second[key] for key in ("op", "bytes", "calls", "wait_s"))
    assert "of it waiting for later ranks 0.3 s" in deepspeed_summary(told)


@pytest.mark.parametrize("prefix", ["", "node01: ", "[rank0]: "])
def test_a_first_size_beside_its_operation_is_read(tmp_path: Path, prefix: str) -> None:
    """Its time was missing in the total without a word, and that of the next size as well."""
    path = tmp_path / "train.log"
    lines = table(straggler=False).splitlines()
    joined = [lines[0], f"{lines[1]: <20}{lines[2].strip()}", *lines[3:], "loss 0.5", lines[2]]
    path.write_text("".join(f"{prefix}{line}\n" for line in joined))
    told = deepspeed_document(path)
    assert ["all_reduce", "broadcast", "broadcast"] == sorted(row["op"] for row in told["collectives"])
    assert pytest.approx(1.0 + 0.01112 + 1.0) == told["total_s"]


def test_without_the_straggler_table_waiting_is_unknown(tmp_path: Path) -> None:
    """With how to have it printed."""
    path = tmp_path / "train.log"
    path.write_text(table(straggler=False))
    told = deepspeed_document(path)
    assert told["wait_s"] is None
    assert "show_straggler=True" in deepspeed_summary(told)


def timeline() -> str:
    """Weights of 100 and a growing activation; index 0 is unused, 5 activations, 8 of no category."""
    sizes = [[0, 100, 50, 0, 0, 10 * (at % 4) + at, 0, 0, 3] for at in range(40)]
    return json.dumps([[1795471181259771 + 1000 * at for at in range(40)], sizes])


def test_a_memory_timelines_peak_says_what_it_was_made_of(tmp_path: Path) -> None:
    """And what grew."""
    path = tmp_path / "memory.json"
    path.write_text(timeline())
    told = memory_document(path)
    assert (222, 0.039, 40) == (told["peak_bytes"], told["peak_at_s"], told["samples"])
    parts = {name: size for name, size in told["at_peak_bytes"].items() if size}
    assert {"parameters": 100, "optimizer state": 50, "activations": 69, "unknown": 3} == parts
    assert ("parameters", 20) == (told["largest"], told["growth_bytes"])
    assert "its minimum rose" in memory_summary(told)


def test_categories_are_those_of_torch(tmp_path: Path) -> None:
    """In torch's own order, by a real timeline: weights, optimizer's state and input of a known size."""
    torch = pytest.importorskip("torch")
    from torch.profiler._memory_profiler import _CATEGORY_TO_INDEX

    names = [category.name.lower() if category else "none" for category in _CATEGORY_TO_INDEX]
    assert [
        *(
            "parameter",
            "optimizer_state",
            "input",
            "temporary",
            "activation",
            "gradient",
            "autograd_detail",
            "none",
        )
    ] == names
    assert torch.__version__


READERS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "nccl-inspector": (
        lambda p: inspector_summary(inspector_document(p)),
        "a.jsonl",
        call(0, 1, 100) + "\n" + call(1, 1, 9),
    ),
    "deepspeed": (lambda p: deepspeed_summary(deepspeed_document(p)), "a.log", table()),
    "memory": (lambda p: memory_summary(memory_document(p)), "a.json", timeline()),
    "metrics": (
        lambda p: metrics_summary(metrics_document(p)),
        "a.json",
        json.dumps({"event_time": ["1", "2"], "0": [1, 0.5], "1": ["", 0.1]}),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
def test_open_knows_them_and_they_are_no_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Alone or in a folder; -o says why not in one line."""
    _, name, content = READERS[kind]
    path = tmp_path / name
    path.write_text(content)
    for target in (path, tmp_path):
        assert 0 == main(["open", str(target), "--json"])
        out = capsys.readouterr()
        assert f"as: tuiadvisor import {kind} --json" in out.err
        assert 1 == json.loads(out.out)["schema"]
    assert 2 == main(["import", kind, str(path), "-o", str(tmp_path / "x.tuirec")])
    assert f"no recording; what it holds: tuiadvisor import {kind} " in capsys.readouterr().err


@pytest.mark.parametrize("kind", READERS)
def test_damaged_logs_get_an_answer_or_one_line(tmp_path: Path, kind: str) -> None:
    """Bytes changed, cut, doubled; and nothing at all."""
    read, name, content = READERS[kind]
    path, refusals = tmp_path / name, []
    path.write_text("{}")
    with pytest.raises(TuiadvisorError):
        read(path)
    for chance in chances(150):
        path.write_bytes(damaged(content.encode(), chance))
        try:
            read(path)
        except TuiadvisorError as error:
            refusals.append(str(error))
    assert not any("\n" in said for said in refusals)


@needs_data
def test_the_ranks_whose_data_is_late_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The public example: rank 4 first, rank 0 later."""
    (path,) = (SHARED / "rank_metrics").glob("*.json")
    assert 0 == main(["import", "metrics", str(path), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert [4, 0] == [row["rank"] for row in told["stragglers"]["ranks"]]


def spread(text: str, indent: int | None) -> str:
    """Each line's object over several lines, as a README shows them, or all in a list."""
    return json.dumps([json.loads(line) for line in text.splitlines()], indent=indent)


@pytest.mark.parametrize(
    "write",
    [
        lambda text: "\n".join(json.dumps(json.loads(line), indent=2) for line in text.splitlines()),
        lambda text: "\r\n\r\n".join(text.splitlines()),
        lambda text: spread(text, None),
        lambda text: spread(text, 4),
        lambda text: text.replace("485.119099", "NaN", 5),
    ],
)
def test_calls_are_read_however_their_objects_are_laid_out(
    tmp_path: Path, write: Callable[[str], str]
) -> None:
    """On a line each, over several, in a list, with a NaN that Python writes: the same rank is last."""
    logs = inspected(tmp_path / "logs")
    for path in logs.iterdir():
        path.write_text(write(path.read_text()))
    told = inspector_document(logs)
    assert ([2], [], 240) == (
        [row["rank"] for row in told["stragglers"]["ranks"]],
        told["losses"],
        told["calls"],
    )


def test_a_torn_line_costs_itself_alone(tmp_path: Path) -> None:
    """Whether what follows it is an object or not; it is counted."""
    logs = inspected(tmp_path / "logs")
    path = min(logs.iterdir())
    first, second, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first[:90], second, "slurmstepd: error", *rest, second[:50]]))
    told = inspector_document(logs)
    assert (239, ["lines left out that are no calls: 3"]) == (told["calls"], told["losses"][:1])


def test_a_raw_memory_timeline_is_summed_up(tmp_path: Path) -> None:
    """Changes of one moment count together; what was there before has no time of its own. By hand."""
    rows = [
        [-1, 1, 1000, 0],
        [2_000_000_000, 2, 500, 4],
        [2_500_000_000, 3, -500, 4],
        [2_500_000_000, 3, 500, 5],
        [3_000_000_000, 2, 200, 7],
        [4_000_000_000, 4, -500, 5],
    ]
    path = tmp_path / "memory.raw.json"
    path.write_text(json.dumps(rows))
    told = memory_document(path)
    assert (1700, 1.0, 2.0, 1200, 5) == (
        told["peak_bytes"],
        told["peak_at_s"],
        told["span_s"],
        told["last_bytes"],
        told["samples"],
    )
    assert (1000, 500, 200) == tuple(
        told["at_peak_bytes"][name] for name in ("parameters", "gradients", "unknown")
    )
