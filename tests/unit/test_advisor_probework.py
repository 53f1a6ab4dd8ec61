"""What watching costs, how much was seen in detail, and what a step's work is by the user's word."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_devices import LIGHT_COST_NS, MEASURED_COST_NS, DeviceJob, measured_steps
from simulated_devices import view_of as view_of_devices
from synthetic_run import STEP_NAMES, Job, Simulated, encoded, folded, frames, simulate

from tuiadvisor.advisor.assemble.probe_overhead import core_of, with_burst_wanted
from tuiadvisor.advisor.cluster.rank_facts import RankFacts
from tuiadvisor.advisor.compare.recording_contents import contents
from tuiadvisor.advisor.fold import diagnose
from tuiadvisor.events import GivenWork, StepFlag
from tuiadvisor.report.contents import contents_document
from tuiadvisor.report.document import document
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind
from tuiadvisor.stream.index import FILE_HEADER_BYTES
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.stream.scan import read_summary
from tuiadvisor.tui.pages.contents import plain_contents
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.tui.pages.sections import probe_work
from tuiadvisor.views.run_view import Finding, ProbeWork, RunView

DETAIL, FLAGS, COST = int(StepFlag.DETAIL), STEP_NAMES.index("flags"), STEP_NAMES.index("probe_cost_ns")


def with_bursts(
    job: Job, every: int, budget_ppm: int | None = 2500, detail_ns: int | None = None
) -> list[Frame]:
    """Two steps in detail of each so many, what the probe took of those, and the ranks' budget."""

    def in_detail(row: tuple[int, ...]) -> tuple[int, ...]:
        changed = list(row)
        if row[1] % every < 2:
            changed[FLAGS] |= DETAIL
            changed[COST] = row[COST] if detail_ns is None else detail_ns
        return tuple(changed)

    rows = {rank: [in_detail(row) for row in rows] for rank, rows in simulate(job).rows.items()}
    sequence = frames(job, simulated=Simulated(rows, simulate(job).cycle_s))
    for frame in sequence:
        if frame.kind == FrameKind.HELLO and budget_ppm is not None:
            for entry in frame.payload["ranks"]:  # type: ignore[attr-defined]
                entry["budget_ppm"] = budget_ppm
    return sequence


def run_frame(**given: object) -> Frame:
    """A recording's first frame."""
    return Frame(FrameKind.RUN, HUB_SOURCE, 0, 1, {"schema": 1, "label": "train.py", **given})


def view_of(sequence: list[Frame]) -> RunView:
    """The view after these frames."""
    return folded(sequence).view()


def test_cost_budget_and_share_in_detail() -> None:
    """20 us of a step of some 17 ms; two steps of ten in detail; within the budget that the ranks were given."""
    view = view_of(with_bursts(Job(), every=10))
    work = view.probe
    assert work is not None
    assert work.cost == view.probe_cost == pytest.approx(0.0011, rel=0.2)
    assert 0.0025 == work.budget
    assert 0.2 == pytest.approx(work.detail, abs=0.02)
    assert 30 < work.num_detail_steps < 45
    assert not work.is_over
    assert "probe ≥ 0.11 % of step; detail 20 % of steps" in plain_summary(view)
    assert {
        "cost",
        "budget",
        "detail",
        "num_detail_steps",
        "is_over",
        "always_on",
        "core",
        "is_hidden",
    } == set(document(view)["probe"])  # type: ignore[call-overload]


def test_over_its_budget_is_said() -> None:
    """The always-on tier alone may take more than was allowed: then the line says both.

    Of steps of 370 ms whose first ones paid for a busy machine it was "because steps are short".
    """
    view = view_of(with_bursts(Job(), every=10, budget_ppm=100))
    assert view.probe is not None
    assert view.probe.is_over
    assert "of step, over its budget of 0.01 % without detail, too; detail" in " ".join(
        plain_summary(view).split()
    )


def test_what_makes_it_miss_its_budget_is_said() -> None:
    """20 us a step are within 0.2 % of some 17 ms; steps in detail of 300 us, one of five, are not."""
    sequence = with_bursts(Job(), every=10, budget_ppm=2000, detail_ns=300_000)
    work = view_of(sequence).probe
    assert work is not None
    assert work.is_over
    assert work.always_on == pytest.approx(0.0011, rel=0.2)
    told = " ".join(plain_summary(view_of(sequence)).split())
    assert "of step, over its budget of 0.2 % by what it sees in detail; detail" in told


def test_unknown_is_not_zero() -> None:
    """Without a word about the budget it is unknown, and without a steady step so is everything."""
    view = view_of(with_bursts(Job(), every=10, budget_ppm=None))
    assert view.probe is not None
    assert view.probe.budget is None
    assert view_of(frames(Job(num_steps=0))).probe is None


@pytest.mark.parametrize("sync_every", [1, 0])
def test_measured_steps_do_not_stand_for_all(sync_every: int) -> None:
    """The devices' clocks judge by one step in eight, which costs the thread six times as much as another.

    Where the device is always behind, the thread's time is nobody's loss, and that is said in place of the budget.
    """
    job = DeviceJob(num_ranks=2, num_steps=400, period=8, sync_every=sync_every)
    view = view_of_devices(job)
    assert "device" == view.clock
    assert view.probe is not None
    measured = len(measured_steps(job)) / job.num_steps
    mean_ns = measured * MEASURED_COST_NS + (1 - measured) * LIGHT_COST_NS
    assert view.step.mean_s is not None
    assert view.probe.cost == pytest.approx(mean_ns / 1e9 / view.step.mean_s, rel=0.1)
    assert view.probe.cost < 0.5 * MEASURED_COST_NS / 1e9 / view.step.mean_s
    assert view.probe.is_hidden == (sync_every == 0)
    assert ("hidden: the devices are a step behind" in plain_summary(view)) == (sync_every == 0)


def test_given_work_makes_the_throughput() -> None:
    """The batches say 32 samples a rank; the user says 1000 samples and 4 million tokens a step: that counts."""
    sequence = frames(Job())
    counted = view_of(sequence).step
    assert 4 * 32 == pytest.approx(counted.throughput_samples_s / counted.throughput_steps_s)  # type: ignore[operator]
    assert () == counted.given
    assert counted.throughput_tokens_s is None
    view = view_of([run_frame(samples_per_step=1000, tokens_per_step=4_000_000), *sequence])
    speed = view.step.throughput_steps_s
    assert speed is not None
    assert pytest.approx(1000 * speed) == view.step.throughput_samples_s
    assert pytest.approx(4e6 * speed) == view.step.throughput_tokens_s
    assert ("samples", "tokens") == view.step.given
    assert "step, samples and tokens as given" in plain_summary(view)


def test_the_command_line_wins_over_the_recording() -> None:
    """What is said at `diagnose` counts, field by field."""
    data = [encoded(frame) for frame in [run_frame(samples_per_step=1000, tokens_per_step=7), *frames(Job())]]
    step = diagnose(data, given=GivenWork(tokens_per_step=500)).step
    assert step.throughput_steps_s is not None
    assert pytest.approx(500 * step.throughput_steps_s) == step.throughput_tokens_s
    assert pytest.approx(1000 * step.throughput_steps_s) == step.throughput_samples_s


@pytest.mark.parametrize("value", [0, -5, 1 << 60])
def test_impossible_work_is_not_believed(value: int) -> None:
    """A recording may come from anybody."""
    view = view_of([run_frame(tokens_per_step=value), *frames(Job())])
    assert view.step.throughput_tokens_s is None
    assert () == view.step.given


def test_info_says_it(tmp_path: Path) -> None:
    """The work given at the recording, and what the probes did."""
    path = tmp_path / "run.tuirec"
    writer = RecordingWriter(str(path), encoded(run_frame(tokens_per_step=4_000_000)))
    sequence = with_bursts(Job(), every=10)
    for frame in sequence:
        writer.append(encoded(frame), 1)
    writer.close()
    assert path.stat().st_size > FILE_HEADER_BYTES
    data = [encoded(run_frame(tokens_per_step=4_000_000)), *map(encoded, sequence)]
    held = contents(str(path), data, read_summary(path))
    told = contents_document(held)
    assert {"tokens_per_step": 4_000_000} == told["given"]
    assert 0.0025 == told["probe"]["budget"]  # type: ignore[index, call-overload]
    shown = plain_contents(held)
    assert "4,000,000 tokens, as given" in shown
    assert "probe ≥ 0.11 % of step; detail 20 % of steps" in shown


@pytest.mark.parametrize(
    ("told", "core", "shown"),
    [
        ([None, None], "", "probe ≥ 0.1 % of step; detail 10 % of steps"),
        (["native", "native"], "native", "probe ≥ 0.1 % of step (native hooks); detail 10 % of steps"),
        (["python", None], "python", "probe ≥ 0.1 % of step (Python hooks); detail 10 % of steps"),
        (
            ["native", "python", "native"],
            "native on 2 of 3 ranks",
            "probe ≥ 0.1 % of step (hooks native on 2 of 3 ranks); detail 10 % of steps",
        ),
        (["rust"], "", "probe ≥ 0.1 % of step; detail 10 % of steps"),  # nothing that a probe says
    ],
)
def test_it_is_said_what_the_hooks_run_on(told: list[str | None], core: str, shown: str) -> None:
    """As the ranks say it; where one could not take the native core, how many did."""
    ranks = [RankFacts(rank=number, source="a", host="h") for number in range(len(told))]
    for fact, said in zip(ranks, told, strict=True):
        fact.greet({"core": said} if said else {})
    assert core == core_of(ranks)
    assert shown == probe_work(ProbeWork(0.001, 0.0025, 0.1, 3, is_over=False, core=core))


@pytest.mark.parametrize(
    ("phase", "num_detail_steps", "evidence", "asks"),
    [
        ("comm_exposed", 0, {}, True),
        ("comm_exposed", 3, {}, False),
        ("data_wait", 0, {}, False),
        ("data_wait", 0, {"loader_batches": None}, True),
        ("data_wait", 3, {"loader_batches": None}, False),
        ("data_wait", 0, {"loader_batches": 16}, False),  # seen before the window
    ],
)
def test_a_finding_that_single_calls_would_explain_asks_for_them(
    phase: str, num_detail_steps: int, evidence: dict[str, float | int | str | None], asks: bool
) -> None:
    """Of ranks 2 and 7, and no step of the window in detail: 3 s of it come first of what to measure."""
    finding = Finding(
        id="x", title="", pattern="P1", lens="", layer="", severity="info", ranks=(2, 7), hosts=(), phase=phase,
        since_step=None, evidence=evidence, loss_s_per_step=None, message="", measure_next=("else",), actions=(),
    )  # fmt: skip
    work = ProbeWork(0.001, 0.0025, 0.1, num_detail_steps, is_over=False)
    wanted = with_burst_wanted(finding, work).measure_next
    assert asks == (wanted[0] == "3 s of detail on ranks 2 and 7, each call one by one: key D while watching")
    assert "else" == wanted[-1]


def test_what_an_earlier_process_of_a_rank_lost_is_lost_still() -> None:
    """Each process, and each probe put in anew, counts from 0: a counter that goes back hides what was lost."""
    facts = RankFacts(rank=0, source="a", host="h")
    told = []
    for value in (0, 5, 5, 0, 2, 1):
        facts.update({"lost_events": value, "lost_steps": 2 * value, "hooks_disabled": value}, None)
        told.append((facts.lost_events, facts.lost_steps, facts.hooks_disabled))
    assert told == [(0, 0, 0), (5, 10, 5), (5, 10, 5), (5, 10, 0), (7, 14, 2), (8, 16, 1)]
