"""A run as Prometheus metrics: every figure is the screens' own, and what is not known is no sample, never a zero.

In: RunView.  Out: metric families of prometheus_client. Base units; names end in their unit. The label `job` is on
every sample; beyond MAX_RANKS ranks only those that stand out have samples of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from tuiadvisor.errors import one_line
from tuiadvisor.views.finding_keys import keyed
from tuiadvisor.views.shown_ranks import shown_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from tuiadvisor.views.run_view import Finding, RankRow, RunView

PREFIX: Final = "tuiadvisor_"
MAX_RANKS: Final = 64  # a series a rank and metric: a job of thousands would flood the server that keeps them
MAX_LABEL: Final = 200  # characters; labels come from other people's command lines
DECISIONS: Final = ("tune", "rescale", "stop", "keep", "hang", "undecided")
UNNAMED: Final = "unnamed"

# Name as DCGM's field, words, the field of RankDevice, and what makes base units of it.
DEVICE_FIELDS: Final = (
    (
        "device_gpu_utilization_ratio",
        "Time with any kernel at all (DCGM_FI_DEV_GPU_UTIL)",
        "utilization",
        1.0,
    ),
    ("device_sm_active_ratio", "Time in which SMs have work (DCGM_FI_PROF_SM_ACTIVE)", "sm_active", 1.0),
    (
        "device_pipe_tensor_active_ratio",
        "Time in which tensor cores work (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE)",
        "tensor_active",
        1.0,
    ),
    ("device_dram_active_ratio", "Of the memory's peak rate (DCGM_FI_PROF_DRAM_ACTIVE)", "dram_active", 1.0),
    ("device_sm_clock_hertz", "Clock of the SMs (DCGM_FI_DEV_SM_CLOCK)", "clock_mhz", 1e6),
    ("device_power_usage_watts", "Power (DCGM_FI_DEV_POWER_USAGE)", "power_w", 1.0),
    ("device_throttle_seconds", "Time in which the clock was held back", "throttle_s", 1.0),
)

# Names that samples have already, or that Prometheus keeps for itself.
TAKEN: Final = frozenset(
    [
        "job",
        "phase",
        "of",
        "kind",
        "decision",
        "state",
        "rank",
        "host",
        "cause",
        "finding",
        "severity",
        "pattern",
        "ranks",
        "torch",
        "python",
        "backend",
        "device",
        "clock",
        "version",
        "le",
        "quantile",
    ]
)
MAX_LABELS: Final = 8  # of the user's own

_Sample = tuple[tuple[str, ...], float | None]  # label values behind `job`, and the value; None: not known


def families(view: RunView, version: str) -> list[Metric]:
    """All that is known of the run at this moment; families without a sample are left out."""
    job = label(view.run.label or UNNAMED)
    found = [_info(view, job, version)]
    found += [_gauge(job, *spec) for spec in (*_of_job(view), *_of_ranks(view), *_of_findings(view))]
    found += [_counter(job, name, text, value) for name, text, value in _counters(view)]
    return [family for family in found if family.samples]


def labelled(found: Iterable[Metric], labels: Mapping[str, str]) -> list[Metric]:
    """The families with these labels on each sample, too."""
    families = list(found)
    for family in families:
        family.samples = [one._replace(labels={**one.labels, **labels}) for one in family.samples]
    return families


def label(text: str) -> str:
    """A label's value: one line of bounded length."""
    return one_line(text)[:MAX_LABEL]


def _info(view: RunView, job: str, version: str) -> Metric:
    run = view.run
    known = {"torch": run.torch, "python": run.python, "backend": run.backend, "device": run.device}
    facts = {name: label(value) for name, value in known.items() if value}
    info = InfoMetricFamily(f"{PREFIX}run", "What is watched, and by which version")
    info.add_metric([], {"job": job, "version": version, "clock": view.clock, **facts})
    return info


_Spec = tuple[str, str, tuple[str, ...], "Sequence[_Sample]"]


def _of_job(view: RunView) -> Iterator[_Spec]:
    step, overlap, wall = view.step, view.overlap, view.wall
    yield "step_median_seconds", "Median time of a steady step", (), [((), step.median_s)]
    yield "step_p95_seconds", "95th percentile of the steady steps' times", (), [((), step.p95_s)]
    yield "step_mean_seconds", "Mean time of a steady step: what the phases sum to", (), [((), step.mean_s)]
    for unit in ("steps", "samples", "tokens"):
        # A rate is of now: one of a run that has ended would be drawn as a training that goes on.
        rate = None if view.ended else getattr(step, f"throughput_{unit}_s")
        yield (
            f"{unit}_per_second",
            f"Throughput of the whole job in {unit}, pauses included",
            (),
            [((), rate)],
        )
    phases = [((name,), value) for name, value in step.seconds.items()]
    yield "phase_seconds", "Time of a step in a phase, mean over ranks", ("phase",), phases
    yield "communication_overlap_ratio", "Communication that compute hides", (), [((), overlap.overlap)]
    yield (
        "communication_exposed_seconds",
        "Communication of a step that nothing hides, mean over ranks",
        (),
        [((), overlap.comm_exposed_s)],
    )
    yield (
        "communication_transfer_seconds",
        "Its part after the last rank has arrived",
        (),
        [((), overlap.transfer_s)],
    )
    yield "communication_wait_seconds", "Its part that waits for the last rank", (), [((), overlap.skew_s)]
    goodput = [
        (("end_to_end",), wall.end_to_end if wall else None),
        (("steady",), wall.steady if wall else None),
        (("window",), view.goodput),
    ]
    yield "goodput_ratio", "Useful share of the time", ("of",), goodput
    parts = [((part.kind,), part.seconds) for part in wall.waterfall] if wall else []
    yield "wall_seconds", "Where the wall time of the job went", ("kind",), parts
    efficiency = view.efficiency
    yield "mfu_ratio", "Model FLOPs utilization", (), [((), efficiency.mfu if efficiency else None)]
    yield "hfu_ratio", "Hardware FLOPs utilization", (), [((), efficiency.hfu if efficiency else None)]
    yield (
        "slowdown_ratio",
        "Mean step against ranks that all work like their peers",
        (),
        [((), view.slowdown)],
    )
    pauses = Counter[str]()
    for pause in view.pauses:
        pauses[pause.kind] += pause.share or 0.0  # type: ignore[assignment]
    known = all(pause.share is not None for pause in view.pauses)
    shares = [((kind,), float(share)) for kind, share in pauses.items()] if known else []
    yield "pause_ratio", "Share of the window's time in pauses of a kind", ("kind",), shares
    yield "probe_cost_ratio", "Share of the step that the probes take", (), [((), view.probe_cost)]
    yield "last_step", "Number of the last step seen", (), [((), _number(view.last_step))]
    yield "ended", "1 once the run has ended", (), [((), float(bool(view.ended)))]
    decision = view.decided.decision or "undecided"
    decisions = [((name,), float(name == decision)) for name in DECISIONS]
    yield "verdict", "1 for the decision that stands", ("decision",), decisions
    speedup = view.decided.speedup
    yield "speedup_ratio", "Expected by the verdict", (), [((), speedup.expected if speedup else None)]


def _of_ranks(view: RunView) -> Iterator[_Spec]:
    states = Counter(row.state for row in view.ranks)
    yield "ranks", "Ranks in each state", ("state",), [((name,), float(num)) for name, num in states.items()]
    shown = told_ranks(view.ranks)
    each = ("rank", "host")

    def of(name: str) -> list[_Sample]:
        return [((str(row.rank), label(row.host)), getattr(row, name)) for row in shown]

    yield "rank_step_seconds", "Mean step of a rank", each, of("step_s")
    yield "rank_wait_seconds", "What a rank waits for later ranks", each, of("wait_s")
    yield (
        "rank_caused_wait_seconds",
        "What all others wait for a rank",
        each,
        of("caused_wait_s"),
    )
    yield from _of_devices(view, {row.rank: row.host for row in shown})
    late = [((str(one.rank), one.cause), one.loss_s_per_step) for one in view.stragglers[:MAX_RANKS]]
    yield "straggler_loss_seconds", "What a rank that others wait for costs a step", ("rank", "cause"), late


def _of_devices(view: RunView, hosts: Mapping[int, str]) -> Iterator[_Spec]:
    """What each shown rank's device did, called as DCGM calls it, in base units; means over the recording."""
    shown = [one for one in view.rank_devices if one.rank in hosts]
    for name, text, attribute, factor in DEVICE_FIELDS:
        told = [
            ((str(one.rank), label(hosts[one.rank])), None if value is None else value * factor)
            for one in shown
            for value in (getattr(one, attribute),)
        ]
        yield name, text, ("rank", "host"), told


def told_ranks(rows: tuple[RankRow, ...]) -> list[RankRow]:
    """All of a small job; of a larger one those that stand out, the culprits first."""
    return list(shown_ranks(rows, MAX_RANKS)[0])


def _of_findings(view: RunView) -> Iterator[_Spec]:
    names = ("finding", "severity", "pattern", "ranks")
    told = [(_names_of(key, finding), finding) for key, finding in keyed(view.findings).items()]
    yield "finding", "1 for each finding that is open", names, [(key, 1.0) for key, _ in told]
    losses = [(key, finding.loss_s_per_step) for key, finding in told]
    yield "finding_loss_seconds", "What a finding costs a step", names, losses


def _names_of(key: str, finding: Finding) -> tuple[str, ...]:
    ranks = ",".join(map(str, finding.ranks[:8])) + (",..." if len(finding.ranks) > 8 else "")
    return key, finding.severity, finding.pattern, ranks


def _counters(view: RunView) -> Iterable[tuple[str, str, int]]:
    losses = view.losses
    return (
        ("events_dropped", "Events that the probes' rings had no room for", losses.events_dropped),
        ("frames_lost", "Frames that never arrived", losses.frames_lost),
        ("frames_bad", "Frames that were damaged", losses.frames_bad),
    )


def _gauge(job: str, name: str, text: str, names: tuple[str, ...], samples: Sequence[_Sample]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=("job", *names))
    seen = set()
    for key, value in samples:
        if value is not None and math.isfinite(value) and key not in seen:
            seen.add(key)
            family.add_metric([job, *key], float(value))
    return family


def _counter(job: str, name: str, text: str, value: int) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=("job",))
    family.add_metric([job], value)
    return family


def _number(value: int | None) -> float | None:
    return None if value is None else float(value)
