"""A run's figures as a flat dict, and into whichever experiment tracker is at work: W&B, MLflow, TensorBoard.

What is not known is absent, never 0.
"""

from __future__ import annotations

import logging
import math
import sys
from typing import Any, Final

logger: Final = logging.getLogger("tuiadvisor")
PREFIX: Final = "tuiadvisor/"
Summary = dict[str, float | str]

# Name -> where the document of `diagnose --json` has it.
FIGURES: Final = {
    "step_median_s": ("step", "median_s"),
    "step_p95_s": ("step", "p95_s"),
    "steps_per_s": ("step", "throughput_steps_s"),
    "samples_per_s": ("step", "throughput_samples_s"),
    "tokens_per_s": ("step", "throughput_tokens_s"),
    "communication_overlap": ("overlap", "overlap"),
    "communication_exposed_s": ("overlap", "comm_exposed_s"),
    "goodput": ("goodput", "end_to_end"),
    "goodput_window": ("goodput", "value"),
    "slowdown": ("stragglers", "slowdown"),
    "mfu": ("efficiency", "mfu"),
    "decision": ("verdict", "decision"),
    "verdict": ("verdict", "sentence"),
}


def summary(document: dict[str, Any]) -> Summary:
    """Figures and verdict of a document of `diagnose --json` (`Run.diagnose()`), by names that trackers take."""
    found: Summary = {}
    for name, (section, key) in FIGURES.items():
        value = (document.get(section) or {}).get(key)
        if isinstance(value, str) or (isinstance(value, (int, float)) and math.isfinite(value)):
            found[PREFIX + name] = value
    serious = [
        one for one in document.get("findings") or () if one.get("severity") in {"warning", "critical"}
    ]
    found[f"{PREFIX}findings"] = ", ".join(sorted({str(one["id"]) for one in serious}))
    return found


def numbers(figures: Summary) -> dict[str, float]:
    """Those that can be plotted."""
    return {name: value for name, value in figures.items() if not isinstance(value, str)}


def send(figures: Summary, writer: Any = None) -> list[str]:
    """To the W&B run and the MLflow run of this process, and to a TensorBoard writer; who took it.

    What a tracker raises is a warning: the training is not ended by it.
    """
    takers = {"wandb": _to_wandb, "mlflow": _to_mlflow}
    told = []
    for name, take in takers.items():
        module = sys.modules.get(name)  # not imported: not in use
        if module is not None and _tried(name, take, module, figures):
            told.append(name)
    if writer is not None and _tried("tensorboard", _to_tensorboard, writer, figures):
        told.append("tensorboard")
    return told


def _tried(name: str, take: Any, target: Any, figures: Summary) -> bool:
    try:
        return bool(take(target, figures))
    except Exception:  # a tracker's own trouble
        logger.exception("tuiadvisor: %s took no summary", name)
        return False


def _to_wandb(wandb: Any, figures: Summary) -> bool:
    if wandb.run is None:
        return False
    wandb.run.summary.update(figures)
    return True


def _to_mlflow(mlflow: Any, figures: Summary) -> bool:
    if mlflow.active_run() is None:
        return False
    mlflow.log_metrics(numbers(figures))
    mlflow.set_tags({name: value for name, value in figures.items() if isinstance(value, str)})
    return True


def _to_tensorboard(writer: Any, figures: Summary) -> bool:
    for name, value in figures.items():
        if isinstance(value, str):
            writer.add_text(name, value)
        else:
            writer.add_scalar(name, value)
    return True
