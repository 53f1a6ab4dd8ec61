"""Why a traced device does not compute, its kernels by kind and name; on the screen, in JSON and in the verdict."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from shared_data import SHARED, needs_data
from snapshot import views
from test_import_kineto import ALL_REDUCE, event, trace
from test_import_recording import imported, marked

from tuiadvisor.advisor.cluster.device_work import device_work as told_work
from tuiadvisor.cli import main
from tuiadvisor.importers.computekinds import compute_kind
from tuiadvisor.importers.kineto_rows import with_waits
from tuiadvisor.importers.kinetoreport import kineto_document, kineto_summary
from tuiadvisor.metrics.traces.collective_arrival import Arrivals, RankArrival
from tuiadvisor.metrics.traces.gpu_timeline import COMM, COMPUTE, MEMORY
from tuiadvisor.report.document import document
from tuiadvisor.tui.contract.feed import FeedState
from tuiadvisor.tui.pages.device_work import DeviceWorkPage

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.views.run_view import RunView


MOST_BESIDE = "the largest part of the rest, 58.0 %: nothing runs on it, before its first event"


def launched(number: int, at: float) -> dict[str, Any]:
    return event("cudaLaunchKernel", at, 1, "cuda_runtime", correlation=number)


def loader_bound(folder: Path) -> Path:
    """Of 1,000 us: 100 compute, 60 bare communication, 40 copies alone, 800 idle.

    The idle: 300 the loader, 100 other Python, 40 from launch to start, 10 between two kernels, 310 held back, 40 of
    unknown launch.
    """
    events = [
        event("ProfilerStep#3", 0, 1000, "user_annotation"),
        event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 30, 330, "user_annotation"),
        event("ampere_sgemm_128x64_nn", 0, 60, correlation=1, stream=7),
        launched(2, 460),  # 60..360 the loader, 360..460 nothing, 460..500 on its way
        event("flash_fwd_kernel", 500, 40, correlation=2, stream=7),
        launched(3, 462),
        event(ALL_REDUCE, 550, 60, correlation=3, stream=20),  # 10 after the last: the device's own
        launched(4, 463),
        event("Memcpy HtoD", 920, 40, "gpu_memcpy", correlation=4, stream=7),  # launched long ago: held back
        event("foreign", 1000, 0, correlation=99, stream=7),
    ]
    return trace(folder / "rank0.json", events, 0, 2)


def test_where_a_devices_time_went_worked_out_by_hand(tmp_path: Path) -> None:
    """The parts sum to the window, host's parts to the host's."""
    (row,) = kineto_document(loader_bound(tmp_path))["per_rank"]
    found = row["time_by_cause"]
    names = ("window_s", "compute_s", "exposed_s", "copy_s", "host_s", "launch_s", "held_s", "unknown_s")
    expected = (1000, 100, 60, 40, 400, 50, 310, 40)
    assert dict(zip(names, expected, strict=True)) == pytest.approx(
        {name: 1e6 * found[name] for name in names}
    )
    assert {"data_wait": 300e-6, "other": 100e-6} == pytest.approx(found["host_doing_s"])
    assert found["collective_wait_s"] is None
    kinds = {each["kind"]: (each["kernels"], round(1e6 * each["seconds"])) for each in row["kernels_by_kind"]}
    assert {
        "matrix product": (1, 60),
        "attention": (1, 40),
        "communication": (1, 60),
        "copies": (1, 40),
        "other": (1, 0),
    } == kinds
    assert ["ampere_sgemm_128x64_nn", ALL_REDUCE] == [each["name"] for each in row["top_kernels"][:2]]


@pytest.mark.parametrize(
    ("begin", "end", "says"),
    [
        (580, 1000, f"computes 38.6 % of 1 ms (1 step and what is around); {MOST_BESIDE}"),
        (0, 420, f"computes 38.6 % of 1 ms (1 step and what is around); {MOST_BESIDE}"),
        (30, 1000, "computes 96.5 % of 970 µs (1 step, from its first event to its last)"),
        (-100, 1100, "computes 97.2 % of 1.2 ms (1 step and what is around)"),
    ],
    ids=["before", "after", "little", "beyond"],
)  # fmt: skip
def test_what_a_step_is_beside_its_device_is_said(tmp_path: Path, begin: int, end: int, says: str) -> None:
    """'Computes 96.8 % of 0.16 s (1 step)' of a step of 0.383 s, whose first 0.218 s were the host's alone."""
    events = [
        event("ProfilerStep#3", 0, 1000, "user_annotation"),
        launched(1, begin - 1),
        event("ampere_sgemm_128x64_nn", begin, 100, correlation=1, stream=7),
        launched(2, begin + 132),
        event("flash_fwd_kernel", begin + 134, end - begin - 134, correlation=2, stream=7),
    ]
    trace(tmp_path / "rank0.json", events, 0, 1)
    (told,) = kineto_document(tmp_path)["says"]
    assert says in told


def test_one_rank_says_what_one_rank_can_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The largest part of what is not computing; in the summary, the verdict, the document and on the screen."""
    told, view = imported(loader_bound(tmp_path), capsys)
    (says,) = told["says"]
    assert "computes 10.0 % of 1 ms (1 step and what is around)" in says
    assert "31.0 %: held back by other streams or events" in says
    assert says.endswith("One rank alone does not tell who is late")
    assert view.verdict.decision is None
    assert view.verdict.sentence.startswith(f"{says[0].upper()}{says[1:]}. Not enough steps in this trace: ")
    assert "yet" not in view.verdict.sentence
    found = document(view)["imported"]
    assert isinstance(found, dict)
    assert 0.3 == pytest.approx(
        next(p["share"] for p in found["device"]["ranks"][0]["parts"] if "loader" in p["words"])
    )
    shown = screen(view)
    assert "30 %" in shown
    assert "the loader" in shown
    assert "longest kernels" in shown


def test_the_summary_shows_the_device_of_the_rank_that_is_late(tmp_path: Path) -> None:
    """Its peers' devices only wait for it: "rank 0, not computing: exposed communication" told nobody why."""
    late = kineto_summary(kineto_document(marked(tmp_path / "traces", 2)))
    assert ("rank 2, not computing: ", "rank 2, kernels: ") == tuple(
        line[: line.index(":") + 2] for line in late.splitlines() if re.match(r"rank \d+, ", line)
    )


def test_where_nobody_is_late_the_device_whose_host_is_latest_is_shown(tmp_path: Path) -> None:
    """One whose host keeps up stood first and was shown; that rank 1 waits for its loader stood nowhere."""
    other = json.loads(loader_bound(tmp_path).read_text())["traceEvents"]
    trace(tmp_path / "rank1.json", other, 1, 2)
    events = [launched(1, 0), event("ampere_sgemm_128x64_nn", 1, 999, correlation=1, stream=7)]
    trace(tmp_path / "rank0.json", events, 0, 2)
    document = kineto_document(tmp_path)
    assert [] == document["stragglers"]["ranks"]
    assert re.search("rank 1, not computing: .*waits for data: the loader", kineto_summary(document))


def test_ranks_that_are_compared_have_their_waits_beside_and_no_sentence_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 2 is late: the others' collectives wait for it, a row each."""
    told, view = imported(marked(tmp_path / "traces", 2), capsys)
    assert [] == told["says"]
    assert view.imported is not None
    assert view.imported.device is not None
    waits = [each.collective_wait_s or 0.0 for each in view.imported.device.ranks]
    assert waits[2] < 0.1 * min(waits[0], waits[1], waits[3])
    shown = screen(view)
    assert all(f"\n {rank:>6} " in shown for rank in range(4))


def screen(view: RunView | None) -> str:
    state = FeedState(view, "replay", "", "", None, None, 1)
    return "\n".join(row.text for row in DeviceWorkPage().lines(state, 80, 60))


def test_a_run_of_probes_says_what_shows_kernels() -> None:
    """Rather than an empty page."""
    assert "tuiadvisor open DIR shows traces" in " ".join(screen(views.straggler()).split())


@pytest.mark.parametrize(
    "told",
    [
        *(None, [], {}, {"ranks": 7}, {"ranks": [{"rank": 0, "window_s": 0}]}),
        {"ranks": [{"rank": -1, "window_s": 1.0}, {"rank": True, "window_s": 1.0}, None]},
    ],
)
def test_what_is_no_work_of_devices_is_none(told: object) -> None:
    """A recording may say anything."""
    assert told_work(told) is None


def test_shares_stay_shares_whatever_a_recording_says() -> None:
    """Parts longer than their window, sentences that are none."""
    part = {"words": "a\x1b[2J", "seconds": 9.0}
    rank = {"rank": 0, "window_s": 1.0, "compute_s": 1e9, "parts": [part, {"words": 1}, 5]}
    found = told_work(
        {"ranks": [rank] * 3000, "kinds": [{"kind": "x", "seconds": 2, "of_s": 1}], "says": [1, "ok"]}
    )
    assert found is not None
    assert (1.0, 1.0, 1.0) == (found.ranks[0].compute, found.ranks[0].parts[0].share, found.kinds[0].share)
    assert (("ok",), 1024) == (found.says, len(found.ranks))
    assert "\x1b" not in screen_of(found)


def screen_of(found: Any) -> str:
    from tuiadvisor.views.run_view import Imported

    held = Imported("kineto", "x", "x", "x", None, replace(found, ranks=found.ranks[:1]))
    return screen(replace(views.straggler(), imported=held))


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("ampere_sgemm_128x64_nn", COMPUTE, "matrix product"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>(Params)", COMPUTE, "matrix product"),
        ("Cijk_Ailk_Bljk_SB_MT64x64x16", COMPUTE, "matrix product"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", COMPUTE, "attention"),
        ("void cudnn::detail::dgrad_engine<float, 512>", COMPUTE, "convolution"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", COMPUTE, "norm"),
        ("void at::native::vectorized_elementwise_kernel<4>", COMPUTE, "element by element"),
        ("multi_tensor_apply_kernel", COMPUTE, "optimizer"),
        ("ncclDevKernel_AllReduce_Sum", COMM, "communication"),
        ("Memcpy DtoH", MEMORY, "copies"),
        ("k_4711", COMPUTE, "other"),
    ],
)
def test_kernels_have_the_kind_that_their_names_say(name: str, kind: int, expected: str) -> None:
    """As the libraries name them."""
    assert expected == compute_kind(name, kind)


@pytest.mark.slow
@needs_data
def test_the_loader_is_named_in_the_public_trace_that_is_bound_by_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """PyTorch's own pair for its plugin: without workers 39 % idle, for the loader; with four another cause."""
    said = {}
    for workers in (0, 4):
        (folder,) = (SHARED / "kineto").glob(f"tb_nw{workers}_*")
        assert 0 == main(["import", "kineto", str(folder), "--json"])
        told = json.loads(capsys.readouterr().out)
        (row,), (said[workers],) = told["per_rank"], told["says"]
        found = row["time_by_cause"]
        idle = sum(found[name] for name in ("host_s", "launch_s", "held_s", "unknown_s"))
        assert row["all"]["idle_s"] == pytest.approx(idle)
    assert "28.5 %: the training thread waits for data: the loader" in said[0]
    assert "loader" not in said[4]


@pytest.mark.parametrize(("is_elsewhere", "wait_s"), [(True, None), (False, 0.0), (None, 0.0)])
def test_what_ranks_wait_for_one_that_was_not_recorded_is_not_zero(
    is_elsewhere: bool | None, wait_s: float | None
) -> None:
    """Two ranks of 128 wait for the others together, and hardly for each other."""
    mine = RankArrival(0, 0, 0, 0, 0, "")
    found = Arrivals(40, 0, (mine, replace(mine, rank=1)), (), None, is_elsewhere, "")

    assert with_waits({"time_by_cause": {}}, mine, found)["time_by_cause"] == {"collective_wait_s": wait_s}
