"""Two recordings compared on simulated trainings whose step times are known."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshot import views
from synthetic_run import MS, Fault, Job, encoded, frames
from thinned import num_examples, thinned

from tuiadvisor.advisor.compare.bottlenecks import bottleneck, finding_changes
from tuiadvisor.advisor.compare.comparable import busier, terms
from tuiadvisor.advisor.compare.comparing import (
    ComparisonOptions,
    Measured,
    _detectable,
    _steps_to_decide,
    _verdict,
    compare,
    measure,
)
from tuiadvisor.advisor.compare.verdict_words import plain, sentence_of, why_blind
from tuiadvisor.events import STEP_NAMES
from tuiadvisor.report.comparison import comparison_document
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns, unpack_columns
from tuiadvisor.tui.pages.comparison import plain_comparison
from tuiadvisor.views.comparison import Change, Comparison, Gate, MachineLoad, WorkUnit

pytestmark = pytest.mark.slow

JOB = Job(num_ranks=2, num_steps=240)
BYTES = 268_840


def with_unit(parts: list[Frame], **columns: int) -> list[Frame]:
    """The same frames with other constant columns."""
    result = []
    for frame in parts:
        if frame.kind == FrameKind.STEPS:
            table = unpack_columns(frame.payload, STEP_NAMES)
            for name, value in columns.items():
                table[name][:] = value
            rows = list(zip(*(table[name].tolist() for name in STEP_NAMES), strict=True))
            result.append(replace(frame, payload=pack_columns(rows, STEP_NAMES)))
        else:
            result.append(frame)
    return result


def host_frames(busy: float, wait: float = 0.01, num_samples: int = 10) -> list[Frame]:
    """Host samples of a machine with two cores that ranks hardly use."""
    return [
        Frame(
            FrameKind.HOST,
            "node0/1/1",
            10_000 + index,
            index * 10**9 + 1,
            {
                "host": "node0",
                "mono_ns": index * 10**9 + 1,
                "wall_ns": index * 10**9 + 1,
                "cpu": busy,
                "num_cpus": 2,
                "ranks": [
                    {"rank": rank, "cpu_s": 0.1 * index, "run_delay_s": wait * index} for rank in range(2)
                ],
            },
        )
        for index in range(num_samples)
    ]


def measured(job: Job, busy: float | None = None, wait: float = 0.01, **columns: int) -> Measured:
    """A run, read as from a file."""
    parts = with_unit(frames(job), **{"comm_bytes": BYTES, **columns})
    if busy is not None:
        parts = [*parts, *host_frames(busy, wait)]
    return measure("run.tuirec", map(encoded, parts))


def scaled(factor: float, seed: int = 1, job: Job = JOB) -> Job:
    """All of the step's own work takes so much longer."""
    return replace(
        job,
        seed=seed,
        data_s=job.data_s * factor,
        forward_s=job.forward_s * factor,
        backward_s=job.backward_s * factor,
        optimizer_s=job.optimizer_s * factor,
        other_s=job.other_s * factor,
        transfer_s=job.transfer_s * factor,
        spike_s=job.spike_s * factor,
    )


@pytest.fixture(scope="module")
def before() -> Measured:
    return measured(JOB)


def ratio(found: Comparison) -> float:
    assert found.change.ratio is not None
    return found.change.ratio


def test_a_run_against_itself_has_not_changed(before: Measured) -> None:
    """The same recording twice: no change, ratio one, every phase the same, no finding resolved or new."""
    found = compare(before, before)
    assert ("no change", 1.0) == (found.verdict, ratio(found))
    assert [0.0] * 7 == [entry.change_s for entry in found.phases if entry.change_s is not None]
    assert not any(entry.significant for entry in found.phases)
    assert not found.bottleneck.moved
    assert () == found.environment


@pytest.mark.parametrize("seed", thinned([2, 3, 4, 5, 6, 7], [2, 5]))
def test_the_same_code_again_has_not_changed(before: Measured, seed: int) -> None:
    """Another run of the same training, other noise: no verdict, even with long spikes."""
    assert "no change" == compare(before, measured(replace(JOB, seed=seed))).verdict
    noisy = replace(JOB, noise=0.3, spike_chance=0.1, spike_s=20 * MS)
    loud = compare(measured(noisy), measured(replace(noisy, seed=seed)))
    assert loud.verdict in {"no change", "not decided"}


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.25, "regressed"), (0.8, "improved"), (1.005, "no change")]
)
def test_known_changes(before: Measured, factor: float, verdict: str) -> None:
    """The truth lies in the interval, and the verdict has its sign."""
    found = compare(before, measured(scaled(factor)))
    assert verdict == found.verdict
    assert found.change.low is not None
    assert found.change.high is not None
    assert found.change.low <= factor <= found.change.high
    assert "step" == found.basis


@settings(max_examples=num_examples(15), deadline=None)
@given(
    st.sampled_from([0.6, 0.75, 0.9, 1.1, 1.3, 1.7]),
    st.sampled_from([0.05, 0.2, 0.5]),
    st.integers(0, 1000),
)
def test_never_the_wrong_direction_and_swapping_inverts(factor: float, noise: float, seed: int) -> None:
    """Whatever the noise: no faster run is called slower, and AFTER against BEFORE says the opposite.

    Equal runs are judged above, on fixed seeds: a 95 % interval may miss now and then (2 of 600 did).
    """
    job = replace(JOB, num_steps=120, noise=noise, seed=seed)
    old, new = measured(job), measured(scaled(factor, seed + 1, job))
    there, back = compare(old, new), compare(new, old)
    allowed = {"no change", "not decided", "regressed" if factor > 1 else "improved"}
    assert there.verdict in allowed
    opposite = {"regressed": "improved", "improved": "regressed"}
    assert opposite.get(there.verdict, there.verdict) == back.verdict
    assert 1 / ratio(there) == pytest.approx(ratio(back), rel=1e-9)


def test_the_phase_that_grew_is_named(before: Measured) -> None:
    """Five milliseconds more in forward are found there and nowhere else."""
    found = compare(before, measured(JOB.with_faults(Fault("forward", None, 5 * MS))))
    assert ["forward"] == [entry.phase for entry in found.phases if entry.significant]
    (forward,) = [entry for entry in found.phases if entry.phase == "forward"]
    assert forward.low_s is not None
    assert forward.high_s is not None
    assert forward.low_s <= 5 * MS <= forward.high_s
    assert "regressed" == found.verdict


def test_rates_stand_without_an_exponent() -> None:
    """It said "1.048e+04 samples/s"."""
    assert ("10,477", "41.7") == (plain(10_477.4), plain(41.7))


def test_what_the_first_run_only_remarked_is_not_new() -> None:
    """It said "new: oversubscribed host" beside a first run that has the same as a remark; its name is a title."""
    late = views.straggler()
    found = late.findings[0]
    crowd = replace(
        found, id="crowded_host", title="Oversubscribed host: the ranks wait for cores", severity="info",
        ranks=(), phase=None, loss_s_per_step=None,
    )  # fmt: skip
    before = replace(late, findings=(found, crowd))
    after = replace(late, findings=(replace(crowd, severity="warning"),))
    states = {entry.id: entry.state for entry in finding_changes(before, after)}
    assert states["crowded_host"] == "uncovered"
    assert {entry.id: entry.state for entry in finding_changes(after, before)}["crowded_host"] == "hidden"
    assert {"new"} == {
        entry.state
        for entry in finding_changes(replace(late, findings=(found,)), after)
        if entry.id == "crowded_host"
    }
    said = bottleneck(before, after).sentence
    assert said.endswith("to oversubscribed host: the ranks wait for cores.")
    assert "_" not in said


def test_a_remark_that_costs_little_is_told_with_its_cost_in_both_directions() -> None:
    """Where seconds are known they say whether it is there, and the other way round they say the same."""
    late = views.straggler()
    found = replace(late.findings[0], id="crowded_host", phase=None, severity="warning")
    for share, states in ((0.1, ("new", "resolved")), (0.9, ("uncovered", "hidden"))):
        remark = replace(found, severity="info", loss_s_per_step=share * (found.loss_s_per_step or 0.0))
        one, other = replace(late, findings=(remark,)), replace(late, findings=(found,))
        (there,), (back,) = finding_changes(one, other), finding_changes(other, one)
        assert states == (there.state, back.state)
        costs = (remark.loss_s_per_step, found.loss_s_per_step)
        assert costs == (there.loss_before_s, there.loss_after_s) == (back.loss_after_s, back.loss_before_s)


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ("comm_exposed", "the largest loss left is exposed communication."),
        ("backward", "the largest part left is backward."),
        (None, "a step."),
    ],
)
def test_what_is_left_is_a_loss_or_a_part_by_its_name(left: str | None, words: str) -> None:
    """4.7 ms of exposed communication beside 21.6 ms of backward were "the longest part left"."""
    old = measured(replace(JOB, num_ranks=4).with_faults(Fault("data", None, 12 * MS))).view
    new = measured(replace(JOB, num_ranks=4)).view
    new = replace(new, findings=(), verdict=replace(new.verdict, decision="keep", next_constraint=left))
    said = bottleneck(old, new).sentence
    assert said.startswith("The bottleneck is gone: training waits for data loading")
    assert said.endswith(words)


def test_the_bottleneck_moves() -> None:
    """Input-bound before; after the fix a straggler shows, and the sentence says both."""
    old = measured(replace(JOB, num_ranks=4).with_faults(Fault("data", None, 12 * MS)))
    new = measured(replace(JOB, num_ranks=4).with_faults(Fault("backward", (2,), 8 * MS)))
    found = compare(old, new)
    assert "improved" == found.verdict
    assert found.bottleneck.moved
    assert found.bottleneck.sentence.startswith("The bottleneck moved from training waits for data loading")
    assert "others wait for rank 2 (backward)" in found.bottleneck.sentence
    assert {"input_bound": "resolved", "straggler": "new"} == {
        entry.id: entry.state for entry in found.findings
    }
    assert "The bottleneck is the same" in compare(old, old).bottleneck.sentence


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("comm", None, 20 * MS), ("communication_bound", "comm_exposed")),
        (Fault("data", None, 4 * MS), ("input_bound", "data_wait")),
        (Fault("data", (0,), 5 * MS), ("straggler", "data_wait")),
    ],
)
def test_what_another_finding_hides_is_not_resolved(fault: Fault, kind: tuple[str, str]) -> None:
    """The same loss in a step that grew fourfold for another reason is still there; the other way round, no news."""
    job = replace(JOB, num_ranks=4)
    alone = measured(job.with_faults(fault))
    beside = measured(job.with_faults(fault, Fault("forward", (2,), 90 * MS)))

    def state(first: Measured, second: Measured) -> str:
        return {(entry.id, entry.phase): entry.state for entry in compare(first, second).findings}[kind]

    assert state(alone, beside) in {"hidden", "remaining"}
    assert state(beside, alone) in {"uncovered", "remaining"}
    cured = measured(job.with_faults(Fault("forward", (2,), 90 * MS)))
    assert "resolved" == state(alone, cured)
    assert "new" == state(cured, alone)


def test_checkpoints_count_although_steady_steps_are_the_same(before: Measured) -> None:
    """A pause every 10 steps leaves steady steps alone; the verdict rests on all steps then."""
    job = JOB.with_faults(Fault("checkpoint", (0,), 60 * MS, every=10))
    found = compare(before, measured(job))
    assert not found.steady.significant
    assert found.every_step.significant
    assert "regressed" == found.verdict
    assert "pauses included" in found.sentence


@pytest.mark.parametrize(("low", "high"), [(0.59, 1_511_554.0), (6.6e-7, 1.7)])
def test_an_interval_of_decades_is_no_figure(low: float, high: float) -> None:
    """Of a run that other jobs made now fast, now slow, it was "-41.3 to +151155397.7 %"."""
    change = Change(0.07, 0.047, 0.67, low, high, significant=False)
    terms_of_steps = terms(
        WorkUnit(2, 64.0, None, BYTES, 1, 1), WorkUnit(2, 64.0, None, BYTES, 1, 1), same_work=False
    )
    said = sentence_of("not decided", [], terms_of_steps, change, is_steady=True)
    assert said.startswith("Not decided: a step takes 47 ms instead of 70 ms")
    assert "%" not in said
    assert _detectable(change, 0.02) is None
    assert "no change would be seen" in why_blind(Gate(0.05, None), None)
    usual = replace(change, low=0.6, high=1.1)
    assert "-40.0 to +10.0 %" in sentence_of("no change", [], terms_of_steps, usual, is_steady=True)
    assert _detectable(usual, 0.02) is not None


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.482, 1.217, "not decided"),  # a walk: -51.8 to +21.7 %, and screen 7 said NO CHANGE
        (1.01, 1.30, "not decided"),
        (0.97, 1.04, "no change"),
        (1.002, 1.013, "no change"),
        (1.03, 1.20, "regressed"),
        (0.80, 0.97, "improved"),
    ],
)
def test_no_change_is_said_only_of_a_small_interval(low: float, high: float, verdict: str) -> None:
    middle = math.sqrt(low * high)
    is_sure = low > 1.02 or high < 1 / 1.02
    assert verdict == _verdict(Change(0.07, 0.07 * middle, middle, low, high, significant=is_sure))


def test_what_is_not_decided_says_what_it_takes(before: Measured) -> None:
    """Whoever follows it gets an answer: each estimate rests on the steps before, so it may take a second one."""
    wild = replace(JOB, num_steps=60, noise=0.6)
    verdicts = []
    for _ in range(4):
        found = compare(measured(wild), measured(replace(wild, seed=3)))
        verdicts.append(found.verdict)
        if found.verdict != "not decided":
            break
        said = re.search(r"it takes about ([\d,]+) more steady steps in each recording", found.sentence)
        assert said is not None, found.sentence
        wild = replace(wild, num_steps=wild.num_steps + int(said[1].replace(",", "")))
    assert (verdicts[0], verdicts[-1]) == ("not decided", "no change")
    wide = replace(found.change, ratio=1.035, low=0.6, high=1.7)
    assert _steps_to_decide(wide, 0.02, 100) is None, "on the border no number of steps is an answer"


def test_another_model_is_not_compared(before: Measured) -> None:
    """Other gradient bytes: neither a step nor a sample is the same work."""
    found = compare(before, measured(JOB, comm_bytes=2 * BYTES))
    assert ("not comparable", None, ()) == (found.verdict, found.basis, found.phases)
    assert "gradient bytes a rank 268,840 before, 537,680 after" in found.sentence
    vouched = compare(before, measured(JOB, comm_bytes=2 * BYTES), ComparisonOptions(same_work=True))
    assert "samples" == vouched.basis


def test_nothing_is_said_to_have_moved_between_runs_that_are_not_compared() -> None:
    """Of a hang's dumps and a run with steps it said "moved" and "resolved" after "not comparable"."""
    old = measured(replace(JOB, num_ranks=4).with_faults(Fault("data", None, 12 * MS)))
    new = measured(replace(JOB, num_ranks=8).with_faults(Fault("backward", (2,), 8 * MS)), samples=-1)
    found = compare(old, new)
    assert "not comparable" == found.verdict
    assert {"input_bound": "before", "straggler": "after"} == {
        entry.id: entry.state for entry in found.findings
    }
    assert not found.bottleneck.moved
    assert found.bottleneck.sentence.startswith(
        "Not compared: before, training waits for data loading (data wait)"
    )
    assert found.goodput is not None
    assert ("not comparable", None) == (found.goodput.answer, found.goodput.improved)
    assert found.goodput.sentence.endswith(
        "whether that is better is not judged between runs that are not comparable."
    )


def test_what_another_model_does_not_lose_is_not_resolved() -> None:
    """Of a VAE that waits for data and a GPT that waits for gradients it said "moved", "resolved" and "new"."""
    old = measured(replace(JOB, num_ranks=4).with_faults(Fault("data", None, 12 * MS)))
    new = measured(
        replace(JOB, num_ranks=4).with_faults(Fault("backward", (2,), 8 * MS)), comm_bytes=2 * BYTES
    )
    found = compare(old, new)
    assert {"input_bound": "before", "straggler": "after"} == {
        entry.id: entry.state for entry in found.findings
    }
    assert not found.bottleneck.moved
    assert found.bottleneck.sentence.startswith("Two models: before, training waits for data loading")
    assert found.goodput is not None
    assert (None, None) == (found.goodput.improved, found.throughput.ratio)
    assert re.fullmatch(
        r"Goodput of the steady steps: \d+ % before, \d+ % after; whether that is better is not judged between two "
        r"models\.",
        found.goodput.sentence,
    ), found.goodput.sentence
    assert "not comparable" == found.goodput.answer
    assert "tuiadvisor advise run.tuirec run.tuirec" in found.sentence
    assert {"input_bound": "both"} == {entry.id: entry.state for entry in compare(old, measured(
        replace(JOB, num_ranks=4).with_faults(Fault("data", None, 12 * MS)), comm_bytes=2 * BYTES
    )).findings}  # fmt: skip


def test_another_batch_is_compared_by_throughput(before: Measured) -> None:
    """Twice the samples in steps 1.25 times as long: 1.6 times the throughput."""
    found = compare(before, measured(scaled(1.25), samples=64))
    assert ("samples", "improved") == (found.basis, found.verdict)
    assert 1 / 1.6 == pytest.approx(ratio(found), rel=0.02)
    assert "samples a step 64 before, 128 after" in found.cautions[0]


def test_another_world_size_is_compared_per_device(before: Measured) -> None:
    """Four ranks with their own 32 samples in the same step: each device does the same, the job twice as much."""
    found = compare(before, measured(replace(JOB, num_ranks=4, seed=3, spike_chance=0.0)))
    assert "samples_per_device" == found.basis
    assert 1.0 == pytest.approx(ratio(found), abs=0.06)
    assert found.throughput.ratio is not None
    assert 0.5 == pytest.approx(found.throughput.ratio, abs=0.03)
    assert any("all devices together do" in text for text in found.cautions)


def test_unknown_work_is_not_compared_unless_vouched_for() -> None:
    """No samples seen in either run: one line says what is unknown and which option says it is the same."""
    old, new = measured(JOB, samples=-1), measured(scaled(1.3), samples=-1)
    found = compare(old, new)
    assert "not comparable" == found.verdict
    assert "samples a step" in found.sentence
    assert "--same-work" in found.sentence
    assert "regressed" == compare(old, new, ComparisonOptions(same_work=True)).verdict


@pytest.mark.parametrize(
    ("shapes", "basis", "words"),
    [
        (("64x512", "64x512"), "step", "the model is called with 64x512 in both, taken to be as often"),
        (("64x512", "32x512"), None, "the model's input 64x512 before, 32x512 after"),
        (("64x512", None), None, "unknown: samples a step"),
    ],
)
def test_a_loop_that_makes_its_batches_itself_is_compared_by_what_its_model_is_called_with(
    shapes: tuple[str, str | None], basis: str | None, words: str
) -> None:
    """No loader tells a batch there, and every comparison of such a job ended with the option to vouch for it."""
    old, new = (
        of_model(job, -1, **({"input": shape, "input_dtype": "float32"} if shape else {}))
        for job, shape in zip((JOB, scaled(1.3)), shapes, strict=True)
    )
    found = compare(old, new)
    assert basis == found.basis
    assert any(words in text for text in (*found.cautions, found.sentence))
    if basis == "step":
        assert "regressed" == found.verdict


def of_model(job: Job, samples: int, **facts: int | str) -> Measured:
    """A run whose ranks told their model."""
    known: list[Frame] = []
    for frame in with_unit(frames(job), comm_bytes=BYTES, samples=samples, tokens=-1):
        told = frame.payload.get("ranks", []) if frame.kind == FrameKind.HELLO else []  # type: ignore[attr-defined]
        ranks = [{**entry, "model": {"models": 1, "params": 1000, **facts}} for entry in told]
        known.append(replace(frame, payload={**frame.payload, "ranks": ranks}) if ranks else frame)  # type: ignore[dict-item]
    return measure("run.tuirec", map(encoded, known))


@pytest.mark.parametrize(
    ("samples", "facts", "batch"),
    [
        # Rows of ids of one call, two micro-batches, two ranks: no loader tells them.
        (-1, {"input": "8x512", "input_dtype": "int64", "micro_steps": 2}, 8 * 2 * 2),
        (32, {"mesh": "tp=2"}, 32),  # both ranks work on the same 32
        (-1, {"input": "8x3x32x32", "input_dtype": "float32", "micro_steps": 2}, None),
    ],
)
def test_a_steps_samples_are_those_that_diagnose_tells(
    samples: int, facts: dict[str, int | str], batch: int | None
) -> None:
    """It knew none beside a throughput that is known, and counted one batch once for each rank that works on it."""
    run = of_model(JOB, samples, **facts)
    assert batch == run.unit.samples_per_step
    step = run.view.step
    told = step.throughput_samples_s and step.throughput_samples_s * (step.mean_with_pauses_s or 0.0)
    assert batch == (told and pytest.approx(told))
    slower = of_model(scaled(1.3), samples, **facts)
    assert "regressed" == compare(run, slower).verdict  # without a batch by what the model is called with


def test_a_rank_that_was_not_recorded_leaves_the_batch_unknown(before: Measured) -> None:
    """One of two ranks is missing: its samples are not guessed."""
    found = compare(before, measured(replace(JOB, missing=(1,))))
    assert found.after.unit.samples_per_step is None
    assert "not comparable" == found.verdict


def test_too_few_steps(before: Measured) -> None:
    """Ten steps are no evidence, and the sentence says how many more are needed."""
    found = compare(before, measured(replace(JOB, num_steps=10)))
    assert "not comparable" == found.verdict
    assert "more steady steps are needed" in found.sentence


def test_a_busier_machine_withholds_what_it_may_explain() -> None:
    """Slower only in waiting for each other, on a machine full of others' work: no verdict, unless asked for."""
    quiet = measured(JOB, busy=0.3)
    slow_comm = measured(JOB.with_faults(Fault("comm", None, 3 * MS)), busy=1.0)
    found = compare(quiet, slow_comm)
    assert "not comparable" == found.verdict
    assert "the machine was busier after" in found.sentence
    assert "regressed" == compare(quiet, slow_comm, ComparisonOptions(ignore_load=True)).verdict
    slow_forward = compare(quiet, measured(JOB.with_faults(Fault("forward", None, 5 * MS)), busy=1.0))
    assert "regressed" == slow_forward.verdict, "computing longer is not the load's"
    assert any("busier" in text for text in slow_forward.cautions)
    assert (
        "regressed"
        == compare(quiet, measured(JOB.with_faults(Fault("comm", None, 3 * MS)), busy=0.3)).verdict
    )


def test_waiting_for_a_core_is_not_the_codes_doing() -> None:
    """Both machines full, but the slower run's ranks waited a fifth of the time for a core: that explains 20 %."""
    calm, crowded = measured(JOB, busy=1.0, wait=0.01), measured(scaled(1.2), busy=1.0, wait=0.2)
    found = compare(calm, crowded)
    assert "not comparable" == found.verdict
    assert "ranks waited for a core 20 % of the time; before 1 % of the time" in found.sentence
    assert "not comparable" == compare(crowded, calm).verdict
    assert "regressed" == compare(calm, measured(scaled(1.8), busy=1.0, wait=0.2)).verdict, (
        "more than it explains"
    )


@pytest.mark.parametrize(
    ("factor", "limit", "exceeded"),
    [(1.3, 0.05, True), (1.3, 0.5, False), (1.0, 0.05, False), (0.7, 0.05, False)],
)
def test_the_gate(before: Measured, factor: float, limit: float, exceeded: bool) -> None:
    """Exceeded only when the whole interval lies beyond the limit."""
    gate = compare(before, measured(scaled(factor)), ComparisonOptions(fail_if_slower=limit)).gate
    assert gate is not None
    assert exceeded is gate.exceeded


def test_a_gate_that_is_blind_does_not_pass() -> None:
    """Recordings in which no slowdown of the limit would be seen, and that do not exclude one, decide nothing."""
    noisy = replace(JOB, num_steps=60, noise=0.5, seed=3)
    found = compare(measured(noisy), measured(scaled(1.0, 4, noisy)), ComparisonOptions(fail_if_slower=0.01))
    assert found.gate is not None
    assert found.smallest_detectable is not None
    assert found.smallest_detectable > 0.01
    assert found.gate.exceeded is None
    assert any("cannot tell" in caution for caution in found.cautions)


def test_the_gate_cannot_tell_what_is_not_comparable(before: Measured) -> None:
    """Another model neither passes nor fails."""
    gate = compare(before, measured(JOB, comm_bytes=1), ComparisonOptions(fail_if_slower=0.05)).gate
    assert gate is not None
    assert gate.exceeded is None


def test_long_runs_are_compared_on_all_their_steps() -> None:
    """More steps than the recent window holds: all but the first few count."""
    job = Job(num_ranks=2, num_steps=3000)
    found = measured(job)
    assert 2900 < found.series.step_s_K.size <= 3000
    assert found.series.step_s_K.size == found.series.phase_s_PK.shape[1]


def test_json_and_text_say_the_same(before: Measured) -> None:
    """The document has the promised keys; the text fits 80 columns and begins with the verdict."""
    found = compare(before, measured(scaled(1.3)), ComparisonOptions(fail_if_slower=0.05))
    document = comparison_document(found)
    assert (1, "regressed") == (document["schema"], document["verdict"])
    assert {"limit": 0.05, "exceeded": True} == document["fail_if_slower"]
    text = plain_comparison(found, plain_ascii=True, width=80)
    assert text.startswith("Regressed: a step takes")
    assert max(map(len, text.splitlines())) <= 80
    assert "limit of 5.0 % slower: exceeded" in text


def test_what_may_be_load_is_why_a_limit_cannot_be_told() -> None:
    """It was put down to rare pauses, or to recordings in which so much would not be seen."""
    slower = measured(JOB.with_faults(Fault("forward", None, 5 * MS), Fault("comm", None, 3 * MS)), busy=1.0)
    quiet = measured(JOB, busy=0.3)
    found = compare(quiet, slower, ComparisonOptions(fail_if_slower=0.35))
    assert ("regressed", None) == (found.verdict, found.gate.exceeded if found.gate else False)
    assert "cannot tell whether it is 35 % slower: it may be what the busier machine explains" in "".join(
        found.cautions
    )
    alike = compare(quiet, slower, ComparisonOptions(fail_if_slower=0.35, ignore_load=True))
    assert alike.gate is not None
    assert alike.gate.exceeded


def test_more_ranks_that_wait_for_cores_are_no_busier_machine() -> None:
    """Four ranks on two cores wait for each other's; only others' work counts then."""
    four = MachineLoad(busy=1.0, other_cores=1.6, num_cpus=2, wait_for_core=0.4)
    two = MachineLoad(busy=1.0, other_cores=1.7, num_cpus=2, wait_for_core=0.1)
    assert "busier" in (busier(two, four, is_after=True) or "")
    assert None is busier(two, four, is_after=True, as_many_ranks=False)
    quiet = replace(two, other_cores=0.2)
    assert "busier" in (busier(quiet, four, is_after=True, as_many_ranks=False) or "")


@pytest.mark.parametrize(
    ("others", "waits", "words"),
    [
        (  # it went on with ranks that waited more on the side that was said to be calmer
            (1.8, 1.5), (0.11, 0.33),
            "the machine was busier before: other processes used 1.8 of 2 cores; after 1.5 of 2 cores",
        ),
        (
            (1.6, 1.7), (0.4, 0.1),
            "the machine was busier before: ranks waited for a core 40 % of the time; after 10 % of the time",
        ),
        (
            (1.8, 1.2), (0.4, 0.1),
            (
                "the machine was busier before: other processes used 1.8 of 2 cores, ranks waited for a core "
                "40 % of the time; after 1.2 of 2 cores, 10 % of the time"
            ),
        ),
    ],
)  # fmt: skip
def test_a_busier_machine_is_told_by_what_says_so(
    others: tuple[float, float], waits: tuple[float, float], words: str
) -> None:
    before, after = (
        MachineLoad(1.0, other_cores=other, num_cpus=2, wait_for_core=wait)
        for other, wait in zip(others, waits, strict=True)
    )
    assert busier(before, after, is_after=False) == words


ALONE = WorkUnit(1, 8.0, 512.0, None, None, 1, 918_736)  # one process exchanges no gradients


def test_another_model_is_known_by_its_parameters_where_no_gradients_are_exchanged() -> None:
    """Half as fast at twice the parameters is no regression."""
    found = terms(ALONE, replace(ALONE, num_parameters=2_096_592), same_work=False)
    assert found.basis is None
    assert found.reasons[0].startswith("918,736 parameters before, 2,096,592 after: not the same model")
    assert terms(ALONE, ALONE, same_work=False).basis == "samples"
    assert terms(ALONE, replace(ALONE, num_parameters=None), same_work=False).basis == "samples"


def test_gradients_of_another_precision_are_of_the_same_model() -> None:
    """Sending bfloat16 is what is to be compared; another model of the same bytes is not."""
    ddp = WorkUnit(2, 64.0, None, 4_000_000, 2, 1, 1_000_000)
    half = terms(ddp, replace(ddp, gradient_bytes=2_000_000), same_work=False)
    assert half.basis == "samples"
    assert "gradient bytes a rank 4,000,000 before, 2,000,000 after" in half.cautions[0]
    other = terms(ddp, replace(ddp, num_parameters=2_000_000), same_work=False)
    assert other.basis is None


def test_two_scripts_are_named_first_where_nothing_is_compared(before: Measured) -> None:
    """Two jobs were "not comparable: ranks 2 before, 1 after": what explains that stood at the end of the page."""
    run = replace(before.view.run, label="tiny.py")
    other = replace(measured(JOB, comm_bytes=1), view=replace(before.view, run=run))
    found = compare(before, other)
    assert found.sentence.startswith(f"Not comparable: {before.view.run.label} before, tiny.py after; ")
    same_work = replace(before, view=replace(before.view, run=run))
    assert "no change" == compare(before, same_work).verdict, "a script may be renamed"


def test_goodput_is_not_decided_where_the_steps_are_not() -> None:
    """It "became worse" beneath a verdict that knew of no change, for the windows that two views had judged."""
    few = replace(JOB, num_steps=70, noise=0.6)
    pairs = [
        compare(measured(replace(few, seed=seed)), measured(replace(few, seed=seed + 1))) for seed in range(8)
    ]
    open_ones = [
        found.goodput for found in pairs if found.verdict == "not decided" and found.goodput is not None
    ]
    assert open_ones, "nothing here is open"
    for goodput in open_ones:
        assert goodput.improved is None
        assert goodput.answer in {"not decided", "unknown"}
        assert "became worse" not in goodput.sentence
