"""torchtitan's structured logs: one JSON line a beginning or end of a phase, one file a rank.

In: a folder of .jsonl, or one file.  Out: each rank's steps with the phases that are logged within them. A span's time
is its own: what spans inside it are of another phase is theirs. What is launched for a device is not waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.importers.files import listed, opened, rank_in_name
from tuiadvisor.importers.imported import Reading
from tuiadvisor.importers.jsontext import Records
from tuiadvisor.metrics.series.plausible import StepLengths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tuiadvisor.importers.imported import Progress

MAX_STEPS: Final = 1_000_000
MAX_DEPTH: Final = 1000
MAX_RANKS: Final = 1 << 14  # of one file
MAX_US: Final = 1 << 51
ROOT: Final = "step"
PHASES: Final = {
    "fetching_batch": "data_wait",
    "model_forward": "forward",
    "model_backward": "backward",
    "optim": "optimizer",
    "Optimizer": "optimizer",
    "checkpoint_save": "checkpoint",
    "save_checkpoint": "checkpoint",
    "eval": "eval",
}
TOGETHER: Final = frozenset({"fwd_bwd", "forward_backward"})  # both in one span


@dataclass(slots=True)
class LoggedStep:
    """Nanoseconds; phases: those that were logged, without what is inside others."""

    number: int
    begin_ns: int
    end_ns: int
    phases: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class LoggedRank:
    """One file."""

    rank: int | None
    host: str | None
    steps: list[LoggedStep] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)  # names of spans within steps
    num_bad: int = 0  # lines that are no records
    num_untimed: int = 0  # records whose time is none
    lengths: StepLengths = field(default_factory=StepLengths)


def read_titan(path: Path, progress: Progress | None = None) -> list[LoggedRank]:
    """All files that hold steps."""
    found = []
    paths = listed(path, (".jsonl",))
    for number, file in enumerate(paths, 1):
        if progress is not None:
            progress(Reading(file.name, number, len(paths)))
        found += [rank for rank in _read(file) if rank.steps]
    return found


def _read(path: Path) -> list[LoggedRank]:
    """Of a file that several ranks' logs were merged into each of them."""
    named = LoggedRank(rank_in_name(path.name.replace("global_rank", "rank")), None)
    ranks: dict[int | None, LoggedRank] = {}
    stacks: dict[tuple[int | None, str | None], list[_Span]] = {}
    for record in _records(path, named):
        number = _number(record.get("global_rank", record.get("rank")), named.rank)
        rank = ranks.get(number)
        if rank is None:
            if len(ranks) >= MAX_RANKS:
                continue
            host = record.get("host_name")
            host = host[:100] if isinstance(host, str) and host.isprintable() else ""
            rank = ranks[number] = LoggedRank(number, host)
        name, at = record.get("log_type_name"), _number(record.get("time_us"), None)
        if not isinstance(name, str):
            continue
        if at is None or at > MAX_US:
            rank.num_untimed += name.endswith(("_start", "_end"))
            continue
        task = record.get("task_name")
        stack = stacks.setdefault((number, task if isinstance(task, str) else None), [])
        if name.endswith("_start") and len(stack) < MAX_DEPTH:
            stack.append(_Span(name[: -len("_start")], at * 1000, _number(record.get("step"), None)))
        elif name.endswith("_end"):
            _close(stack, name[: -len("_end")], at * 1000, rank)
    found = list(ranks.values())
    for rank in found:
        rank.steps.sort(key=lambda step: step.begin_ns)
    if found:
        found[0].num_bad = named.num_bad
    return found


@dataclass(slots=True)
class _Span:
    name: str
    begin_ns: int
    step: int | None
    inside: dict[str, int] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)


def _close(stack: list[_Span], name: str, end_ns: int, rank: LoggedRank) -> None:
    """End the span of this name; spans that began in it and never ended are of no length."""
    if not any(span.name == name for span in stack):
        return
    while (span := stack.pop()).name != name:
        if stack:
            stack[-1].inside = _sum(stack[-1].inside, span.inside)
            stack[-1].names |= span.names
    if name == ROOT:
        if span.step is None or len(rank.steps) >= MAX_STEPS:
            return
        # What is inside cannot be longer: a time in it is wrong where it is.
        length_ns = max(end_ns - span.begin_ns, sum(span.inside.values()), key=abs)
        if rank.lengths.takes(length_ns / 1e9) and end_ns > span.begin_ns:
            rank.steps.append(LoggedStep(span.step, span.begin_ns, end_ns, span.inside))
            rank.seen |= span.names
        return
    inside, phase = span.inside, PHASES.get(name)
    if phase is not None:
        inside = _sum(inside, {phase: max(end_ns - span.begin_ns - sum(inside.values()), 0)})
    if stack:
        stack[-1].inside = _sum(stack[-1].inside, inside)
        stack[-1].names |= {*span.names, name}


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {*one, *other}}


def _records(path: Path, rank: LoggedRank) -> Iterator[dict[str, Any]]:
    with opened(path) as file:
        records = Records(file)
        yield from records
        rank.num_bad += records.num_bad


def _number(value: object, otherwise: int | None) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_US else otherwise
