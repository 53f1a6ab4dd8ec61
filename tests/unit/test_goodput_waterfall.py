"""The waterfall of the wall time: its parts sum to the span, and each is what was put into the run."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from synthetic_run import (
    STEP_NAMES,
    Fault,
    Job,
    elastic,
    encoded,
    final_view,
    folded,
    frames,
    hello,
    on_devices,
    restarted,
    simulate,
)  # fmt: skip
from thinned import num_examples, thinned

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.judge.goodput import Accounted
from tuiadvisor.advisor.judge.waterfall import Clocks, waterfall
from tuiadvisor.advisor.steps.step_store import FOLDED
from tuiadvisor.advisor.steps.wall_time import Life, WallTime
from tuiadvisor.report.document import document
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns
from tuiadvisor.text.goodput import notes
from tuiadvisor.views.goodput import UNKNOWN_KINDS, USEFUL, Goodput
from tuiadvisor.views.run_view import RunView

WALL_NS = 1_700_000_000_000_000_000  # of synthetic_run's hello, at 1 s of its clock
FIRST_BEGIN_S = 1.0


def born(sequence: list[Frame], age_s: float, *, young: bool, of: tuple[int, ...] = ()) -> list[Frame]:
    """The same run, with processes that were so old when their first record began; young: met before torch.

    of: only these ranks were; none: all.
    """
    result: list[Frame] = []
    start = WALL_NS + round((FIRST_BEGIN_S - 1.0 - age_s) * 1e9)
    for frame in sequence:
        if frame.kind != FrameKind.HELLO:
            result.append(frame)
            continue
        entries = cast("list[dict[str, object]]", frame.payload["ranks"])
        aged = [{**entry, "start_wall_ns": start} for entry in entries]
        if young:
            early = [
                {**entry, "state": "found", "detail": "has not imported torch yet"}
                for entry in aged
                if not of or entry["rank"] in of
            ]
            result.append(replace(frame, payload={**frame.payload, "ranks": early}))
        result.append(replace(frame, payload={**frame.payload, "ranks": aged}))
    return result


def wall(view: RunView) -> Goodput:
    """What the view must have."""
    assert view.wall is not None
    return view.wall


def seconds(found: Goodput, kind: str) -> float:
    """Of one part, 0 where it is none."""
    return sum(part.seconds for part in found.waterfall if part.kind == kind)


def span_of(job: Job) -> float:
    """Seconds from the first record of rank 0 to its last."""
    rows = simulate(job).rows[0]
    return (rows[-1][3] - rows[0][2]) * 1e-9


def assert_sums(found: Goodput, span_s: float) -> None:
    """Parts are of known size, none twice, and sum to the span; the figure is what they say."""
    kinds = [part.kind for part in found.waterfall]
    assert len(kinds) == len(set(kinds))
    assert all(part.seconds > 0 for part in found.waterfall)
    # What is shorter than a microsecond is no part.
    assert sum(part.seconds for part in found.waterfall) == pytest.approx(span_s, rel=1e-6, abs=SHORTEST_S)
    assert found.span_s == pytest.approx(span_s, rel=1e-6)
    assert sum(part.share for part in found.waterfall) == pytest.approx(1)
    unknown = sum(seconds(found, kind) for kind in UNKNOWN_KINDS)
    assert found.unknown_s == pytest.approx(unknown, abs=SHORTEST_S)
    if found.end_to_end is not None:
        assert 0 <= found.end_to_end <= 1
        assert found.end_to_end == pytest.approx(seconds(found, USEFUL) / (found.span_s - unknown))


@pytest.mark.slow
@pytest.mark.parametrize("seed", thinned(range(24), range(0, 24, 4)))
def test_the_parts_of_any_run_sum_to_its_span(seed: int) -> None:
    lots = np.random.default_rng(seed)
    kinds = ("data", "forward", "backward", "optimizer", "other", "checkpoint", "comm", "gc", "release")
    faults = [
        Fault(
            str(lots.choice(kinds)),
            None if lots.random() < 0.5 else (int(lots.integers(0, 4)),),
            float(lots.choice((0.004, 0.02, 0.3))),
            onset=int(lots.choice((0, 60, 120))),
            every=int(lots.choice((1, 7, 40))),
        )
        for _ in range(int(lots.integers(0, 4)))
    ]
    faults += [Fault("warmup", None, 0.2, until=int(lots.integers(1, 12)))] if lots.random() < 0.5 else []
    job = Job(num_steps=int(lots.choice((3, 60, 250, 900))), faults=tuple(faults), seed=seed)
    age_s, young = float(lots.choice((0.0, 2.5, 300.0))), bool(lots.random() < 0.5)
    sequence = born(frames(job), age_s, young=young)
    if lots.random() < 0.3:  # frames are lost and come twice
        head = [frame for frame in sequence if frame.kind == FrameKind.HELLO]
        rest = [frame for frame in sequence if frame.kind != FrameKind.HELLO]
        sequence = [
            *head,
            rest[0],
            *(one for one in rest[1:-1] for _ in range(int(lots.integers(0, 3)))),
            *rest[-1:],
        ]
    found = wall(folded(sequence).view())
    assert_sums(found, span_of(job) + age_s)
    assert seconds(found, "before_watcher") == pytest.approx(0.0 if young else age_s)


def test_one_rank_that_was_met_before_torch_tells_the_start_up_of_those_started_with_it() -> None:
    """On a busy machine rank 0 may have torch before anybody comes back to it; a rank started later tells nothing."""
    whole = born(frames(Job(num_steps=200)), 9.0, young=True, of=(1,))
    seen = wall(folded(whole).view())
    assert seen.from_start
    assert seen.startup_s == pytest.approx(9.0, abs=0.01)
    later = [
        replace(
            frame,
            payload={
                **frame.payload,
                "ranks": [
                    {**entry, "start_wall_ns": cast("int", entry["start_wall_ns"]) + 60 * 10**9}
                    for entry in cast("list[dict[str, object]]", frame.payload["ranks"])
                ],
            },
        )
        if frame.kind == FrameKind.HELLO
        and [entry["rank"] for entry in cast("list[dict[str, object]]", frame.payload["ranks"])] == [1]
        else frame
        for frame in whole
    ]
    assert not wall(folded(later).view()).from_start


def test_start_up_is_known_where_the_process_was_met_before_torch() -> None:
    job = Job(num_steps=200)
    seen = wall(folded(born(frames(job), 9.0, young=True)).view())
    late = wall(folded(born(frames(job), 9.0, young=False)).view())
    assert seen.from_start
    assert seen.startup_s == pytest.approx(9.0, abs=0.01)
    assert seconds(seen, "startup") == pytest.approx(seen.startup_s)
    assert not late.from_start
    assert late.startup_s is None
    assert seconds(late, "before_watcher") == pytest.approx(9.0)
    assert seen.end_to_end is not None
    assert late.end_to_end is not None
    # What nobody saw is neither useful nor lost, so only the run that was seen from its start has it in its figure.
    assert seen.end_to_end < 0.4 * late.end_to_end


def test_a_process_whose_start_is_not_told_has_no_time_before_the_watcher() -> None:
    found = wall(folded(frames(Job(num_steps=100))).view())
    assert_sums(found, span_of(Job(num_steps=100)))
    assert seconds(found, "before_watcher") == 0


def test_losses_of_steps_pauses_and_warm_up_are_what_was_put_in() -> None:
    data, checkpoint = Fault("data", None, 0.02), Fault("checkpoint", None, 0.5, every=40)
    warmup = Fault("warmup", None, 0.3, until=6)
    job = Job(num_steps=400, faults=(data, checkpoint, warmup))
    view = folded(born(frames(job), 5.0, young=True)).view()
    found = wall(view)
    assert seconds(found, "data_wait") == pytest.approx(400 * 0.02, rel=0.15)
    assert seconds(found, "checkpoint") == pytest.approx(9 * 0.5, rel=0.1)
    assert seconds(found, "warmup") == pytest.approx(6 * 0.3, rel=0.15)
    healthy = wall(folded(born(frames(Job(num_steps=400)), 5.0, young=True)).view())
    assert seconds(found, USEFUL) == pytest.approx(seconds(healthy, USEFUL), rel=0.1)
    assert seconds(found, "unnamed") < 0.03 * found.span_s


@pytest.mark.slow
def test_steps_that_are_no_longer_held_lose_what_those_of_the_window_do() -> None:
    job = Job(num_ranks=2, num_steps=5000, faults=(Fault("data", None, 0.02),))
    found = wall(folded(frames(job, 500)).view())
    assert_sums(found, span_of(job))
    assert seconds(found, "data_wait") == pytest.approx(5000 * 0.02, rel=0.15)


def test_steps_before_a_change_are_not_said_to_lose_what_later_ones_do() -> None:
    job = Job(num_steps=400, faults=(Fault("data", (2,), 0.03, onset=200),))
    found = wall(folded(frames(job)).view())
    assert seconds(found, "straggler") == pytest.approx(200 * 0.03, rel=0.15)
    assert_sums(found, span_of(job))


def greeted(job: Job, start_ns: int, pid: int) -> Frame:
    """The HELLO of processes that began then, with these process ids from the first rank's on."""
    head = hello(job, "node0")
    entries = cast("list[dict[str, object]]", head.payload["ranks"])
    ranks = [{**entry, "start_wall_ns": start_ns, "pid": pid + index} for index, entry in enumerate(entries)]
    return replace(head, payload={**head.payload, "ranks": ranks})


def test_a_restart_that_was_seen_is_a_part_of_its_own() -> None:
    job = Job(num_steps=100)
    start = WALL_NS - 10**9
    again = WALL_NS + round((span_of(job) + 12.0) * 1e9)
    sequence = elastic(job, "whole lives")
    greeting = partial(greeted, job)
    first, second = sequence[1:]
    new = wall(folded([greeting(start, 100), first, greeting(again, 200), second]).view())
    same = wall(folded([greeting(start, 100), first, greeting(start, 100), second]).view())
    gap_s = (restarted(job, 100).rows[0][0][2] - simulate(job).rows[0][-1][3]) * 1e-9
    assert new.num_restarts == 1
    assert seconds(new, "restart") == pytest.approx(gap_s, rel=1e-3)  # and the moment before its first phase
    assert seconds(new, "unwatched") == 0
    assert same.num_restarts == 0
    assert seconds(same, "unwatched") == pytest.approx(gap_s)
    assert_sums(new, new.span_s)
    assert_sums(same, same.span_s)
    assert new.end_to_end == pytest.approx(seconds(new, USEFUL) / new.span_s, rel=0.05)
    assert same.end_to_end is None  # of most of its time nobody knows whether it trained


def test_before_a_step_after_a_restart_nobody_knows_how_many_are_done_again() -> None:
    """It died after a checkpoint of any age, and the new processes have made no step: unknown, and no 0."""
    job = Job(num_steps=100)
    greeting = partial(greeted, job)
    again = WALL_NS + round((span_of(job) + 12.0) * 1e9)
    steps = elastic(job, "whole lives")[1]
    view = folded([greeting(WALL_NS - 10**9, 100), steps, greeting(again, 200)]).view()
    assert wall(view).num_restarts == 1
    assert cast("dict[str, object]", document(view)["goodput"])["steps_done_again"] is None
    assert "1 restart seen; no step since: how many will be done again is unknown" in notes(wall(view))


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_the_waterfall_does_not_depend_on_where_batches_are_cut(cut: int) -> None:
    data = [
        encoded(frame) for frame in born(elastic(Job(num_steps=150), "both in one frame"), 3.0, young=True)
    ]
    data += [encoded(frame) for frame in frames(Job(num_steps=150))[1:]]
    whole, parts = Advisor(), Advisor()
    whole.feed_many(data)
    for first in range(0, len(data), cut):
        parts.feed_many(data[first : first + cut])
    assert whole.view().wall == parts.view().wall


def test_a_few_steps_are_not_judged_and_nothing_is_called_useful() -> None:
    found = wall(folded(born(frames(Job(num_steps=4)), 2.0, young=True)).view())
    assert found.end_to_end is None
    assert found.steady is None
    assert seconds(found, USEFUL) == 0
    assert seconds(found, "not_judged") > 0


def test_the_document_keeps_its_figure_and_has_the_new_one_beside_it() -> None:
    view = folded(born(frames(Job(num_steps=200)), 2.0, young=True)).view()
    told = json.loads(json.dumps(document(view)))["goodput"]
    assert told["value"] == view.goodput
    assert told["losses"] == view.goodput_losses
    assert told["end_to_end"] == wall(view).end_to_end
    assert told["steady"] == wall(view).steady
    assert {tuple(sorted(part)) for part in told["waterfall"]} == {("kind", "seconds", "share")}
    assert json.loads(json.dumps(document(Advisor().view())))["goodput"]["end_to_end"] is None


def test_hostile_clocks_neither_break_it_nor_make_parts_negative() -> None:
    job = Job(num_steps=60)
    rows = [list(row) for row in simulate(job).rows[0]]
    begin, end, step = (STEP_NAMES.index(name) for name in ("begin_ns", "end_ns", "step"))
    lots = np.random.default_rng(3)
    for row in rows[10::5]:
        row[int(lots.choice((begin, end, step)))] = int(lots.integers(-(1 << 62), 1 << 62))
    frame = Frame(FrameKind.STEPS, "node0/1/1", 1, 1, pack_columns([tuple(row) for row in rows], STEP_NAMES))
    found = folded([hello(job, "node0"), frame]).view().wall
    assert found is not None
    assert all(part.seconds > 0 for part in found.waterfall)
    assert sum(part.share for part in found.waterfall) == pytest.approx(1)


@pytest.mark.parametrize("fault", [Fault("data", None, 0.02), Fault("forward", (2,), 0.02)])
def test_on_devices_the_same_run_has_the_same_waterfall(fault: Fault) -> None:
    """Losses are the devices' there, the wall time the host's."""
    job = Job(num_steps=400, faults=(fault,))
    host = wall(folded(born(frames(job), 5.0, young=True)).view())
    view = folded(on_devices(born(frames(job), 5.0, young=True))).view()
    assert view.clock == "device"
    assert wall(view).end_to_end == pytest.approx(host.end_to_end, abs=0.01)
    for part in host.waterfall:
        assert seconds(wall(view), part.kind) == pytest.approx(part.seconds, abs=0.02 * host.span_s)


SHORTEST_S = 1e-6
LIVES = some.lists(
    some.tuples(
        some.floats(0.01, 500), some.integers(1, 5000), some.floats(0, 30), some.floats(0, 1), some.booleans()
    ),
    min_size=1,
    max_size=4,
)
LOSSES = some.dictionaries(
    some.sampled_from(("data_wait", "straggler", "warmup", "checkpoint")), some.floats(0, 0.3)
)


@pytest.mark.slow
@settings(max_examples=num_examples(300), deadline=None)
@given(
    lives=LIVES,
    losses=LOSSES,
    age_s=some.floats(0, 1e4),
    still_s=some.floats(0, 600),
    changed=some.booleans(),
    lost=some.booleans(),
)
def test_whatever_is_known_the_parts_sum_to_the_time_that_passed(
    *,
    lives: list[tuple[float, int, float, float, bool]],
    losses: dict[str, float],
    age_s: float,
    still_s: float,
    changed: bool,
    lost: bool,
) -> None:
    """Even where the window's figures fit the rest badly: lives of any length, gaps, hangs, a change of level."""
    begin, before_s, found, starts = 10_000.0, 0.0, [], []
    for length_s, num_steps, gap_s, other, is_new in lives:
        if is_new or not starts:
            starts.append(
                (round((begin - (before_s / 2 if starts else age_s)) * 1e9), bool(starts) or still_s > 300)
            )
        end = begin + length_s
        first_ns = round(length_s / num_steps * 1e9)
        pauses = (round(0.1 * length_s * 1e9), 0)
        ns = round(begin * 1e9), round(end * 1e9)
        gap = (ns[0] + round(0.5 * length_s * 1e9), ns[0] + round(0.7 * length_s * 1e9), num_steps // 5)
        gaps = (gap,) if num_steps >= 10 and lost else ()
        found.append(Life("a", *ns, 0, num_steps - 1, round(other * first_ns), first_ns, pauses, gaps=gaps))
        begin, before_s = end + gap_s, gap_s
    change = (
        (round((found[-1].begin_ns + found[-1].end_ns) / 2), found[-1].num_steps // 2) if changed else None
    )
    of_steps = tuple(name for name in losses if name in {"data_wait", "straggler"})
    value = max(1 - sum(losses.values()), 0.0)
    accounted = Accounted(value, losses, elapsed_s=12.0, steady_s=10.0, num_steady=100, of_steps=of_steps)
    told = waterfall(Clocks(found, starts, still_s, change, {"checkpoint": 0.3}), accounted)
    assert told is not None
    past_s = (found[-1].end_ns - starts[0][0]) * 1e-9 + still_s
    assert_sums(told, past_s)
    assert seconds(told, "hang") == pytest.approx(still_s, abs=SHORTEST_S)


@pytest.mark.parametrize("young", [True, False])
def test_slow_first_steps_of_a_run_that_was_met_late_are_no_start(young: bool) -> None:
    """Met in mid-run it has compiled and allocated long ago: the first steps seen are not its first."""
    job = Job(faults=(Fault("warmup", None, 0.1, until=15),))
    advisor = folded(born(frames(job), 600.0, young=young))
    found = {entry.id for entry in advisor.view().findings}
    assert young == ("warmup" in found), found


def test_steps_that_were_lost_on_the_way_are_neither_useful_nor_lost() -> None:
    """A third of a recording's frames of steps are gone: their time was counted as that of the others."""
    job = Job(num_steps=900)
    sequence = frames(job)
    whole = wall(folded(sequence).view())
    with_steps = [one for one in sequence if one.kind == FrameKind.STEPS]
    gone = with_steps[len(with_steps) // 3 : 2 * len(with_steps) // 3]
    found = wall(folded([one for one in sequence if one not in gone]).view())
    assert_sums(found, whole.span_s)
    assert found.unknown_s - whole.unknown_s == pytest.approx(whole.span_s / 3, rel=0.2)
    assert whole.end_to_end == pytest.approx(found.end_to_end, abs=0.02)


def test_numbers_without_time_are_no_steps_that_were_done() -> None:
    """A trace of every tenth step, laid end to end, has the time of its own; lost records between steps were done."""
    rows = np.zeros((len(FOLDED), 30), dtype=np.int64)
    at = {name: FOLDED.index(name) for name in ("step", "begin_ns", "end_ns")}
    for spread, expected in ((1, 30), (10, 291)):
        rows[at["step"]] = 10 * np.arange(30)
        rows[at["begin_ns"]] = 1_000_000 + spread * 1_000_000 * np.arange(30)
        rows[at["end_ns"]] = rows[at["begin_ns"]] + 1_000_000
        whole, cut = WallTime(), WallTime()
        whole.take([(rows, "host")])
        for first in range(0, 30, 7):
            cut.take([(rows[:, first : first + 7], "host")])
        assert whole.lives == cut.lives
        assert [expected] == [life.num_steps for life in whole.lives]


def test_a_stop_before_the_change_of_pace_is_a_pause_and_no_slower_stretch() -> None:
    """It stood under slower before the change, beside a sentence that steps had been shorter before."""
    stop = Fault("other", (1,), 4.0, onset=60, until=61)
    slower = Fault("comm", None, 0.02, onset=200)
    view = final_view(Job(num_ranks=2, num_steps=400, noise=0.01, faults=(stop, slower)))
    assert view.window.first_step is not None
    assert 200 == pytest.approx(view.window.first_step, abs=2)
    told = view.wall
    assert told is not None
    assert 4.0 == pytest.approx(seconds(told, "pause_rank_1"), rel=0.02)
    assert 0.1 > seconds(told, "before_change")


@pytest.mark.parametrize("since", [0, 100])
def test_who_was_late_before_the_change_as_after_it_is_waited_for_in_both(since: int) -> None:
    """The seconds before a change that had nothing to do with it were slower, not explained."""
    late = Fault("forward", (1,), 0.04, onset=since)
    shorter = Fault("comm", None, 0.02, until=300)
    view = final_view(Job(num_ranks=2, num_steps=500, noise=0.01, faults=(late, shorter)))
    assert view.window.first_step is not None
    assert 300 == pytest.approx(view.window.first_step, abs=2)
    told = view.wall
    assert told is not None
    assert 0.04 * (500 - since) == pytest.approx(seconds(told, "straggler"), rel=0.05)
    # All else that is lost there is what the exchange took longer then.
    assert 0.02 * 300 * 1.1 > seconds(told, "unnamed") + seconds(told, "before_change")


def crowded(sequence: list[Frame], waits: float, *, since_s: int = 0) -> list[Frame]:
    """The run with the kernel's count once a second: of its time each rank was so long ready without a core."""
    (host,) = {
        frame.payload["host"]
        for frame in sequence
        if frame.kind == FrameKind.HELLO and frame.payload["ranks"]
    }
    job = [frame for frame in sequence if frame.kind == FrameKind.STEPS]
    samples = []
    for second in range(1, 1 + int(max(frame.time_ns for frame in job) * 1e-9)):
        counts = [{"rank": rank, "run_delay_s": waits * max(second - since_s, 0)} for rank in range(2)]
        payload = {
            "host": host,
            "mono_ns": second * 10**9,
            "wall_ns": WALL_NS + second * 10**9,
            "ranks": counts,
        }
        samples.append(Frame(FrameKind.HOST, job[0].source, 10**6 + second, second * 10**9, payload))
    return [*sequence, *samples]


def test_a_rank_without_a_core_before_the_change_as_after_it_lacked_one_in_both() -> None:
    """What it waited for a core was in no part but that of the window; before it was slower, not explained."""
    shorter = Fault("comm", None, 0.02, until=300)
    job = Job(num_ranks=2, num_steps=500, noise=0.01, faults=(shorter,))
    told = wall(folded(crowded(frames(job), 0.5)).view())
    assert_sums(told, span_of(job))
    assert seconds(told, "crowded_host") == pytest.approx(0.5 * told.span_s, rel=0.1)
    # All else that is lost there is what the exchange took longer then.
    assert 0.02 * 300 * 1.1 > seconds(told, "unnamed") + seconds(told, "before_change")
    assert 0.02 * told.span_s > seconds(told, "unnamed")


def test_a_core_that_is_lacked_since_the_change_only_was_not_lacked_before() -> None:
    """A share of the window is not carried over to steps in which the kernel counted no wait."""
    shorter = Fault("comm", None, 0.02, until=300)
    job = Job(num_ranks=2, num_steps=900, noise=0.01, faults=(shorter,))
    begun = frames(job)
    end_s = max(frame.time_ns for frame in begun if frame.kind == FrameKind.STEPS) * 1e-9
    since_s = round(1 + (end_s - 1) * 0.65)
    told = wall(folded(crowded(begun, 0.5, since_s=since_s)).view())
    assert seconds(told, "crowded_host") < 0.5 * (end_s - since_s) * 1.15


def test_who_is_late_since_the_change_only_was_waited_for_since_then_only() -> None:
    """What its steps lost before is told of nobody who was on time."""
    view = final_view(
        Job(num_ranks=2, num_steps=400, noise=0.01, faults=(Fault("forward", (1,), 0.04, onset=200),))
    )
    told = view.wall
    assert told is not None
    assert 0.04 * 200 == pytest.approx(seconds(told, "straggler"), rel=0.05)


def test_a_hang_is_as_long_as_it_was_seen_to_stand() -> None:
    """It reached to when the host was heard last, beside a sentence that gave it 7 s less."""
    lived = Life("a", 1_000_000_000, 11_000_000_000, 0, 99, 0, 100_000_000, (0, 0))
    accounted = Accounted(1.0, {}, elapsed_s=9.9, steady_s=9.9, num_steady=99)
    told = waterfall(Clocks([lived], [], still_since_end_s=32.0, stands_s=25.0), accounted)
    whole = waterfall(Clocks([lived], [], still_since_end_s=32.0), accounted)
    assert told is not None
    assert whole is not None
    assert 25.0 == pytest.approx(seconds(told, "hang"))
    assert 32.0 == pytest.approx(seconds(whole, "hang"))
    assert 7.0 == pytest.approx(seconds(told, "not_judged") - seconds(whole, "not_judged"))
    assert whole.span_s == pytest.approx(told.span_s)


@pytest.mark.slow
def test_a_stop_whose_step_is_held_no_more_stays_a_pause() -> None:
    """42.8 s for rank 1, stopped by a signal, became slower, not explained, 2,048 steps later."""
    stop = Fault("other", (1,), 8.0, onset=60, until=61)
    job = Job(num_ranks=2, num_steps=2600, noise=0.01, faults=(stop,))
    for num_steps, kind in ((800, "pause_rank_1"), (2600, "pause")):
        told = wall(final_view(replace(job, num_steps=num_steps)))
        assert 8.0 == pytest.approx(seconds(told, kind), rel=0.02)
        assert 8.0 == pytest.approx(
            sum(p.seconds for p in told.waterfall if p.kind.startswith("pause")), rel=0.02
        )
        assert 0.5 > seconds(told, "unnamed")
        assert_sums(told, span_of(replace(job, num_steps=num_steps)))


def test_checkpoints_and_long_steps_are_no_stop() -> None:
    """A step may take seconds, a checkpoint half a minute; and it does not depend on where batches are cut."""
    rows = np.zeros((len(FOLDED), 40), dtype=np.int64)
    at = {name: FOLDED.index(name) for name in ("step", "begin_ns", "end_ns", "checkpoint_ns")}
    length_s = np.full(40, 2.0)
    length_s[[10, 20, 30]] = 15.0, 40.0, 42.0
    end_ns = 10**9 + np.cumsum(length_s * 1e9).astype(np.int64)
    rows[at["step"]], rows[at["end_ns"]] = np.arange(40), end_ns
    rows[at["begin_ns"]] = end_ns - (length_s * 1e9).astype(np.int64)
    rows[at["checkpoint_ns"], 20] = 38 * 10**9
    whole, cut = WallTime(), WallTime()
    whole.take([(rows, "host")])
    for first in range(0, 40, 7):
        cut.take([(rows[:, first : first + 7], "host")])
    assert whole.lives == cut.lives
    (life,) = whole.lives
    mean_s = (life.end_ns - life.begin_ns) * 1e-9 / 40
    assert 42.0 - mean_s == pytest.approx(life.stood_ns * 1e-9, abs=3.0)  # 15 s is not ten times as long
