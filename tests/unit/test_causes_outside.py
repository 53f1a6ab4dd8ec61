"""A rank that something outside keeps off its cores: one cause, whatever phase it falls into; and where it is read."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, above_info, final_view, folded, frames, on_devices, simulate
from test_advisor_oddities import host_frames

from tuiadvisor.advisor.cluster.run_delay import CoreWait
from tuiadvisor.advisor.cluster.stops import Stops
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.looking import look
from tuiadvisor.agent import cgroup, looks, procfs
from tuiadvisor.agent.looks import StateLooks
from tuiadvisor.causes.cause import rank_words
from tuiadvisor.causes.communication_bound import _held_back
from tuiadvisor.causes.facts import Crowd
from tuiadvisor.events import NOTHING_GIVEN, STEP_NAMES
from tuiadvisor.metrics.diagnosing import _stopped_in_pauses
from tuiadvisor.metrics.lateness.in_window import Lateness, find_held
from tuiadvisor.metrics.lateness.late_phase import Cause
from tuiadvisor.metrics.lateness.off_core import (
    HeldRank,
    OffCore,
    _explained,
    _Steps,
    held_ranks,
    is_stopped,
    lacks_core,
    least_throttled,
    lower_priorities,
)
from tuiadvisor.metrics.lateness.witnesses import Witnesses
from tuiadvisor.metrics.steps.arrays import Floats
from tuiadvisor.phases import PHASES
from tuiadvisor.report.document import document
from tuiadvisor.stream.frames import Frame
from tuiadvisor.text.goodput import notes as goodput_notes
from tuiadvisor.views.run_view import RunView

pytestmark = pytest.mark.slow

JOB = Job(num_steps=600)  # 11 s: a dozen looks
QUIET = dict.fromkeys(range(4), 0.02)


def seen(
    job: Job,
    waits: dict[int, float],
    more: dict[int, dict[str, float]],
    stopped: dict[int, int],
    *,
    facts: dict[int, dict[str, object]] | None = None,
) -> RunView:
    """more: counters a second of a rank; stopped: each how many-th look finds the rank stopped; facts: of a rank."""
    result: list[Frame] = []
    for second, frame in enumerate(host_frames(job, waits)):
        ranks = []
        for entry in frame.payload["ranks"]:  # type: ignore[attr-defined]
            rank = entry["rank"]
            known = {
                name: value
                if name in {"cpu_limit_cores", "nice"}
                else value * second
                if name == "run_s"
                else int(value * second)
                for name, value in {"run_s": 0.2, **more.get(rank, {})}.items()
            }
            is_stopped = rank in stopped and second % stopped[rank] == 0
            state = {"state": "stopped"} if is_stopped else {}
            ranks.append({**entry, "cpu_s": 1.0 * second, **known, **state, **(facts or {}).get(rank, {})})
        more_cpus = {"num_cpus": 8} if facts else {}
        result.append(replace(frame, payload={**frame.payload, **more_cpus, "ranks": ranks}))
    return folded([*frames(job), *result]).view()


@pytest.mark.parametrize("phase", ["data", "forward", "backward", "optimizer", "other"])
def test_a_cpu_limit_of_one_rank_has_one_name_in_all_phases(phase: str) -> None:
    """6 ms of 24 ms without a core, and a limit that was hit in 9 of 10 periods a second."""
    view = seen(
        JOB.with_faults(Fault(phase, (1,), 6 * MS)),
        {**QUIET, 1: 0.3},
        {1: {"cpu_periods": 10, "throttled_periods": 9, "cpu_limit_cores": 0.5}},
        {},
    )
    assert [("straggler", (1,), "host")] == above_info(view)
    assert "held back by the CPU limit of its container (0.5 cores)" in view.verdict.sentence
    assert "CPU limit" == view.findings[0].evidence["seen_cause"]


def at_nice(rank: int, own: int, others: int = 0) -> dict[int, dict[str, float]]:
    """Nice values of the four ranks' training threads."""
    return {each: {"nice": own if each == rank else others} for each in QUIET}


@pytest.mark.parametrize("phase", ["data", "forward", "backward", "optimizer", "other"])
def test_a_lower_priority_has_one_name_in_all_phases(phase: str) -> None:
    """6 ms of 24 ms without a core, and a nice value that the others do not have."""
    view = seen(JOB.with_faults(Fault(phase, (1,), 6 * MS)), {**QUIET, 1: 0.3}, at_nice(1, 19), {})
    assert [("straggler", (1,), "host")] == above_info(view)
    assert "ready to run but without a core, at nice 19 (the others at 0)" in view.verdict.sentence
    assert (19, 0) == (view.findings[0].evidence["nice"], view.findings[0].evidence["peers_nice"])
    assert "renice" in str(view.findings[0].actions[0].command)
    assert "(ps -o pid,ni,cmd -p 101)" in view.verdict.verify  # its own process
    assert "lower_priority" not in [one.id for one in view.findings]  # one cause, one finding


@pytest.mark.parametrize(
    ("run_s", "asleep"), [(0.25, True), (0.9, False), (0.45, False)]
)  # of each second: while the 7 ms of its phases, all of the time, and some of it
def test_code_without_a_hook_in_which_a_thread_sleeps_waits_for_something(run_s: float, asleep: bool) -> None:
    """A learner whose actors are slow: its time was told to be "the work itself or the loss"."""
    job = Job(num_ranks=1, num_steps=600, forward_s=3 * MS, backward_s=3 * MS, other_s=20 * MS)
    view = seen(job, {0: 0.02}, {0: {"run_s": run_s}}, {})
    assert view.verdict.decision is None
    assert "pass in code that no hook sees" in view.verdict.sentence
    assert (
        "the thread sleeps: it waits for something that is not PyTorch's" in view.verdict.sentence
    ) == asleep
    assert ("may be the work itself" in view.verdict.sentence) != asleep
    assert view.goodput is None  # nor is that time called useful
    assert view.wall is not None
    assert view.wall.steady is None
    assert view.wall.end_to_end is None


def test_a_third_of_a_step_without_a_hook_is_said_beside_the_goodput_that_holds_it() -> None:
    """90 ms of sleep were "100 % useful"; below half of the step nobody knows what it is, and that is said."""
    job = Job(num_ranks=1, num_steps=600, forward_s=6 * MS, backward_s=6 * MS, other_s=7 * MS)
    view = seen(job, {0: 0.02}, {0: {"run_s": 0.6}}, {})
    assert view.wall is not None
    assert view.wall.steady is not None
    assert view.wall.unseen == pytest.approx(0.35, abs=0.04)
    assert document(view)["goodput"]["unseen_share"] == view.wall.unseen
    (said,) = [one for one in goodput_notes(view.wall) if "no hook sees" in one]
    assert said.startswith("3")
    quiet = seen(JOB, QUIET, {}, {}).wall
    assert quiet is not None
    assert not any("no hook sees" in one for one in goodput_notes(quiet))


def test_what_a_held_rank_costs_is_bounded_so_goodput_is_not_all_of_the_time() -> None:
    """Up to three times as fast without it, and "99 % of the steps useful" beside that."""
    view = seen(UNSEEN, {**QUIET, 1: 0.7}, {}, {})
    assert view.verdict.finding == "held_rank"
    assert view.goodput is None
    assert view.wall is not None
    assert view.wall.steady is None


@pytest.mark.parametrize(("own", "others"), [(0, 0), (10, 10), (-5, 0), (5, 19)])
def test_a_priority_that_is_not_lower_explains_nothing(own: int, others: int) -> None:
    """It lacks a core, and yields no more than the others."""
    job = JOB.with_faults(Fault("backward", (1,), 6 * MS))
    view = seen(job, {**QUIET, 1: 0.3}, at_nice(1, own, others), {})
    assert "without a core" in view.verdict.sentence
    assert "nice" not in view.verdict.sentence
    assert "lower_priority" not in [one.id for one in view.findings if 1 in one.ranks]


def test_a_lower_priority_is_a_fact_where_nobody_is_late() -> None:
    """On a host with cores for all it costs nothing: said, with no loss, and no reason to act."""
    view = seen(JOB, QUIET, at_nice(1, 19), {})
    assert [] == above_info(view)
    (told,) = [one for one in view.findings if one.id == "lower_priority"]
    assert ((1,), "info", None) == (told.ranks, told.severity, told.loss_s_per_step)
    assert "rank 1: nice 19, the others 0" in told.message
    assert "keep" == view.verdict.decision


@pytest.mark.parametrize("phase", ["", "comm"])
def test_where_all_wait_for_cores_who_has_a_lower_priority_is_told(phase: str) -> None:
    """It was a remark below: "exposed communication, on an oversubscribed host" where one rank was reniced."""
    job = JOB.with_faults(Fault("comm", None, 20 * MS)) if phase else JOB
    view = seen(job, dict.fromkeys(range(4), 0.3), at_nice(1, 10), {})
    told = [one.message for one in view.findings if one.id in ("crowded_host", "communication_bound")]
    assert len(told) == (2 if phase else 1)
    assert all(", and rank 1 is at a lower priority" in message for message in told)
    alike = seen(job, dict.fromkeys(range(4), 0.3), at_nice(1, 10, 10), {})
    assert not [one.id for one in alike.findings if "lower priority" in one.message]


@pytest.mark.parametrize(
    ("cpus", "told"),
    [
        (("0", "0", "1", "1"), ", and ranks 0 and 1 are bound to CPU 0, and ranks 2 and 3 to CPU 1"),
        (("0-1", "0-1", "0-1", "0-1"), ", and ranks 0, 1, 2 and 3 are bound to CPUs 0-1"),
        (("0", "1", "2", "3"), ""),
        (("0-7",) * 4, ""),  # bound to nothing
        (("none",) * 4, ""),
    ],
)
def test_ranks_that_are_bound_to_the_same_cpus_are_told_where_all_wait_for_cores(
    cpus: tuple[str, ...], told: str
) -> None:
    """Two ranks by taskset on one of two cores were told to look for other work on the host."""
    bound = {rank: {"cpus_allowed": each, "cpu_nodes": [0]} for rank, each in enumerate(cpus)}
    view = seen(JOB, dict.fromkeys(range(4), 0.4), {}, {}, facts=bound)
    (found,) = [one for one in view.findings if one.id == "crowded_host"]
    assert f"of the time{told} (CPU contention)" in found.message
    assert ("taskset -cp" in str([action.command for action in found.actions])) == bool(told)
    quiet = seen(JOB, QUIET, {}, {}, facts=bound)
    assert "crowded_host" not in {one.id for one in quiet.findings}


def bound_to(cpus: tuple[str, ...], num_samples: int, num_steps: int = 80) -> Advisor:
    """Healthy steps of 18 ms on a host with two cores; what the ranks are bound to is told in each sample."""
    job = replace(JOB, num_ranks=2, num_steps=num_steps)
    samples = []
    for frame in host_frames(job, {0: 0.02, 1: 0.02})[:num_samples]:
        ranks = [
            {**entry, "cpus_allowed": each, "cpu_nodes": [0]}
            for entry, each in zip(frame.payload["ranks"], cpus, strict=True)  # type: ignore[call-overload]
        ]
        samples.append(replace(frame, payload={**frame.payload, "num_cpus": 2, "ranks": ranks}))
    return folded([*frames(job), *samples])


@pytest.mark.parametrize(
    ("cpus", "num"), [(("0", "0"), 0.5), (("0", "1"), 1.0), (("0-1", "0-1"), 1.0), (("x", "x"), 1.0)]
)
def test_ranks_bound_to_one_core_have_half_of_it_each(cpus: tuple[str, ...], num: float) -> None:
    """Two ranks on one of two cores had "cores for each rank: 1"."""
    assert bound_to(cpus, 3).roster.cores_per_rank() == num


def test_a_short_run_of_ranks_on_one_core_is_not_kept_before_their_waits_were_counted() -> None:
    """Its last word was "Keep", three seconds before "CPU contention 57 %"."""
    short = bound_to(("0", "0"), 1).view().verdict
    assert short.decision is None
    assert short.sentence == (
        "Not decided: ranks 0 and 1 are bound to CPU 0, and how long they wait for a core was not counted over "
        "these steps."
    )
    assert bound_to(("0", "1"), 1).view().verdict.decision == "keep"
    assert bound_to(("0", "0"), 14, 600).view().verdict.decision == "keep"  # counted, and hardly any


@pytest.mark.parametrize(("waits", "first"), [(0.5, "crowded_host"), (0.02, "checkpoint_pause")])
def test_a_pause_is_not_told_before_what_all_steps_lose_to_others_work(waits: float, first: str) -> None:
    """One checkpoint, 5 % of the time, was the verdict where ranks had no core for 55 % of it."""
    saving = JOB.with_faults(Fault("checkpoint", None, 50 * MS, every=50))
    view = seen(saving, dict.fromkeys(range(4), waits), {}, {})
    above = [finding.id for finding in view.findings if finding.severity == "warning"]
    assert "checkpoint_pause" in above
    assert first == above[0] == view.verdict.finding


def test_a_rank_that_is_late_is_told_before_what_all_steps_lose_to_others_work() -> None:
    """It is late beyond what the others wait, too."""
    late = JOB.with_faults(Fault("forward", (1,), 6 * MS))
    limit = {1: {"cpu_periods": 10, "throttled_periods": 9, "cpu_limit_cores": 0.5}}
    view = seen(late, {**dict.fromkeys(range(4), 0.4), 1: 0.7}, limit, {})
    assert ["straggler", "crowded_host"] == [one.id for one in view.findings if one.severity != "info"]


def test_a_lower_priority_waits_for_no_steps() -> None:
    """On a crowded host a step of four seconds was "13 more steady steps, about 47 s", and no word of the renice."""
    few = Job(num_steps=12)
    assert "nice" not in seen(few, QUIET, at_nice(1, 0), {}).verdict.sentence
    slow = Job(num_steps=12, forward_s=400 * MS, backward_s=100 * MS, noise=0.5)
    hosts = [
        replace(
            frame,
            payload={
                **frame.payload,
                "ranks": [
                    {**one, "cpu_s": 1.0, "nice": 19 * (one["rank"] == 1)} for one in frame.payload["ranks"]
                ],  # type: ignore[index]
            },
        )
        for frame in host_frames(replace(slow, num_steps=500), QUIET)
    ]
    view = folded([*frames(slow), *hosts]).view()
    assert view.verdict.decision is None
    assert view.verdict.sentence.endswith("Rank 1 runs at nice 19, the others at 0.")


@pytest.mark.parametrize(
    ("nices", "named"),
    [
        ([0, 19, 0, 19], {1: 0, 3: 0}),
        ([19, 19, 19, 0], {}),
        ([19, 0, 0, 19, 19], {}),
        ([0, 5], {1: 0}),
        ([7], {}),
    ],
)
def test_who_yields_is_told_by_the_many(nices: list[int], named: dict[int, int]) -> None:
    """Half of the ranks at most: of more it is the others that are the exception."""
    found = lower_priorities(list(map(float, nices)))
    assert named == {row: told.others for row, told in found.items()}


def test_of_whom_the_nice_value_is_unknown_nobody_is_compared_with() -> None:
    """An older agent on another host tells none."""
    assert {} == lower_priorities([0.0, 19.0, None])


@pytest.mark.parametrize("nice", [10**9, -21, 40])
def test_a_nice_value_that_cannot_be_one_is_not_told(nice: int) -> None:
    """A figure of a stranger."""
    view = seen(JOB, QUIET, at_nice(1, nice), {})
    assert "lower_priority" not in [one.id for one in view.findings]


def test_who_yields_is_believed_sooner_to_lack_its_core() -> None:
    """0.2 of its time beyond the others is chance among ranks alike (0.22 over 8 s); not of one that yields."""
    cycle = np.full(600, 0.05)
    work = np.full((2, 600), 0.03)
    work[1] += 0.01
    alike = [OffCore(0.1, nice=0.0), OffCore(0.3, nice=0.0)]
    yielding = [OffCore(0.1, nice=0.0), OffCore(0.3, nice=10.0)]
    assert [0.0, 0.0] == lacks_core(work, cycle, 30.0, alike).tolist()
    own = lacks_core(work, cycle, 30.0, yielding)
    assert own[0] == 0.0 < own[1]


def test_a_limit_that_is_not_hit_is_not_the_reason() -> None:
    """It waits for a core, and others have it."""
    view = seen(
        JOB.with_faults(Fault("backward", (1,), 6 * MS)),
        {**QUIET, 1: 0.3},
        {1: {"cpu_periods": 10, "throttled_periods": 0, "cpu_limit_cores": 4}},
        {},
    )
    assert "without a core" in view.verdict.sentence


@pytest.mark.parametrize(("run_s", "cause"), [(0.6, "backward"), (0.25, "host")])
def test_who_has_more_to_do_is_late_for_what_it_does(run_s: float, cause: str) -> None:
    """It waits for a core as long as it is late; a thread that runs three times as long would, where many want it."""
    job = JOB.with_faults(Fault("backward", (1,), 6 * MS))
    view = seen(job, {**QUIET, 1: 0.3}, {1: {"run_s": run_s}}, {})
    assert [("straggler", (1,), cause)] == above_info(view)
    assert ("without a core" in view.verdict.sentence) == (cause == "host")


@pytest.mark.parametrize("cores", [-1.0, 0.0, 1e308])
def test_a_limit_that_cannot_be_one_is_not_named(cores: float) -> None:
    """A figure of a stranger: what the kernel counted stays."""
    view = seen(
        JOB.with_faults(Fault("backward", (1,), 6 * MS)),
        {**QUIET, 1: 0.3},
        {1: {"cpu_periods": 10, "throttled_periods": 9, "cpu_limit_cores": cores}},
        {},
    )
    assert "without a core" in view.verdict.sentence


@pytest.mark.parametrize("phase", ["data", "forward", "other"])
def test_a_rank_that_is_stopped_in_a_part_of_the_looks(phase: str) -> None:
    """Every second or third look finds it stopped, as its lateness does; it never waits for a core."""
    view = seen(JOB.with_faults(Fault(phase, (2,), 9 * MS)), QUIET, {}, {2: 3})
    assert [("straggler", (2,), "host")] == above_info(view)
    assert "stopped again and again" in view.verdict.sentence
    assert "stopped" == view.findings[0].evidence["seen_cause"]


# As of tensor parallel layers: nobody's arrival is seen, nor any exchange.
HOOKS = ("data_wait", "forward", "backward", "optimizer", "other")
UNSEEN = replace(JOB, barrier_seen=False, observed=HOOKS)
WITHOUT_A_CORE = "rank 1 is ready to run but without a core 70 % of the time, the typical other one 2 %"
LIMITED = "rank 1 is held back by the CPU limit of its container (0.5 cores) 70 % of the time"
LIMIT = {"cpu_periods": 10, "throttled_periods": 9, "cpu_limit_cores": 0.5}


@pytest.mark.parametrize(
    ("waits", "more", "stopped", "said"),
    [
        (QUIET, {}, {2: 3}, "rank 2 is stopped by a signal or a debugger in 33 % of the looks at its process"),
        ({**QUIET, 1: 0.7}, {}, {}, WITHOUT_A_CORE),
        ({**QUIET, 1: 0.7}, {1: LIMIT}, {}, LIMITED),
        ({**QUIET, 1: 0.7, 3: 0.6}, {}, {}, "ranks 1 and 3 are ready to run but without a core 70 % of the time"),
    ],
)  # fmt: skip
def test_a_rank_that_is_kept_from_running_is_named_where_no_arrival_is_seen(
    waits: dict[int, float], more: dict[int, dict[str, float]], stopped: dict[int, int], said: str
) -> None:
    """What keeps it is seen, and that the job meets in every step; who comes last is not."""
    view = seen(UNSEEN, waits, more, stopped)
    (finding,) = [one for one in view.findings if one.id == "held_rank"]
    # A few looks at its process prove that it is stopped, and not how much of its time.
    assert ("warning" if stopped else "critical") == finding.severity
    assert 0 < float(finding.evidence["held_share_low"]) < float(finding.evidence["held_share"])
    assert f"{said[:1].upper()}{said[1:]}" in finding.message
    assert said in view.verdict.sentence
    assert rank_words(finding.ranks) in said
    # At best nothing holds it longer than the others; surely what these sleep longer than it, less chance.
    assert view.verdict.at_best
    assert view.verdict.speedup is not None
    beyond = float(finding.evidence["held_share"]) - float(finding.evidence["held_share_of_others"])
    assert 1 / (1 - beyond) == pytest.approx(view.verdict.speedup.high)
    assert 1 < view.verdict.speedup.low < view.verdict.speedup.high


@pytest.mark.parametrize(
    ("job", "waits", "stopped"),
    [
        (UNSEEN, QUIET, {}),
        (UNSEEN, {**QUIET, 1: 0.25}, {}),  # ranks alike differ by as much on a crowded host
        (UNSEEN, dict.fromkeys(range(4), 0.7), {}),  # all of them: the host's matter
        (UNSEEN, {**dict.fromkeys(range(4), 0.7), 0: 0.02}, {}),  # most of them
        (UNSEEN, {}, {}),  # nobody counts
        (replace(UNSEEN, num_steps=400), {**QUIET, 1: 0.7}, {}),  # 7 s: too soon
        (UNSEEN, QUIET, {2: 30}),  # one look, which is chance
        (JOB, {**QUIET, 1: 0.7}, {2: 3}),  # arrivals are seen, and nobody is late
    ],
)
def test_nobody_is_kept_from_running_by_chance_or_with_everybody(
    job: Job, waits: dict[int, float], stopped: dict[int, int]
) -> None:
    assert "held_rank" not in {one.id for one in seen(job, waits, {}, stopped).findings}


@pytest.mark.parametrize(
    ("runs", "waits"),
    [
        ((0.267, 0.095), (0.69, 0.15)),  # three times the layers, beside four busy processes
        ((0.298, 0.039), (0.67, 0.08)),  # ten times, beside eight
        ((0.076, 0.057), (0.92, 0.59)),  # it spins until the other one has slept 40 ms
        ((0.5, 0.1), (0.5, 0.02)),  # the same, and who sleeps gets a core at once
        ((0.08, 0.08), (0.35, 0.1)),  # by chance
        ((None, 0.08), (0.8, 0.1)),  # of an agent that does not tell what ran
        ((0.08, None), (0.8, 0.1)),
        ((0.08, 0.0), (0.8, 0.0)),
    ],
)
def test_who_has_more_to_do_on_a_crowded_host_is_not_kept_from_running(
    runs: tuple[float | None, float | None], waits: tuple[float, float]
) -> None:
    """It waits for a core longer, as the other one would that had to run as long. Measured, tensor parallel loops."""
    assert () == held_ranks([OffCore(wait, run=run) for run, wait in zip(runs, waits, strict=True)], 15.0)


@pytest.mark.parametrize(
    ("runs", "waits"),
    [
        ((0.081, 0.085), (0.1, 0.82)),  # reniced
        ((0.2, 0.219), (0.25, 0.6)),  # a CPU limit, on a host that others use too
        ((0.6, 0.08), (0.2, 0.8)),  # the other one spins until it comes
        ((0.1, 0.13), (0.1, 0.8)),  # somewhat more work, and reniced
    ],
)
def test_who_waits_longer_than_the_others_for_the_same_work_is_kept_from_running(
    runs: tuple[float, float], waits: tuple[float, float]
) -> None:
    seen_of_each = [OffCore(wait, run=run) for run, wait in zip(runs, waits, strict=True)]
    assert [1] == [one.row for one in held_ranks(seen_of_each, 15.0)]


@pytest.mark.parametrize(("step_s", "held"), [(0.5, [1]), (0.54, [1]), (0.56, []), (0.9, []), (np.nan, [])])
def test_who_does_not_keep_pace_is_not_waited_for(step_s: float, held: list[int]) -> None:
    """Two ranks that train each for itself, one of them stopped again and again: it alone takes longer."""
    late = Lateness((), np.zeros(0), (), (), ())
    found: Any = SimpleNamespace(
        rows=np.zeros(0, dtype=int), columns=np.arange(1, 41), span_K=np.full(40, 0.5)
    )
    no_data = np.full((len(PHASES), 2, 41), np.nan)
    table: Any = SimpleNamespace(step_s_RK=np.tile([[0.5], [step_s]], 41), phase_s_PRK=no_data, num_ranks=2)
    table.step_s_RK[:, :11] = 0.5  # before
    seen_of_each = [OffCore(stopped=0.0), OffCore(stopped=0.4, num_stopped=60)]
    window: Any = SimpleNamespace(span_K=found.span_K[-30:])
    witnesses = Witnesses(off_core=lambda _s: seen_of_each)
    assert held == [one.row for one in find_held(table, found, window, late, witnesses)]


@pytest.mark.parametrize("num_ranks", [1, 0])
def test_one_process_is_held_by_comparison_with_nobody(num_ranks: int) -> None:
    assert held_ranks([OffCore(wait=0.9, stopped=0.5, num_stopped=50)] * num_ranks, 30.0) == ()


def test_an_exchange_is_not_blamed_while_a_rank_is_stopped_in_it_too() -> None:
    """Half of the step on all ranks, as where one of them stops inside the exchange; without looks it is what it is."""
    job = JOB.with_faults(Fault("forward", (2,), 9 * MS), Fault("comm", (0, 1, 2, 3), 30 * MS))
    assert "communication_bound" == above_info(seen(job, QUIET, {}, {}))[0][0]
    view = seen(job, QUIET, {}, {2: 3})
    assert [("straggler", (2,), "host")] == above_info(view)
    exchange = next(finding for finding in view.findings if finding.id == "communication_bound")
    assert "rank 2 is stopped again and again, also inside the exchange" in exchange.message


def test_an_exchange_is_not_blamed_while_a_rank_lacks_a_core_in_it_too() -> None:
    """As under FSDP with one rank at a lower priority: its threads want that core inside the exchange as well."""
    job = JOB.with_faults(Fault("forward", (2,), 9 * MS), Fault("comm", (0, 1, 2, 3), 30 * MS))
    view = seen(job, {**QUIET, 2: 0.35}, {}, {})
    assert [("straggler", (2,), "host")] == above_info(view)
    exchange = next(finding for finding in view.findings if finding.id == "communication_bound")
    assert (
        "rank 2 is without a core much longer than the others, also inside the exchange" in exchange.message
    )


def test_an_exchange_is_blamed_beside_a_rank_that_lacks_a_core_now_and_then() -> None:
    """Nor is it where all lack one alike."""
    job = JOB.with_faults(Fault("forward", (2,), 9 * MS), Fault("comm", (0, 1, 2, 3), 30 * MS))
    for waits in ({**QUIET, 2: 0.15}, dict.fromkeys(range(4), 0.08)):
        assert "communication_bound" == above_info(seen(job, waits, {}, {}))[0][0]


RESTLESS = Job(
    num_ranks=2, num_steps=24, forward_s=200 * MS, backward_s=200 * MS, noise=0.5, spike_chance=0.0,
    faults=(Fault("forward", (1,), 500 * MS, until=17, chance=0.75),),
)  # fmt: skip


def waiting(job: Job, waits: dict[int, float]) -> RunView:
    """Steps of half a second, twelve seconds of them and more."""
    return folded([*frames(job), *host_frames(replace(job, num_steps=900), waits)]).view()


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_the_kernels_count_vouches_for_a_rank_whose_steps_are_of_any_length(seed: int) -> None:
    """Of two ranks on a crowded host one is reniced: by 24 steps alone its lateness may be chance."""
    job = replace(RESTLESS, seed=seed)
    (said,) = [one for one in waiting(job, {0: 0.1, 1: 0.7}).findings if one.id == "straggler"]
    assert ((1,), "host") == (said.ranks, said.phase)
    assert "without a core" in said.message
    for waits in ({0: 0.5, 1: 0.5}, {0: 0.45, 1: 0.65}, {0: 0.7, 1: 0.1}):
        assert "straggler" not in {one.id for one in waiting(job, waits).findings}


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_the_kernels_count_of_before_a_new_pace_counts_too(seed: int) -> None:
    """Others' work changes the pace of a job, and its window begins anew: seven seconds, which alone are too few."""
    faults = (Fault("forward", (1,), 500 * MS, chance=0.75), Fault("backward", None, 600 * MS, until=34))
    job = replace(RESTLESS, seed=seed, num_steps=44, faults=faults)
    frames_of = [*frames(job), *host_frames(replace(job, num_steps=1800), {0: 0.1, 1: 0.7})]
    view = folded(frames_of).view()
    assert view.window.first_step == 34
    (said,) = [one for one in view.findings if one.id == "straggler"]
    assert (1,) == said.ranks
    assert "without a core" in said.message


def test_a_window_too_short_for_a_name_leaves_who_lacks_a_core() -> None:
    """The rank's own restlessness makes windows begin anew: of a few steps a long exchange was the first finding.

    The alpaca trainer, one of two ranks reniced: "45 % of the step is exposed gradient communication" of nine steps.
    """
    faults = (Fault("forward", (1,), 500 * MS, chance=0.75), Fault("backward", None, 600 * MS, until=34))
    job = replace(RESTLESS, seed=1, num_steps=44, faults=faults)
    advisor = folded([*frames(job), *host_frames(replace(job, num_steps=1800), {0: 0.1, 1: 0.7})])
    diagnosis = look(advisor, NOTHING_GIVEN, None).diagnosis
    assert diagnosis is not None
    assert diagnosis.lacking_ranks == (1,)
    assert _held_back(replace(diagnosis, stragglers=())) == {
        "exchange_held_back": 1,
        "held_words": (
            "; rank 1 is without a core much longer than the others, also inside the exchange, which is then long "
            "on all"
        ),
    }
    assert _held_back(replace(diagnosis, stragglers=(), lacking_ranks=()))["exchange_held_back"] == 0
    (crowded,) = [found for found in advisor.view().findings if found.id == "crowded_host"]
    assert ", rank 1 most (CPU contention)" in crowded.message
    alike = folded([*frames(job), *host_frames(replace(job, num_steps=1800), {0: 0.4, 1: 0.4})]).view()
    assert "most" not in next(found.message for found in alike.findings if found.id == "crowded_host")
    assert "held_rank" not in {found.id for found in alike.findings}


@pytest.mark.parametrize(
    ("lacking", "named", "is_open", "held"),
    [
        ((1,), (), False, [1]),
        ((1,), (1,), True, [1]),  # late, and perhaps for another reason
        ((1,), (1,), False, []),  # its lateness is the finding
        ((), (), False, []),  # it is late in few steps: whom it keeps waiting is not seen
    ],
)
def test_who_is_late_for_want_of_a_core_in_too_few_steps_is_held_from_outside(
    lacking: tuple[int, ...], named: tuple[int, ...], is_open: bool, held: list[int]
) -> None:
    """A reniced rank of a spawned training: "CPU contention, rank 1 most", with no core for 79 % of its time."""
    cause = SimpleNamespace(is_open=is_open)
    stragglers = tuple(SimpleNamespace(late=SimpleNamespace(row=row), cause=cause) for row in named)
    late: Any = Lateness(stragglers, np.zeros(0), (), lacking, ())  # type: ignore[arg-type]
    few = SimpleNamespace(start=56)  # steps since the pace changed: who is late in most of them is chance
    found: Any = SimpleNamespace(
        rows=np.arange(2), span_K=np.full(60, 0.25), regime=few, work_RK=np.zeros((2, 60))
    )
    window: Any = SimpleNamespace(span_K=found.span_K[-4:], meets_K=None)
    seen_of_each = [OffCore(wait=wait, run=0.1, is_counted=True) for wait in (0.04, 0.79)]
    table: Any = SimpleNamespace()  # that they meet is seen
    assert held == [
        one.row for one in find_held(table, found, window, late, Witnesses(off_core=lambda _s: seen_of_each))
    ]
    assert () == find_held(table, found, window, late, Witnesses())


@pytest.mark.parametrize(
    ("late_in", "of", "held"), [(12, 23, []), (18, 23, [1]), (10, 20, []), (10, 19, [1]), (22, 23, [1])]
)
def test_who_was_held_and_is_late_in_half_of_the_steps_no_longer_is_not_named(
    late_in: int, of: int, held: list[int]
) -> None:
    """A healthy rank 0 on a crowded host: "without a core 80 % of the time", critical, last in 52 % of 23 steps.

    The count is of the last 15 s, and the job was faster since; some 20 steps of it tell.
    """
    late: Any = Lateness((), np.zeros(0), (), (1,), ())
    work = np.zeros((2, 100))
    work[1, 100 - of : 100 - of + late_in], work[0, 100 - of + late_in :] = 1.0, 1.0
    found: Any = SimpleNamespace(
        rows=np.arange(2), span_K=np.full(100, 0.15), regime=SimpleNamespace(start=100 - of), work_RK=work
    )
    seen_of_each = [OffCore(wait=wait, run=0.1, is_counted=True) for wait in (0.25, 0.8)]
    window: Any = SimpleNamespace(span_K=found.span_K[-of:], meets_K=None)
    table: Any = SimpleNamespace()
    witnesses = Witnesses(off_core=lambda _s: seen_of_each)
    assert held == [one.row for one in find_held(table, found, window, late, witnesses)]


def test_who_lacks_a_core_and_is_not_late_is_not_named() -> None:
    """As a rank that spins at the barrier, where it waits for the others."""
    for seed in range(6):
        calm = replace(RESTLESS, seed=seed, faults=())
        assert "straggler" not in {one.id for one in waiting(calm, {0: 0.1, 1: 0.7}).findings}


def test_how_much_of_a_rank_s_lateness_the_kernel_vouches_for() -> None:
    """What ranks alike may differ by is taken off; nothing of too few seconds, nor where anybody was not counted."""
    work = np.tile([[0.1], [0.6]], 20)
    cycle = np.full(20, 1.0)

    def share(*waits: float | None, work: Floats = work, cycle: Floats = cycle) -> list[float]:
        return (
            lacks_core(work, cycle, float(cycle.sum()), [OffCore(wait) for wait in waits]).round(3).tolist()
        )

    assert [0.0, 0.5] == share(0.1, 0.7)
    assert [0.0, 0.0] == share(0.1, 0.39)
    assert [0.0, 0.0] == share(0.7, 0.1)
    assert [0.0, 0.0] == share(0.1, None)
    assert [0.0, 0.0] == share(0.1, 0.7, cycle=cycle / 4)
    assert [0.0, 0.0] == share(0.1, 0.7, work=3 * work)  # its waiting explains a part of it only
    in_turn = work.copy()
    in_turn[:, ::2] = in_turn[::-1, ::2]
    assert [0.0, 0.0] == share(0.1, 0.7, work=in_turn)


def stopped_now_and_then(job: Job, stopped: dict[int, int]) -> RunView:
    """Ten looks a second, so many of them finding the rank stopped."""
    result = []
    for second, frame in enumerate(host_frames(replace(job, num_steps=900), {0: 0.1, 1: 0.1})):
        ranks = [
            {
                **entry,
                "cpu_s": second,
                "looks": 10 * second,
                "stopped_looks": stopped.get(entry["rank"], 0) * second,
            }
            for entry in frame.payload["ranks"]  # type: ignore[attr-defined]
        ]
        result.append(replace(frame, payload={**frame.payload, "ranks": ranks}))
    return folded([*frames(job), *result]).view()


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_looks_vouch_for_a_rank_whose_steps_are_of_any_length(seed: int) -> None:
    """A loop of its own that averages gradients, one of two ranks stopped 20 of 50 ms on a crowded host: a remark."""
    job = replace(RESTLESS, seed=seed)
    (said,) = [one for one in stopped_now_and_then(job, {1: 5}).findings if one.id == "straggler"]
    assert ((1,), "host") == (said.ranks, said.phase)
    assert "stopped again and again" in said.message
    for stopped in ({}, {0: 5}, {0: 5, 1: 5}):
        assert "straggler" not in {one.id for one in stopped_now_and_then(job, stopped).findings}


def test_how_much_of_a_rank_s_lateness_the_looks_vouch_for() -> None:
    """Two standard deviations of so many looks are taken off; nothing of a few stops, or of lateness that is longer."""
    work = np.tile([[0.1], [0.5]], 20)
    cycle = np.full(20, 1.0)

    def share(stopped: float | None, num: int, work: Floats = work, other: float = 0.0) -> list[float]:
        own = OffCore(stopped=stopped, num_stopped=num)
        seen_of_each = [OffCore(stopped=other, num_stopped=round(100 * other)), own]
        return is_stopped(work, cycle, seen_of_each).round(3).tolist()

    assert [0.0, round(1 - 2 * (0.6 / 40) ** 0.5, 3)] == share(0.4, 40)
    assert [0.0, round(1 - 2 * (0.6 / 400) ** 0.5, 3)] == share(0.4, 400)
    assert [0.0, 0.0] == share(0.4, 2)
    assert [0.0, 0.0] == share(0.08, 400)
    assert [0.0, 0.0] == share(0.4, 40, other=0.35)
    assert [0.0, 0.0] == share(None, 0)
    assert [0.0, 0.0] == share(0.4, 40, work=3 * work)
    assert [0.0, 0.0] == share(0.4, 40, work=work[::-1])


def test_one_look_that_finds_a_rank_stopped_is_chance() -> None:
    """And so is one of a rank that is not late."""
    job = JOB.with_faults(Fault("forward", (2,), 9 * MS))
    assert "in forward" in seen(job, QUIET, {}, {2: 100}).verdict.sentence
    assert "in forward" in seen(job, QUIET, {}, {0: 3}).verdict.sentence


def looked_at(job: Job, stopped: dict[int, int], looks: int = 10) -> RunView:
    """The same with `looks` looks a second between the samples, `stopped` of them finding the rank stopped."""
    result = []
    for second, frame in enumerate(host_frames(job, QUIET)):
        ranks = [
            {
                **entry,
                "cpu_s": 1.0 * second,
                "looks": looks * second,
                "stopped_looks": stopped.get(entry["rank"], 0) * second,
            }
            for entry in frame.payload["ranks"]  # type: ignore[attr-defined]
        ]
        result.append(replace(frame, payload={**frame.payload, "ranks": ranks}))
    return folded([*frames(job), *result]).view()


def test_looks_between_the_samples_find_who_is_stopped_when_samples_never_do() -> None:
    """5 s, four of ten looks; one in a hundred is chance, and one that is not late is not named."""
    job = replace(JOB, num_steps=280).with_faults(Fault("forward", (2,), 9 * MS))
    assert "stopped again and again" in looked_at(job, {2: 4}).verdict.sentence
    assert "in forward" in looked_at(job, {}).verdict.sentence
    assert "in forward" in looked_at(job, {0: 4}).verdict.sentence
    assert "in forward" in looked_at(job, {2: 1}, looks=100).verdict.sentence


def test_looks_do_not_fall_in_with_what_stops_a_rank_at_a_distance_of_its_own() -> None:
    """20 of every 50 ms: looks every 100 ms found it 60 times in 160, and not once in the 40 that followed."""
    random.seed(7)
    for period_ns in (20_000_000, 50_000_000, 100_000_000):
        now_ns, found = 0, list[bool]()
        for _ in range(4000):
            now_ns += looks.pause_ns()
            found.append(now_ns % period_ns < 0.4 * period_ns)
        shares = np.array(found).reshape(-1, 40).mean(axis=1)
        assert 0.4 == pytest.approx(shares.mean(), abs=0.04)
        assert 0.4 * 0.6 / 40 == pytest.approx(shares.var(), rel=0.5), (
            period_ns
        )  # of looks that know nothing of it
    assert looks.PAUSE_NS == pytest.approx(now_ns / 4000, rel=0.02)


def test_looks_that_cannot_be_are_not_believed() -> None:
    """More stopped than looks, fewer looks than samples: what the samples saw stays."""
    job = replace(JOB, num_steps=280).with_faults(Fault("forward", (2,), 9 * MS))
    assert "in forward" in looked_at(job, {2: 40}).verdict.sentence
    assert "in forward" in looked_at(job, {2: 1}, looks=0).verdict.sentence


def test_looks_tell_when_a_rank_stood_between_two_samples() -> None:
    """A stop of 300 ms lies between samples a second apart: its pause was "the cause is unknown"."""
    stops = Stops()
    entry = {"rank": 1, "stopped_at_ns": [2_100_000_000, 2_200_000_000, -5, "x", 9_000_000_000]}
    stops.take("node0", {"mono_ns": 3 * 10**9, "ranks": [entry, {"rank": 2, "stopped_at_ns": 7}]})
    was_stopped = stops.within({1: "node0", 2: "node0"})
    assert was_stopped(1, 2_000_000_000, 2_150_000_000)
    assert not was_stopped(1, 2_300_000_000, 3_000_000_000)
    assert not was_stopped(1, 8_000_000_000, 9_500_000_000)  # later than it was told
    assert not was_stopped(2, 0, 10**12)


def in_pauses(
    late_s: float = 0.3, stops: int = 1, share: float = 0.3, named: bool = False, num_long: int = 50
) -> tuple[HeldRank, ...]:
    """Two ranks; of 10 ms steps so many take 310 or more, for rank 1 is late in them; looks find row `stops` stopped.

    late_s: of fewer than 50 long ones each as much more, ten seconds all together.
    """
    every, longer = 600 // num_long, max(0.2 * 50 / num_long, 0.3) / 0.3
    cycle, lateness = np.full(600, 0.01), np.zeros((2, 600))
    cycle[every - 12 :: every] += 0.3 * longer
    lateness[1, every - 12 :: every] = late_s * longer
    ends = 1 + np.cumsum(cycle)
    lateness[1, ::every] = late_s * 50 / num_long
    table = SimpleNamespace(
        ranks=(0, 1),
        begin_s_RK=np.tile(ends - cycle, (2, 1)),
        end_s_RK=np.tile(ends, (2, 1)),
        origin_ns_R=np.zeros(2),
    )
    found: Any = SimpleNamespace(
        table=table,
        barrier=SimpleNamespace(evidence="arrival", cycle_K=cycle, span_K=cycle, lateness_RK=lateness),
        steadiness=SimpleNamespace(elapsed_K=np.ones(600, dtype=bool)),
        steady_barrier=SimpleNamespace(span_K=cycle[cycle < 0.1]),
        compared_rows=np.arange(2),
        stragglers=(SimpleNamespace(late=SimpleNamespace(row=1)),) if named else (),
        open_late=(),
        held=(),
    )
    seen = [OffCore(stopped=0.0), OffCore(stopped=0.0)]
    seen[stops] = OffCore(stopped=share, num_stopped=40)

    def was_stopped(rank: int, begin_ns: int, end_ns: int) -> bool:
        return rank == stops and end_ns - begin_ns > 10**8

    return _stopped_in_pauses(found, Witnesses(off_core=lambda _: seen, was_stopped=was_stopped))


def test_a_rank_that_is_stopped_where_epochs_begin_is_told_though_no_steady_step_shows_it() -> None:
    """A third of its time, all within long waits for data: "periodic waits for data" alone was said."""
    (held,) = in_pauses()
    assert replace(held, surely=0.0) == HeldRank(1, "stopped", 0.3, 0.0, in_pauses=True)
    assert 0.2 < held.surely < 0.3  # by 40 looks
    assert () == in_pauses(named=True)
    assert () == in_pauses(late_s=0.0)  # all are late alike: its stops cost nobody anything that is seen
    assert () == in_pauses(late_s=0.03)
    assert () == in_pauses(stops=0)  # who is stopped while it waits for the other
    assert () == in_pauses(share=0.05)


def test_a_rank_that_stood_once_is_not_kept_from_running() -> None:
    """SIGSTOP for 16 s, ten seconds ago: "rank 0 is stopped", 17.5 ms instead of 44.7 beside a mean of 28.2."""
    assert [1] == [one.row for one in in_pauses(num_long=3)]
    assert () == in_pauses(num_long=2)
    assert () == in_pauses(num_long=1)


def test_a_stopped_process_is_met_by_looks() -> None:
    """One that is stopped, one that sleeps, one that has ended: the counts of those that are there."""
    stopped, asleep = (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(2)
    )
    looks = StateLooks()
    pids = [stopped.pid, asleep.pid, 1 << 22]
    try:
        stopped.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        for _ in range(5):
            looks.look({pid: pid for pid in pids})
    finally:
        for one in (stopped, asleep):
            one.kill()
            one.wait()
    told = looks.counts(stopped.pid)
    times_ns = told.pop("stopped_at_ns")
    assert isinstance(times_ns, list)
    assert (5, sorted(times_ns)) == (len(times_ns), times_ns)
    assert told == looks.counts(stopped.pid)  # the times are told once
    assert (5, 5) == (told["looks"], told["stopped_looks"])
    told = looks.counts(asleep.pid)
    assert (5, 0) == (told["looks"], told["stopped_looks"])
    assert {} == looks.counts(1 << 22)
    looks.keep([asleep.pid])
    assert {} == looks.counts(stopped.pid)


@pytest.mark.parametrize(
    ("cores", "words"), [(2.0, "2 cores holds"), (1.0, "1 core holds"), (0.5, "0.5 cores holds")]
)
def test_a_limit_of_all_ranks_is_a_finding_of_the_job(cores: float, words: str) -> None:
    """They share a container: nobody is late, everybody waits."""
    limit = {"cpu_periods": 10.0, "throttled_periods": 9.0, "cpu_limit_cores": cores}
    view = seen(JOB, dict.fromkeys(range(4), 0.4), dict.fromkeys(range(4), limit), {})
    assert ["cpu_limit"] == [finding.id for finding in view.findings if finding.severity != "info"]
    assert words in view.verdict.sentence
    assert "at best" in view.verdict.sentence
    assert not [finding for finding in view.findings if finding.id == "crowded_host"]


@pytest.mark.parametrize(
    ("fault", "phase_rule"),
    [(Fault("data", None, 12 * MS), "input_bound"), (Fault("comm", None, 30 * MS), "communication_bound")],
    ids=["input", "exchange"],
)
def test_a_limit_of_all_ranks_comes_before_the_phase_that_it_lengthens(fault: Fault, phase_rule: str) -> None:
    """One external cause, one diagnosis: without the limit the same phase is the first finding."""
    job = JOB.with_faults(fault)
    limit = {"cpu_periods": 10.0, "throttled_periods": 9.0, "cpu_limit_cores": 2.0}
    assert phase_rule == seen(job, QUIET, {}, {}).findings[0].id
    limited = seen(job, dict.fromkeys(range(4), 0.4), dict.fromkeys(range(4), limit), {})
    assert "cpu_limit" == limited.findings[0].id
    assert phase_rule in {finding.id for finding in limited.findings}


def test_a_limit_of_one_rank_is_none_of_the_job() -> None:
    """Of two ranks the typical one would be half limited."""
    job = Job(num_ranks=2, num_steps=600)
    limit = {"cpu_periods": 10.0, "throttled_periods": 9.0, "cpu_limit_cores": 2.0}
    view = seen(job, {0: 0.02, 1: 0.5}, {1: limit}, {})
    assert not [finding for finding in view.findings if finding.id == "cpu_limit"]


GROUPS = {
    "2": (
        "0::/pod/box\n",
        {"cpu.max": "50000 100000", "cpu.stat": "usage_usec 5\nnr_periods 40\nnr_throttled 30\n"},
    ),
    "1": (
        "3:cpuset:/\n2:cpu,cpuacct:/pod/box\n",
        {
            "cpu.cfs_quota_us": "50000",
            "cpu.cfs_period_us": "100000",
            "cpu.stat": "nr_periods 40\nnr_throttled 30\nthrottled_time 7\n",
        },
    ),
}


def mounted(monkeypatch: pytest.MonkeyPatch, version: str, point: Path, root: str, of_process: str) -> None:
    """As if the hierarchy of this version were mounted at `point`, with the group `root` as its top."""
    kind = {"2": "cgroup2 none rw", "1": "cgroup none rw,cpu,cpuacct"}[version]
    mountinfo = f"30 20 0:26 {root} {point} rw - {kind}\n".encode()
    texts = {"mountinfo": mountinfo, "cgroup": of_process.encode()}
    monkeypatch.setattr(procfs, "read", lambda _pid, name: texts.get(name))
    cgroup._mounts.cache_clear()
    monkeypatch.setattr(cgroup, "_mounts", cgroup._mounts.__wrapped__)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize(("root", "inner"), [("/", "pod/box"), ("/pod", "box")])
def test_counters_of_a_control_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, root: str, inner: str
) -> None:
    """Of both versions, also where only a part of the hierarchy is mounted."""
    of_process, files = GROUPS[version]
    (tmp_path / inner).mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / inner / name).write_text(text)
    mounted(monkeypatch, version, tmp_path, root, of_process)
    assert {"cpu_limit_cores": 0.5, "cpu_periods": 40, "throttled_periods": 30} == cgroup.counters(1)


def test_the_limit_above_a_container_counts_where_it_holds_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pod of one core around a container of four."""
    of_process, _ = GROUPS["2"]
    (tmp_path / "pod/box").mkdir(parents=True)
    for folder, limit, throttled in (("pod", "100000", 25), ("pod/box", "400000", 0)):
        (tmp_path / folder / "cpu.max").write_text(f"{limit} 100000\n")
        (tmp_path / folder / "cpu.stat").write_text(f"nr_periods 40\nnr_throttled {throttled}\n")
    mounted(monkeypatch, "2", tmp_path, "/", of_process)
    assert {"cpu_limit_cores": 1.0, "cpu_periods": 40, "throttled_periods": 25} == cgroup.counters(1)


@pytest.mark.parametrize(
    "files",
    [
        {"cpu.max": "max 100000", "cpu.stat": "nr_periods 0\nnr_throttled 0\n"},
        {"cpu.max": "50000 0", "cpu.stat": "nr_periods 1\nnr_throttled 0\n"},
        {"cpu.max": "50000 100000", "cpu.stat": "usage_usec 5\n"},
        {"cpu.stat": "nr_periods x\nnr_throttled -1\n"},
        {},
    ],
)
def test_without_a_limit_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str]
) -> None:
    """No limit, a period of nothing, a kernel that does not count, nothing readable."""
    of_process, _ = GROUPS["2"]
    (tmp_path / "pod/box").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "pod/box" / name).write_text(text)
    mounted(monkeypatch, "2", tmp_path, "/", of_process)
    assert {} == cgroup.counters(1)


def test_a_group_that_leads_out_of_the_hierarchy_is_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a process says of its group is a stranger's text."""
    mounted(monkeypatch, "2", tmp_path, "/", "0::/../../etc\nno line\n::\n")
    assert {} == cgroup.counters(1)


def test_without_a_limit_its_share_is_unknown_and_not_nothing() -> None:
    """Where no rank has one; where some have, those without feel none."""
    without, one = OffCore(wait=0.1), OffCore(wait=0.1, throttled=0.9, limit_cores=2.0)
    assert least_throttled([without, without]) is None
    assert least_throttled([without, one]) == 0
    assert least_throttled([one, one]) == 0.9


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_stops_that_hit_another_phase_each_time_are_of_no_phase(num_ranks: int, seed: int) -> None:
    """15 ms in every fourth to seventh step of four noisy phases: none is late in most, and yet the rank is."""
    kinds = ("forward", "backward", "optimizer", "other")
    stops = [Fault(kind, (1,), 15 * MS, every=every) for every, kind in enumerate(kinds, 4)]
    job = replace(JOB, num_ranks=num_ranks, num_steps=150, noise=0.3, seed=seed).with_faults(*stops)
    assert ("straggler", (1,), "host") in above_info(folded(frames(job)).view())


def test_a_few_long_stalls_elsewhere_leave_the_phase_its_name() -> None:
    """Late in every backward; a twentieth of the steps holds a stall between them as well."""
    late = Fault("backward", (1,), 9 * MS)
    stalls = Fault("other", (1,), 50 * MS, chance=0.05)
    job = replace(JOB, num_steps=300).with_faults(late, stalls)
    assert ("straggler", (1,), "backward") in above_info(folded(frames(job)).view())


CROWDED = dict.fromkeys(range(4), 0.4)  # nobody has a core whenever it wants one


@pytest.mark.parametrize(
    ("num_steps", "waits", "told"),
    [
        (60, CROWDED, None),  # 1.6 s of steps
        (
            100,
            CROWDED,
            None,
        ),  # 2.5 s: what three seconds of counts tell is partly of what came before the steps
        (180, CROWDED, "crowded_host"),  # which is sure sooner
        (400, CROWDED, "straggler"),  # it stayed the same rank
        (100, QUIET, "straggler"),  # no core was lacking
        (100, {}, "straggler"),  # nobody counts: nothing to wait for
    ],
)
def test_a_lateness_of_a_moment_is_nobodys_where_all_want_the_cores(
    num_steps: int, waits: dict[int, float], told: str | None
) -> None:
    """Who is last there changes within seconds; the kernel's count needs some before it tells."""
    job = Job(num_steps=num_steps, faults=(Fault("backward", (1,), 6 * MS),))
    view = folded([*frames(job), *host_frames(job, waits)]).view()
    named = told == "straggler"
    assert told == view.verdict.finding
    assert named == (("straggler", (1,), "backward") in above_info(view))
    assert named == any(row.is_culprit for row in view.ranks)
    if told is None:
        assert view.verdict.decision is None
        assert "rank 1" in view.verdict.sentence
        assert "lacks a core" in view.verdict.sentence
        assert not view.window.enough


@pytest.mark.parametrize("device", [False, True])
def test_what_ranks_wait_for_a_core_is_not_useful(device: bool) -> None:
    """40 % without a core beside a goodput of 100 %; behind a device it may be hidden, and is not known."""
    job = Job(num_steps=400, faults=())
    steps = on_devices(frames(job)) if device else frames(job)
    calm = folded([*steps, *host_frames(job, QUIET)]).view()
    view = folded([*steps, *host_frames(job, CROWDED)]).view()
    assert calm.goodput is not None
    assert view.goodput == pytest.approx(calm.goodput * (1.0 if device else 0.6), rel=0.02)
    assert ("crowded_host" in view.goodput_losses) != device
    assert view.wall is not None
    lost = {part.kind for part in view.wall.waterfall if part.sort == "lost"}
    assert ("crowded_host" in lost) != device


@pytest.mark.parametrize(("run", "most"), [(0.3, 1 / 0.3), (None, 1 / 0.6)])
def test_want_of_cores_says_what_it_costs_and_that_it_costs_something(run: float | None, most: float) -> None:
    """There was no figure: of 26 programs on two cores, beside other work and without, each step was longer beside it
    by at least the lower end. No step gets shorter than its thread ran (None: not counted).
    """
    job = Job(num_steps=400)
    told = {rank: {"run_s": float("nan") if run is None else run} for rank in CROWDED}
    view = seen(job, CROWDED, told, {})
    found = view.verdict.speedup
    assert view.verdict.finding == "crowded_host"
    assert found is not None
    assert (1 / 0.7, 1 / 0.6, most) == pytest.approx((found.low, found.expected, found.high), rel=0.03)
    assert "CPU contention" in view.verdict.sentence
    assert "instead of" in view.verdict.sentence


@pytest.mark.parametrize(("num_steps", "is_known"), [(100, False), (400, True)])
def test_what_ranks_waited_before_their_first_step_is_none_of_the_steps(
    num_steps: int, is_known: bool
) -> None:
    """Imports on a busy machine: of steps with 20 of 55 ms asleep "74 % of the time without a core" was said, and 14 ms
    "without that". The first record is of all before it, and has no step's beginning.
    """
    job = Job(num_steps=num_steps, host_clock_s={0: 12.0})

    def waited(second: int) -> list[dict[str, float]]:
        delay_s = 0.9 * min(second, 13) + 0.3 * max(
            second - 13, 0
        )  # the steps begin in the thirteenth second
        return [{"rank": rank, "run_delay_s": delay_s} for rank in QUIET]

    looks = [
        replace(one, payload={**one.payload, "mono_ns": second * 10**9, "ranks": waited(second)})
        for second, one in enumerate(host_frames(replace(job, num_steps=num_steps + 600), QUIET), start=1)
        if second <= 14 + num_steps * 0.018
    ]
    view = folded([*frames(job), *looks]).view()
    told = [one.evidence["core_wait_share"] for one in view.findings if one.id == "crowded_host"]
    assert told == (pytest.approx([0.3], abs=0.05) if is_known else [])


def test_what_waiting_for_cores_costs_behind_a_device_is_unknown() -> None:
    """The host may be ahead of it, and its waits hidden."""
    job = Job(num_steps=400)
    view = folded([*on_devices(frames(job)), *host_frames(job, CROWDED)]).view()
    (crowded,) = [entry for entry in view.findings if entry.id == "crowded_host"]
    assert "speedup" not in crowded.evidence


@pytest.mark.parametrize(
    ("late_since", "waits", "phase"),
    [
        (0, CROWDED, "backward"),
        (560, CROWDED, ""),  # nobody knows yet
        (0, {**CROWDED, 1: 0.65}, "host"),  # it lacked a core before as well, for longer than by lot
        (0, {**CROWDED, 1: 0.5}, ""),  # which explains nothing, and rules nothing out
    ],
)
def test_who_was_late_before_the_pace_changed_stays_named(
    late_since: int, waits: dict[int, float], phase: str
) -> None:
    """A crowded host's job changes its pace every few seconds: a window that begins anew does not unname."""
    faults = Fault("backward", (1,), 6 * MS, onset=late_since), Fault("comm", None, 5 * MS, onset=560)
    job = Job(num_steps=600, faults=faults)
    view = folded([*frames(job), *host_frames(job, waits)]).view()
    assert (view.window.first_step, view.window.num_steps) == (560, 40)
    assert [phase] * bool(phase) == [what for kind, _, what in above_info(view) if kind == "straggler"]
    assert bool(phase) == any(row.is_culprit for row in view.ranks)


@pytest.mark.parametrize(
    ("num_steps", "lacking", "named"),
    [
        (150, 0.24, False),  # 4 s: by lot ranks alike wait for as much more of it
        (150, 0.55, True),  # as one does that is reniced
        (350, 0.24, True),  # 9 s: more than by lot
    ],
)
def test_who_lacked_a_core_for_some_seconds_may_have_been_drawn(
    num_steps: int, lacking: float, named: bool
) -> None:
    """Two healthy ranks on two cores, load 15: for 4 s one waited 0.2 of its time longer, then the other."""
    job = Job(num_steps=num_steps, faults=(Fault("backward", (1,), 6 * MS),))
    view = folded([*frames(job), *host_frames(job, {**CROWDED, 1: 0.4 + lacking})]).view()
    assert named == (("straggler", (1,), "host") in above_info(view))
    assert named == any(row.is_culprit for row in view.ranks)
    if not named:
        assert view.verdict.finding == "crowded_host"
        assert "tell whether it lacks a core by more than chance" in view.verdict.because


@pytest.mark.parametrize(("num_steps", "named"), [(265, False), (530, True)])
def test_a_rank_that_lacked_a_core_most_by_chance_is_not_named_for_the_rest(
    num_steps: int, named: bool
) -> None:
    """Four healthy ranks on two cores, load 27: over nine seconds two thirds of a rank's lateness were its waiting."""
    waits = {0: 0.09, 1: 0.11, 2: 0.44, 3: 0.14}
    job = Job(num_steps=num_steps, faults=(Fault("backward", (2,), 16 * MS),))  # of steps of 34 ms
    view = folded([*frames(job), *host_frames(replace(job, num_steps=2 * num_steps), waits)]).view()
    assert named == (("straggler", (2,), "backward") in above_info(view))
    assert named == any(row.is_culprit for row in view.ranks)


def test_what_a_count_that_is_too_short_can_be_at_most() -> None:
    """From the sample before the span on, or all that lies before the first; of less than a sample nothing is known."""
    seen = CoreWait()
    for second in range(5):
        seen.take({"mono_ns": second * 10**9, "ranks": [{"rank": 0, "run_delay_s": 0.5 * second}]})
    assert [pytest.approx(0.5), None] == seen.bounds([0, 1], 2.0)[1]
    # All of two seconds' waiting may lie in it.
    assert [pytest.approx(1.0 / 1.6)] == seen.bounds([0], 1.6)[1]
    assert [None] == seen.bounds([0], 1.0)[1]
    # Of the half second before anybody counted it may have waited all.
    assert [pytest.approx((2.0 + 0.5) / 4.5)] == seen.bounds([0], 4.5)[1]
    assert [pytest.approx(38 / 40)] == seen.bounds([0], 40.0)[1]
    assert [True, False] == [seen.counted(0), seen.counted(1)]


@pytest.mark.parametrize(
    ("wait", "throttled", "limited"),
    [(0.4, 0.9, True), (0.78, 0.23, False), (0.3, 0.28, True), (0.05, 0.9, False), (0.4, None, False)],
)
def test_a_limit_is_named_where_it_can_have_held_the_ranks_back(
    wait: float, throttled: float | None, limited: bool
) -> None:
    """Of a period it takes the whole at most: 23 % of them throttled do not explain 78 % of the time without a core."""
    crowd = Crowd(5.0, wait, throttled, 0.5)
    assert crowd.is_limited == limited
    assert crowd.limited_share == min(wait, throttled or 0.0)


def test_beside_busy_others_a_limit_that_is_hit_now_and_then_is_not_the_finding() -> None:
    """And its gain is what it took, where it is."""
    limit = {"cpu_periods": 10.0, "throttled_periods": 2.5, "cpu_limit_cores": 2.0}
    crowded = seen(JOB, dict.fromkeys(range(4), 0.8), dict.fromkeys(range(4), limit), {})
    assert "cpu_limit" not in {finding.id for finding in crowded.findings}
    held = seen(JOB, dict.fromkeys(range(4), 0.3), dict.fromkeys(range(4), limit), {})
    (finding,) = [one for one in held.findings if one.id == "cpu_limit"]
    assert "for at most 25 % of the time" in finding.message
    assert held.verdict.speedup is not None
    assert held.verdict.speedup.expected == pytest.approx(1 / (1 - 0.25), rel=0.02)


def test_of_one_process_nothing_is_said_of_every_rank() -> None:
    """Waiting for data, and a level that changed."""
    view = folded(frames(Job(num_ranks=1, num_steps=400, faults=(Fault("data", None, 12 * MS),)))).view()
    (finding,) = [one for one in view.findings if one.id == "input_bound"]
    assert "the process waits" in finding.message
    assert "the process waits for data" in view.verdict.sentence
    later = folded(
        frames(Job(num_ranks=1, num_steps=400, faults=(Fault("data", None, 12 * MS, onset=200),)))
    ).view()
    assert "all ranks" not in later.window.change


@pytest.mark.parametrize(
    ("own", "name", "cover"),
    [
        (OffCore(wait=0.4, is_counted=True), "core", 1.0),
        (OffCore(wait=0.02, stopped=0.2, num_stopped=8, is_counted=True), "stopped", 0.6),
        (OffCore(wait=0.05, is_counted=True), None, 0.1),  # explains nothing
    ],
)
def test_what_explains_a_delay_from_outside_covers_it_whatever_the_phases_show(
    own: OffCore, name: str | None, cover: float
) -> None:
    """A reniced rank of 3 ms steps, a fifth of them lost for it, was a remark: no phase of microseconds was longer."""
    cause = Cause("unknown", 0.1, {}, (), 1.0, None)
    peers = [OffCore(wait=0.02, stopped=0.0, is_counted=True)]
    found = _explained(cause, own, _Steps(30.0, 3.3 * MS, peers), excess_s=1.1 * MS)
    assert (found.off_core, found.cover) == (name, pytest.approx(cover))


def stopped_once(job: Job, begin_s: float, end_s: float, rank: int) -> RunView:
    """Ten looks a second, which find a rank stopped between two times alone, as by one SIGSTOP and SIGCONT."""
    found = [int(ns) for ns in np.arange(begin_s, end_s, 0.1) * 1e9]
    result = []
    for second, frame in enumerate(host_frames(replace(job, num_steps=900), {0: 0.1, 1: 0.1})):
        until_ns = frame.payload["mono_ns"]  # type: ignore[attr-defined]
        told = [ns for ns in found if until_ns - 10**9 < ns <= until_ns]
        looks = {"cpu_s": second, "looks": 10 * second}
        ranks = [
            {
                **entry,
                **looks,
                "stopped_looks": sum(ns <= until_ns for ns in found) if entry["rank"] == rank else 0,
                **({"stopped_at_ns": told} if told and entry["rank"] == rank else {}),
            }
            for entry in frame.payload["ranks"]  # type: ignore[attr-defined]
        ]
        result.append(replace(frame, payload={**frame.payload, "ranks": ranks}))
    return folded([*frames(job), *result]).view()


@pytest.mark.parametrize("stopped", [0, 1])
def test_one_stop_that_is_over_is_not_what_makes_each_step_late(stopped: int) -> None:
    """A rank late in backward that had hung for a while: "25.9 ms late in 100 % of the steps, its process being stopped
    again and again".
    """
    job = Job(
        num_ranks=2, num_steps=600,
        faults=(Fault("backward", (1,), 6 * MS), Fault("forward", (stopped,), 3.9, onset=350, until=351)),
    )  # fmt: skip
    begin_s = simulate(job).rows[stopped][350][STEP_NAMES.index("begin_ns")] / 1e9
    view = stopped_once(job, begin_s + 0.05, begin_s + 3.9, stopped)
    (late,) = [one for one in view.findings if one.id == "straggler"]
    assert ((1,), "backward") == (late.ranks, late.phase)
    assert "again and again" not in " ".join(one.message for one in view.findings)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_sleep_in_the_loop_beside_one_longer_phase_is_not_told_as_all_phases_alike(num_ranks: int) -> None:
    """A sleep, forward that lacks its cores, and others whose optimizer lacks theirs: no host or device does that."""
    others = tuple(rank for rank in range(num_ranks) if rank != 1)
    faults = (
        Fault("other", (1,), 8 * MS),
        Fault("forward", (1,), 7 * MS),
        Fault("optimizer", others, 5 * MS),
    )
    view = final_view(Job(num_ranks=num_ranks, num_steps=120, faults=faults))
    (finding,) = [entry for entry in view.findings if entry.id == "straggler"]
    assert ((1,), "host") == (finding.ranks, finding.phase)
    assert "outside the phases of its step" in finding.message


def test_forward_and_backward_longer_beside_the_rest_are_all_phases_alike() -> None:
    """As of a processor that is slow: each of what it computes takes longer."""
    faults = tuple(Fault(kind, (1,), 7 * MS) for kind in ("other", "forward", "backward"))
    view = final_view(Job(num_steps=120, faults=faults))
    (finding,) = [entry for entry in view.findings if entry.id == "straggler"]
    assert "in all of its phases alike" in finding.message
