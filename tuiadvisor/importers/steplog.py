"""Step logs as a run: torchtitan's structured logs of each rank, or the step times of a whole job.

In: a folder of .jsonl, the text that Megatron-LM or NeMo printed, a result log of MLPerf, or CSV (step times,
Lightning's metrics).
Out: the document with its slow steps, and ImportedRun. A job's log is of no rank: it stands as rank 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import STEP_COLUMNS, UNKNOWN, StepFlag
from tuiadvisor.importers.files import opened, plain_name
from tuiadvisor.importers.imported import ImportedRank, ImportedRun, NoStepsError, Reading
from tuiadvisor.importers.mllog import INTERVALS, MllogRun, read_mllog
from tuiadvisor.importers.step_logs import StepLog, read_step_log, without_evaluations
from tuiadvisor.importers.textlogs import LoggedLine, read_lines
from tuiadvisor.importers.titanlog import PHASES as LOGGED_PHASES
from tuiadvisor.importers.titanlog import TOGETHER, LoggedRank, LoggedStep, read_titan
from tuiadvisor.metrics.series.plausible import PLAUSIBLE_NS, StepLengths, apart, in_order, together
from tuiadvisor.metrics.traces.op_table import counted, named
from tuiadvisor.metrics.traces.slow_steps import MIN_STEPS, Course, course, slow_steps
from tuiadvisor.phases import PHASES, TABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from tuiadvisor.importers.imported import Progress, Row

NS: Final = 1e9
SHOWN: Final = 6
HEAD_BYTES: Final = 1 << 16
JOB: Final = "the log is of the whole job, of no rank: it stands as rank 0"
END_TO_END: Final = "what lies between two logged steps is not in the log: they are laid end to end"
BY_CLOCK: Final = (
    "steps end when their rows were logged (wall_ms); rows that do not fit that are laid end to end"
)
WORTH_A_LOOK: Final = 0.08  # of the host's steps: as rule input_bound's beyond_scheduling
MOST_WAITED: Final = 0.99  # as what_if's MAX_LOSS
CLOCK_SLACK_S: Final = 0.01  # by which steps may overlap: rows are stamped in milliseconds
MIN_FITTING: Final = 0.9  # of a log's rows: else its clock is not that of the steps' ends
TIMED_BY: Final = (
    "Megatron-LM writes elapsed time per iteration (ms), NeMo train_step_timing in s, each as plain digits"
)
BY_ROW: Final = "steps are numbered by their rows: the column step does not rise from row to row"
AT_EVALUATIONS: Final = "left out, rows at evaluations, where the count of samples falls back"
OF_POINTS: Final = "lengths are the time between two points of the log"
MEANS: Final = "lines are some steps apart: each is the mean of the steps since the one before"
BOTH: Final = "forward and backward are one span in the log: their time is in other"
LAUNCHED: Final = "spans are the host's: work launched for a device is not waited for"


@dataclass(frozen=True, slots=True)
class _Log:
    """What was read: steps of each rank, what it is, and what to say of it."""

    words: str
    ranks: tuple[tuple[int, str, tuple[Row, ...]], ...]  # rank, host, rows of STEP_COLUMNS
    seconds: dict[int, float]  # of each step: the longest of its ranks'
    notes: tuple[str, ...]
    mlperf: MllogRun | None = None
    spans: dict[str, tuple[float, ...]] = field(default_factory=dict)  # phase -> share of each rank's steps


def steplog_document(path: Path) -> dict[str, Any]:
    """Read it, and say which steps stand out."""
    return _document(path, _read(path, None))


def steplog_run(path: Path, progress: Progress | None = None) -> tuple[dict[str, Any], ImportedRun]:
    """(the import's document, the run)."""
    log = _read(path, progress)
    document = _document(path, log)
    if not log.seconds:
        raise NoStepsError(f"{path}: {NO_LENGTHS}", document)
    return document, ImportedRun(
        kind="spans" if log.spans else "steplog",
        source=path.name or str(path),
        words=log.words,
        ranks=tuple(ImportedRank(rank, rows, (), None, host=host) for rank, host, rows in log.ranks),
        world_size=None,
        late_ranks=None,
        because="a step log does not tell who arrives last",
        says="; ".join(filter(None, (_lengths(document["step"]), _span_words(document["host_spans"])))),
        notes=log.notes,
    )


LABELS: Final = {phase.name: phase.label for phase in TABLE}
NO_LENGTHS: Final = (
    "no step's length in it: MLPerf's log tells one by tracked_stats with train_step_time, or by global_batch_size "
    "and samples_count, step_num or train_samples"
)


def _read(path: Path, progress: Progress | None) -> _Log:
    if path.is_dir() or plain_name(path.name).endswith(".jsonl"):
        return _titan(path, read_titan(path, progress))
    if progress is not None:
        progress(Reading(path.name, 1, 1))
    with opened(path) as file:
        head = file.read(HEAD_BYTES)
    if head.lstrip()[:1] == b"{" and b'"log_type_name"' in head:
        return _titan(path, read_titan(path, progress))
    text = read_lines(path)
    if text.lines:
        log = _of_lines(f"step times that {text.tool} printed", text.lines, text.untimed)
        return replace(log, notes=(*log.notes, *text.words()))
    if text.tool and text.num_zeros and text.num_zeros >= len(text.untimed):
        raise TuiadvisorError(
            f"{path}: every time that {text.tool} printed is 0 ({counted(text.num_zeros, 'line')}): it was not "
            "measured, or is less than is printed; nothing can be judged"
        )
    if text.tool:
        raise TuiadvisorError(f"{path}: {text.tool}'s lines without a time that a step can have: {TIMED_BY}")
    mlperf = read_mllog(path)
    return _table(read_step_log(path)) if mlperf is None else _mlperf(path, mlperf)


def _of_lines(words: str, lines: list[LoggedLine], untimed: Collection[int] = ()) -> _Log:
    """untimed: iterations that were logged, too."""
    numbers = sorted({line.number for line in lines}.union(untimed))
    apart = {later - number for number, later in pairwise(numbers)}
    notes = [JOB, END_TO_END]
    if apart and max(apart) > 1:
        notes.append(MEANS)
    rows = _rows([(line.number, line.seconds, line.samples, None) for line in lines])
    return _Log(words, ((0, "", rows),), {line.number: line.seconds for line in lines}, tuple(notes))


def _mlperf(path: Path, run: MllogRun) -> _Log:
    if not run.lines and not run.tells_anything:
        raise TuiadvisorError(f"{path}: {NO_LENGTHS}")
    log = _of_lines("a result log of MLPerf", run.lines)
    notes = list(log.notes) if run.lines else []
    if run.is_of_points:  # nothing lies between them, then
        notes = [OF_POINTS if note == END_TO_END else note for note in notes]
    if run.is_of_epochs:
        notes.append("lengths are an epoch's time over train_samples / global_batch_size")
    if run.num_bad:
        notes.append(f"left out, {counted(run.num_bad, 'line')} that {_are(run.num_bad)} no JSON")
    return replace(log, notes=(*notes, *run.lengths.words()), mlperf=run)


def _table(rows: StepLog) -> _Log:
    log, num_evaluations = without_evaluations(rows)
    is_step = log.label_name == "step" and bool((np.diff(log.label) > 0).all())
    numbers = [int(one) for one in log.label] if is_step else list(range(log.step_s.size))
    ends = _ends(log)
    columns = (numbers, log.step_s.tolist(), _samples(log), ends or [None] * log.step_s.size)
    lengths = StepLengths()
    steps = [entry for entry in zip(*columns, strict=True) if lengths.takes(entry[1]) and entry[1] > 0]
    if not steps:
        raise TuiadvisorError(
            "the log has no step that took any time, or so little that one can: write each step's duration in seconds"
        )
    seconds = {number: took for number, took, *_ in steps}
    laid = OF_POINTS if log.is_of_points else END_TO_END
    notes = (JOB, laid if ends is None else BY_CLOCK, *lengths.words())
    if log.is_of_points and len(numbers) > 1 and numbers[1] - numbers[0] > 1:
        notes = (*notes, MEANS)
    if log.label_name == "step" and not is_step:
        notes = (*notes, BY_ROW)
    if num_evaluations:
        notes = (*notes, f"{AT_EVALUATIONS}: {num_evaluations}")
    return _Log("a table of step times", ((0, "", _rows(steps)),), seconds, notes)


def _samples(log: StepLog) -> list[int | None]:
    """Of each row beyond the row before; of a count that jumps back, as some do at evaluations, none."""
    seen = log.samples_seen
    if seen is None or not seen.size or not bool((np.diff(seen) > 0).all()):
        return [None] * log.step_s.size
    return [None, *(int(more) for more in np.diff(seen))]  # of the first nobody says where it began


def _ends(log: StepLog) -> list[int | None] | None:
    """When each step ended, in nanoseconds of the wall clock; None of a row, or of all, whose steps do not fit it."""
    if log.wall_ms is None or log.wall_ms.size < 2:
        return None
    is_ordered = in_order(log.wall_ms)
    gap_s = np.diff(log.wall_ms[is_ordered]) / 1000
    fits = is_ordered.copy()
    fits[is_ordered] = np.append(True, gap_s >= log.step_s[is_ordered][1:] - CLOCK_SLACK_S)
    if fits.mean() < MIN_FITTING:
        return None
    fits &= together(log.wall_ms, PLAUSIBLE_NS / 1e6)
    if not fits.any():
        return None
    return [
        int(ms * 1e6) if is_good else None for ms, is_good in zip(log.wall_ms.tolist(), fits, strict=True)
    ]


def _rows(steps: list[tuple[int, float, int | None, int | None]]) -> tuple[Row, ...]:
    """Where the clock says, else end to end, the first ones up to where it says; nothing is known within a step."""
    rows, at = [], _begin(steps)
    for number, seconds, samples, end_ns in steps:
        length = max(round(seconds * NS), 1)
        begin = at if end_ns is None else max(end_ns - length, at)
        step = LoggedStep(number, begin, begin + length)
        rows.append(_row(step, (), samples))
        at = step.end_ns
    return tuple(rows)


def _begin(steps: list[tuple[int, float, int | None, int | None]]) -> int:
    """When the first step begins: so that the steps up to the first that has a clock end there; 0 without a clock."""
    lengths = 0
    for _, seconds, _, end_ns in steps:
        lengths += max(round(seconds * NS), 1)
        if end_ns is not None:
            return max(end_ns - lengths, 0)
    return 0


def _row(step: LoggedStep, shown: tuple[str, ...], samples: int | None = None) -> Row:
    length = step.end_ns - step.begin_ns
    parts = {name: step.phases.get(name, 0) for name in shown}
    fields = {
        "step": step.number,
        "begin_ns": step.begin_ns,
        "end_ns": step.end_ns,
        "group_seq": step.number + 1,
    }
    fields |= {f"{name}_ns": value for name, value in parts.items()}
    fields |= {"other_ns": max(length - sum(parts.values()), 0), "flags": _flags(parts)}
    fields["observed"] = sum(1 << PHASES.index(name) for name in (*shown, "other"))
    fields["samples"] = UNKNOWN if samples is None else samples
    return tuple(fields.get(name, UNKNOWN) for name in STEP_COLUMNS)


def _flags(parts: dict[str, int]) -> int:
    """A checkpoint or an evaluation makes a step a pause."""
    pauses = (("checkpoint", StepFlag.CHECKPOINT), ("eval", StepFlag.EVAL))
    return int(StepFlag.NO_SYNC) | sum(int(flag) for name, flag in pauses if parts.get(name))


def _titan(path: Path, found: list[LoggedRank]) -> _Log:
    if not found:
        raise TuiadvisorError(
            f"{path}: no step in it: torchtitan writes spans named step to structured_logs/"
        )
    kept: dict[int, LoggedRank] = {}
    for rank in found:
        if rank.rank is not None:
            kept.setdefault(rank.rank, rank)
    if not kept:
        raise TuiadvisorError(f"{path}: its records do not say of which ranks they are: keep the field rank")
    spans = {f"rank {number}": _span(rank.steps) for number, rank in kept.items()}
    if other_times := apart(spans, "logs"):
        raise TuiadvisorError(f"{path}: {other_times}")
    seen = set().union(*(rank.seen for rank in kept.values()))
    shown = tuple(sorted({LOGGED_PHASES[name] for name in seen if name in LOGGED_PHASES}))
    seconds: dict[int, float] = {}
    ranks = []
    shares: dict[str, list[float]] = {}
    for number, rank in sorted(kept.items()):
        steps = _in_order(rank.steps)
        for step in steps:
            took = (step.end_ns - step.begin_ns) / NS
            seconds[step.number] = max(seconds.get(step.number, 0.0), took)
        ranks.append((number, rank.host or "", tuple(_row(step, shown) for step in steps)))
        for name in shown:
            shares.setdefault(name, []).append(_share(name, steps))
    notes = (LAUNCHED, *_left_out(kept, len(found)), *([BOTH] if _is_one_span(seen) else []))
    of_host = {name: tuple(of_ranks) for name, of_ranks in shares.items()}
    return _Log("torchtitan's structured logs", tuple(ranks), seconds, notes, spans=of_host)


def _share(phase: str, steps: list[LoggedStep]) -> float:
    """Of the time of all these steps."""
    whole_ns = sum(step.end_ns - step.begin_ns for step in steps)
    return sum(step.phases.get(phase, 0) for step in steps) / max(whole_ns, 1)


def _is_one_span(seen: set[str]) -> bool:
    return bool(seen & TOGETHER) and not {"model_forward", "model_backward"} <= seen


def _span(steps: list[LoggedStep]) -> tuple[int, int]:
    return steps[0].begin_ns, max(step.end_ns for step in steps)


def _left_out(kept: dict[int, LoggedRank], num_files: int) -> Iterator[str]:
    """What of the files is not in the run, each in a line."""
    if len(kept) < num_files:
        yield f"left out, of the same or of no rank: {counted(num_files - len(kept), 'file')}"
    if num_bad := sum(rank.num_bad for rank in kept.values()):
        yield f"left out, {counted(num_bad, 'line')} that {_are(num_bad)} no JSON"
    if num_untimed := sum(rank.num_untimed for rank in kept.values()):
        yield f"left out, records without a usable time: {num_untimed}"
    for number, rank in sorted(kept.items()):
        yield from (f"rank {number}: {words}" for words in rank.lengths.words())


def _in_order(steps: list[LoggedStep]) -> list[LoggedStep]:
    """Those whose number rises and that begin after the one before; of a step done again the last time counts."""
    kept: list[LoggedStep] = []
    for step in steps:
        while kept and kept[-1].number >= step.number:
            kept.pop()
        if not kept or step.begin_ns >= kept[-1].end_ns:
            kept.append(step)
    return kept


def _document(path: Path, log: _Log) -> dict[str, Any]:
    numbers = sorted(log.seconds)
    lengths = np.array([log.seconds[number] for number in numbers])
    found = slow_steps(lengths) if numbers else None
    few = f"{counted(len(numbers), 'step')}, {MIN_STEPS} are needed"
    return {
        "schema": 1,
        "source": {"kind": "steplog", "path": str(path), "words": log.words},
        "run": {"num_ranks": len(log.ranks), "ranks": [rank for rank, _, _ in log.ranks]},
        "window": {
            "steps": len(numbers),
            "first_step": numbers[0] if numbers else None,
            "last_step": numbers[-1] if numbers else None,
        },
        "step": {
            "median_s": found and found.median_s,
            "p95_s": found and found.p95_s,
            "max_s": found and found.max_s,
            "variation": found and found.variation,
            "lost_s": found and found.lost_s,
            "course": _course_words(course(lengths, np.array(numbers)), numbers) if found else [],
            "slow": [{"step": numbers[at], "seconds": took} for at, took in found.slow] if found else [],
        },
        "host_spans": {
            name: {"min": min(of_ranks), "max": max(of_ranks)} for name, of_ranks in sorted(log.spans.items())
        },
        "mlperf": None if log.mlperf is None else _mlperf_document(log.mlperf),
        "unknown": []
        if found
        else [{"metric": "slow steps", "why": few} if numbers else {"metric": "steps", "why": NO_LENGTHS}],
        "losses": list(log.notes),
    }


def _are(num: int) -> str:
    return "is" if num == 1 else "are"


def _span_of(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _mlperf_document(run: MllogRun) -> dict[str, Any]:
    """Null for an interval that the log does not close."""
    return {
        "benchmark": run.benchmark,
        "status": run.status,
        "global_batch_size": run.batch,
        "evaluations": run.num_evals,
        **{f"{name}_s": run.seconds.get(name) for name in INTERVALS},
    }


def _mlperf_words(found: dict[str, Any]) -> str:
    run = "unknown" if found["run_s"] is None else f"{found['run_s']:.4g} s"
    ended = f" ({found['status']})" if found["status"] else ""
    init = "" if found["init_s"] is None else f", start-up before it {found['init_s']:.4g} s"
    evals = (
        ""
        if found["eval_s"] is None
        else f", {counted(found['evaluations'], 'evaluation')} {found['eval_s']:.4g} s"
    )
    return f"MLPerf {found['benchmark'] or 'of a benchmark it does not name'}: run {run}{ended}{evals}{init}"


def _course_words(found: Course, numbers: list[int]) -> list[str]:
    """What comes again or stays, a clause each."""
    said = []
    if found.period is not None:
        said.append(f"one in {found.period} steps is slow, at regular intervals")
    if found.drift is not None:
        said.append(
            f"steps grow little by little, from {found.drift.first_s:.4g} to {found.drift.last_s:.4g} s"
        )
    if found.change is not None:
        at, before, after = numbers[found.change.index], found.change.before, found.change.after
        said.append(f"from step {at} on steps take {after:.4g} s instead of {before:.4g}")
    return said


def _lengths(step: dict[str, Any]) -> str:
    """Empty where there are too few."""
    if step["median_s"] is None:
        return ""
    longest = next((f", step {one['step']}" for one in step["slow"] if one["seconds"] == step["max_s"]), "")
    lengths = (
        f"step {step['median_s']:.4g} s, 95th percentile {step['p95_s']:.4g} s, longest {step['max_s']:.4g} s"
        f"{longest}; slow steps cost {step['lost_s']:.4g} s"
    )
    return "; ".join([lengths, *step["course"]])


def _span_words(spans: dict[str, dict[str, float]]) -> str:
    """What the host was in, most first, of ranks that differ from the least to the most; empty without spans."""
    said = []
    for name, share in sorted(spans.items(), key=lambda item: -item[1]["max"]):
        low, high = f"{share['min']:.0%}", f"{share['max']:.0%}"
        said.append(f"{LABELS[name]} {high if low == high else f'{low} to {high}'}".replace("%", " %"))
    if not said:
        return ""
    return "; ".join(
        filter(None, (f"of the host's time in its steps {', '.join(said)}", _loader_words(spans)))
    )


def _loader_words(spans: dict[str, dict[str, float]]) -> str:
    """What waiting for batches may cost; how much of it the devices' work hides the host's clock does not tell."""
    data = spans.get("data_wait")
    if data is None or data["max"] < WORTH_A_LOOK:
        return ""
    if data["min"] < data["max"] / 2:
        return (
            f"ranks wait for batches for {data['min']:.0%} to {data['max']:.0%}: the longest may hold all others up"
        ).replace("%", " %")
    gain = 1 / (1 - min(data["min"], MOST_WAITED))
    return (
        f"the loader is the first suspect: as far as the devices do not work meanwhile, without it steps are up to "
        f"{gain:.2f}x as fast"
    )


def steplog_summary(document: dict[str, Any]) -> str:
    """The document in lines."""
    window, step = document["window"], document["step"]
    steps = (
        f"{counted(window['steps'], 'step')} ({_span_of(window['first_step'], window['last_step'])})"
        if window["steps"]
        else "no step"
    )
    lines = [f"{document['source']['path']}: {document['source']['words']}, {steps}"]
    if lengths := _lengths(step):
        lines.append(lengths)
    if spans := _span_words(document["host_spans"]):
        lines.append(spans)
    if document["mlperf"] is not None:
        lines.append(_mlperf_words(document["mlperf"]))
    slow = [f"{one['step']} ({one['seconds']:.4g} s)" for one in step["slow"]]
    if slow:
        lines.append(
            f"slow: {named(slow[:SHOWN])}" + (f" and {len(slow) - SHOWN} more" if len(slow) > SHOWN else "")
        )
    lines += [f"unknown {item['metric']}: {item['why']}" for item in document["unknown"]]
    return "\n".join([*lines, *document["losses"]])
