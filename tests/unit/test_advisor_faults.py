"""The diagnosis on simulated trainings whose waits follow from the barrier: finding, rank, phase, onset, loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import MS, STEP_NAMES, Fault, Job, above_info, final_view, folded, frames, simulate
from thinned import crossed, num_examples

from tuiadvisor.metrics.lateness.job_losses import hideable_s

pytestmark = pytest.mark.slow

STEP_S = 18 * MS
CAUSES = {
    "data": "data_wait",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "host",
}


@pytest.mark.parametrize(("kind", "num_ranks"), crossed(CAUSES, [2, 4, 8]))
@pytest.mark.parametrize(("severity", "onset"), [(0.1, 0), (0.2, 97), (1.0, 97)])
def test_late_rank_is_named_with_phase_onset_and_loss(
    kind: str, num_ranks: int, severity: float, onset: int
) -> None:
    """Right rank, right phase, onset within 5 steps, loss within 10 % of what the same run loses to the fault."""
    healthy = Job(num_ranks=num_ranks, seed=3)
    rank = num_ranks - 1
    job = healthy.with_faults(Fault(kind, (rank,), severity * STEP_S, onset=onset))
    lost_s = (simulate(job).cycle_s - simulate(healthy).cycle_s)[onset + 2 :].mean()
    view = final_view(job)
    assert [("straggler", (rank,), CAUSES[kind])] == above_info(view)
    (finding,) = [entry for entry in view.findings if entry.id == "straggler"]
    assert max(onset, 1) == pytest.approx(finding.since_step, abs=5)
    assert lost_s == pytest.approx(finding.loss_s_per_step, rel=0.1)
    assert view.verdict.decision == "tune"
    assert [rank] == [entry.rank for entry in view.stragglers]
    assert [rank] == [row.rank for row in view.ranks if row.is_culprit]


@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_late_rank_is_named_although_all_step_times_are_equal(kind: str) -> None:
    """Every rank's step is as long; the victims wait longest, and only the last arriver is named."""
    view = final_view(Job(faults=(Fault(kind, (1,), 8 * MS),)))
    steps_ms = [1e3 * (row.step_s or 0) for row in view.ranks]
    assert max(steps_ms) - min(steps_ms) < 0.05
    assert 1 == min(view.ranks, key=lambda row: row.wait_s or 0).rank
    assert (1,) == tuple(entry.rank for entry in view.stragglers)
    assert 0.95 < (view.ranks[1].last_arrivals or 0)


def test_slow_input_everywhere_is_nobodys_fault() -> None:
    """All ranks wait for data: input-bound, sized, dated, no rank named."""
    view = final_view(Job(faults=(Fault("data", None, 6 * MS, onset=80),)))
    assert "input_bound" == view.verdict.finding
    assert () == view.stragglers
    (finding,) = [entry for entry in view.findings if entry.id == "input_bound"]
    assert 80 == pytest.approx(finding.since_step, abs=2)
    assert 6.3 * MS == pytest.approx(finding.loss_s_per_step, rel=0.05)
    assert view.verdict.speedup is not None
    assert 24.3 / 18 == pytest.approx(view.verdict.speedup.expected, rel=0.05)


@pytest.mark.parametrize("num_steps", [120, 400, 3000])
def test_a_loader_that_decays_is_told_with_where_it_began_and_where_it_is(num_steps: int) -> None:
    """From 0.3 to 6.3 ms on all ranks, little by little: no jump to date, so the growth itself is the finding."""
    view = final_view(Job(num_steps=num_steps, faults=(Fault("decay", None, 6 * MS),)))
    (finding,) = [entry for entry in view.findings if entry.id == "loader_decays"]
    assert "warning" == finding.severity
    shown = 2048 / num_steps if num_steps > 2048 else 1.0  # what is still held of a long run
    grown_s = float(finding.evidence["data_wait_last_s"]) - float(finding.evidence["data_wait_first_s"])
    assert 6 * MS * shown * 7 / 8 == pytest.approx(grown_s, rel=0.1)
    assert () == view.stragglers
    # Of the judged steps, which may be the last of them alone: all that they wait more than the first ones did.
    lost_s = float(finding.loss_s_per_step or 0.0)
    waits_s = view.step.seconds["data_wait"]
    assert waits_s is not None
    assert waits_s - float(finding.evidence["data_wait_first_s"]) == pytest.approx(lost_s, rel=0.05)
    low, high = (float(finding.evidence[name]) for name in ("speedup_low", "speedup_high"))
    assert view.step.mean_s is not None
    assert 1.05 < low < view.step.mean_s / (view.step.mean_s - lost_s) < high


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (Fault("data", None, 5 * MS),),
        (Fault("data", None, 5 * MS, onset=200),),
        (Fault("data", None, 5 * MS, until=200),),
        (Fault("data", None, 5 * MS, chance=0.3),),
        (Fault("decay", None, 0.2 * MS),),
    ],
)
def test_input_that_jumps_or_stays_does_not_decay(faults: tuple[Fault, ...]) -> None:
    """A level, a jump, a recovery, chance, a drift that nobody would notice."""
    for seed in range(4):
        view = final_view(Job(num_steps=400, faults=faults, seed=seed))
        assert "loader_decays" not in {entry.id for entry in view.findings}


@pytest.mark.parametrize("num_ranks", [2, 4, 16])
def test_lateness_that_follows_the_tokens_is_uneven_lengths(num_ranks: int) -> None:
    """Lengths by lot: the loss is what evenly spread tokens would save, and no rank is named."""
    healthy = Job(num_ranks=num_ranks, num_steps=300, spike_chance=0.0)
    job = healthy.with_faults(Fault("length", None, 24 * MS))
    uneven = simulate(job)
    tokens = [row[STEP_NAMES.index("tokens")] for rows in uneven.rows.values() for row in rows]
    typical_s = 24 * MS * (sum(tokens) / len(tokens) / 1000 - 1)
    even = simulate(healthy.with_faults(Fault("forward", None, typical_s)))
    lost_s = (uneven.cycle_s - even.cycle_s).mean()
    view = final_view(job)
    assert [("uneven_lengths", tuple(range(num_ranks)), None)] == above_info(view)
    (finding,) = [entry for entry in view.findings if entry.id == "uneven_lengths"]
    assert lost_s == pytest.approx(finding.loss_s_per_step, rel=0.1)
    assert 0.8 < finding.evidence["length_fit"] <= 1
    assert () == view.stragglers
    assert view.verdict.speedup is not None


def test_tokens_that_cost_nothing_are_no_finding() -> None:
    """Lengths differ, time does not: and where time differs for another reason, tokens are not blamed."""
    even = Fault("length", None, 0.0)
    for faults in ((even,), (even, Fault("forward", (1,), 8 * MS))):
        view = final_view(Job(num_steps=300, faults=faults))
        assert "uneven_lengths" not in {entry.id for entry in view.findings}


@pytest.mark.parametrize("in_turns", [False, True])
def test_ranks_that_wait_for_data_in_turns_lose_more_than_each_waits(*, in_turns: bool) -> None:
    """A share of 30 % beside a step that would be half as long is told with its reason; where all wait at once, not."""
    who = [(rank,) for rank in range(4)] if in_turns else [None]
    waits = tuple(Fault("data", ranks, 30 * MS, chance=0.4) for ranks in who)
    view = final_view(Job(num_steps=300, faults=waits))
    (finding,) = [entry for entry in view.findings if entry.id == "input_bound"]
    assert in_turns == ("not all at once: whoever waits keeps the others waiting" in finding.message)
    assert finding.loss_s_per_step is not None
    assert view.step.mean_s is not None
    share = finding.evidence["data_wait_share"]
    assert isinstance(share, float)
    assert in_turns == (finding.loss_s_per_step / view.step.mean_s > share + 0.05)


def test_long_exchange_is_communication_not_a_straggler() -> None:
    """What remains after the last arrival is the network's; waiting for late ranks is not counted to it."""
    view = final_view(Job(faults=(Fault("comm", None, 30 * MS),)))
    assert [("communication_bound", (0, 1, 2, 3), "comm_exposed")] == above_info(view)
    assert 30.8 * MS == pytest.approx(view.overlap.transfer_s, rel=0.03)
    (finding,) = [entry for entry in view.findings if entry.id == "communication_bound"]
    assert 15 * MS == pytest.approx(finding.evidence["hideable_s"], rel=0.05)
    assert "ms of it could be hidden behind forward and backward" in finding.message


def test_an_exchange_shorter_than_compute_could_be_hidden_whole() -> None:
    """Then nothing is said about a limit."""
    view = final_view(Job(num_ranks=2, faults=(Fault("comm", None, 5 * MS),)))
    (finding,) = [entry for entry in view.findings if entry.id == "communication_bound"]
    assert finding.loss_s_per_step == finding.evidence["hideable_s"]
    assert "hidden behind" not in finding.message


def test_what_hides_already_takes_its_room() -> None:
    """10 ms of compute with 7 ms of exchange in it have room for 3 more; unknown hidden time leaves the bound loose."""
    assert 3.0 == hideable_s(5.0, 10.0, 7.0)
    assert 5.0 == hideable_s(5.0, 10.0, None)
    assert 0.0 == hideable_s(5.0, 10.0, 12.0)


def test_a_straggler_does_not_make_the_job_communication_bound() -> None:
    """The victims' long waits in the collective are skew, not transfer."""
    view = final_view(Job(faults=(Fault("forward", (2,), 20 * MS),)))
    assert [("straggler", (2,), "forward")] == above_info(view)
    assert 0.35 < (view.step.shares["comm_exposed"] or 0)
    assert 0.8 * MS == pytest.approx(view.overlap.transfer_s, rel=0.2)


def test_checkpoints_are_a_pause_not_a_straggler() -> None:
    """Rank 0 writes every 40 steps and the others wait: period, length and starter are found."""
    view = final_view(Job(num_steps=400, faults=(Fault("checkpoint", (0,), 200 * MS, every=40),)))
    assert [("checkpoint_pause", (0,), "checkpoint")] == above_info(view)
    (finding,) = [entry for entry in view.findings if entry.id == "checkpoint_pause"]
    assert 40 == finding.evidence["period_steps"]
    assert 0.2 == pytest.approx(finding.evidence["length_s"], rel=0.03)
    assert 0.2 * 9 / 400 == pytest.approx(finding.loss_s_per_step, rel=0.05)
    assert 18 == view.window.excluded["checkpoint"]


def test_unmarked_pauses_at_a_fixed_distance_are_found_with_their_rank() -> None:
    """Rank 3 does something unhooked every 25 steps: a periodic pause, not a straggler."""
    view = final_view(Job(num_steps=400, faults=(Fault("other", (3,), 80 * MS, every=25),)))
    assert [("periodic_pause", (3,), "other")] == above_info(view)


def test_one_rank_late_in_forward_every_tenth_step_is_a_straggler() -> None:
    """A rank's own phase that is long now and then is its fault, however regular."""
    view = final_view(Job(num_steps=400, faults=(Fault("forward", (1,), 20 * MS, every=10),)))
    assert [("straggler", (1,), "forward")] == above_info(view)
    assert not view.stragglers[0].persistent


@pytest.mark.parametrize(
    "fault",
    [
        Fault("gc", (1,), 8 * MS),
        Fault("gc", (1,), 20 * MS, every=10),
        Fault("gc", (1,), 20 * MS, chance=0.15),
    ],
)
def test_a_rank_that_collects_garbage_is_not_blamed_for_its_forward(fault: Fault) -> None:
    """The collector runs wherever something is allocated: the cause is the host's Python, and the words say so."""
    view = final_view(Job(num_steps=400, faults=(fault,)))
    assert [("straggler", (1,), "host")] == above_info(view)
    (finding,) = [entry for entry in view.findings if entry.id == "straggler"]
    assert "while Python collects garbage" in finding.message
    assert fault.amount_s == pytest.approx(
        finding.evidence["excess_gc_s"], rel=0.25
    )  # late for other reasons too


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_the_slowest_of_many_collectors_begins_nothing(num_ranks: int) -> None:
    """All collect at the same step, one always longest: everybody's pause. One that collects alone is named."""
    everybody = Fault("gc", None, 90 * MS, every=40)
    longer = Fault("gc", (1,), 20 * MS, every=40)
    view = final_view(Job(num_ranks=num_ranks, num_steps=400, faults=(everybody, longer)))
    assert "(garbage collection) holds up all ranks" in view.findings[0].message
    alone = final_view(
        Job(num_ranks=num_ranks, num_steps=400, faults=(Fault("gc", (1,), 90 * MS, every=40),))
    )
    assert "rank 1" in alone.findings[0].message
    assert "all ranks" not in alone.findings[0].message.split(" holds up")[0]


@pytest.mark.parametrize(
    ("found", "pause"),
    [
        ("periodic_pause", Fault("forward", None, 90 * MS, every=40)),
        ("checkpoint_pause", Fault("checkpoint", None, 90 * MS, every=40)),
        ("periodic_data_wait", Fault("data", None, 90 * MS, every=40)),
        ("irregular_pause", Fault("forward", None, 3000 * MS, onset=200, until=201)),
    ],
)
def test_of_one_process_nothing_is_said_of_all_ranks(found: str, pause: Fault) -> None:
    """Nobody waits for it."""
    view = final_view(Job(num_ranks=1, num_steps=400, faults=(pause,)))
    (finding,) = [one for one in view.findings if one.id == found]
    words = f"{finding.title} {finding.message}".lower()
    assert "the process" in words or "the training" in words
    assert "all ranks" not in " ".join([words, *(action.text for action in finding.actions)])


def test_all_ranks_that_collect_garbage_together_pause_for_that() -> None:
    """Every 40 steps on all ranks: a pause with its reason; a pause without collections has none."""
    view = final_view(Job(num_steps=400, faults=(Fault("gc", None, 90 * MS, every=40),)))
    assert [("periodic_pause", (), "forward")] == above_info(view)
    assert "(garbage collection) holds up all ranks" in view.findings[0].message
    assert 0.9 < view.findings[0].evidence["gc_share"]
    other = final_view(Job(num_steps=400, faults=(Fault("forward", None, 90 * MS, every=40),)))
    assert "(periodic) holds up all ranks" in other.findings[0].message


def test_intermittent_straggler_is_named() -> None:
    """Late in one step of five, at random: named, marked as not persistent, sized."""
    healthy = Job(num_steps=400)
    job = healthy.with_faults(Fault("backward", (1,), 10 * MS, chance=0.2))
    lost_s = (simulate(job).cycle_s - simulate(healthy).cycle_s).mean()
    view = final_view(job)
    assert [("straggler", (1,), "backward")] == above_info(view)
    assert not view.stragglers[0].persistent
    assert lost_s == pytest.approx(view.stragglers[0].loss_s_per_step, rel=0.1)


def test_bursts_are_one_intermittent_fault_since_the_first() -> None:
    """Late for 25 steps, fine for 25, and so on from step 50."""
    faults = tuple(Fault("data", (2,), 6 * MS, onset=start, until=start + 25) for start in range(50, 300, 50))
    view = final_view(Job(num_steps=300, faults=faults))
    assert [("straggler", (2,), "data_wait")] == above_info(view)
    assert 50 == pytest.approx(view.stragglers[0].since_step, abs=5)


def test_a_fault_that_is_over_is_no_finding() -> None:
    """The window begins where the job recovered."""
    view = final_view(Job(num_steps=300, faults=(Fault("data", (2,), 6 * MS, onset=100, until=200),)))
    assert [] == above_info(view)
    assert 200 == pytest.approx(view.window.first_step, abs=3)


def test_two_faults_on_two_ranks_have_separate_shares() -> None:
    """8 ms on one and 5 ms on another: each named with its cause; together they cost what the job loses."""
    healthy = Job(num_steps=300)
    job = healthy.with_faults(Fault("forward", (1,), 8 * MS), Fault("data", (3,), 5 * MS))
    lost_s = (simulate(job).cycle_s - simulate(healthy).cycle_s)[2:].mean()
    view = final_view(job)
    assert [("straggler", (1,), "forward"), ("straggler", (3,), "data_wait")] == above_info(view)
    assert lost_s == pytest.approx(sum(entry.loss_s_per_step for entry in view.stragglers), rel=0.1)
    assert view.stragglers[0].loss_s_per_step > view.stragglers[1].loss_s_per_step
    # Curing one of two that are late in the same steps wins less than its share: promised is what both give.
    assert "without that and without rank 3 being late too" in view.verdict.sentence
    assert view.verdict.speedup is not None
    without_both = simulate(job).cycle_s[2:].mean() / simulate(healthy).cycle_s[2:].mean()
    assert view.verdict.speedup.expected == pytest.approx(without_both, rel=0.03)
    assert view.verdict.speedup.low <= without_both <= view.verdict.speedup.high


@pytest.mark.parametrize("ranks", [(1, 3), (0, 1, 2)])
def test_ranks_with_the_same_fault_are_one_finding(ranks: tuple[int, ...]) -> None:
    """Half of the ranks, or most of them, are slow: the fast ones stay the reference."""
    view = final_view(Job(num_steps=300, faults=(Fault("forward", ranks, 6 * MS),)))
    assert [("straggler", ranks, "forward")] == above_info(view)


@pytest.mark.parametrize(
    ("ranks", "phase", "named"),
    [(tuple(range(8, 16)), "host", "Others wait for host node1"),
     (tuple(range(24, 64)), "backward", "Others wait for ranks 24 to 63")],
)  # fmt: skip
def test_a_crowd_is_named_although_none_of_it_has_a_loss_worth_naming(
    ranks: tuple[int, ...], phase: str, named: str
) -> None:
    """Eight ranks of a host, or five hosts of a stage: each has a small part of the loss, together they have all."""
    healthy = Job(num_ranks=64, ranks_per_host=8, num_steps=120, spike_chance=0.0)
    job = healthy.with_faults(Fault("backward", ranks, 5 * MS))
    lost_s = (simulate(job).cycle_s - simulate(healthy).cycle_s)[2:].mean()
    view = final_view(job)
    assert [("straggler", ranks, phase)] == [entry for entry in above_info(view) if entry[0] == "straggler"]
    (finding,) = [entry for entry in view.findings if entry.id == "straggler"]
    assert named == finding.title
    assert lost_s == pytest.approx(finding.loss_s_per_step, rel=0.1)
    assert [] == above_info(final_view(healthy))


def test_a_slow_host_is_named_as_a_host() -> None:
    """All ranks of one host are slow in every compute phase, clocks apart: the host is the cause."""
    job = Job(
        num_ranks=8,
        ranks_per_host=4,
        host_clock_s={1: 5000.0},
        faults=(Fault("spread", (4, 5, 6, 7), 1.3),),
    )
    view = final_view(job)
    assert [("straggler", (4, 5, 6, 7), "host")] == above_info(view)
    (finding,) = [entry for entry in view.findings if entry.id == "straggler"]
    assert ("node1",) == finding.hosts


def test_a_rank_slow_in_all_compute_phases_points_to_its_host() -> None:
    """No single phase holds the delay, so no phase is named."""
    view = final_view(Job(faults=(Fault("spread", (1,), 1.5),)))
    assert [("straggler", (1,), "host")] == above_info(view)


def test_clocks_apart_do_not_change_the_culprit() -> None:
    """Four hosts with clocks hours and milliseconds apart: arrivals are compared by common releases."""
    clocks = {1: 5000.0, 2: -0.9, 3: 0.04}
    job = Job(num_ranks=8, ranks_per_host=2, host_clock_s=clocks, faults=(Fault("forward", (5,), 6 * MS),))
    assert [("straggler", (5,), "forward")] == above_info(final_view(job))


@pytest.mark.parametrize("seq_known", [True, False])
def test_ranks_attached_at_different_steps_give_the_same_answer(seq_known: bool) -> None:
    """Local step numbers differ by the attach moment; the job's axis does not."""
    together = final_view(Job(faults=(Fault("backward", (2,), 5 * MS, onset=90),), seq_known=seq_known))
    apart = final_view(
        Job(attach=(0, 7, 3, 12), faults=(Fault("backward", (2,), 5 * MS, onset=90),), seq_known=seq_known)
    )
    assert above_info(together) == above_info(apart)
    assert together.stragglers[0].since_step == apart.stragglers[0].since_step
    assert together.stragglers[0].loss_s_per_step == pytest.approx(apart.stragglers[0].loss_s_per_step)


def test_slow_first_steps_are_warmup_and_stay_out_of_the_statistics() -> None:
    """15 steps of +100 ms: an info finding with the seconds lost; the median is the later one."""
    view = final_view(Job(faults=(Fault("warmup", None, 100 * MS, until=15),)))
    assert [] == above_info(view)
    assert "keep" == view.verdict.decision
    (finding,) = [entry for entry in view.findings if entry.id == "warmup"]
    assert 14 == finding.evidence["warmup_steps"]
    assert 1.4 == pytest.approx(finding.evidence["warmup_s"], rel=0.03)
    assert 18.4 * MS == pytest.approx(view.step.median_s, rel=0.02)
    assert 15 == view.window.first_step


def test_warmup_is_remembered_after_it_has_scrolled_away() -> None:
    """After 3,000 steps the window no longer holds the first ones; what they cost is still said."""
    view = final_view(Job(num_ranks=2, num_steps=3000, faults=(Fault("warmup", None, 100 * MS, until=15),)))
    (finding,) = [entry for entry in view.findings if entry.id == "warmup"]
    assert 1.4 == pytest.approx(finding.evidence["warmup_s"], rel=0.05)


def test_a_phase_that_grows_on_all_ranks_is_dated() -> None:
    """Nobody waits, everybody is slower since step 150, in forward."""
    view = final_view(Job(num_steps=300, faults=(Fault("forward", None, 6 * MS, onset=150),)))
    assert [("slower_since", (), "forward")] == above_info(view)
    assert 150 == pytest.approx(view.findings[0].since_step, abs=2)
    # The step it had is what the cure brings back, and no more: a verdict to tune promises what it rests on.
    found, calm = view.verdict.speedup, final_view(Job(num_steps=300)).step.mean_s
    assert found is not None
    assert view.step.mean_s is not None
    assert calm is not None
    assert found.low > 1
    assert found.low <= view.step.mean_s / calm <= found.high
    assert view.step.mean_s / found.expected == pytest.approx(calm, rel=0.03)
    assert "instead of" in view.verdict.sentence


def test_steps_that_grow_little_by_little_are_no_new_pace() -> None:
    """Forward grows by 5 ms over 400 steps, and is judged by its last quarter: nothing changed where that begins."""
    stairs = tuple(Fault("forward", None, 5 * MS / 40, onset=10 * stair) for stair in range(40))
    view = final_view(Job(num_steps=400, faults=stairs))
    assert view.window.first_step > 200
    assert ["Step time grows little by little"] == [name for _, name in view.trend.marks]
    jump = final_view(Job(num_steps=400, faults=(Fault("forward", None, 5 * MS, onset=200),)))
    assert "pace changed" in {name for _, name in jump.trend.marks}


def test_a_job_that_grows_in_all_phases_is_not_kept() -> None:
    """Clocks fell or another tenant came: nothing tells why, and it is a loss all the same."""
    slower = tuple(
        Fault(kind, None, amount, onset=150)
        for kind, amount in (
            ("forward", 3 * MS),
            ("backward", 4.5 * MS),
            ("optimizer", 2 * MS),
            ("other", 2 * MS),
        )
    )
    view = final_view(Job(num_steps=300, faults=slower))
    assert [] == above_info(view)
    assert view.verdict.decision is None
    assert "longer on all ranks, and what made them longer was not seen" in view.verdict.sentence
    # A growth that nobody calls high is a remark beside a run that is kept.
    little = final_view(
        Job(num_steps=300, faults=tuple(replace(one, amount_s=one.amount_s / 5) for one in slower))
    )
    assert "keep" == little.verdict.decision


def test_without_a_barrier_the_shortest_wait_marks_the_late_rank() -> None:
    """No arrival was seen, but how long each rank was in communication: the one that waits least is late."""
    job = Job(num_steps=300, barrier_seen=False, faults=(Fault("forward", (1,), 6 * MS),))
    assert [("straggler", (1,), "forward")] == above_info(final_view(job))


def test_without_any_cross_rank_evidence_stragglers_are_unknown_never_balanced() -> None:
    """Equal step times prove nothing: no rank named, none cleared, and the verdict says so."""
    seen = ("data_wait", "forward", "backward", "optimizer", "other")
    view = final_view(Job(barrier_seen=False, observed=seen, faults=(Fault("forward", (1,), 6 * MS),)))
    assert () == view.stragglers
    assert view.slowdown is None
    assert "stragglers" in {entry.metric for entry in view.unknown}
    assert "could not be observed" in view.verdict.sentence


def test_an_unrecorded_culprit_is_not_replaced_by_another_name() -> None:
    """Rank 1 is late but was not recorded: nobody is named, the network is not blamed, the gap is said."""
    view = final_view(Job(missing=(1,), faults=(Fault("forward", (1,), 8 * MS),)))
    assert [] == above_info(view)
    assert (1,) == view.losses.ranks_missing
    assert view.overlap.transfer_s is None
    assert "unseen_rank" in {finding.id for finding in view.findings}
    assert "not compared" in view.verdict.sentence


def test_time_without_a_hook_is_named_other() -> None:
    """The loader has no hook, so its delay sits in `other`: no phase is made up."""
    seen = ("forward", "backward", "comm_exposed", "optimizer", "other")
    view = final_view(Job(observed=seen, faults=(Fault("data", (2,), 6 * MS),)))
    assert [("straggler", (2,), "other")] == above_info(view)
    assert view.step.shares["data_wait"] is None
    assert "data_wait" in {entry.metric for entry in view.unknown}


def test_64_ranks_one_late() -> None:
    """The one of 64 that others wait for is found without its peers' help."""
    job = Job(num_ranks=64, ranks_per_host=8, faults=(Fault("forward", (33,), 12 * MS, onset=100),))
    view = final_view(job)
    assert [("straggler", (33,), "forward")] == above_info(view)
    assert 100 == pytest.approx(view.stragglers[0].since_step, abs=3)


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_healthy_runs_have_no_finding_above_info(num_ranks: int) -> None:
    """Two seeds (all: eight) of noise, heavy noise, and short steps with spikes: keep, and no rank named."""
    for seed in range(num_examples(8)):
        for shape in (
            {},
            {"noise": 0.15, "spike_chance": 0.05, "spike_s": 8 * MS},
            {"forward_s": 1 * MS, "backward_s": 1.5 * MS, "transfer_s": 0.3 * MS, "spike_s": 1 * MS},
        ):
            view = final_view(Job(num_ranks=num_ranks, seed=seed, **shape))
            assert [] == above_info(view), (seed, shape)
            assert () == view.stragglers
            assert "keep" == view.verdict.decision


def test_fault_shows_within_ten_steps_and_nobody_else_is_named_meanwhile() -> None:
    """Asked after every third step: nothing before the onset at 70, then the right rank from step 80 on."""
    job = Job(num_steps=160, seed=1, faults=(Fault("backward", (1,), 9 * MS, onset=70),))
    named = []
    advisor = folded([])
    for frame in frames(job, rows_per_frame=3):
        advisor.feed_frame(frame)
        view = advisor.view()
        named.append((view.last_step, above_info(view)))
    late = [("straggler", (1,), "backward")]
    assert {()} == {tuple(found) for step, found in named if step is not None and step < 73}
    assert {tuple(late)} == {tuple(found) for step, found in named if step is not None and step >= 80}
