"""The field's terms as they stand on the screens: what each means in one line, and its figure in this run.

In: Shown, what the screens show.  Out: Term and its figure as text; "unknown" where the run does not tell it. A page
names its terms by their key here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.text import format as text_of
from tuiadvisor.views.lost_by import lens_share

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.scaling.picture import Picture
    from tuiadvisor.views.comparison import Comparison
    from tuiadvisor.views.pipeline import PipelineView
    from tuiadvisor.views.run_view import RunView, Straggler

NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Shown:
    """Everything that a term's figure may come from."""

    view: RunView | None = None
    sizes: Picture | None = None
    comparison: Comparison | None = None
    decided: tuple[tuple[str, str], ...] = ()  # of the guided session: gain, cost, break-even, what follows


@dataclass(frozen=True, slots=True)
class Term:
    """A word of the field."""

    word: str  # as it stands on the screen
    means: str  # one line
    figure: Callable[[Shown], str]


def of_view(figure: Callable[[RunView], str]) -> Callable[[Shown], str]:
    """A figure of the run; unknown while nothing of it is seen."""
    return lambda shown: text_of.UNKNOWN if shown.view is None else figure(shown.view)


def of_pipeline(figure: Callable[[PipelineView], str]) -> Callable[[Shown], str]:
    """A figure of its pipeline."""
    return of_view(lambda view: text_of.UNKNOWN if view.pipeline is None else figure(view.pipeline))


def phase_figure(phase: str) -> Callable[[Shown], str]:
    """'4.90 ms, 20 % of a step'."""
    return of_view(
        lambda view: (
            text_of.UNKNOWN
            if view.step.seconds.get(phase) is None
            else f"{text_of.seconds(view.step.seconds.get(phase))}, "
            f"{text_of.share(view.step.shares.get(phase))} of a step"
        )
    )


def wall_figure(kind: str) -> Callable[[Shown], str]:
    """A part of the wall time."""

    def figure(view: RunView) -> str:
        wall = view.wall
        part = next((one for one in wall.waterfall if one.kind == kind), None) if wall else None
        return f"{text_of.seconds(part.seconds)}, {text_of.share(part.share)}" if part else text_of.UNKNOWN

    return of_view(figure)


def worst(view: RunView) -> Straggler | None:
    """The rank that costs the others most."""
    return max(view.stragglers, key=lambda one: one.loss_s_per_step, default=None)


def _straggler(view: RunView) -> str:
    found = worst(view)
    if found is not None:
        return f"rank {found.rank}, {text_of.seconds(found.loss_s_per_step)} a step"
    is_unknown = not view.window.enough or any(entry.metric == "stragglers" for entry in view.unknown)
    return text_of.UNKNOWN if is_unknown else NONE


def _of_ranks(name: str, form: Callable[[float | None], str]) -> Callable[[Shown], str]:
    """The largest of a column, and whose it is."""

    def figure(view: RunView) -> str:
        known = [(value, row.rank) for row in view.ranks if (value := getattr(row, name)) is not None]
        if not known:
            return text_of.UNKNOWN
        value, rank = max(known, key=lambda pair: (pair[0], -pair[1]))
        return f"rank {rank}: {form(value)}" if value else form(value)

    return of_view(figure)


def _efficiency(shown: Shown) -> str:
    """At the devices in use."""
    row = (
        next((one for one in shown.sizes.rows if one.devices == shown.sizes.yours), None)
        if shown.sizes
        else None
    )
    if row is None or row.efficiency is None:
        return text_of.UNKNOWN
    return f"{row.efficiency.expected:.2f} with {text_of.count(row.devices, 'device')}"


def _cost(shown: Shown) -> str:
    row = (
        next((one for one in shown.sizes.rows if one.devices == shown.sizes.yours), None)
        if shown.sizes
        else None
    )
    if row is None or row.cost is None or shown.sizes is None:
        return text_of.UNKNOWN
    return f"{row.cost.expected:,.4g} ({shown.sizes.cost_unit})"


def _noise(shown: Shown) -> str:
    found = shown.comparison
    if found is None:
        return text_of.UNKNOWN
    beyond = [text_of.phase_name(one.phase) for one in found.phases if one.significant]
    return ", ".join(beyond) if beyond else "no phase"


def _speedup(view: RunView) -> str:
    found = view.verdict.speedup
    if found is None:
        return text_of.UNKNOWN
    return f"{text_of.factor(found.expected)} ({text_of.factor(found.low)} to {text_of.factor(found.high)})"


def _finding(name: str) -> Callable[[Shown], str]:
    """Of the finding that the verdict rests on, else of the first."""

    def figure(view: RunView) -> str:
        named = [one for one in view.findings if one.id == view.verdict.finding] or list(view.findings)
        return str(getattr(named[0], name)) if named else NONE

    return of_view(figure)


def _of_lens(lens: str) -> Callable[[Shown], str]:
    """Its share of the wall time."""
    return of_view(lambda view: text_of.share(lens_share(view, lens)))


TERMS: Final = {
    "mean": Term(
        "mean",
        "a steady step, its phases sum to it; warm-up and pauses are left out",
        of_view(
            lambda view: (
                f"{text_of.seconds(view.step.mean_s)} of {text_of.count(view.window.num_steps, 'step')}"
                if view.step.mean_s is not None
                else text_of.UNKNOWN
            )
        ),
    ),
    "p95": Term(
        "p95",
        "one step in twenty takes longer than this",
        of_view(lambda view: text_of.seconds(view.step.p95_s)),
    ),
    "throughput": Term(
        "throughput",
        "work of the whole job a second; may rise though the end comes no sooner",
        of_view(
            lambda view: (
                text_of.rate(view.step.throughput_samples_s, "samples/s")
                if view.step.throughput_samples_s is not None
                else text_of.rate(view.step.throughput_steps_s, "steps/s")
            )
        ),
    ),
    "slowed": Term(
        "evened out",
        "the step over one with all ranks at their mean; above 1.1 somebody straggles",
        of_view(lambda view: text_of.factor(view.slowdown)),
    ),
    "data_wait": Term("data wait", "a rank waits for its next batch", phase_figure("data_wait")),
    "exposed": Term(
        "exposed",
        "communication that no compute hides, waiting for late ranks included",
        phase_figure("comm_exposed"),
    ),
    "straggler": Term(
        "arrives last",
        "the straggler: all others wait for it, so it looks least idle itself",
        of_view(_straggler),
    ),
    "next": Term(
        "next constraint",
        "what limits the step once the largest loss is gone",
        of_view(
            lambda view: (
                text_of.phase_name(view.verdict.next_constraint)
                if view.verdict.next_constraint
                else text_of.UNKNOWN
            )
        ),
    ),
    "goodput": Term(
        "goodput",
        "useful steps, share of the wall time; busy devices may have little of it",
        of_view(lambda view: text_of.share(view.useful_share)),
    ),
    "waits": Term(
        "waits",
        "time a step waited for later ranks: the mark of a victim, not a culprit",
        _of_ranks("wait_s", text_of.seconds),
    ),
    "causes": Term(
        "causes",
        "how long each of the others waits for this rank a step, mean over them",
        _of_ranks("caused_each_s", text_of.seconds),
    ),
    "last": Term(
        "last",
        "share of the steps in which it came last to the gradient barrier",
        _of_ranks("last_arrivals", text_of.share),
    ),
    "overlap": Term(
        "overlap",
        "share of the communication that compute hides",
        of_view(lambda view: text_of.share(view.overlap.overlap)),
    ),
    "hidden": Term(
        "hidden",
        "communication behind compute: it costs the step nothing",
        of_view(lambda view: text_of.seconds(view.overlap.hidden_s)),
    ),
    "skew": Term(
        "skew",
        "exposed, waiting until the last rank arrives: no network shortens it",
        of_view(lambda view: text_of.seconds(view.overlap.skew_s)),
    ),
    "transfer": Term(
        "transfer",
        "exposed, moving data once all have arrived: the network's part",
        of_view(lambda view: text_of.seconds(view.overlap.transfer_s)),
    ),
    "collectives": Term(
        "collectives",
        "operations of all ranks together, as all-reduce: the last holds up all",
        of_view(
            lambda view: text_of.count(len(view.collectives), "kind") if view.collectives else text_of.UNKNOWN
        ),
    ),
    "stages": Term(
        "stages",
        "parts of the model, each on its own rank; the slowest sets the pace",
        of_pipeline(
            lambda held: text_of.count(held.num_stages, "stage") if held.num_stages else text_of.UNKNOWN
        ),
    ),
    "micro_batches": Term(
        "micro-batches",
        "parts of a batch, one behind the other; more of them, less bubble",
        of_pipeline(
            lambda held: text_of.count(held.num_micro_batches) if held.num_micro_batches else text_of.UNKNOWN
        ),
    ),
    "bubble": Term(
        "bubble",
        "idle share of the pipeline's time, all its ranks together",
        of_pipeline(lambda held: text_of.share(held.bubble)),
    ),
    "ideal": Term(
        "ideal",
        "the bubble of equal stages with free sends, p stages, m micro-batches",
        of_pipeline(lambda held: text_of.share(held.ideal_bubble)),
    ),
    "uneven": Term(
        "uneven stages",
        "the part of the bubble that equal stages would not have",
        of_pipeline(lambda held: text_of.share(held.imbalance_share)),
    ),
    "useful": Term("useful", "steps that brought the result nearer", wall_figure("useful")),
    "startup": Term("start-up", "from the start of the process to its first step", wall_figure("startup")),
    "warmup": Term("warm-up", "what the first, slower steps took beyond steady ones", wall_figure("warmup")),
    "mfu": Term(
        "MFU",
        "FLOPs a second that the model needs, over the devices' dense peak",
        of_view(lambda view: text_of.share(view.efficiency.mfu if view.efficiency else None)),
    ),
    "hfu": Term(
        "HFU",
        "the same with what backward computes again: above MFU by recomputation alone",
        of_view(lambda view: text_of.share(view.efficiency.hfu if view.efficiency else None)),
    ),
    "roof": Term(
        "roof",
        "the most a kernel can reach, by peak compute or memory bandwidth",
        of_view(
            lambda view: (
                f"memory-bound below {text_of.significant(view.efficiency.ridge_flop_byte)} FLOP a byte"
                if view.efficiency is not None and view.efficiency.ridge_flop_byte is not None
                else text_of.UNKNOWN
            )
        ),
    ),
    "efficiency": Term(
        "efficiency",
        "speed-up over devices: 1 where twice the devices take half the time",
        _efficiency,
    ),
    "cost": Term("cost", "devices x hours x price: rises wherever efficiency falls", _cost),
    "noise": Term(
        "beyond noise",
        "a change larger than two runs of the same code differ by (95 %)",
        _noise,
    ),
    "steady": Term(
        "steady step",
        "a step without warm-up, checkpoint, evaluation: only these compare",
        of_view(lambda view: text_of.seconds(view.step.mean_s or view.step.median_s)),
    ),
    "gain": Term(
        "gain", "how much faster a step is without what was found, with its interval", of_view(_speedup)
    ),
    "break_even": Term(
        "break-even",
        "after so many steps a change has saved what it cost",
        lambda shown: dict(shown.decided).get("break-even", text_of.UNKNOWN),
    ),
    "verdict": Term(
        "verdict",
        "tune the bottleneck, rescale to other devices, stop, or keep as it is",
        of_view(lambda view: view.decided.decision or "not yet"),
    ),
    "pattern": Term("pattern", "one of six ways in which performance is lost, P1 to P6", _finding("pattern")),
    "lens": Term(
        "lens", "balance, amortize, co-design, purpose: what kind of constraint it is", _finding("lens")
    ),
    "waiting": Term(
        "lost to waiting",
        "wall time of waiting for data or for other ranks (the lens of balance)",
        _of_lens("L-BALANCE"),
    ),
    "overheads": Term(
        "to overheads",
        "start-up, communication, checkpoints, restarts (the lens of amortizing)",
        _of_lens("L-AMORT"),
    ),
    "layer": Term(
        "layer", "where the cheapest fix lies: storage, network, scheduler, ...", _finding("layer")
    ),
    "evidence": Term(
        "evidence",
        "what a finding was measured by; not observed is unknown, never 0",
        of_view(lambda view: text_of.count(len(view.findings), "finding")),
    ),
}


def terms_of(names: tuple[str, ...]) -> tuple[Term, ...]:
    """The terms of a page, in its order."""
    return tuple(TERMS[name] for name in names)
