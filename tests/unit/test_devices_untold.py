"""A rank whose device says nothing though its steps come: an honest end, not "20 more steps" for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from simulated_devices import (
    EVENT_NAMES,
    DeviceJob,
    Fault,
    Ints,
    Rows,
    edited,
    folded,
    frames,
    hello,
    simulate,
)

from tuiadvisor.advisor.detail.untold_devices import Untold, in_words
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.views.run_view import RunView

RANK, STEP, GROUP, END = (EVENT_NAMES.index(name) for name in ("rank", "step", "group", "end_ns"))
COMM, BACKWARD = (PHASES.index(name) for name in ("comm_exposed", "backward"))
JOB = DeviceJob(num_steps=200)
SLOW_FIRST = Fault("device", (0,), factor=1.3)


def without_times(rank: int, first: int = 0, last: int = 1 << 40) -> Rows:
    """Nothing of that rank's device in its steps first..last."""

    def edit(rows: Ints) -> Ints:
        gone = (rows[:, RANK] == rank) & (rows[:, STEP] >= first) & (rows[:, STEP] <= last)
        return np.asarray(rows[~gone])

    return edit


def without_waits(rank: int, first: int = 0, last: int = 1 << 40) -> Rows:
    """As a device whose arrival at the barrier is not recorded: its wait lies in its backward."""

    def edit(rows: Ints) -> Ints:
        rows = rows.copy()
        told = (rows[:, RANK] == rank) & (rows[:, STEP] >= first) & (rows[:, STEP] <= last)
        rows[told & (rows[:, GROUP] == COMM), GROUP] = BACKWARD
        return rows

    return edit


def too_long(rank: int) -> Rows:
    """Steps of hours on a device whose thread is seen for seconds."""

    def edit(rows: Ints) -> Ints:
        rows = rows.copy()
        rows[rows[:, RANK] == rank, END] += 10**13
        return rows

    return edit


def view_of(job: DeviceJob, edit: Rows) -> RunView:
    """The view at the end of the job with its rows edited."""
    return folded(edited(frames(simulate(job)), edit))


MISSING: dict[str, tuple[Callable[[int], Rows], str]] = {
    "times": (without_times, "whose device's times were not seen in 200 steps"),
    "waits": (without_waits, "whose device did not tell how long it waits for others in 200 steps"),
    "fit": (too_long, "whose device's times fit none of its thread's in 200 steps"),
}


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("num_ranks", [2, 4, 64])
def test_a_device_that_never_tells_ends_as_not_decided_and_says_whose_it_is(
    num_ranks: int, missing: str
) -> None:
    """Whether it is late or not, nobody is named; more steps tell nothing, and that is said to whoever waits."""
    last, (edit, words) = num_ranks - 1, MISSING[missing]
    for faults in ((), (Fault("device", (last,), factor=1.3),)):
        view = view_of(DeviceJob(num_ranks=num_ranks, num_steps=200, faults=faults), edit(last))

        assert (view.verdict.decision, view.verdict.is_final) == (None, True)
        assert f"rank {last}, {words}" in view.verdict.sentence
        assert (view.stragglers, view.window.num_missing_steps) == ((), 0)
        assert view.ranks[last].why_apart.startswith("not compared with the others: its device")


@pytest.mark.parametrize("edit", [without_times, without_waits])
def test_of_the_others_one_is_late_all_the_same(edit: Callable[[int], Rows]) -> None:
    """Who waits for nobody came last of those seen, whoever is not."""
    view = view_of(JOB.with_faults(SLOW_FIRST), edit(3))

    assert view.verdict.decision == "tune"
    assert [one.rank for one in view.stragglers] == [0]
    assert "would take at best" in view.verdict.sentence


@pytest.mark.parametrize("edit", [without_times, without_waits])
def test_a_device_that_begins_to_tell_late_is_judged_from_then_on(edit: Callable[..., Rows]) -> None:
    """The first 90 of its steps untold: not decided, for as long; then as any other."""
    sequence = edited(frames(simulate(JOB)), edit(3, 0, 90))
    early = [frame for frame in sequence if frame.seq <= 6]  # 80 steps

    assert folded(early).verdict.is_final
    assert folded(sequence).verdict.decision == "keep"


@pytest.mark.parametrize("edit", [without_times, without_waits])
def test_a_device_that_stops_telling_keeps_no_verdict_alive(edit: Callable[..., Rows]) -> None:
    """What was measured until then is not how it is now: without its waits "keep" stood for ever."""
    job = DeviceJob(num_steps=300)
    view = view_of(job, edit(3, 60))
    named = view_of(job.with_faults(SLOW_FIRST), edit(3, 60))

    assert (view.verdict.decision, view.verdict.is_final) == (None, True)
    assert "rank 3, whose device" in view.verdict.sentence
    assert "since step" in view.verdict.sentence
    assert [one.rank for one in named.stragglers] == [0]


def test_all_devices_that_stop_are_one_trouble_of_the_job() -> None:
    """No rank is left out where none is left."""
    view = view_of(DeviceJob(num_steps=300), lambda rows: rows[rows[:, STEP] < 60])
    never = view_of(JOB, lambda rows: rows[:0])

    assert view.verdict.sentence == "Not decided: the clocks of all devices were last seen at step 58."
    assert never.verdict.sentence == "Not decided: no step was seen by the devices' own clocks."
    assert view.verdict.is_final
    assert never.verdict.is_final


def test_a_rank_that_was_attached_lately_is_waited_for() -> None:
    """First it has too few steps to be blamed, then its steps are counted; never is it said to be silent."""
    job = DeviceJob(num_steps=400, attach=(0, 0, 0, 300))
    advisor, said = Advisor(), []
    for frame in frames(simulate(job), steps_a_frame=10):
        advisor.feed_frame(frame)
        said.append(advisor.view().verdict)

    assert not [verdict for verdict in said if verdict.is_final]
    assert not [verdict for verdict in said if "rank 3" in verdict.sentence]
    assert any(verdict.sentence.startswith("Not enough yet: 4 more steps") for verdict in said[50:])
    assert said[-1].decision == "keep"


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_recording_that_is_over_says_the_same(num_ranks: int, missing: str) -> None:
    """Probes that were taken out make no steps any more, but those that they made were not told."""
    last, (edit, words) = num_ranks - 1, MISSING[missing]
    sequence = edited(frames(simulate(DeviceJob(num_ranks=num_ranks, num_steps=200))), edit(last))
    over = hello(DeviceJob(num_ranks=num_ranks), "node0")
    ranks = [{**entry, "state": "detached"} for entry in over.payload["ranks"]]
    sequence.append(replace(over, seq=900, payload={**over.payload, "ranks": ranks}))
    view = folded(sequence)

    assert [row.state for row in view.ranks] == ["detached"] * num_ranks
    assert (view.verdict.decision, view.verdict.is_final) == (None, True)
    assert f"rank {last}, {words}" in view.verdict.sentence


@pytest.mark.parametrize("edit", [without_times, without_waits])
def test_of_a_stretch_what_was_told_elsewhere_does_not_count(edit: Callable[..., Rows]) -> None:
    """Rank 3 is untold from step 120 to 229 alone: not before, not after, and all that time in between."""
    advisor = Advisor()
    for frame in edited(frames(simulate(DeviceJob(num_steps=400))), edit(3, 120, 229)):
        advisor.feed_frame(frame)
    before, within, after = (advisor.view_of(steps) for steps in ((10, 90), (125, 225), (260, 399)))

    assert [before.verdict.decision, after.verdict.decision] == ["keep", "keep"]
    kind = (
        "times were not seen" if edit is without_times else "device did not tell how long it waits for others"
    )
    assert kind in within.verdict.sentence
    assert "in 101 steps" in within.verdict.sentence


def hook_failed(frame: Frame, rank: int, name: str, why: str) -> Frame:
    """A HELLO in which that rank says so."""
    ranks = [
        {**entry, "hooks": {**entry["hooks"], name: why}} if entry["rank"] == rank else entry
        for entry in frame.payload["ranks"]
    ]
    return replace(frame, payload={**frame.payload, "ranks": ranks})


@pytest.mark.parametrize(
    ("name", "edit"), [("device_times", without_times), ("device_barrier", without_waits)]
)
def test_what_the_probe_says_of_its_hook_is_the_reason(name: str, edit: Callable[[int], Rows]) -> None:
    """Of the hook that is at fault, not of the other one."""
    sequence = [
        hook_failed(frame, 3, name, "RuntimeError: no stream") if frame.kind == FrameKind.HELLO else frame
        for frame in edited(frames(simulate(JOB)), edit(3))
    ]

    assert "in 200 steps (RuntimeError: no stream)" in folded(sequence).verdict.sentence


def test_many_of_a_kind_are_told_together() -> None:
    """With the fewest steps of any of them: so many at least went by."""
    ranks = [Untold(rank, "waits", 100 + rank, None) for rank in (4, 5)]
    other = Untold(7, "times", 80, 12, "no CUDA events")

    assert in_words([*ranks, other]) == (
        "rank 7, whose device's times were not seen in 80 steps since step 12 (no CUDA events); and ranks 4 and 5, "
        "whose devices did not tell how long they wait for others in 104 steps"
    )
