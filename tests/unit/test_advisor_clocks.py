"""Hosts whose clocks lie: hours apart, drifting, stepped by NTP in the middle. The verdict is what true clocks give."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from synthetic_run import (
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
from thinned import crossed

from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.views.run_view import RunView

HOUR_S = 3600.0
PPM = 1e-6
NS = 10**9
CLOCKS = [STEP_NAMES.index(name) for name in ("begin_ns", "end_ns", "arrive_ns", "release_ns")]
UP_SINCE_S = 20_000.0  # of all hosts, so that no clock reads less than nothing
# The second host's monotonic clock against the first's: offset (s), rate, rate from the middle of the run on; and by
# how much NTP sets its wall clock then (s).
WAYS = {
    "hours apart": (-5 * HOUR_S, 0.0, 0.0, 0.0),
    "drift": (0.0, 100 * PPM, 0.0, 0.0),
    "hours apart and drift": (3 * HOUR_S, -100 * PPM, 0.0, 0.0),
    "set by an hour": (0.0, 0.0, 0.0, HOUR_S),
    "slewed": (7 * HOUR_S, 0.0, 500 * PPM, 0.0),
}
FAULTS = {"late in forward": (Fault("forward", (3,), 6 * MS, onset=100),), "healthy": ()}
JOB = Job(num_ranks=4, ranks_per_host=2, num_steps=400, seed=3)


@cache
def seen(faults: str, seq_known: bool, way: tuple[float, float, float, float]) -> RunView:
    """What is said of the job where the second host's clocks are wrong in this way."""
    offset_s, rate, later_rate, set_by_s = way
    job = replace(JOB, faults=FAULTS[faults], seq_known=seq_known)
    run = simulate(job)
    middle_ns = run.rows[0][len(run.rows[0]) // 2][3]

    def read(rank: int, time_ns: int) -> int:
        if rank < job.ranks_per_host:
            return time_ns + round(UP_SINCE_S * NS)
        slewed_ns = max(0, time_ns - middle_ns) * later_rate
        return round(time_ns * (1 + rate) + slewed_ns + (UP_SINCE_S + offset_s) * NS)

    def row_read(row: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(read(row[0], value) if index in CLOCKS else value for index, value in enumerate(row))

    rows = {rank: [row_read(row) for row in records] for rank, records in run.rows.items()}
    sequence: list[Frame] = []
    for frame in frames(job, 100, Simulated(rows, run.cycle_s)):
        is_second = frame.source.startswith("node1")
        mono_ns = frame.time_ns
        wall_ns = 1_700_000_000 * NS + mono_ns - round((offset_s if is_second else 0.0) * NS)
        if frame.kind is FrameKind.HELLO:
            mono_ns = read(2 if is_second else 0, 0)
            wall_ns = 1_700_000_000 * NS
            sequence.append(replace(frame, payload={**frame.payload, "mono_ns": mono_ns, "wall_ns": wall_ns}))
            continue
        if is_second and frame.time_ns > read(2, middle_ns):
            wall_ns += round(set_by_s * NS)
        payload = {"host": f"node{int(is_second)}", "mono_ns": mono_ns, "wall_ns": wall_ns, "ranks": []}
        sequence += [frame, Frame(FrameKind.STATUS, frame.source, 9000 + frame.seq, mono_ns, payload)]
        if (
            is_second and set_by_s and frame.time_ns > read(2, middle_ns)
        ):  # an agent that came back introduces itself
            again = next(one for one in sequence if one.source == frame.source)
            greeting = {**again.payload, "mono_ns": mono_ns, "wall_ns": wall_ns}
            sequence.append(Frame(FrameKind.HELLO, frame.source, 20_000 + frame.seq, mono_ns, greeting))
    return folded(sequence).view()


def said(view: RunView) -> object:
    """What a user acts on."""
    return (
        view.verdict.decision,
        view.verdict.finding,
        [(finding.id, finding.ranks, finding.phase, finding.severity) for finding in view.findings],
        [(one.rank, one.cause) for one in view.stragglers],
        view.last_step,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("way", "seq_known"), crossed(WAYS, [True, False]))
@pytest.mark.parametrize("faults", FAULTS)
def test_wrong_clocks_change_no_verdict(faults: str, seq_known: bool, way: str) -> None:
    """Offset of hours, 100 ppm, a step of NTP and a slew: the same decision, findings and ranks as with true clocks."""
    true, wrong = seen(faults, seq_known, (0.0, 0.0, 0.0, 0.0)), seen(faults, seq_known, WAYS[way])
    assert said(true) == said(wrong)
    for straggler, other in zip(true.stragglers, wrong.stragglers, strict=True):
        assert straggler.loss_s_per_step == pytest.approx(other.loss_s_per_step, rel=0.05)
    assert bool(FAULTS[faults]) == (3 in [one.rank for one in true.stragglers])


def test_rates_a_hundredth_apart_name_nobody_wrongly() -> None:
    """Beyond anything a clock does, and no common number: the culprit or nobody."""
    view = seen("late in forward", seq_known=False, way=(0.0, 0.01, 0.0, 0.0))
    assert {3} >= {one.rank for one in view.stragglers}


@pytest.mark.parametrize("apart_s", [0.5, 5.0])
def test_hosts_whose_wall_clocks_are_steps_apart_are_not_joined(apart_s: float) -> None:
    """No sequence numbers, attached at different steps; rank 1 is late: its host alone, and no slow exchange of all."""
    job = Job(
        num_steps=320,
        attach=(0, 3, 7, 1),
        seq_known=False,
        ranks_per_host=2,
        host_clock_s={1: apart_s},
        faults=(Fault("forward", (1,), 5 * MS),),
    )
    view = final_view(job)
    assert [("straggler", (1,), "forward")] == above_info(view)
    assert "communication_bound" not in {finding.id for finding in view.findings}
    assert (view.window.last_step or 0) < 320
    assert any("rank 3 is not compared" in note for note in view.losses.notes)
