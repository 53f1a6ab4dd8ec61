"""What one run says about other sizes, as a JSON document and as text. ASCII, one line a size."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.scaling.decide import sized
from tuiadvisor.scaling.document import bounds, number

if TYPE_CHECKING:
    from tuiadvisor.scaling.onerun import OneRun, Sized

PARTS: Final = (
    ("compute", "compute_s"),
    ("exposed communication", "transfer_s"),
    ("hidden communication", "hidden_s"),
    ("waiting for stragglers", "skew_s"),
    ("waiting for data", "data_wait_s"),
    ("optimizer, pauses and other", "fixed_s"),
)


def one_run_document(name: str, found: OneRun) -> dict[str, Any]:
    """Schema 1; `bounds` are the best and the worst case, no statistical interval."""
    return {
        "schema": 1,
        "source": "one run",
        "name": name,
        "rows": [{"devices": found.parts.devices, "time": number(found.parts.step_s)}],
        "parts": {
            key: number(value) if isinstance(value, float) else value
            for key, value in asdict(found.parts).items()
        },
        "predictions": [_prediction(one) for one in found.sizes],
        "refused": [{"devices": devices, "why": why} for devices, why in found.refused],
        "assumed": list(found.assumed),
        "decision": asdict(found.decision),
    }


def _prediction(one: Sized) -> dict[str, Any]:
    return {
        "devices": one.devices,
        "mode": one.mode,
        "time": bounds(one.step_s),
        "efficiency": bounds(one.efficiency),
        "throughput": bounds(one.throughput),
        "exposed_share": bounds(one.exposed_share),
    }


def one_run_text(name: str, found: OneRun) -> str:
    """For people."""
    parts = found.parts
    told = [
        f"{words} {'unknown' if getattr(parts, key) is None else _ms(getattr(parts, key))}"
        for words, key in PARTS
    ]
    hosts = "1 host" if parts.num_hosts == 1 else f"{parts.num_hosts} hosts"
    lines = [
        f"{name}: one run, {sized(parts.devices)} on {hosts}, step {_ms(parts.step_s)}",
        *([f"  of {parts.steps}"] if parts.steps else []),
        f"  {', '.join(told[:3])},",
        f"  {', '.join(told[3:])}",
        "",
        f"{'devices':>8} {'batch':>10} {'step':>10} {'bounds':>21} {'eff.':>5} {'bounds':>12} {'throughput':>12}",
    ]
    for one in found.sizes:
        batch = "a device" if one.mode == "weak" else "in total"
        lines.append(
            f"{one.devices:>8} {batch:>10} {_ms(one.step_s.expected):>10} "
            f"{_ms(one.step_s.low) + ' .. ' + _ms(one.step_s.high):>21} {one.efficiency.expected:>5.2f} "
            f"{f'{one.efficiency.low:.2f} .. {one.efficiency.high:.2f}':>12} "
            f"{f'{one.throughput.low:.2f} .. {one.throughput.high:.2f} x':>12}"
        )
    lines += [f"refused: {sized(devices)}: {why}" for devices, why in found.refused]
    lines += ["", *(f"assumed: {text}" for text in found.assumed)]
    decision = found.decision
    lines.append(f"{decision.decision.upper()} {sized(decision.devices or 0)}: {decision.because}")
    return "\n".join(lines) + "\n"


def _ms(value: float) -> str:
    return f"{1e3 * value:.4g} ms" if value < 1 else f"{value:.4g} s"
