"""The wall time of the job from the start of its process to the last step seen, cut into parts that sum to it.

In: lives of one rank's probe, starts of its processes, what the window's time went into.  Out: Goodput. What the window
says is carried over to steps at the same level that are no longer held, never to those before a change; of these
it has what was measured in them, pauses and waits for a rank that is late in both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.steps.step_table import NS
from tuiadvisor.phases import PAUSES
from tuiadvisor.views.goodput import UNKNOWN_KINDS, USEFUL, Goodput, parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.judge.goodput import Accounted
    from tuiadvisor.advisor.steps.wall_time import Life

START_SLACK_NS: Final = 1_000_000_000  # the kernel tells when it booted in whole seconds
MIN_KNOWN: Final = 0.5  # of the time since the watcher came: where less could be judged there is no figure


@dataclass(frozen=True, slots=True)
class Clocks:
    """What is known of one rank's time, on its host's clock."""

    lives: list[Life]
    starts: Sequence[tuple[int, bool]]  # of its processes, and whether each was met before its first step
    still_since_end_s: float = 0.0  # how long the job has stood since the last step
    change: tuple[int, int] | None = (
        None  # time and step, as the last life counts, at which the present level began
    )
    marked_s: dict[str, float] = field(
        default_factory=dict
    )  # in pauses of this rank within the judged window
    stood_within_s: float = (
        0.0  # in single steps of the last life in which the job stood and which are held still
    )
    steps_before: dict[int, int] = field(
        default_factory=dict
    )  # start of a process: steps that the training had done before, by its own count
    wall_shift_ns: int | None = None  # to the wall clock
    is_first_whole: bool = False  # the first record is a whole step, as each mark of a trace is
    hangs: bool = True  # where it stands that is a hang; else what it does since its last step was not seen
    stands_s: float | None = None  # for how long it was seen to stand; None: since its last step
    since_end_s: float = (
        0.0  # how long this host was heard since the last step, whether the job stands or not
    )
    # Share of the time before the present level in which this rank was ready to run and had no core.
    core_wait_before: float | None = None


@dataclass(slots=True)
class _Cut:
    """The time outside of steps, and what is left for steps."""

    parts: dict[str, float] = field(default_factory=dict)
    steps_s: float = 0.0
    num_steps: int = 0
    before_s: float = 0.0  # of those, before the present level
    num_before: int = 0
    first_s: float = 0.0  # of the first step, where it was seen whole
    from_start: bool = False
    startup_s: float | None = None
    num_restarts: int = 0

    def add(self, kind: str, seconds: float) -> None:
        if seconds > 0:
            self.parts[kind] = self.parts.get(kind, 0.0) + seconds


def waterfall(clocks: Clocks, accounted: Accounted) -> Goodput | None:
    """None before the first step."""
    if not clocks.lives:
        return None
    cut = _outside(clocks)
    useful_step_s = accounted.useful_step_s
    inside = (
        {"not_judged": cut.steps_s}
        if useful_step_s is None
        else _inside(clocks, accounted, cut, useful_step_s)
    )
    for kind, seconds in inside.items():
        cut.add(kind, seconds)
    spans = own_spans(clocks)
    again = steps_again(spans)
    if again and cut.num_steps:
        move_useful(cut.parts, sum(again) / cut.num_steps)
    parts = parts_of(in_order(cut.parts))
    span_s = sum(cut.parts.values())
    unknown_s = sum(cut.parts.get(kind, 0.0) for kind in UNKNOWN_KINDS)
    watched_s = span_s - cut.parts.get("before_watcher", 0.0)
    known_s = span_s - unknown_s
    is_known = useful_step_s is not None and watched_s > 0 and known_s >= MIN_KNOWN * watched_s
    return Goodput(
        end_to_end=min(cut.parts.get(USEFUL, 0.0) / known_s, 1.0) if is_known else None,
        steady=accounted.steady,
        span_s=span_s,
        unknown_s=unknown_s,
        from_start=cut.from_start,
        startup_s=cut.startup_s,
        num_restarts=cut.num_restarts,
        waterfall=parts,
        steps_done_again=None if again is None else sum(again),
        own_steps=spans[-1],
        num_stepless=_num_failed_starts(clocks),
        unseen=accounted.unseen,
        own_last=max(span[1] for span in spans if span) if all(spans) else None,
        **_bounds(clocks, span_s),
    ) if parts else None  # fmt: skip


def own_spans(clocks: Clocks) -> list[tuple[int, int] | None]:
    """First and last step of each life by the training's own count; None where that is not known."""
    spans: list[tuple[int, int] | None] = []
    for at, life in enumerate(clocks.lives):
        start = _start(clocks, life)
        before = clocks.steps_before.get(start[0]) if start is not None else None
        others = [
            other for other in clocks.lives[:at] + clocks.lives[at + 1 :] if _start(clocks, other) == start
        ]
        # Attached to twice, a process has told two counts, of which the last is known.
        is_known = before is not None and not others
        spans.append(
            (before + life.first_step, before + life.last_step) if is_known and before is not None else None
        )
    return spans


def steps_again(spans: Sequence[tuple[int, int] | None]) -> list[int] | None:
    """Of each stretch (first, last step by the training's own count), how many were done again later.

    None where a count is not known, or began anew: then the optimizer was not restored, or nothing was.
    """
    if len(spans) == 1:
        return [0]
    known = [span for span in spans if span is not None]
    if len(known) < len(spans) or any(first == 0 for first, _ in known[1:]):
        return None
    return [
        min(max(last + 1 - min(span[0] for span in known[at + 1 :]), 0), last + 1 - first)
        for at, (first, last) in enumerate(known[:-1])
    ] + [0]


def move_useful(parts: dict[str, float], share: float) -> None:
    """This share of the useful time was for steps that were done again."""
    moved_s = parts.get(USEFUL, 0.0) * min(share, 1.0)
    if moved_s > 0:
        parts[USEFUL] -= moved_s
        parts["done_again"] = parts.get("done_again", 0.0) + moved_s


def _bounds(clocks: Clocks, span_s: float) -> dict[str, float]:
    """The span on the wall clock: to the last step, or what came after it, a hang or starts without a step."""
    if clocks.wall_shift_ns is None:
        return {}
    ended_s = (clocks.lives[-1].end_ns + clocks.wall_shift_ns) * NS + _after_last_step_s(clocks)
    return {"began_wall_s": ended_s - span_s, "ended_wall_s": ended_s}


def in_order(parts: dict[str, float]) -> dict[str, float]:
    """Useful time first, then what was lost by its size, then what is not known."""
    lost = sorted((kind for kind in parts if kind != USEFUL and kind not in UNKNOWN_KINDS),
                  key=lambda kind: (-parts[kind], kind))  # fmt: skip
    return {kind: parts[kind] for kind in (USEFUL, *lost, *UNKNOWN_KINDS) if kind in parts}


def _outside(clocks: Clocks) -> _Cut:
    cut = _Cut()
    former: Life | None = None
    start: tuple[int, bool] | None = None
    for life in clocks.lives:
        start, former_start = _start(clocks, life), start
        is_first_step = False
        if former is None:
            is_first_step = start is not None and start[1]
            cut.from_start = is_first_step
            if start is not None:
                cut.add("startup" if is_first_step else "before_watcher", (life.begin_ns - start[0]) * NS)
        elif life.host != former.host or life.begin_ns < former.end_ns:
            pass  # no clock tells what lies between
        else:
            is_new = start is not None and start != former_start
            # It started under the watcher's eyes, which was there within a second or two.
            is_first_step = is_new
            cut.num_restarts += is_new
            cut.add("restart" if is_new else "unwatched", (life.begin_ns - former.end_ns) * NS)
        spent_ns = life.end_ns - life.begin_ns
        num_steps = life.num_steps
        if former is None and not (is_first_step or clocks.is_first_whole):  # it begins within a step
            cut.add("not_judged", life.first_ns * NS)
            spent_ns, num_steps = spent_ns - life.first_ns, num_steps - 1
        if is_first_step:  # what its first record did before the first phase was start-up too
            cut.add("startup" if former is None else "restart", life.first_other_ns * NS)
            spent_ns -= life.first_other_ns
            if former is None:
                cut.first_s = (life.first_ns - life.first_other_ns) * NS
        _add_steps(cut, clocks, life, spent_ns, num_steps)
        former = life
    cut.startup_s = cut.parts.get("startup") if cut.from_start else None
    num_failed = _num_failed_starts(clocks)
    cut.num_restarts += num_failed
    after_s = _after_last_step_s(clocks)
    # Where it stands may have been seen later than its last step, and no longer until its host was heard last.
    hang_s = after_s if clocks.stands_s is None else min(clocks.stands_s, after_s)
    if num_failed:
        cut.add("restart", after_s)
    else:
        cut.add("hang" if clocks.hangs else "not_judged", hang_s)
        cut.add("not_judged", after_s - hang_s)
    return cut


def _add_steps(cut: _Cut, clocks: Clocks, life: Life, spent_ns: int, num_steps: int) -> None:
    """The time of a life's steps; where steps are not there, theirs is not known."""
    lost_ns, num_lost = _in_gaps(life, None)
    if clocks.change is not None and life is not clocks.lives[-1]:
        cut.before_s += max(spent_ns - lost_ns, 0) * NS
        cut.num_before += max(num_steps - num_lost, 0)
    elif clocks.change is not None:
        lost_before_ns, num_lost_before = _in_gaps(life, clocks.change[0])
        before_ns = min(clocks.change[0], life.end_ns) - (life.end_ns - spent_ns)
        cut.before_s += max(before_ns - lost_before_ns, 0) * NS
        before = min(max(clocks.change[1] - life.first_step, 0), life.num_steps)
        cut.num_before += max(before - life.num_steps + num_steps - num_lost_before, 0)
    cut.add("not_judged", lost_ns * NS)
    cut.steps_s += max(spent_ns - lost_ns, 0) * NS
    cut.num_steps += max(num_steps - num_lost, 0)


def _in_gaps(life: Life, until_ns: int | None) -> tuple[int, int]:
    """(nanoseconds, steps) of which no record is there, until a moment: what they went into nobody saw."""
    until_ns = life.end_ns if until_ns is None else until_ns
    lost_ns = sum(max(min(end, until_ns) - begin, 0) for begin, end, _ in life.gaps)
    return lost_ns, sum(num for _, end, num in life.gaps if end <= until_ns)


def _num_failed_starts(clocks: Clocks) -> int:
    """Processes that were this rank after the one that made the last step, and have made none."""
    last = _start(clocks, clocks.lives[-1])
    return 0 if last is None else sum(start > last[0] for start, _ in clocks.starts)


def _after_last_step_s(clocks: Clocks) -> float:
    return clocks.since_end_s if _num_failed_starts(clocks) else clocks.still_since_end_s


def _start(clocks: Clocks, life: Life) -> tuple[int, bool] | None:
    """Of the process that this was; None where it is not known, or told by another host's clock."""
    if life.host != clocks.lives[-1].host:
        return None
    before = [one for one in clocks.starts if one[0] <= life.begin_ns]
    near = (one for one in clocks.starts if one[0] <= life.begin_ns + START_SLACK_NS)
    return before[-1] if before else next(near, None)


def _inside(clocks: Clocks, accounted: Accounted, cut: _Cut, useful_step_s: float) -> dict[str, float]:
    """The time of steps, by what it went into; sums to it."""
    seconds_of = {kind: share * accounted.elapsed_s for kind, share in accounted.losses.items()}
    mean_s = accounted.steady_s / accounted.num_steady
    warmup_s = seconds_of.pop("warmup", 0.0) + max(cut.first_s - mean_s, 0.0)
    a_step = {kind: seconds_of.pop(kind) / accounted.num_steady for kind in accounted.of_steps}
    outside = _marked_outside(clocks)
    if not cut.num_before:
        known = {**_sum(seconds_of, outside), "warmup": warmup_s}
        return _steps(cut.steps_s, cut.num_steps, useful_step_s, a_step, known, mean_s=mean_s)
    known = {**_sum(accounted.paused_before_s, outside), "warmup": warmup_s}
    before = _steps(
        cut.before_s, cut.num_before, useful_step_s, {}, known, mean_s=mean_s, rest="before_change"
    )
    rest_s = before.pop("before_change")
    named = _within(accounted.lost_before_s, rest_s)
    left_s = rest_s - sum(named.values())
    named |= _without_core_s(clocks, accounted, before[USEFUL], left_s)
    named_s = sum(named.values())
    # Slower is what they took beyond a step of now; what else they lost has no name: nobody judged those steps.
    slower_s = max(before[USEFUL] + rest_s - cut.num_before * mean_s, 0.0)
    slower_s = min(slower_s, rest_s - named_s)
    unnamed_s = before.get("unnamed", 0.0) + rest_s - named_s - slower_s
    before = _sum(before, named) | {"before_change": slower_s, "unnamed": unnamed_s}
    now_s, num_now = cut.steps_s - cut.before_s, cut.num_steps - cut.num_before
    return _sum(before, _steps(now_s, num_now, useful_step_s, a_step, seconds_of, mean_s=mean_s))


def _without_core_s(clocks: Clocks, accounted: Accounted, useful_s: float, left_s: float) -> dict[str, float]:
    """Of what steps before a change lost, what the rank was ready to run and had no core, where it lacks one now too.

    As of the window a share of what nothing else has claimed, for within that a thread mostly sleeps.
    """
    if accounted.by_cores is None or clocks.core_wait_before is None:
        return {}
    return {accounted.by_cores: min(clocks.core_wait_before * (useful_s + left_s), max(left_s, 0.0))}


def _sum(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {kind: one.get(kind, 0.0) + other.get(kind, 0.0) for kind in {**one, **other}}


def _within(seconds_of: dict[str, float], whole_s: float) -> dict[str, float]:
    """The same, or smaller alike where they are more than there was."""
    total_s = sum(seconds_of.values())
    scale = min(whole_s / total_s, 1.0) if total_s > 0 else 0.0
    return {kind: seconds * scale for kind, seconds in seconds_of.items()}


def _marked_outside(clocks: Clocks) -> dict[str, float]:
    """Seconds of checkpoints and evaluations of the rank that the window does not hold, and of steps in which it stood.

    Why it stood then was said when it did; once its steps are held no more that it was a pause is all that is known.
    """
    total = {
        name: sum(life.pauses_ns[index] for life in clocks.lives) * NS for index, name in enumerate(PAUSES)
    }
    outside = {name: max(spent - clocks.marked_s.get(name, 0.0), 0.0) for name, spent in total.items()}
    stood_s = sum(life.stood_ns for life in clocks.lives) * NS - clocks.stood_within_s
    return outside | {"pause": max(stood_s, 0.0)}


def _steps(
    whole_s: float,
    num_steps: int,
    useful_step_s: float,
    a_step: dict[str, float],
    known: dict[str, float],
    *,
    mean_s: float,
    rest: str = "unnamed",
) -> dict[str, float]:
    """So many steps that took so long: pauses and warm-up, useful time, what each step loses, and what nobody named.

    mean_s: of the judged steps. Where those that nobody holds any more were quicker, all their parts were shorter
    alike: that nothing of them was lost nobody has seen.
    """
    known_s = sum(known.values())
    scale = min(whole_s / known_s, 1.0) if known_s > 0 else 0.0
    parts = {kind: seconds * scale for kind, seconds in known.items()}
    left_s = max(whole_s - known_s, 0.0)
    alike = min(left_s / (num_steps * mean_s), 1.0) if num_steps > 0 and mean_s > 0 else 1.0
    parts[USEFUL] = min(left_s, num_steps * useful_step_s * alike)
    left_s -= parts[USEFUL]
    lost_s = num_steps * sum(a_step.values()) * alike
    scale = min(left_s / lost_s, 1.0) * alike if lost_s > 0 else 0.0
    for kind, loss_s in a_step.items():
        parts[kind] = parts.get(kind, 0.0) + num_steps * loss_s * scale
    parts[rest] = parts.get(rest, 0.0) + max(left_s - lost_s, 0.0)
    return parts
