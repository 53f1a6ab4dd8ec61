"""Pauses that come now and then, and what one rank does alone between steps: named, sized, kept out of the mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import (
    HOOKED,
    MS,
    STEP_NAMES,
    Fault,
    Job,
    Simulated,
    above_info,
    final_view,
    folded,
    frames,
    simulate,
)
from test_advisor_oddities import status
from thinned import crossed

from tuiadvisor.events import StepFlag
from tuiadvisor.report.document import document
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.views.run_view import Finding, PauseView, RunView

pytestmark = pytest.mark.slow

PHASES = {
    "data": "data_wait",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "other",
}
WITH_EVAL = (*HOOKED, "eval")
STEADY_S = {2: 18.0 * MS, 4: 18.5 * MS, 8: 19.0 * MS}


def once(kind: str, rank: int, length_s: float, step: int) -> Fault:
    """One pause."""
    return Fault(kind, (rank,), length_s, onset=step, until=step + 1)


def pauses(view: RunView) -> tuple[list[Finding], tuple[PauseView, ...]]:
    """What was found, and what is listed."""
    found = [finding for finding in view.findings if finding.id == "irregular_pause"]
    return found, tuple(pause for pause in view.pauses if pause.kind == "irregular")


def of(job: Job, *more: Frame) -> RunView:
    """The view after all frames."""
    return folded([*frames(job), *more]).view()


def assert_sums(view: RunView) -> None:
    """Phases sum to the step, for the job and for each rank, and all ranks' steps are as long."""
    total = sum(value or 0.0 for value in view.step.seconds.values())
    assert view.step.mean_s == pytest.approx(total, rel=0.01)
    for row in view.ranks:
        assert row.step_s == pytest.approx(sum(value or 0.0 for value in row.seconds.values()), rel=0.01)
        assert view.step.mean_s == pytest.approx(row.step_s, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "num_ranks", "num_steps", "step"),
    crossed(
        PHASES,
        [pytest.param(*each) for each in ((2, 300, 100), (4, 400, 250), (2, 60, 30), (8, 120, 117))],
    ),
)
def test_one_pause_of_one_rank_is_told_and_nothing_else(
    kind: str, num_ranks: int, num_steps: int, step: int
) -> None:
    """3 s of one rank: rank, step, length, phase; the steps beside it stay what they are, and nobody is a straggler."""
    job = Job(num_ranks=num_ranks, num_steps=num_steps, faults=(once(kind, 1, 3.0, step),))
    view = of(job)
    found, (listed,) = pauses(view)
    assert ((1,), (step,), PHASES[kind]) == (listed.ranks, listed.steps, listed.phase)
    assert 3.0 == pytest.approx(listed.length_s, rel=0.02)
    assert [((1,), step, "info")] == [(f.ranks, f.since_step, f.severity) for f in found]
    assert [] == above_info(view)
    assert "taking_turns" not in {finding.id for finding in view.findings}
    assert STEADY_S[num_ranks] == pytest.approx(view.step.mean_s, rel=0.03)
    assert f"Rank 1 paused once, for {3.0:.3g} s at step {step}" in view.verdict.sentence
    assert view.goodput_losses["pause_rank_1"] == pytest.approx(listed.share, rel=0.02)
    assert_sums(view)


@pytest.mark.parametrize(("step", "kind"), crossed([1, 2, 3, 118, 119], ["forward", "backward"]))
def test_a_pause_in_the_first_or_last_steps_is_no_warm_up(kind: str, step: int) -> None:
    """However early one rank alone holds up the others: it is its pause."""
    view = of(Job(num_steps=120, faults=(once(kind, 2, 3.0, step),)))
    _, (listed,) = pauses(view)
    assert ((2,), (step,)) == (listed.ranks, listed.steps)
    assert "warmup" not in view.window.excluded
    assert [] == above_info(view)


def test_a_pause_after_the_last_barrier_spoils_its_record_alone() -> None:
    """Nobody has waited for it yet, so it costs nothing so far; the step of its rank is no steady one."""
    view = of(Job(num_steps=120, faults=(once("other", 2, 3.0, 119),)))
    assert ([], ()) == pauses(view)
    assert_sums(view)


def test_a_rank_whose_arrival_was_not_seen_is_named_by_what_it_did_before() -> None:
    """The recording ends while rank 2's next record is under way: its last one holds the pause."""
    job = Job(num_steps=120, faults=(once("other", 2, 3.0, 118),))
    run = simulate(job)
    cut = Simulated({**run.rows, 2: run.rows[2][:-1]}, run.cycle_s)
    gone = status(job, 90, 60.0, state=dict.fromkeys(range(4), "detached"))
    _, (listed,) = pauses(folded([*frames(job, simulated=cut), gone]).view())
    assert ((2,), (118,), "other") == (listed.ranks, listed.steps, listed.phase)


def test_three_pauses_at_irregular_times_are_worth_acting_on() -> None:
    """2 s each, of the same rank, in different phases: one finding with all three."""
    faults = (once("backward", 2, 2.0, 50), once("data", 2, 2.0, 173), once("other", 2, 2.0, 391))
    view = of(Job(num_steps=400, faults=faults))
    (finding,), (listed,) = pauses(view)
    assert (50, 173, 391) == listed.steps
    assert (2.0, 2.0, 2.0) == pytest.approx(listed.lengths_s, rel=0.02)
    assert [("irregular_pause", (2,), None)] == above_info(view)
    assert "3 times, for 2 s on average, at steps 50, 173 and 391" in finding.message
    assert "in more than one phase" in finding.message
    assert view.verdict.speedup is not None
    assert 33.7 / 18.6 == pytest.approx(view.verdict.speedup.expected, rel=0.03)


def test_pauses_of_several_ranks_are_a_finding_each() -> None:
    """Rank 1 once, rank 3 once: two remarks, no straggler, no wandering."""
    view = of(Job(num_steps=300, faults=(once("forward", 1, 3.0, 90), once("backward", 3, 1.5, 200))))
    found, listed = pauses(view)
    assert [((1,), 90), ((3,), 200)] == [(finding.ranks, finding.since_step) for finding in found]
    assert [(1,), (3,)] == [pause.ranks for pause in listed]
    assert [] == above_info(view)
    assert {"pause_rank_1", "pause_rank_3"} <= set(view.goodput_losses)


def test_two_ranks_stopped_in_the_same_step_are_named_together() -> None:
    """Half of the ranks arrive late alike."""
    view = of(Job(num_steps=300, faults=(Fault("backward", (0, 3), 2.0, onset=80, until=81),)))
    _, (listed,) = pauses(view)
    assert ((0, 3), (80,), "backward") == (listed.ranks, listed.steps, listed.phase)


def test_a_pause_of_all_ranks_names_nobody() -> None:
    """All in forward alike, or all held up in the exchange: it is told, with the phase, and left out of the mean."""
    for kind, phase in (("forward", "forward"), ("comm", "comm_exposed")):
        view = of(Job(num_steps=300, faults=(Fault(kind, None, 2.0, onset=80, until=81),)))
        _, (listed,) = pauses(view)
        assert ((), (80,), phase) == (listed.ranks, listed.steps, listed.phase)
        assert [] == above_info(view)
        assert "pause" in view.goodput_losses


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_rank_that_leaves_the_exchange_late_has_paused_there(num_ranks: int) -> None:
    """Stopped while the others' data went on: it comes late to the next exchange, and no phase of its own is long."""
    view = of(Job(num_ranks=num_ranks, num_steps=300, faults=(once("release", 1, 3.0, 80),)))
    _, (listed,) = pauses(view)
    assert ((1,), "comm_exposed") == (listed.ranks, listed.phase)
    assert listed.steps[0] in {80, 81}
    assert 3.0 == pytest.approx(listed.length_s, rel=0.02)
    assert [] == above_info(view)
    assert STEADY_S[num_ranks] == pytest.approx(view.step.mean_s, rel=0.03)


def test_a_straggler_beside_a_pause_keeps_its_loss() -> None:
    """Rank 2 is late in every step, rank 1 stops once: each has its own finding, and neither is part of the other."""
    late = Fault("forward", (2,), 8 * MS)
    job = Job(num_steps=300, faults=(late,))
    (alone,) = [f for f in of(job).findings if f.id == "straggler"]
    view = of(job.with_faults(late, once("backward", 1, 3.0, 150)))
    assert [("straggler", (2,), "forward")] == above_info(view)
    (finding,) = [f for f in view.findings if f.id == "straggler"]
    assert alone.loss_s_per_step == pytest.approx(finding.loss_s_per_step, rel=0.02)
    _, (listed,) = pauses(view)
    assert (1,) == listed.ranks


def test_a_pause_of_the_straggler_itself_is_told_apart() -> None:
    """The same rank is late always and stops once."""
    late = Fault("forward", (2,), 8 * MS, onset=100)
    view = of(Job(num_steps=300, faults=(late, once("backward", 2, 3.0, 200))))
    assert [("straggler", (2,), "forward")] == above_info(view)
    assert 100 == pytest.approx(view.stragglers[0].since_step, abs=3)
    _, (listed,) = pauses(view)
    assert ((2,), (200,)) == (listed.ranks, listed.steps)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("backward", (1,), 60 * MS, onset=200),  # a new level
        Fault("backward", (1,), 300 * MS, onset=296),  # a new level of four steps so far
        Fault("backward", (1,), 80 * MS, chance=0.2),
        Fault("backward", (1,), 40 * MS, onset=100, until=101),  # what schedulers do
        Fault("warmup", None, 100 * MS, until=15),
        Fault("checkpoint", (0,), 200 * MS, every=40),
        Fault("other", (3,), 80 * MS, every=25),
    ],
)
def test_what_stays_comes_often_or_is_marked_is_no_irregular_pause(fault: Fault) -> None:
    """Each has a finding of its own, or none."""
    assert ([], ()) == pauses(of(Job(num_steps=300, faults=(fault,))))


def test_noise_has_no_pauses() -> None:
    """Healthy runs, quiet and loud."""
    for seed in range(6):
        for shape in ({}, {"noise": 0.2, "spike_chance": 0.05, "spike_s": 12 * MS}):
            found, _ = pauses(of(Job(num_steps=300, seed=seed, **shape)))
            assert [] == found, (seed, shape)


def test_garbage_collection_explains_its_pause() -> None:
    """The probe counts what the collector took."""
    view = of(Job(num_steps=300, faults=(once("gc", 1, 2.0, 120),)))
    (finding,), (listed,) = pauses(view)
    assert "garbage collection" == listed.cause
    assert "Python collected garbage" in finding.message


def test_compilation_explains_its_pause() -> None:
    """A flag of the pausing rank's step."""
    job = Job(num_steps=300, faults=(once("forward", 1, 2.0, 120),))
    run = simulate(job)
    at = STEP_NAMES.index("flags")
    rows = list(run.rows[1])
    rows[120] = (*rows[120][:at], int(StepFlag.COMPILE), *rows[120][at + 1 :])
    compiled = Simulated({**run.rows, 1: rows}, run.cycle_s)
    _, (listed,) = pauses(folded(frames(job, simulated=compiled)).view())
    assert "compilation" == listed.cause


def host_sample(job: Job, seq: int, now_s: float, stopped: tuple[int, ...]) -> Frame:
    """A HOST frame of node0 that sees these ranks stopped."""
    ranks = [
        {"rank": rank, "cpu_s": 1.0, **({"state": "stopped"} if rank in stopped else {})}
        for rank in range(job.num_ranks)
    ]
    now_ns = round(now_s * 1e9)
    payload = {"host": "node0", "mono_ns": now_ns, "wall_ns": 1_700_000_000_000_000_000, "ranks": ranks}
    return Frame(FrameKind.HOST, "node0/1/1", seq, now_ns, payload)


def begin_s(job: Job, step: int) -> float:
    """When rank 1's step begins."""
    return simulate(job).rows[1][step][STEP_NAMES.index("begin_ns")] / 1e9


def test_a_process_seen_stopped_explains_its_pause() -> None:
    """By the host's sample or by the look at its standing thread; at another time it explains nothing."""
    job = Job(num_steps=300, faults=(once("backward", 1, 3.0, 120),))
    now_s = begin_s(job, 120) + 1.5
    for frame in (host_sample(job, 90, now_s, (1,)), status(job, 90, now_s, thread={1: "stopped"})):
        (finding,), (listed,) = pauses(of(job, frame))
        assert "stopped" == listed.cause
        assert "its process was stopped" in finding.message
    for frame in (host_sample(job, 90, now_s + 4, (1,)), host_sample(job, 90, now_s, (2,))):
        (finding,), (listed,) = pauses(of(job, frame))
        assert listed.cause is None
        assert "the cause is unknown" in finding.message


def test_who_was_seen_stopped_in_a_pause_of_all_has_made_it() -> None:
    """Stopped within the exchange, all leave it late together: only the agent's look tells who it was."""
    job = Job(num_steps=300, faults=(Fault("comm", None, 3.0, onset=80, until=81),))
    now_s = begin_s(job, 80) + 1.5
    _, (listed,) = pauses(of(job, host_sample(job, 90, now_s, (2,))))
    assert ((2,), "stopped") == (listed.ranks, listed.cause)
    _, (listed,) = pauses(of(job, host_sample(job, 90, now_s, (0, 1, 2, 3))))
    assert ((), "stopped") == (listed.ranks, listed.cause)


@pytest.mark.parametrize("state", [None, 7, "stopped" * 400, ["stopped"], "having lunch"])
def test_a_state_that_is_none_explains_nothing(state: object) -> None:
    """Outside data."""
    job = Job(num_steps=300, faults=(once("backward", 1, 3.0, 120),))
    frame = host_sample(job, 90, begin_s(job, 120) + 1.5, ())
    ranks = [{"rank": 1, "state": state}, {"rank": -4, "state": "stopped"}, {"state": "stopped"}]
    _, (listed,) = pauses(of(job, replace(frame, payload={**frame.payload, "ranks": ranks})))
    assert listed.cause is None


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_what_one_rank_does_between_steps_is_left_out_of_every_ranks_step(num_ranks: int) -> None:
    """Rank 0 validates 300 ms every 50 steps: steps stay equal, phases sum, the rate counts it, the loss names it."""
    job = Job(
        num_ranks=num_ranks, num_steps=400, faults=(Fault("other", (0,), 300 * MS, onset=10, every=50),)
    )
    view = of(job)
    assert [("periodic_pause", (0,), "other")] == above_info(view)
    assert_sums(view)
    assert STEADY_S[num_ranks] == pytest.approx(view.step.mean_s, rel=0.03)
    truth_s = simulate(job).cycle_s[2:].mean()
    assert num_ranks * job.samples / truth_s == pytest.approx(view.step.throughput_samples_s, rel=0.01)
    (listed,) = view.pauses
    assert ((0,), 50, tuple(range(50, 400, 50))) == (listed.ranks, listed.period_steps, listed.steps)
    assert view.goodput_losses["periodic_pause_rank_0"] == pytest.approx(7 * 0.3 / (400 * truth_s), rel=0.05)


def test_periodic_pauses_that_partly_fall_into_the_exchange_keep_their_rank() -> None:
    """Every 40 steps, four times in its backward and three times in the exchange, where all are held up alike."""
    own = [once("backward", 1, 0.3, step) for step in (40, 120, 200, 280)]
    common = [Fault("comm", None, 0.3, onset=step, until=step + 1) for step in (80, 160, 240)]
    view = of(Job(num_steps=300, faults=(*own, *common)))
    assert [("periodic_pause", (1,))] == [(name, ranks) for name, ranks, _ in above_info(view)]
    assert "periodic_pause_rank_1" in view.goodput_losses


def test_pauses_by_the_clock_drift_against_the_steps_and_stay_one_finding() -> None:
    """Distances of 41, 43, 40, 40 and 45 steps: the last one is no other pause."""
    faults = tuple(once("other", 1, 0.3, step) for step in (34, 75, 118, 158, 198, 243))
    view = of(Job(num_steps=282, faults=faults))
    (listed,) = view.pauses
    assert ("periodic", (1,), 6) == (listed.kind, listed.ranks, len(listed.steps))


def test_one_more_pause_among_periodic_ones_is_told_apart() -> None:
    """Rank 0 validates every 50 steps, rank 2 stops once between."""
    job = Job(num_steps=400, faults=(Fault("other", (0,), 300 * MS, every=50), once("backward", 2, 3.0, 222)))
    view = of(job)
    _, (listed,) = pauses(view)
    assert ((2,), (222,)) == (listed.ranks, listed.steps)
    assert 3.0 == pytest.approx(listed.length_s, rel=0.02)
    assert [("periodic_pause", (0,), "other")] == above_info(view)
    (finding,) = [f for f in view.findings if f.id == "periodic_pause"]
    assert 0.3 == pytest.approx(finding.evidence["length_s"], rel=0.05)
    assert_sums(view)


def test_marked_pauses_count_in_the_rate_and_are_not_zero_in_the_step() -> None:
    """No steady step has a checkpoint: its part of one is unknown, its pauses are listed, and the rate has them."""
    job = Job(num_steps=400, faults=(Fault("checkpoint", (0,), 200 * MS, every=40),))
    view = of(job)
    assert view.step.seconds["checkpoint"] is None
    assert "under findings" in next(entry.why for entry in view.unknown if entry.metric == "checkpoint")
    assert_sums(view)
    truth_s = simulate(job).cycle_s[2:].mean()
    assert 4 * job.samples / truth_s == pytest.approx(view.step.throughput_samples_s, rel=0.01)
    assert view.step.throughput_steps_s == pytest.approx(1 / view.step.mean_with_pauses_s)
    (listed,) = view.pauses
    assert ("checkpoint", (0,), "checkpoint") == (listed.kind, listed.ranks, listed.cause)


@pytest.mark.parametrize(
    ("attach", "at"), [((0, 37), 5), ((0, 0), 60)], ids=["before the other rank was seen", "next to nothing"]
)
def test_a_checkpoint_whose_cost_was_not_seen_costs_no_zero_seconds(attach: tuple[int, ...], at: int) -> None:
    """What it added to a step that was not seen whole is unknown; what adds nothing holds nobody up."""
    length = 0.2 if attach[1] else 0.02 * MS
    fault = Fault("checkpoint", (0,), length, onset=at, until=at + 1)
    view = of(Job(num_ranks=2, num_steps=200, attach=attach, faults=(fault,)))
    assert [] == [pause for pause in view.pauses if pause.kind == "checkpoint"]
    assert [] == [finding for finding in view.findings if finding.id == "checkpoint_pause"]
    assert view.verdict.decision is not None


def test_one_checkpoint_has_no_distance() -> None:
    """Seen once: the words say where, not "every unknown steps"."""
    view = of(Job(num_steps=120, faults=(Fault("checkpoint", (0,), 0.3, onset=60, until=61),)))
    assert "A checkpoint at step 60 takes" in next(
        f.message for f in view.findings if f.id == "checkpoint_pause"
    )
    assert "unknown" not in view.verdict.sentence


def test_phases_that_nothing_was_seen_of_are_unknown_in_the_document() -> None:
    """A hook that has seen no checkpoint does not prove that none was written."""
    found = document(of(Job(num_steps=120)))
    assert found["step"]["shares"]["checkpoint"] is None  # type: ignore[index]
    assert [] == found["pauses"]
    found = document(of(Job(num_steps=120, faults=(once("data", 1, 3.0, 60),))))
    assert [1] == list(found["pauses"][0]["ranks"])  # type: ignore[index]


@pytest.mark.parametrize(("num_stalls", "seed"), crossed([4, 6, 9], range(4)))
def test_stalls_of_one_rank_at_any_distance_are_its_own(num_stalls: int, seed: int) -> None:
    """400 ms now and then, most of them near each other, beside a spike of another rank: not "stragglers vary"."""
    stream = np.random.default_rng(seed)
    at = [40, *(240 + stream.choice(70, num_stalls - 1, replace=False))]
    faults = [Fault("forward", (2,), 400 * MS, onset=int(step), until=int(step) + 1) for step in at]
    faults.append(Fault("forward", (0,), 30 * MS, onset=200, until=201))
    view = final_view(Job(num_steps=320, seed=seed, faults=tuple(faults)))
    named = {finding.id: finding.ranks for finding in view.findings}
    assert "taking_turns" not in named
    assert (2,) in {named.get("irregular_pause"), named.get("straggler"), named.get("periodic_pause")}
    assert () not in {finding.ranks for finding in view.findings if finding.id == "irregular_pause"}


def test_an_evaluation_beside_a_short_checkpoint_is_an_evaluation() -> None:
    """175 ms of evaluation and 8 ms of checkpoint in the same steps: no checkpoint to make cheaper."""
    faults = (
        Fault("eval", None, 175 * MS, every=40),
        Fault("checkpoint", None, 8 * MS, every=40),
    )
    view = of(Job(num_steps=240, faults=faults, observed=WITH_EVAL))
    (pause,) = view.pauses
    assert "eval" == pause.kind
    assert [] == [finding for finding in view.findings if finding.id == "checkpoint_pause"]
    assert 175 * MS == pytest.approx(pause.length_s, rel=0.1)


def test_a_checkpoint_beside_a_short_evaluation_is_a_checkpoint() -> None:
    """The other way round."""
    faults = (
        Fault("eval", None, 8 * MS, every=40),
        Fault("checkpoint", None, 175 * MS, every=40),
    )
    (pause,) = of(Job(num_steps=240, faults=faults, observed=WITH_EVAL)).pauses
    assert "checkpoint" == pause.kind


def test_workers_that_start_anew_beside_a_checkpoint_are_waited_for() -> None:
    """97 ms without data where a checkpoint takes 3 ms: the loader is the finding, and its lever the workers."""
    faults = (
        Fault("data", None, 97 * MS, every=40),
        Fault("checkpoint", None, 3 * MS, every=40),
    )
    view = of(Job(num_steps=240, faults=faults))
    assert [("periodic_data_wait", (), "data_wait")] == above_info(view)
    (finding,) = [entry for entry in view.findings if entry.id == "periodic_data_wait"]
    assert any("persistent_workers" in action.text for action in finding.actions)
    assert all(pause.kind != "checkpoint" for pause in view.pauses)


def test_one_long_evaluation_among_short_checkpoints_stays_apart() -> None:
    """Checkpoints of 100 ms every 30 steps, evaluations of 300 ms every 75: two pauses, each with its own length."""
    faults = (
        Fault("checkpoint", None, 100 * MS, every=30),
        Fault("eval", None, 300 * MS, every=75),
    )
    view = of(Job(num_steps=290, faults=faults, observed=WITH_EVAL))
    lengths = {pause.kind: pause.length_s for pause in view.pauses}
    assert {"checkpoint", "eval"} == set(lengths)
    assert 100 * MS == pytest.approx(lengths["checkpoint"], rel=0.1)


@pytest.mark.parametrize(
    ("checkpoint_s", "eval_s", "eval_ranks"),
    [(0.2, 0.3, None), (0.3, 0.31, (0,)), (0.5, 0.05, None)],
)
def test_two_marked_pauses_of_a_step_have_what_each_took(
    checkpoint_s: float, eval_s: float, eval_ranks: tuple[int, ...] | None
) -> None:
    """Both were measured: neither disappears in the other."""
    faults = (
        Fault("checkpoint", None, checkpoint_s, every=40),
        Fault("eval", eval_ranks, eval_s, every=40),
    )
    view = of(Job(num_steps=400, faults=faults, observed=WITH_EVAL))
    lengths = {pause.kind: pause.length_s for pause in view.pauses}
    total_s = sum(lengths.values())
    assert {"checkpoint", "eval"} == set(lengths)
    assert checkpoint_s == pytest.approx(lengths["checkpoint"], rel=0.1)
    assert checkpoint_s + eval_s == pytest.approx(total_s, rel=0.05)
    assert [] != [finding for finding in view.findings if finding.id == "checkpoint_pause"]


@pytest.mark.parametrize("kind", ["gc", "data"])
def test_what_one_rank_does_beside_a_checkpoint_takes_nothing_of_it(kind: str) -> None:
    """0.2 s on all ranks, and 0.3 s of one: a checkpoint of 0.2 s, and a pause of its own."""
    faults = (
        Fault("checkpoint", None, 0.2, every=40),
        Fault(kind, (3,), 0.3, every=40),
    )
    view = of(Job(num_steps=400, faults=faults))
    lengths = {pause.kind: pause.length_s for pause in view.pauses}
    assert 0.2 == pytest.approx(lengths["checkpoint"], rel=0.1)
    assert 0.3 == pytest.approx(lengths["periodic"], rel=0.1)
    assert 18.6 * MS == pytest.approx(view.step.median_s or 0.0, rel=0.05)


def test_waits_for_data_after_a_checkpoint_are_no_checkpoint() -> None:
    """0.05 s of checkpoint and 0.2 s of data in the same steps."""
    faults = (Fault("checkpoint", None, 0.05, every=40), Fault("data", None, 0.2, every=40))
    view = of(Job(num_steps=400, faults=faults))
    lengths = {(pause.kind, pause.phase): pause.length_s for pause in view.pauses}
    assert 0.05 == pytest.approx(lengths["checkpoint", "checkpoint"], rel=0.15)
    assert 0.2 == pytest.approx(lengths["periodic", "data_wait"], rel=0.1)


def test_an_evaluation_with_its_checkpoint_now_and_then_keeps_both_lengths() -> None:
    """50 ms of evaluation every 20 steps, 500 ms of checkpoint every 100."""
    faults = (Fault("eval", None, 0.05, every=20), Fault("checkpoint", None, 0.5, every=100))
    view = of(Job(num_steps=600, faults=faults, observed=WITH_EVAL))
    lengths = {pause.kind: pause.length_s for pause in view.pauses}
    assert 0.5 == pytest.approx(lengths["checkpoint"], rel=0.05)
    assert 0.05 == pytest.approx(lengths["eval"], rel=0.15)


@pytest.mark.parametrize("every", [1, 2])
def test_checkpoints_in_most_steps_of_one_rank_make_it_late(every: int) -> None:
    """Nothing is left to tell a steady step from; a checkpoint is a part of the step and its rank is waited for."""
    view = of(Job(num_steps=200, faults=(Fault("checkpoint", (0,), 20 * MS, every=every),)))
    assert "straggler" == view.verdict.finding
    assert [(0, "checkpoint")] == [(late.rank, late.cause) for late in view.stragglers]
    assert 20 * MS / every == pytest.approx(view.stragglers[0].loss_s_per_step, rel=0.15)
    assert_sums(view)


@pytest.mark.parametrize("every", [1, 2])
def test_checkpoints_in_most_steps_of_all_ranks_are_nobodys(every: int) -> None:
    """Each rank writes its shard: the job's own doing, with what is gained without."""
    view = of(Job(num_steps=200, faults=(Fault("checkpoint", None, 20 * MS, every=every),)))
    assert () == view.stragglers
    assert "checkpoint_in_step" == view.verdict.finding
    assert view.verdict.speedup is not None
    assert 1 + 20 / every / 18.5 == pytest.approx(view.verdict.speedup.expected, rel=0.05)
    assert view.goodput_losses["checkpoint"] == pytest.approx(1 - 1 / view.verdict.speedup.expected, rel=0.1)


def test_seldom_checkpoints_stay_pauses() -> None:
    """Every third step leaves a third to tell what a step takes."""
    view = of(Job(num_steps=200, faults=(Fault("checkpoint", None, 20 * MS, every=3),)))
    assert "checkpoint_pause" == view.verdict.finding


@pytest.mark.parametrize("is_stop", [False, True])
def test_a_pause_has_one_length_in_whatever_stretch_it_is_seen(is_stop: bool) -> None:
    """By the median of all steps in sight the same pause had another length wherever the job had become slower."""
    slower = (Fault("backward", None, 20 * MS, onset=120), Fault("backward", None, 20 * MS, onset=260))
    job = Job(num_steps=420, noise=0.01, faults=(once("backward", 1, 3.0, 180), *slower))
    advisor = folded(
        [*frames(job), *([host_sample(job, 90, begin_s(job, 180) + 1.5, (1,))] if is_stop else [])]
    )
    stretches = ((0, 419), (60, 200), (20, 189), (150, 419), (165, 260))
    lengths = [
        pause.lengths_s
        for steps in stretches
        for pause in advisor.view_of_stretch(steps).pauses
        if 180 in pause.steps
    ]
    assert [1] * len(stretches) == [len(each) for each in lengths]
    assert all(lengths[0][0] == pytest.approx(each[0], abs=0.5 * MS) for each in lengths), lengths
    assert 3.0 == pytest.approx(lengths[0][0], abs=5 * MS)


@pytest.mark.parametrize("kind", ["checkpoint", "other"])
def test_each_pause_at_a_fixed_distance_has_its_own_length(kind: str) -> None:
    """What it took on average in the steps in sight stood at each of them."""
    long = Fault(kind, (0,), 200 * MS, onset=200, until=201)
    view = of(Job(num_steps=400, faults=(Fault(kind, (0,), 200 * MS, every=40), long)))
    (listed,) = [pause for pause in view.pauses if len(pause.steps) > 4]
    lengths = dict(zip(listed.steps, listed.lengths_s, strict=True))
    near = min(lengths, key=lambda step: abs(step - 200))
    assert 400 * MS == pytest.approx(lengths.pop(near), rel=0.05)
    assert all(200 * MS == pytest.approx(length_s, rel=0.05) for length_s in lengths.values()), lengths
    mean_s = sum(listed.lengths_s) / len(listed.steps)
    assert listed.length_s == pytest.approx(200 * MS if kind == "other" else mean_s, rel=0.05)


@pytest.mark.parametrize(
    ("steps", "at"), crossed([(0, 399), (10, 230), (90, 399), (130, 399), (300, 399)], [40, 200])
)
def test_one_stop_in_a_pause_that_is_due_makes_no_long_pause_of_the_others(
    at: int, steps: tuple[int, int]
) -> None:
    """A process stopped once for 4 s in one of them was told as a pause of 640 ms that comes every 50 steps."""
    every = tuple(once("other", 1, 80 * MS, step) for step in range(40, 400, 40) if step != at)
    view = folded(frames(Job(num_steps=400, noise=0.01, faults=(*every, once("other", 1, 4.0, at)))))
    stretch = view.view_of_stretch(steps)
    periodic = [pause for pause in stretch.pauses if pause.kind == "periodic"]
    assert all(80 * MS == pytest.approx(pause.length_s, rel=0.1) for pause in periodic), periodic
    irregular = [pause for pause in stretch.pauses if pause.kind == "irregular"]
    seen = [length_s for pause in irregular for length_s in pause.lengths_s]
    assert [pytest.approx(4.0, rel=0.01)] * (steps[0] <= at <= steps[1]) == seen


def test_pauses_of_two_lengths_keep_their_distance() -> None:
    """Where every third is far longer, as validation on more data, it is one of them and no accident."""
    faults = (
        Fault("other", None, 200 * MS, every=40),
        *(Fault("other", None, 700 * MS, onset=step, until=step + 1) for step in (120, 240, 360)),
    )
    view = of(Job(num_steps=400, noise=0.01, faults=faults))
    (listed,) = [pause for pause in view.pauses if pause.kind == "periodic"]
    assert 10 == len(listed.steps)
    assert 200 * MS == pytest.approx(listed.length_s, rel=0.1)
