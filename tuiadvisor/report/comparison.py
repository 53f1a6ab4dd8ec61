"""A Comparison as the JSON document of `compare --json`, schema 1: keys may be added, never changed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuiadvisor.report.document import Document
    from tuiadvisor.views.comparison import Change, Comparison, RunSide


def comparison_document(comparison: Comparison) -> Document:
    """The document; ratios are after / before of a time, so above 1 is slower; unknown is null."""
    return {
        "schema": comparison.schema,
        "verdict": comparison.verdict,
        "sentence": comparison.sentence,
        "reasons": list(comparison.reasons),
        "cautions": list(comparison.cautions),
        "basis": comparison.basis,
        "confidence": 0.95,
        "noise_floor": comparison.noise_floor,
        "smallest_detectable": comparison.smallest_detectable,
        "change": _change(comparison.change),
        "steady_step": _change(comparison.steady),
        "every_step": _change(comparison.every_step),
        "throughput": _change(comparison.throughput),
        "before": _side(comparison.before),
        "after": _side(comparison.after),
        "phases": [asdict(entry) for entry in comparison.phases],
        "bottleneck": asdict(comparison.bottleneck),
        "findings": [
            {
                **asdict(entry),
                "ranks_before": list(entry.ranks_before),
                "ranks_after": list(entry.ranks_after),
            }
            for entry in comparison.findings
        ],
        "environment": [asdict(entry) for entry in comparison.environment],
        "goodput": asdict(comparison.goodput) if comparison.goodput else None,
        "spread": asdict(comparison.spread) if comparison.spread else None,
        "distribution": asdict(comparison.distribution) if comparison.distribution else None,
        "fail_if_slower": asdict(comparison.gate) if comparison.gate else None,
    }


def _change(change: Change) -> Document:
    return {
        "before_s": change.before,
        "after_s": change.after,
        "ratio": {"expected": change.ratio, "low": change.low, "high": change.high},
        "significant": change.significant,
    }


def _side(side: RunSide) -> Document:
    return {
        "file": side.path,
        "label": side.label,
        "hosts": list(side.hosts),
        "unit": asdict(side.unit),
        "steps": {"steady": side.num_steady_steps, "all": side.num_steps},
        "step": {"mean_s": side.step_s, "p95_s": side.p95_s, "mean_with_pauses_s": side.every_step_s},
        "judged": {"mean_s": side.judged_s, "steps": side.judged_steps},
        "throughput": asdict(side.rates),
        "machine": asdict(side.load) if side.load else None,
    }
