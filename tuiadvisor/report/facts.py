"""What a report says in words and figures, shared by its HTML and its Markdown.

In: RunView, Comparison.  Out: rows of text; "unknown" where nothing was observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.text import format as text_of
from tuiadvisor.text.goodput import late_words, name_of, notes
from tuiadvisor.text.wording import (
    MEETS,
    PIPELINE_PARTS,
    collective_figures,
    counted_losses,
    device_words,
    ideal_source,
    size_figures,
)
from tuiadvisor.views.goodput import kind_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.picture import Picture
    from tuiadvisor.views.comparison import Comparison
    from tuiadvisor.views.goodput import Goodput
    from tuiadvisor.views.pipeline import PipelineView
    from tuiadvisor.views.run_view import Losses, RankRow, RunView

DECISIONS: Final = {"tune": "tune", "rescale": "rescale", "stop": "stop", "keep": "keep", "hang": "hang"}
MAX_RANKS: Final = 64
MAX_PARTS: Final = 16  # cards and disks, each once


def decision_word(view: RunView) -> str:
    """The decision; without one whether more steps would bring it, as the screens' badge says."""
    decision = view.decided.decision
    if decision in DECISIONS:
        return DECISIONS[decision]
    return "open" if view.window.why_undecided else "not yet"


def sentence(view: RunView) -> str:
    """The verdict without the decision, which stands before it."""
    text = view.decided.sentence or "no verdict yet"
    word, colon, rest = text.partition(":")
    return rest.strip() if colon and word.lower() == view.decided.decision else text


def step_facts(view: RunView) -> list[tuple[str, str]]:
    """The step in a handful of figures."""
    step = view.step
    rows = [
        ("mean step", text_of.seconds(step.mean_s)),
        ("95th percentile", text_of.seconds(step.p95_s)),
        ("throughput", text_of.rate(step.throughput_steps_s, "steps/s")),
    ]
    for value, unit in ((step.throughput_samples_s, "samples/s"), (step.throughput_tokens_s, "tokens/s")):
        if value is not None:
            rows.append(("throughput", text_of.rate(value, unit)))
    return [
        *rows,
        ("faster with the ranks' work evened out", text_of.factor(view.slowdown)),
        (name_of(view), text_of.share(view.useful_share)),
        ("cost of the probes", text_of.at_least(view.probe_cost)),
    ]


def goodput_rows(wall: Goodput) -> list[tuple[str, str, str]]:
    """Part, time and share of the wall time, in its order."""
    return [
        (kind_words(part.kind), text_of.seconds(part.seconds), text_of.share(part.share))
        for part in wall.waterfall
    ]


def goodput_notes(view: RunView) -> list[str]:
    """What belongs beside the figure: what it leaves out, and for whom the others waited in turn."""
    late = late_words(view)
    return [*(notes(view.wall) if view.wall else []), *([late] if late else [])]


def window_note(view: RunView) -> str:
    """The steps that figures are from, and those that were left out."""
    window = view.window
    left_out = text_of.left_out(window.excluded)
    if view.is_without_steps:
        return "No step was seen."
    note = f"Mean over ranks, {text_of.steps(window.first_step, window.last_step)}"
    note += f", without {left_out}" if left_out else ""
    return f"{note} ({window.change})." if window.change else f"{note}."


def nothing_found(view: RunView) -> str:
    """What stands where findings would."""
    if view.window.enough:
        return "Nothing found that is worth acting on."
    if view.window.why_undecided:
        return f"Not decided: {view.window.why_undecided}."
    if view.window.no_step_words:
        return f"Not enough yet: {view.window.no_step_words}"
    return f"Not enough yet: {text_of.count(view.window.num_missing_steps, 'more step')}."


def rank_rows(ranks: Sequence[RankRow]) -> list[tuple[str, ...]]:
    """(rank, host, state, step, waits, causes, arrives last, main phase) of each."""
    rows: list[tuple[str, ...]] = []
    for rank in ranks:
        share, phase = max(
            ((value, name) for name, value in rank.shares.items() if value), default=(None, "")
        )
        state = f"{rank.state}: {rank.why_no_figures}" if rank.why_no_figures else rank.state
        rows.append(
            (
                f"{'▶ ' if rank.is_culprit else ''}{rank.rank}",
                rank.host or text_of.UNKNOWN,
                state.replace("_", " "),
                text_of.seconds(rank.step_s),
                text_of.seconds(rank.wait_s),
                text_of.seconds(rank.caused_each_s),
                text_of.share(rank.last_arrivals),
                f"{text_of.phase_name(phase)} {text_of.share(share)}" if phase else text_of.UNKNOWN,
            )
        )
    return rows


def overlap_facts(view: RunView) -> list[tuple[str, str]]:
    """Communication: exposed and why, hidden."""
    overlap = view.overlap
    return [
        ("exposed communication a step", text_of.seconds(overlap.comm_exposed_s)),
        ("exposed: waiting for the last rank", text_of.seconds(overlap.skew_s)),
        ("exposed: moving data", text_of.seconds(overlap.transfer_s)),
        ("hidden behind compute, of all communication", text_of.share(overlap.overlap)),
        ("steps in which that was seen", text_of.share(overlap.sampled_share)),
    ]


def pipeline_facts(pipeline: PipelineView) -> list[tuple[str, str]]:
    """The bubble, its parts and what it is compared with."""
    rows = [
        ("bubble, measured", text_of.share(pipeline.bubble)),
        (f"bubble, ideal: {ideal_source(pipeline)}", text_of.share(pipeline.ideal_bubble)),
        ("a step's pipeline, first chunk to last", text_of.seconds(pipeline.span_s)),
    ]
    return rows + [
        (f"of the ranks' time: {name}", text_of.share(getattr(pipeline, field)))
        for field, name in PIPELINE_PARTS.items()
    ]


COLLECTIVE_HEADS: Final = (
    "operation", "bytes", "a step", "time", "skew", "transfer", "bandwidth", "hidden", "last arriver",
)  # fmt: skip
MAX_COLLECTIVES: Final = 32


def collective_rows(view: RunView) -> list[tuple[str, ...]]:
    """Each operation of one size, below COLLECTIVE_HEADS."""
    return [collective_figures(one) for one in view.collectives[:MAX_COLLECTIVES]]


SIZE_HEADS: Final = ("devices", "", "time", "efficiency", "cost", "hours", "in time", "in budget")


def size_rows(held: Picture) -> list[tuple[str, ...]]:
    """One row a size, below SIZE_HEADS."""
    rows: list[tuple[str, ...]] = []
    for one in held.rows:
        kind = "measured" if one.is_measured else "expected"
        kind = "yours" if one.is_measured and one.devices == held.yours else kind
        limits = (MEETS[one.in_time], MEETS[one.in_budget])
        rows.append((f"{one.devices:,}", kind, *size_figures(one, held.time_unit), *limits))
    return rows


WHAT_IF_NOTE: Final = (
    "The mean holds the late rank too, so these say less than the verdict, which compares it with its peers. A part "
    "may exceed the whole where a rank is late in one phase and early in another."
)


def what_if_facts(view: RunView) -> list[tuple[str, str]]:
    """The step re-simulated: slowdown with only one phase or rank as measured, the rest ideal."""
    found = view.what_if
    if found is None:
        return []
    rows = [("S: the job against every rank at the ranks' mean", text_of.factor(found.S))]
    phases = sorted(found.S_t.items(), key=lambda pair: -pair[1])[:6]
    rows += [
        (f"with only {text_of.phase_name(phase)} as measured", text_of.factor(value))
        for phase, value in phases
    ]
    ranks = sorted(found.S_w.items(), key=lambda pair: -pair[1])[:4]
    rows += [(f"with only rank {rank} as measured", text_of.factor(value)) for rank, value in ranks]
    if found.M_W is not None:
        rows.append(("share of it gone with the slowest 3 % of the ranks", text_of.share(found.M_W)))
    if found.M_S is not None:
        rows.append(("share of it gone with the last pipeline stage", text_of.share(found.M_S)))
    return rows


def environment_facts(view: RunView) -> list[tuple[str, str]]:
    """Software, layout, command."""
    info = view.run
    layout = " · ".join(f"{name} {size}" for name, size in sorted(info.parallel.items()))
    hosts = ", ".join(info.hosts[:16]) + (f" and {len(info.hosts) - 16} more" if len(info.hosts) > 16 else "")
    rows = [
        ("command", info.command or text_of.UNKNOWN),
        ("hosts", hosts or text_of.UNKNOWN),
        ("torch", info.torch or text_of.UNKNOWN),
        ("python", info.python or text_of.UNKNOWN),
        ("backend", info.backend or text_of.UNKNOWN),
        ("device", device_words(view) or text_of.UNKNOWN),
    ]
    rows += [("layout", layout)] if layout else []
    models = dict.fromkeys(host.cpu_model for host in view.hosts if host.cpu_model)
    rows += [("processor", ", ".join(models))] if models else []
    for name, field in (("network cards", "network_cards"), ("storage", "storage")):
        told = dict.fromkeys(each for host in view.hosts for each in getattr(host, field))
        rows += [(name, ", ".join(list(told)[:MAX_PARTS]))] if told else []
    return rows + sorted(info.software.items())


def losses_rows(lost: Losses) -> list[tuple[str, str]]:
    """(name, text) of what was lost and of what has to be known of the figures; nothing without either."""
    rows = [("Lost", "; ".join(counted_losses(lost))), ("Notes", "; ".join(lost.notes))]
    return [row for row in rows if row[1]]


def change_rows(comparison: Comparison) -> list[tuple[str, str, str, str]]:
    """(what, before, after, change) of the step and its phases; * beyond noise."""
    before, after = comparison.before, comparison.after
    rows = [
        (
            "steady step",
            text_of.seconds(before.step_s),
            text_of.seconds(after.step_s),
            _ratio(comparison.steady.ratio),
        ),
        (
            "pauses included",
            text_of.seconds(before.every_step_s),
            text_of.seconds(after.every_step_s),
            _ratio(comparison.every_step.ratio),
        ),
    ]
    if comparison.goodput is not None:
        old, new = comparison.goodput.shown
        rows.append(
            (comparison.goodput.name, text_of.share(old), text_of.share(new), comparison.goodput.answer)
        )
    for entry in comparison.phases:
        if entry.before_s or entry.after_s:
            change = text_of.seconds(entry.change_s)
            sign = "+" if entry.change_s is not None and entry.change_s > 0 else ""
            star = " *" if entry.significant else ""
            rows.append(
                (
                    text_of.phase_name(entry.phase),
                    text_of.seconds(entry.before_s),
                    text_of.seconds(entry.after_s),
                    f"{sign}{change}{star}",
                )
            )
    return rows


def _ratio(ratio: float | None) -> str:
    return text_of.UNKNOWN if ratio is None else f"{ratio:.3f}{text_of.TIMES}"
