"""A Chrome trace of a recording against the trace event format: what viewers rely on, and honesty about order."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_run import MS, Fault, Job, elastic, encoded, folded, frames
from thinned import crossed

from tuiadvisor.cli import main
from tuiadvisor.events import EVENT_COLUMNS
from tuiadvisor.exporters import chrome_trace
from tuiadvisor.exporters import survey as survey_module
from tuiadvisor.exporters.chrome_trace import _Trace, export_chrome_trace
from tuiadvisor.exporters.rewrite import write_recording
from tuiadvisor.exporters.slices import ORDER, ROUNDING_NS, lay_out
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import FrameKind, encode, pack_columns

JOB = Job(num_ranks=4, num_steps=120, ranks_per_host=2).with_faults(Fault("backward", (2,), 8 * MS))
RUN = encode(FrameKind.RUN, "hub", 0, 0, {"schema": 1})
EVENT_NAMES = ("rank", "kind", *EVENT_COLUMNS)
REQUIRED = {  # per phase of the trace event format (JSON object format)
    "X": {"name", "ts", "dur", "pid", "tid"},
    "b": {"name", "cat", "id", "ts", "pid", "tid"},
    "e": {"name", "cat", "id", "ts", "pid", "tid"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid"},
    "i": {"name", "ts", "pid", "tid", "s"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "args"},
}


def parts(job: Job = JOB) -> list[bytes]:
    events = [
        (1, 1, 5, 1_200_000_000, 1_201_000_000, 0, 3, 1024, 0),
        (1, 32, 6, 1_300_000_000, 1_350_000_000, -1, -1, -1, -1),
        (1, 10, 6, 1_400_000_000, -1, 0, 4, 7, -1),
        (1, 48, 6, 1_410_000_000, 1_420_000_000, PHASES.index("backward"), 5_000, -1, 90_000),
        (1, 48, 6, 1_420_000_000, 1_421_000_000, 99, 5_000, -1, 90_000),
    ]
    sample = {"host": "node0", "mono_ns": 10**9 + 5, "cpu": 0.5, "num_cpus": 2}
    return [
        RUN,
        *map(encoded, frames(job)),
        encode(FrameKind.EVENTS, "node0/1/1", 500, 10**10, pack_columns(events, EVENT_NAMES)),
        encode(FrameKind.HOST, "node0/1/1", 501, 10**10, sample),
    ]


def trace(path: Path, job: Job = JOB) -> dict[str, Any]:
    found = parts(job)
    export_chrome_trace(lambda _what: iter(found), path)
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = trace(tmp_path_factory.mktemp("trace") / "run.json")["traceEvents"]
    return found


def test_every_event_has_what_its_phase_requires(events: list[dict[str, Any]]) -> None:
    """Known phases only, required fields present, times not negative, ids of processes and threads above 0."""
    assert set(REQUIRED) == {event["ph"] for event in events}, "every kind of event must be covered here"
    for event in events:
        assert REQUIRED[event["ph"]] <= set(event), event
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        assert event["pid"] > 0
        assert event.get("tid", 1) > 0
        assert event.get("s", "g") in {"g", "p", "t"}


def test_slices_of_a_thread_nest(events: list[dict[str, Any]]) -> None:
    """Steps follow each other; phases lie within their step, in order, without overlap, and fill it."""
    threads: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    assert 4 == len(threads)
    for slices in threads.values():
        steps = [event for event in slices if event["cat"] == "step"]
        assert 120 == len(steps)
        end = 0.0
        phases = iter([event for event in slices if event["cat"] != "step"])
        for step in steps:
            assert step["ts"] >= end - 0.001
            cursor, end = step["ts"], step["ts"] + step["dur"]
            while cursor < end - 0.01:
                phase = next(phases)
                assert phase["name"] in PHASES
                assert cursor == pytest.approx(phase["ts"], abs=0.01)
                cursor = phase["ts"] + phase["dur"]
            assert end == pytest.approx(cursor, abs=0.01)


def test_hosts_are_processes_and_ranks_are_threads(events: list[dict[str, Any]]) -> None:
    """Named, and each rank on its host."""
    names = {
        (event["pid"], event.get("tid")): event["args"].get("name")
        for event in events
        if event["ph"] == "M" and "name" in event["args"]
    }
    hosts = {name: pid for (pid, tid), name in names.items() if tid is None}
    assert {"node0", "node1"} == set(hosts)
    assert {"rank 0": "node0", "rank 1": "node0", "rank 2": "node1", "rank 3": "node1"} == {
        name: next(host for host, pid in hosts.items() if pid == key[0])
        for key, name in names.items()
        if key[1] is not None
    }


def test_async_and_flow_events_pair_up(events: list[dict[str, Any]]) -> None:
    """Each begin has its end, not before it; a call whose end nobody saw is an instant that says so."""
    for first, second in (("b", "e"), ("s", "f")):
        begins = {event["id"]: event for event in events if event["ph"] == first}
        ends = {event["id"]: event for event in events if event["ph"] == second}
        assert set(begins) == set(ends) != set()
        assert Counter(begins.keys()).most_common(1)[0][1] == 1
    calls = [event for event in events if event["ph"] == "b" and event["cat"] != "device"]
    assert [("all_reduce", "collective"), ("checkpoint", "mark")] == [
        (event["name"], event["cat"]) for event in calls
    ]
    (open_call,) = [event for event in events if event["ph"] == "i" and event["name"] == "send"]
    assert "not observed" == open_call["args"]["end"]


def test_device_phases_are_named_after_their_phase(events: list[dict[str, Any]]) -> None:
    """And say by how much they may lie later; a phase this version does not know stays unknown."""
    begun = [event for event in events if event["ph"] == "b" and event["cat"] == "device"]

    assert ["device: backward", "device: unknown phase"] == [event["name"] for event in begun]
    assert begun[0]["args"]["may_be_later_ns"] == 5_000


def test_arrows_leave_the_last_arriver(events: list[dict[str, Any]]) -> None:
    """Rank 2 is late in every step: most arrows begin on it and none ends on it, each within a measured barrier."""
    begins = Counter(event["tid"] - 1 for event in events if event["ph"] == "s")
    ends = {event["tid"] - 1 for event in events if event["ph"] == "f"}
    assert begins[2] > 100
    assert 2 not in ends
    barriers = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["cat"] == "phase,measured":
            barriers[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for event in events:
        if event["ph"] in "sf":
            assert any(begin <= event["ts"] <= end for begin, end in barriers[event["tid"]])


def test_no_arrow_when_a_rank_was_not_recorded(tmp_path: Path) -> None:
    """The late rank may be the one that nobody saw."""
    job = Job(num_ranks=4, num_steps=60, missing=(2,)).with_faults(Fault("backward", (2,), 8 * MS))
    assert [] == [event for event in trace(tmp_path / "t.json", job)["traceEvents"] if event["ph"] in "sf"]


def test_findings_are_instants_on_their_ranks(events: list[dict[str, Any]]) -> None:
    """The straggler's sentence stands on rank 2's thread at the step since which it holds."""
    (straggler,) = [
        event for event in events if event.get("cat") == "finding" and event["args"]["id"] == "straggler"
    ]
    assert (3, "t") == (straggler["tid"], straggler["s"])
    assert "rank 2" in straggler["args"]["message"].lower()


def test_the_order_is_not_claimed_to_be_measured(tmp_path: Path) -> None:
    """Only the barrier is in the measured category, and the document says what the rest is."""
    document = trace(tmp_path / "t.json")
    measured = {event["name"] for event in document["traceEvents"] if event.get("cat") == "phase,measured"}
    assert {"comm_exposed"} == measured
    assert "canonical" in document["otherData"]["note"]


@given(
    st.lists(st.integers(-1, 10_000), min_size=len(PHASES), max_size=len(PHASES)),
    st.integers(0, 40_000),
    st.integers(-1, 60_000),
    st.integers(-1, 60_000),
)
def test_pieces_fill_the_step_whatever_it_says(
    lengths: list[int], rest: int, arrive: int, release: int
) -> None:
    """No gap, no overlap, nothing outside; every phase that fits has its length."""
    begin, end = 1000, 1000 + max(sum(lengths) // 2 + rest, 1)
    phase_ns = dict(zip(PHASES, lengths, strict=True))
    pieces = lay_out(begin, end, phase_ns, arrive, release)
    cursor = begin
    for piece in pieces:
        assert piece.begin_ns == cursor < piece.end_ns
        cursor = piece.end_ns
    assert end == cursor
    if sum(max(value, 0) for name, value in phase_ns.items() if name != "other") <= end - begin:
        for name in ORDER[:-1]:
            shown = sum(piece.end_ns - piece.begin_ns for piece in pieces if piece.phase == name)
            assert abs(max(phase_ns[name], 0) - shown) <= ROUNDING_NS


def test_every_phase_has_its_place() -> None:
    """A phase added to the vocabulary must be given a place in the order."""
    assert sorted(PHASES) == sorted(ORDER)


def test_the_command_compresses_and_never_overwrites(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """.gz is gzip with the same document; owner-only; an existing file is refused."""
    source, plain, packed = tmp_path / "run.tuirec", tmp_path / "t.json", tmp_path / "t.json.gz"
    write_recording(str(source), iter(parts()))
    for target in (plain, packed):
        assert 0 == main(["export", str(source), "--format", "chrome-trace", "-o", str(target)])
        assert 0o600 == target.stat().st_mode & 0o777
    assert plain.read_bytes() == gzip.decompress(packed.read_bytes())
    assert "480 rank-steps" in capfd.readouterr().out
    assert 2 == main(["export", str(source), "--format", "chrome-trace", "-o", str(plain)])
    assert "exists already" in capfd.readouterr().err


def test_a_recording_of_nothing_is_a_valid_trace(tmp_path: Path) -> None:
    """No step, no event: still a document that opens."""
    export_chrome_trace(lambda _what: iter([RUN]), tmp_path / "t.json")
    assert ["M"] == [event["ph"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cut", "attach"),
    crossed(
        ["one rank a frame", "ten steps of one rank a frame", "both in one frame", ""], [(), (0, 40, 0, 70)]
    ),
)
def test_reading_by_the_hundred_gives_the_same_trace(
    cut: str, attach: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where ranks came later or began anew: every step has the number that it has frame by frame."""
    job = Job(num_ranks=4, num_steps=100, attach=attach)
    told = [encoded(frame) for frame in (elastic(job, cut) if cut and not attach else frames(job, 7))]
    written = []
    for chunk_frames in (survey_module.CHUNK_FRAMES, 1):
        monkeypatch.setattr(survey_module, "CHUNK_FRAMES", chunk_frames)
        path = tmp_path / f"{chunk_frames}.json"
        export_chrome_trace(lambda _: iter(told), path)
        written.append(path.read_bytes())
    assert written[0] == written[1]


def written(*does: Callable[[_Trace], object]) -> list[dict[str, Any]]:
    """The events of a trace to which this was told."""
    found: Any = SimpleNamespace(
        advisor=folded(frames(Job(num_ranks=2, num_steps=40))),
        first_begin_ns={"node0/1/1": 1_000},
        clock_shift_ns=lambda _: None,
        host=lambda source: source.partition("/")[0],
    )
    file = io.BytesIO()
    trace = _Trace(found, file)
    for do in does:
        do(trace)
    trace.close()
    return list(json.loads(file.getvalue())["traceEvents"])


def test_a_rank_that_came_back_on_another_host_has_its_name_there_too() -> None:
    """Threads are named by process: without a name viewers show the bare number."""
    events = written(*[lambda one, host=host: one._thread(host, 3) for host in ("node0", "node1", "node0")])
    named = [(one["pid"], one["tid"], one["args"]["name"]) for one in events if one["name"] == "thread_name"]
    assert [(1, 4, "rank 3"), (2, 4, "rank 3")] == named


def test_what_cannot_be_placed_is_left_out() -> None:
    """Frames that could not be read, events without a beginning, a host without a name or a clock."""
    told: dict[str, Any] = dict.fromkeys(("rank", "step", "begin_ns", "end_ns", "group", "seq", "num_bytes"))
    frame: Any = SimpleNamespace(source="node0/1/1", payload={"host": "", "mono_ns": 5, "cpu": 0.5})
    clockless: Any = SimpleNamespace(source="node0/1/1", payload={"host": "node0", "cpu": 0.5})
    events = written(
        lambda one: one.steps(frame, None),
        lambda one: one.events(frame, None),
        lambda one: one._event("node0/1/1", "node0", "all_reduce", told | {"rank": 0}),
        lambda one: one._event("node0/1/1", "node0", "all_reduce", told | {"begin_ns": 9}),
        lambda one: one.host(frame),
        lambda one: one.host(clockless),
    )
    assert ["process_labels"] == [one["name"] for one in events]


def test_a_source_without_steps_begins_at_zero() -> None:
    """Its clock is no other's, and nothing says where it lies."""
    sample: Any = SimpleNamespace(
        source="node9/1/1", payload={"host": "node9", "mono_ns": 10**15, "cpu": 0.5}
    )
    (event,) = [one for one in written(lambda one: one.host(sample)) if one["ph"] == "C"]
    assert (0.0, {"share": 0.5}) == (event["ts"], event["args"])


def test_steps_of_which_a_rank_never_comes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest gives way; those that are whole have their arrow, from who waited least to who waited longest."""
    monkeypatch.setattr(chrome_trace, "MAX_OPEN_STEPS", 2)

    def row(rank: int, step: int, wait_ns: int) -> dict[str, int]:
        arrive_ns = 1_000_000 * step
        return {"rank": rank, "step": step, "arrive_ns": arrive_ns, "release_ns": arrive_ns + wait_ns,
                "duration_ns": 1_000_000}  # fmt: skip

    events = written(
        *[
            lambda one, step=step: one._barrier("node0/1/1", "node0", row(0, step, 900_000))
            for step in range(4)
        ],
        *[lambda one, step=step: one._barrier("node0/1/1", "node0", row(1, step, 1_000)) for step in (3, 0)],
    )
    arrows = [(one["ph"], one["tid"]) for one in events if one.get("cat") == "barrier"]
    assert [("s", 2), ("f", 1)] == arrows


def test_a_long_trace_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same document, in bounded memory."""
    whole = written(*[lambda one, rank=rank: one._thread("node0", rank) for rank in range(9)])
    monkeypatch.setattr(chrome_trace, "BATCH_BYTES", 70)  # also the last event alone is more
    assert whole == written(*[lambda one, rank=rank: one._thread("node0", rank) for rank in range(9)])
