"""Device times of recorded events: medians, how far behind the thread, nothing said where the clocks do not decide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_run import Fault, Job, folded, frames, on_devices

from tuiadvisor.advisor.detail.device_times import MIN_EVEN, MIN_STEPS, DeviceTimes, of_job
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.steps.step_series import SeriesCollector
from tuiadvisor.events import EVENT_COLUMNS, EventKind
from tuiadvisor.phases import PHASES
from tuiadvisor.report.document import document
from tuiadvisor.stream.columns import unpack_columns
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns
from tuiadvisor.tui.pages.once import plain_summary

MS = 1_000_000
NAMES = ("rank", "kind", *EVENT_COLUMNS)
FORWARD, BACKWARD, OPTIMIZER = (PHASES.index(name) for name in ("forward", "backward", "optimizer"))


def measured(
    rank: int, step: int, *, behind_ns: int, bracket_ns: int = 50_000, forward_ms: int = 6
) -> list[tuple[int, ...]]:
    """Rows of one step as the probe writes them: forward, 10 ms backward, 4 ms optimizer."""
    rows, at = [], 10**9 + step * 25 * MS
    for phase, duration in ((FORWARD, forward_ms), (BACKWARD, 10), (OPTIMIZER, 4)):
        end = at + duration * MS
        rows.append((rank, int(EventKind.DEVICE_PHASE), step, at, end, phase, bracket_ns, -1, behind_ns))
        at = end
    return rows


def events(rows: list[tuple[int, ...]], host: str = "node0", seq: int = 900) -> Frame:
    """An EVENTS frame."""
    return Frame(FrameKind.EVENTS, f"{host}/1/1", seq, 10**10, pack_columns(rows, NAMES))


def taken(rows: list[tuple[int, ...]]) -> DeviceTimes:
    """Device times of these rows."""
    times = DeviceTimes()
    times.take(unpack_columns(pack_columns(rows, NAMES), NAMES))
    return times


def test_phases_are_medians_on_the_devices_own_clock() -> None:
    """Forward 6 ms, backward 10, optimizer 4; what no event was recorded for stays unknown."""
    rows = [row for step in range(9) for row in measured(3, step, behind_ns=9 * MS)]
    found = taken(rows).views()[3]

    assert (0.006, 0.01, 0.004, 0.02) == (
        found.seconds["forward"],
        found.seconds["backward"],
        found.seconds["optimizer"],
        found.step_s,
    )
    assert found.seconds["h2d"] is None
    assert (found.keeps_pace, found.behind_share) == (False, pytest.approx(0.45))


def spans(rank: int, step: int, names: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Rows of one step of ten milliseconds each."""
    at = 10**9 + step * 400 * MS
    return [
        (
            rank,
            int(EventKind.DEVICE_PHASE),
            step,
            at + 10 * n * MS,
            at + 10 * (n + 1) * MS,
            PHASES.index(name),
            0,
            -1,
            0,
        )
        for n, name in enumerate(names)
    ]


WAIT = ("comm_exposed", "forward")
# Batch statistics in three layers; parameters kept whole over two micro-steps, so that the first backward has no wait.
BATCH_STATISTICS = ("forward", *WAIT * 3, "backward", "comm_exposed", "other", "optimizer")
SHARDS_KEPT_WHOLE = (
    *("forward", *WAIT * 3, "backward", "other", "forward", *WAIT * 3),
    *("backward", *("comm_exposed", "backward") * 2, "comm_exposed", "other", "optimizer"),
)


@pytest.mark.parametrize(("names", "is_unseen"), [(BATCH_STATISTICS, True), (SHARDS_KEPT_WHOLE, False)])
def test_ranks_meet_in_backward_unseen_where_only_forwards_waits_are_seen(
    names: tuple[str, ...], is_unseen: bool
) -> None:
    """As in layers with batch statistics; FSDP2's waits within backward have borders of their own."""
    job = Job(num_ranks=2, num_steps=40)
    advisor = Advisor()
    for frame in on_devices(frames(job)):
        if frame.kind != FrameKind.EVENTS:
            advisor.feed_frame(frame)
    advisor.feed_frame(
        events([row for step in range(3, 40) for rank in range(2) for row in spans(rank, step, names)])
    )
    found = advisor.device_times.table(advisor.store)

    assert found is not None
    assert found[0].meets_within is is_unseen


def test_device_that_is_never_behind_keeps_pace() -> None:
    """Behind by 0.1 ms and a bracket of 0.05 ms of 20 ms: at most 0.75 %."""
    rows = [row for step in range(9) for row in measured(0, step, behind_ns=MS // 10)]
    found = taken(rows).views()[0]

    assert found.keeps_pace is True
    assert found.behind_share == pytest.approx(0.0075)


def test_wide_bracket_decides_nothing() -> None:
    """At least 0.1 ms and at most 15 ms behind: both could be."""
    rows = [row for step in range(9) for row in measured(0, step, behind_ns=MS // 10, bracket_ns=15 * MS)]
    found = taken(rows).views()[0]

    assert (found.keeps_pace, found.behind_share) == (None, None)


def test_few_measured_steps_are_not_shown() -> None:
    """The latest step may still be on its way, so it does not count."""
    rows = [row for step in range(MIN_STEPS) for row in measured(0, step, behind_ns=0)]

    assert taken(rows).views() == {}


def test_job_keeps_pace_only_where_all_its_devices_do() -> None:
    """One rank that is behind and one that keeps pace: nothing is said of the job."""
    rows = [row for step in range(9) for row in measured(0, step, behind_ns=0)]
    rows += [row for step in range(9) for row in measured(1, step, behind_ns=9 * MS, forward_ms=8)]
    job = of_job(taken(rows).views())

    assert job is not None
    assert job.keeps_pace is None
    assert job.seconds["forward"] == pytest.approx(0.007)


def test_times_are_the_devices_and_say_so() -> None:
    """Steps, phases and ranks rest on the devices' clocks; one that is never behind waits for launches."""
    job = Job(num_ranks=2, num_steps=60)
    view = folded(on_devices(frames(job), behind_share=0.0)).view()

    assert (view.clock, document(view)["clock"]) == ("device", "device")
    assert view.step.seconds["forward"] == pytest.approx(0.006, rel=0.1)
    assert [True, True] == [row.device.keeps_pace for row in view.ranks if row.device]
    assert "host_bound" in {found.id for found in view.findings}
    assert "all times are the devices' own" in plain_summary(view).replace("\n", " ")
    assert "cuda (device clock)" in plain_summary(view)


def test_launches_alone_decide_nothing() -> None:
    """Ranks on devices whose clocks nobody read: no decision, no rank, no exchange, and what is missing is said."""
    late = Job(num_ranks=4, num_steps=120).with_faults(Fault("backward", (2,), 0.003))
    without = [frame for frame in on_devices(frames(late)) if frame.kind != FrameKind.EVENTS]
    view = folded(without).view()

    assert (view.clock, view.verdict.decision) == ("host", None)
    assert view.verdict.sentence == "Not decided: no step was seen by the devices' own clocks."
    assert (view.stragglers, view.findings, view.pauses, view.goodput) == ((), (), (), None)
    assert view.step.seconds["comm_exposed"] is None
    assert not view.window.enough
    said = " ".join(plain_summary(view).split())
    assert "cuda (host clock)" in said
    assert "nothing found that is worth acting on" not in said
    assert "not decided: no step was seen by the devices' own clocks" in said


def test_two_runs_on_devices_are_compared_by_the_devices_steps() -> None:
    """Also taken out piece by piece; launches alone have no phases, and their mean is the job's."""
    job = Job(num_ranks=2, num_steps=120)
    advisor = folded(on_devices(frames(job)))
    series = SeriesCollector(advisor.store, advisor.steps_of_job).finish()
    launched = folded([frame for frame in on_devices(frames(job)) if frame.kind != FrameKind.EVENTS])
    blind = SeriesCollector(launched.store, launched.steps_of_job).finish()

    forward, comm = PHASES.index("forward"), PHASES.index("comm_exposed")
    assert np.nanmean(series.phase_s_PK[forward]) == pytest.approx(0.006, rel=0.1)
    assert np.isfinite(series.phase_s_PK[comm]).any()
    assert not np.isfinite(blind.phase_s_PK).any()
    assert blind.steady_K.all()


@pytest.mark.slow
def test_devices_that_fall_silent_are_not_believed_for_ever() -> None:
    """The hook of one rank fails at step 200 of 3,000: what was measured until then is not how it is now."""
    job = Job(num_ranks=2, num_steps=3000)
    kept = []
    for frame in on_devices(frames(job, rows_per_frame=200)):
        if frame.kind == FrameKind.EVENTS and frame.seq > 5:
            continue
        kept.append(frame)
    view = folded(kept).view()

    assert view.verdict.decision is None
    assert "last seen at step" in view.verdict.sentence


def test_restarted_probe_counts_anew() -> None:
    """Steps from 0 again, later on the same clock: only what came since stands in the view."""
    rows = [row for step in range(20) for row in measured(0, step, behind_ns=0)]
    later = [
        (*row[:3], row[3] + 60 * 10**9, row[4] + 60 * 10**9, *row[5:])
        for step in range(9)
        for row in measured(0, step, behind_ns=0, forward_ms=16)
    ]
    times = taken(rows)
    times.take(unpack_columns(pack_columns(later, NAMES), NAMES))

    assert times.views()[0].seconds["forward"] == pytest.approx(0.016)
    assert times.views()[0].num_steps == 8


def test_steps_that_one_rank_left_out_are_not_counted_among_the_fewest() -> None:
    """The first fifty are measured by all, but eight of them by one rank alone; later one in eighteen is.

    Enough for a verdict are looked at, by all ranks: one rank's would be missing and the verdict taken back.
    """
    late = range(50, 260, 18)
    rows = [row for step in (*range(2, 50), *late) for row in measured(0, step, behind_ns=0)]
    rows += [row for step in (*range(2, 34), *range(42, 50), *late) for row in measured(1, step, behind_ns=0)]
    advisor = folded([*frames(Job(num_ranks=2, num_steps=270)), events(rows)])
    found = advisor.device_times.table(advisor.store)
    assert found is not None
    assert found[0].num_steps >= MIN_EVEN


@pytest.mark.slow
def test_many_ranks_keep_fewer_steps() -> None:
    """Memory is bounded: thousands of ranks keep 64 measured steps each, and go on."""
    times = DeviceTimes()
    for step in range(80):
        rows = [row for rank in range(1100) for row in measured(rank, step, behind_ns=0)]
        times.take(unpack_columns(pack_columns(rows, NAMES), NAMES))

    assert len(times.views()) == 1100
    assert times.views()[0].num_steps == 63


def test_part_of_a_run_has_no_device_times() -> None:
    """What was measured lies outside of the chosen steps."""
    rows = [row for step in range(9) for row in measured(0, step, behind_ns=0)]
    advisor = folded([*frames(Job(num_ranks=2, num_steps=60)), events(rows)])

    assert advisor.view_of((10, 40)).device is None


@pytest.mark.slow
@given(st.lists(st.tuples(*[st.integers(-(1 << 63), (1 << 63) - 1)] * 9), max_size=20))
def test_rows_of_a_stranger_never_raise(rows: list[tuple[int, ...]]) -> None:
    """Any 64-bit integers, with and without the kind that is looked at."""
    times = taken(rows + [(0, int(EventKind.DEVICE_PHASE), *row[2:]) for row in rows])

    for view in times.views().values():
        assert view.step_s > 0


def test_damaged_events_frame_is_counted() -> None:
    """And the rest goes on."""
    advisor = Advisor()
    advisor.feed_frame(Frame(FrameKind.EVENTS, "node0/1/1", 1, 1, {"rows": -4, "columns": {}}))

    assert advisor.num_bad_frames == 1
