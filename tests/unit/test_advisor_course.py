"""What began before the newest steps, or grows too slowly for them, is told all the same; and nothing else is."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from synthetic_run import Fault, Job, folded, frames, on_devices, restarted, simulate

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.steps.course import BASE, COURSE_RANKS, PARTS, SHARE, CourseHistory
from tuiadvisor.events import STEP_NAMES
from tuiadvisor.metrics.window.course import run_shift

if TYPE_CHECKING:
    from tuiadvisor.stream.frames import Frame
    from tuiadvisor.views.run_view import Finding, RunView

NUM_STEPS = 6000  # three times what a view looks at
LONG_AGO = 2000
END = 1 << 40
STEP_S = 18.7e-3
AMOUNT_S = 5e-3


def slower(view: RunView) -> list[Finding]:
    """What is said of steps that became longer."""
    return [finding for finding in view.findings if finding.id == "slower_since"]


def stairs(kind: str, total_s: float, ranks: tuple[int, ...] | None = None) -> tuple[Fault, ...]:
    """A time that grows by so much over the run, in steps too small to be seen."""
    num = NUM_STEPS // 50
    return tuple(Fault(kind, ranks, total_s / num, onset=index * 50) for index in range(num))


@pytest.fixture(scope="module")
def since_long_ago() -> list[Frame]:
    """Steps became a quarter longer on all ranks, in forward, long before those that are looked at."""
    return frames(Job(num_steps=NUM_STEPS, faults=(Fault("forward", None, AMOUNT_S, onset=LONG_AGO),)))


def test_a_level_that_began_before_the_window_is_told(since_long_ago: list[Frame]) -> None:
    """Where it was forgotten the run was kept as it is."""
    view = folded(since_long_ago).view()
    (finding,) = slower(view)
    assert view.verdict.decision == "tune"
    assert finding.severity == "warning"
    assert finding.onset_step is not None
    assert abs(finding.onset_step - LONG_AGO) <= 128
    assert "about step" in finding.message
    assert "steps) steps are 26 % longer" in finding.message
    assert "mostly in forward" in finding.message


def test_quicker_steps_of_long_ago_were_not_useful_throughout(since_long_ago: list[Frame]) -> None:
    """They took less than a useful step of now, so that all of the run was: "goodput 100 %", beside what is lost."""
    view = folded(since_long_ago).view()
    assert view.wall is not None
    assert view.wall.end_to_end == pytest.approx(view.goodput, abs=0.01)
    shares = {part.kind: part.share for part in view.wall.waterfall}
    assert shares["comm_exposed"] > 0.02


def test_one_frame_at_a_time_tells_the_same(since_long_ago: list[Frame]) -> None:
    """Live and replayed runs are judged alike."""
    one_by_one = Advisor()
    for frame in since_long_ago:
        one_by_one.feed_frame(frame)
    together, apart = folded(since_long_ago).course.course(0, 0, END), one_by_one.course.course(0, 0, END)
    for name in ("first_B", "end_B", "step_s_B", "phase_s_PB", "work_WB"):
        assert np.array_equal(getattr(together, name), getattr(apart, name), equal_nan=True)


def test_a_moment_of_a_replay_knows_nothing_of_later_steps(since_long_ago: list[Frame]) -> None:
    """At step 1,900 all is well, though the frames of later steps were fed."""
    advisor = folded(since_long_ago[: len(since_long_ago) // 2])
    assert slower(advisor.view_at(LONG_AGO - 100)) == []
    assert slower(advisor.view())


@pytest.mark.parametrize(
    ("num_ranks", "begins", "more", "is_dated"),
    [
        pytest.param(4, LONG_AGO, (), True, id="one of four"),
        pytest.param(2, LONG_AGO, (), True, id="one of two"),
        pytest.param(16, LONG_AGO, (), True, id="one of sixteen"),
        pytest.param(4, 0, (), False, id="late from the first step on"),
        pytest.param(
            4, 0, (Fault("backward", None, 5e-3, onset=LONG_AGO),), False, id="all became slower later"
        ),
    ],
)
def test_a_rank_late_for_long_is_dated_by_the_run(
    num_ranks: int, begins: int, more: tuple[Fault, ...], is_dated: bool
) -> None:
    """The first step compared is no beginning; where the others began to wait the run's steps became longer."""
    late = Fault("forward", (1,), 6e-3, onset=begins)
    view = folded(frames(Job(num_ranks=num_ranks, num_steps=NUM_STEPS, faults=(late, *more)))).view()
    (finding,) = [each for each in view.findings if each.id == "straggler"]
    dated = re.search(r"compared \(steps are (\d+) % longer since about step ([\d,]+)\)\.", finding.message)
    assert is_dated == (dated is not None), finding.message
    assert bool(more) == bool(slower(view))
    if dated is not None:
        assert abs(int(dated[2].replace(",", "")) - LONG_AGO) <= 128
        assert finding.loss_s_per_step is not None
        assert int(dated[1]) == pytest.approx(100 * finding.loss_s_per_step / STEP_S, abs=5)


def test_a_chosen_stretch_is_judged_by_itself(since_long_ago: list[Frame]) -> None:
    """Nothing became longer within it."""
    assert slower(folded(since_long_ago).view_of((NUM_STEPS - 500, NUM_STEPS - 1))) == []


def test_growth_too_slow_for_the_window_is_told() -> None:
    """A quarter over the run, of which the newest steps show a tenth at most."""
    view = folded(frames(Job(num_steps=NUM_STEPS, faults=stairs("forward", AMOUNT_S)))).view()
    (finding,) = slower(view)
    assert "little by little" in finding.message
    assert finding.evidence["level_shift_share"] == pytest.approx(AMOUNT_S / STEP_S * 7 / 8, rel=0.2)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "job",
    [
        Job(),
        Job(noise=0.2),
        Job(faults=(Fault("checkpoint", None, 0.5, every=100),)),
        Job(faults=(Fault("checkpoint", None, 5.0, every=1500),)),
        Job(faults=(Fault("eval", None, 2.0, every=700),)),
        Job(faults=(Fault("warmup", None, 1.0, until=40),)),
        Job(faults=(Fault("forward", None, AMOUNT_S, onset=LONG_AGO, until=3500),)),  # over by now
        Job(faults=(Fault("forward", None, AMOUNT_S, until=LONG_AGO),)),  # quicker than it was
        Job(faults=(Fault("length", None, 20e-3),)),
        Job(louder=(LONG_AGO, 0.2)),
    ],
    ids=[
        "plain",
        "noisy",
        "saves",
        "rare saves",
        "evaluations",
        "warm-up",
        "over",
        "quicker",
        "lengths",
        "louder",
    ],
)
def test_a_run_that_goes_on_as_it_did_is_not_slower(job: Job, seed: int) -> None:
    """However long it is."""
    assert slower(folded(frames(replace(job, num_steps=NUM_STEPS, seed=seed))).view()) == []


@pytest.mark.parametrize(
    "faults",
    [
        (Fault("forward", (2,), AMOUNT_S, onset=LONG_AGO),),
        stairs("forward", AMOUNT_S, (2,)),
        (Fault("data", None, AMOUNT_S, onset=LONG_AGO),),
    ],
    ids=["late rank", "rank that becomes late", "input"],
)
def test_what_another_finding_explains_is_told_once(faults: tuple[Fault, ...]) -> None:
    """By who or what is to blame."""
    view = folded(frames(Job(num_steps=NUM_STEPS, faults=faults))).view()
    assert view.verdict.decision == "tune"
    assert slower(view) == []


def records(steps: np.ndarray, step_ns: int = 10**7) -> np.ndarray:
    """PARTS of plain steps: all of it forward."""
    parts = np.full((len(PARTS), steps.size), -1, dtype=np.int64)
    parts[0], parts[1] = 1, 1 + step_ns
    parts[PARTS.index("forward_ns")] = step_ns
    return parts


def test_buckets_grow_with_age_and_hold_every_step() -> None:
    """Fine where steps are new, and few however long the run is."""
    history, steps = CourseHistory(), np.arange(200_000)
    for piece in np.array_split(steps, 400):
        history.add(piece, records(piece))
    course = history.course(0, 0, END)
    size = course.end_B - course.first_B
    assert (np.diff(size) <= 0).all()
    assert size[-1] == BASE
    assert (size <= np.maximum(BASE, (200_000 - course.first_B) / (SHARE / 2))).all()
    assert size.size < 2 * SHARE * np.log2(200_000 / BASE)
    assert np.allclose(course.step_s_B, 0.01)
    assert np.array_equal(course.first_B[1:], course.end_B[:-1])


def test_the_order_of_records_does_not_show() -> None:
    """Ranks come late, and frames are folded in other pieces live than in a replay."""
    rng = np.random.default_rng(1)
    steps = np.repeat(np.arange(9000), 3)
    parts = records(steps)
    parts[1] += rng.integers(0, 10**7, steps.size)
    orderly, mixed = CourseHistory(), CourseHistory()
    orderly.add(steps, parts)
    order = np.concatenate(([0], 1 + rng.permutation(steps.size - 1)))
    for piece in np.array_split(order, 50):
        mixed.add(steps[piece], parts[:, piece])
    for name in ("first_B", "step_s_B", "phase_s_PB"):
        assert np.array_equal(
            getattr(orderly.course(0, 0, END), name), getattr(mixed.course(0, 0, END), name), equal_nan=True
        )


def test_a_leap_costs_nothing() -> None:
    """Neither a damaged step number nor an hour in which nobody watched: what was before stays known."""
    history = CourseHistory()
    history.add(np.arange(100), records(np.arange(100)))
    far = np.arange(100) + (1 << 40)
    history.add(far, records(far))
    course = history.course(0, 0, 1 << 50)
    assert course.first_B.size < 2 * SHARE * 40
    known = course.known
    assert known.step_s_B.size == 1 + far.size // BASE
    assert np.allclose(known.step_s_B, 0.01)


@pytest.mark.parametrize("num_base", [1, 31, 63, 64, 65, 96, 1000, 54321])
def test_buckets_are_the_same_however_they_came(num_base: int) -> None:
    """One by one or in one leap."""
    slowly, at_once = CourseHistory(), CourseHistory()
    for end in (*range(1, num_base, max(1, num_base // 90)), num_base):
        steps = np.array([end * BASE - 1])
        slowly.add(np.concatenate(([0], steps)), records(np.array([0, 0])))
        at_once.add(np.array([0]), records(np.array([0])))
    at_once.add(np.array([num_base * BASE - 1]), records(np.array([0])))
    assert np.array_equal(slowly._bounds, at_once._bounds)
    assert slowly._counts[0].sum() == at_once._counts[0].sum() + len(
        range(1, num_base, max(1, num_base // 90))
    )


def test_absurd_values_leave_numbers() -> None:
    """Whatever a frame claims."""
    history, steps = CourseHistory(), np.arange(3 * BASE)
    parts = records(steps)
    parts[2:] = 1 << 60
    history.add(steps, parts)
    course = history.course(0, 0, END)
    assert np.isfinite(course.step_s_B).all()
    assert (course.phase_s_PB >= 0).all()


def test_the_lowest_ranks_stand_for_all() -> None:
    """A job of many ranks costs no more to remember."""
    job = Job(num_ranks=COURSE_RANKS + 2, num_steps=200, faults=(Fault("forward", (COURSE_RANKS,), 1.0),))
    course = folded(frames(job)).course.course(0, 0, END)
    forward_s = course.phase_s_PB[1]
    assert forward_s.size
    assert (forward_s < 0.1).all()


def test_a_restart_begins_another_run() -> None:
    """It may have been given more work on purpose: what the processes before it made is no measure."""
    before = Job(num_steps=NUM_STEPS // 2)
    after = replace(before, faults=(Fault("forward", None, AMOUNT_S),))
    first = frames(before)
    second = frames(after, simulated=restarted(after, NUM_STEPS // 2))[1:]
    again = [replace(frame, seq=frame.seq + len(first)) for frame in second]
    view = folded([*first, *again]).view()
    assert view.last_step is not None
    assert view.step.median_s == pytest.approx(23.7e-3, rel=0.05)
    assert slower(view) == []


def test_more_tokens_explain_longer_steps() -> None:
    """A curriculum of lengths is no loss."""
    short = Job(num_steps=NUM_STEPS, faults=(Fault("forward", None, AMOUNT_S, onset=LONG_AGO),))
    run = simulate(short)
    column = STEP_NAMES.index("tokens")
    told = {
        rank: [(*row[:column], 4000 if row[1] < LONG_AGO else 5200, *row[column + 1 :]) for row in records]
        for rank, records in run.rows.items()
    }
    assert slower(folded(frames(short, simulated=replace(run, rows=told))).view()) == []


def test_of_devices_the_step_is_told_and_no_phase() -> None:
    """The threads' phases say when work was launched; the step itself is as long as many of them together."""
    job = Job(num_steps=NUM_STEPS, faults=(Fault("forward", None, AMOUNT_S, onset=LONG_AGO),))
    view = folded(on_devices(frames(job))).view()
    (finding,) = slower(view)
    assert view.verdict.decision is None
    assert "in which part of the step is not known" in finding.message


def later(amount_s: float, onset: int, kind: str = "forward", until: int = 1 << 40) -> Fault:
    """Of all ranks."""
    return Fault(kind, None, amount_s, onset=onset, until=until)


@pytest.mark.parametrize(
    ("faults", "since", "share"),
    [
        ((later(8e-3, 1500), later(1.6e-3, 3000)), 1500, 9.6 / 18.7),
        ((later(8e-3, 1500), later(1.6e-3, 5000)), 1500, 9.6 / 18.7),
        ((later(10e-3, 1000), later(3.5e-3, 3000)), 1000, 13.5 / 18.7),
        ((later(5e-3, 500),), 500, 5 / 18.7),
        ((later(5e-3, 5400),), 5400, 5 / 18.7),
        ((Fault("forward", (2,), 3e-3), later(5e-3, LONG_AGO)), LONG_AGO, 5 / 21.5),
        ((later(2e-3, 800, until=1300), later(5e-3, LONG_AGO)), LONG_AGO, 5 / 18.7),
    ],
    ids=[
        "small one later",
        "small one in the window",
        "two",
        "early",
        "late",
        "constant straggler",
        "spell before",
    ],
)
def test_the_change_is_told_that_steps_have_grown_by_most_since(
    faults: tuple[Fault, ...], since: int, share: float
) -> None:
    """Dated to its bucket, and by all that they have grown."""
    (finding,) = slower(folded(frames(Job(num_steps=NUM_STEPS, faults=faults))).view())
    assert finding.onset_step is not None
    assert abs(finding.onset_step - since) <= 128
    assert finding.evidence["level_shift_share"] == pytest.approx(share, rel=0.15)


def test_what_began_long_ago_does_not_hide_what_is_new() -> None:
    """A late rank explains the one and not the other, which is dated to the step."""
    faults = (Fault("forward", (2,), 8e-3, onset=LONG_AGO), later(5e-3, 5850))
    (finding,) = slower(folded(frames(Job(num_steps=NUM_STEPS, faults=faults))).view())
    assert finding.onset_step == pytest.approx(5850, abs=10)
    assert "about" not in finding.message


@pytest.mark.parametrize("half", [1000, 2500])
def test_a_pace_that_comes_and_goes_is_not_slower(half: int) -> None:
    """It was as slow before, at least once."""
    spells = tuple(
        later(AMOUNT_S, begin, until=begin + half) for begin in range(half, 3 * NUM_STEPS, 2 * half)
    )
    view = folded(frames(Job(num_steps=2 * NUM_STEPS, faults=spells))).view()
    assert [one for one in slower(view) if "about" in one.message] == []


def test_nothing_is_said_of_growth_to_come() -> None:
    """Growth that came to its end long before the end of the run shows as growth all the same."""
    half = NUM_STEPS // 2
    faults = tuple(later(AMOUNT_S / 60, index * half // 60) for index in range(60))
    (finding,) = slower(folded(frames(Job(num_steps=NUM_STEPS, faults=faults))).view())
    assert "no sign that it stops" not in finding.message


def test_steps_of_no_length_are_no_measure() -> None:
    """As of a log that counts in whole seconds."""
    history, steps = CourseHistory(), np.arange(100 * BASE)
    history.add(steps, records(steps, 10))
    course = history.course(0, 0, END)
    assert run_shift(course, int(steps[-1]), np.full(64, 0.02), of_launches=False) is None
