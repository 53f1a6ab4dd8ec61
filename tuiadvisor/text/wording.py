"""What screens and report say alike: a pipeline's title and advice, one collective, one size of a job in figures.

In: RunView and its parts, Picture.  Out: str; of ranks those that are shown beside each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.text import format as text_of
from tuiadvisor.text.plot import short
from tuiadvisor.views.shown_ranks import stands_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.scaling.picture import Picture, SizeRow
    from tuiadvisor.scaling.predict import Range
    from tuiadvisor.views.pipeline import PipelineView
    from tuiadvisor.views.run_view import CollectiveRow, Losses, PastFinding, RankRow, RunView, Verdict

MOST_CULPRITS: Final = 3
OPERATIONS: Final = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
}
MEETS: Final = {"yes": "✓", "no": "✖", "perhaps": "?", "": " "}  # a limit of the sizes
# What the time of a pipeline's ranks goes into: field of the view, what it is.
PIPELINE_PARTS: Final = {
    "busy": "work",
    "fill_share": "fill and drain",
    "imbalance_share": "uneven stages",
    "delay_share": "delays",
}
MEETS_LEGEND: Final = "✓ the whole interval is within the limit, ? part of it, ✖ none"

# What an import adds to the reasons.
CLAUSE: Final = "; "
OF_IMPORT: Final = "the import: "
NO_MORE: Final = ", and the trace has no more"


def left_out_ranks(rows: Sequence[RankRow]) -> str:
    """'and 1,020 more ranks, live and on time'; "" where all are shown. No more is said of them than they share."""
    if not rows:
        return ""
    ranks = text_of.count(len(rows), "more rank")
    if any(map(stands_out, rows)):
        return f"and {ranks}, some of them late or lost too"
    return f"and {ranks}, {'live and ' if all(row.state == 'live' for row in rows) else ''}on time"


def pipeline_title(pipeline: PipelineView) -> str:
    """Its schedule and its sizes."""
    name = (pipeline.schedule or "pipeline").removeprefix("Schedule")
    title = (
        f"{name}: {text_of.count(pipeline.num_stages, 'stage')} on {text_of.count(pipeline.num_ranks, 'rank')}, "
        f"{text_of.count(pipeline.num_micro_batches, 'micro-batch', 'micro-batches')}"
    )
    return f"{title}, slowest of {pipeline.num_pipelines} pipelines" if pipeline.num_pipelines > 1 else title


def why_no_pipeline(pipeline: PipelineView) -> str:
    """What is said instead of figures where no stage is known."""
    schedule = pipeline.schedule or "a schedule that is not known"
    return f"The ranks hold stages of a pipeline ({schedule}), but {pipeline.why_unknown}."


def why_no_chart(pipeline: PipelineView) -> str:
    """What stands where the picture of a step would."""
    if pipeline.own_clocks:
        return "no chart: each device timed its chunks by a clock of its own"
    return f"no chart: {pipeline.why_unknown or 'the step has too many chunks to draw'}"


def ideal_source(pipeline: PipelineView) -> str:
    """Where the ideal bubble comes from."""
    if not pipeline.ideal_is_formula:
        return "this order, equal stages"
    return "(p-1)/(v m+p-1)" if pipeline.num_stages > pipeline.num_ranks else "(p-1)/(m+p-1)"


def pipeline_advice(pipeline: PipelineView) -> list[str]:
    """What splitting a stage and more micro-batches would bring, a sentence each."""
    texts = []
    if pipeline.split_stage is not None:
        texts.append(
            f"Split stage {pipeline.split_stage}: at the others' pace a step takes "
            f"{text_of.seconds(pipeline.heavy_loss_s)} less, with its work spread evenly over all stages "
            f"{text_of.seconds(pipeline.even_loss_s)} less."
        )
    wanted = [
        f"{share:.0%} with {text_of.count(num)}".replace("%", " %")
        for share, num in sorted(pipeline.micro_batches_for, reverse=True)
        if num > pipeline.num_micro_batches and share < (pipeline.fill_share or 1.0)
    ]
    if wanted:
        texts.append(
            "With equal stages and more micro-batches, filling and draining takes at most "
            f"{', '.join(wanted)} of them."
        )
    return texts


def collective_figures(one: CollectiveRow) -> tuple[str, ...]:
    """(operation, bytes, calls a step, time, skew, transfer, bandwidth, hidden, last arriver) of one collective."""
    who = (
        text_of.UNKNOWN if one.last_rank is None else f"rank {one.last_rank}, {text_of.share(one.last_share)}"
    )
    return (
        OPERATIONS.get(one.op, one.op.replace("_", " ")),
        text_of.num_bytes(one.num_bytes),
        text_of.significant(one.per_step) if one.per_step % 1 else f"{one.per_step:.0f}",
        text_of.seconds(one.time_s),
        text_of.seconds(one.skew_s),
        text_of.seconds(one.transfer_s),
        text_of.UNKNOWN if one.bytes_s is None else f"{text_of.num_bytes(one.bytes_s)}/s",
        text_of.seconds(one.hidden_s),
        who,
    )


def late_and_waiting(view: RunView, num_waiting: int) -> list[RankRow]:
    """The first ranks that come late, and of those that wait the longest; nobody where nobody is late."""
    known = [rank for rank in view.ranks if any(rank.seconds.values())]
    late = [rank for rank in known if rank.is_culprit][:MOST_CULPRITS]
    waits = [rank for rank in known if not rank.is_culprit and rank.wait_s is not None]
    return [*late, *sorted(waits, key=lambda rank: -(rank.wait_s or 0))[:num_waiting]] if late else []


def size_figures(one: SizeRow, time_unit: str) -> tuple[str, str, str, str]:
    """(time, efficiency, cost, hours) of a size, with intervals where it was not measured."""
    in_seconds = time_unit.startswith("s")
    return (
        text_of.seconds(one.time.expected) if in_seconds else short(one.time.expected),
        _figure(one.efficiency, "{:.2f}".format),
        _figure(one.cost),
        _figure(one.hours),
    )


def _figure(value: Range | None, shown: Callable[[float], str] = short) -> str:
    if value is None:
        return text_of.UNKNOWN
    if value.low == value.high:
        return shown(value.expected)
    return f"{shown(value.expected)} ({shown(value.low)}{text_of.TO}{shown(value.high)})"


def because_of_size(held: Picture) -> str:
    """Why this size, without its name again: "RESCALE to 64 devices  64 devices (predicted ..." would say it twice."""
    size = held.words.partition((held.decision or "keep").upper())[2].removeprefix(" to ").strip()
    return held.because.removeprefix(f"{size} ") if size else held.because


def decided_size(held: Picture) -> tuple[str, str]:
    """The decision about the size and why, to stand one after the other."""
    because = because_of_size(held)
    return held.words, f" {because}" if because.startswith("(") else f": {because}"


def missing_ranks(lost: Losses) -> str:
    """Ranks that nobody recorded, with how many there are beyond those that are named."""
    more = f" and {lost.ranks_missing_more:,} more" if lost.ranks_missing_more else ""
    return f"{text_of.ranks(lost.ranks_missing)}{more}"


def loss_notes(lost: Losses) -> tuple[str, ...]:
    """Return each kind of what was not seen in words; a count that grows is a new text."""
    return (*counted_losses(lost), *lost.notes)


def counted_losses(lost: Losses) -> tuple[str, ...]:
    """What was surely lost, in words; the notes beside it tell of other things as well."""
    counted = (
        (lost.events_dropped, "event", "dropped"),
        (lost.frames_lost, "frame", "lost"),
        (lost.frames_bad, "frame", "unreadable"),
        (lost.hooks_disabled, "hook", "switched off"),
    )
    parts = [f"{text_of.count(number, noun)} {what}" for number, noun, what in counted if number]
    parts += [f"{missing_ranks(lost)} missing"] if lost.ranks_missing else []
    return tuple(parts)


def past_facts(past: PastFinding) -> str:
    """Where a finding stood that is over: its ranks, steps and how grave it was."""
    who = text_of.ranks(past.finding.ranks) if past.finding.ranks else "the whole job"
    times = f", {past.num_times} times" if past.num_times > 1 else ""
    return f"{who} · {text_of.steps(past.first_step, past.last_step)}{times} · {past.finding.severity} then"


def steps_seen(view: RunView) -> str:
    """'steps 0 to 180', of a trace from its first one on; 'no steps' of a run that is over, else 'no steps yet'."""
    first = 0 if view.imported is None else max(view.trend.first_step, 0)
    return "no steps" if view.is_without_steps else text_of.steps(first, view.last_step)


def device_words(view: RunView) -> str:
    """The kind of device, with the clock that the times are from where there are two: "cuda (device clock)"."""
    device = view.run.device
    if not device or device == "cpu" or view.is_without_steps:
        return device or ""
    return f"{device} ({view.clock} clock)"


def reasons(verdict: Verdict) -> str:
    """Why it is so, without what the sentence of an open verdict says already."""
    if verdict.decision is not None:
        return verdict.because
    said = verdict.sentence.casefold()
    left = []
    for clause in verdict.because.split(CLAUSE):
        bare = clause.removeprefix(OF_IMPORT).removesuffix(NO_MORE).rstrip(".")
        if bare.casefold() not in said:
            left.append(clause)
    return CLAUSE.join(left)
