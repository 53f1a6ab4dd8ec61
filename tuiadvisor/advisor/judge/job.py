"""Goodput of a job over several of its recordings: one waterfall, gaps between them and steps done again included.

In: RunViews of whole recordings with their names.  Out: JobView. Recordings that cannot be of one job are refused.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.judge.waterfall import in_order, move_useful, steps_again
from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.views.goodput import UNKNOWN_KINDS, USEFUL, Goodput, parts_of
from tuiadvisor.views.job import JobView, Recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.views.run_view import RunView

Named = tuple[str, "RunView"]
OVERLAP_S: Final = 2.0  # process starts are known to a second, wall clocks of hosts to about as much
NOT_SEEN: Final = (
    "whether the job trained between the recordings is not known: no optimizer's count of steps connects them"
)
OTHER_COMMANDS: Final = (
    "the command lines differ: that the recordings are of one job rests on script and model alone"
)
# Facts of a model that a restart does not change.
SAME_MODEL: Final = ("params", "layers", "modules")


def job_view(named: Sequence[Named]) -> JobView:
    """Two recordings or more, in any order. TuiadvisorError where they cannot be of one job."""
    runs = sorted(
        ((name, view, _wall(name, view)) for name, view in named), key=lambda run: _bounds(run[0], run[2])
    )
    for before, after in pairwise(runs):
        _check_same((before[0], before[1]), (after[0], after[1]))
        _check_order(before, after)
    walls = [wall for _, _, wall in runs]
    spans = [wall.own_steps for wall in walls]
    again = steps_again(spans)
    gaps = [max(_bounds("", after)[0] - _bounds("", before)[1], 0.0) for before, after in pairwise(walls)]
    parts: dict[str, float] = {}
    for at, wall in enumerate(walls):
        own = {part.kind: part.seconds for part in wall.waterfall}
        if again and again[at] and (span := spans[at]) is not None:
            move_useful(own, again[at] / (span[1] + 1 - span[0]))
        for kind, seconds in own.items():
            parts[kind] = parts.get(kind, 0.0) + seconds
    is_rest = [again is not None and _is_rest(*pair) for pair in pairwise(walls)]
    for gap_s, rest in zip(gaps, is_rest, strict=True):
        kind = "gap" if rest else "between"
        parts[kind] = parts.get(kind, 0.0) + gap_s
    return JobView(
        recordings=tuple(
            Recorded(name, view, None if at == 0 else gaps[at - 1], again[at] if again else None)
            for at, (name, view, _) in enumerate(runs)
        ),
        goodput=_goodput(walls, in_order(parts), None if again is None else sum(again)),
        notes=(
            *(() if all(is_rest) else (NOT_SEEN,)),
            *((OTHER_COMMANDS,) if len({view.run.command for _, view, _ in runs} - {""}) > 1 else ()),
        ),
    )


def _goodput(walls: Sequence[Goodput], parts: dict[str, float], num_again: int | None) -> Goodput:
    span_s = sum(parts.values())
    unknown_s = sum(parts.get(kind, 0.0) for kind in UNKNOWN_KINDS)
    # A recording whose own time could not be judged leaves the job's figure unknown, too.
    is_known = all(wall.end_to_end is not None for wall in walls) and span_s > unknown_s
    inside = [wall.steps_done_again for wall in walls]
    known = [num for num in (*inside, num_again) if num is not None]
    return replace(
        walls[-1],
        end_to_end=parts.get(USEFUL, 0.0) / (span_s - unknown_s) if is_known else None,
        steady=None,
        span_s=span_s,
        unknown_s=unknown_s,
        from_start=walls[0].from_start,
        startup_s=None,
        num_restarts=sum(wall.num_restarts for wall in walls) + len(walls) - 1,
        waterfall=parts_of(parts),
        steps_done_again=sum(known) if len(known) == len(inside) + 1 else None,
        began_wall_s=walls[0].began_wall_s,
    )


def _is_rest(before: Goodput, after: Goodput) -> bool:
    """Whether the later one began no further than the earlier one had come: then nothing was gained in between."""
    if before.own_last is None or after.own_steps is None:
        return False
    return after.own_steps[0] <= before.own_last + 1


def _wall(name: str, view: RunView) -> Goodput:
    if view.wall is None:
        raise TuiadvisorError(
            f"{one_line(name)}: no step was seen, so nothing of the job's goodput is in it; leave it out"
        )
    return view.wall


def _bounds(name: str, wall: Goodput) -> tuple[float, float]:
    if wall.began_wall_s is None or wall.ended_wall_s is None:
        raise TuiadvisorError(
            f"{one_line(name)}: no wall clock is in it, so its place among the others is not known"
        )
    return wall.began_wall_s, wall.ended_wall_s


def _check_same(before: Named, after: Named) -> None:
    one, other = before[1], after[1]
    pairs: list[tuple[str, object, object]] = [("script", one.run.label, other.run.label)]
    # Of a sharded model a rank holds more where there are fewer ranks.
    if one.stack is not None and other.stack is not None and one.run.world_size == other.run.world_size:
        pairs += [
            (f"model's {name}", one.stack.facts.get(name), other.stack.facts.get(name)) for name in SAME_MODEL
        ]
    for what, old, new in pairs:
        if old and new and old != new:
            raise TuiadvisorError(
                f"{one_line(before[0])} and {one_line(after[0])} are not of one job: "
                f"the {what} is {one_line(str(old))} in one and {one_line(str(new))} in the other; "
                "tuiadvisor compare sets two runs beside each other"
            )


def _check_order(before: tuple[str, RunView, Goodput], after: tuple[str, RunView, Goodput]) -> None:
    late_s = _bounds(before[0], before[2])[1] - _bounds(after[0], after[2])[0]
    if late_s > OVERLAP_S:
        raise TuiadvisorError(
            f"{one_line(before[0])} and {one_line(after[0])} are of the same time ({late_s:.0f} s): two jobs, or one "
            "job recorded twice; give one of them"
        )
