"""Questions that the recording answers itself: nobody is asked what was seen.

In: Facts.  Out: answers with what they rest on. Between two thresholds a measurement decides nothing, and is asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.views.measured import Measured, of_hosts, without_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.views.run_view import Finding

STACKS: Final = "sampled_stacks"
INPUT_BOUND: Final = "input_bound"  # the finding whose evidence has the looks at whoever reads for all ranks


def measured_answers(run: Facts) -> dict[str, Measured]:
    """By the question's id."""
    stacks = _stacks(run)
    return of_hosts(run) | ({} if stacks is None else {STACKS: stacks})


def with_measured(run: Facts, answers: Mapping[str, str | float]) -> dict[str, str | float]:
    """What was answered, and what was measured where nothing was."""
    return {**{name: found.answer for name, found in measured_answers(run).items()}, **answers}


def without_look(run: Facts) -> Facts:
    """As it was before the stacks of a rank were looked at: neither what they say it does, nor the line they named."""
    return replace(run, look=None, findings=tuple(without_line(one) for one in run.findings))


def readers_do(run: Facts) -> dict[str, float]:
    """Shares of the wait of all ranks for data in which whoever reads waits for storage, computes, or does neither.

    Empty where nobody looked. A training thread reads in its wait alone and has other work in the rest of the step:
    what it does beside waiting for storage is not known, and may be either.
    """
    found = next((one.evidence for one in (*run.findings, *run.notes) if one.id == INPUT_BOUND), {})
    storage, running = (
        _share(found.get(name)) for name in ("readers_storage_share", "readers_running_share")
    )
    if storage is None:
        return {}
    if running is None:
        wait = _share(found.get("data_wait_share"))
        storage = min(storage / wait, 1.0) if wait else storage
        return {"storage": storage, "computing": 1.0 - storage, "neither": 1.0 - storage}
    return {"storage": storage, "computing": running, "neither": max(1.0 - storage - running, 0.0)}


def reader_does(finding: Finding) -> dict[str, float]:
    """The same of the wait of one late rank that makes its batches itself, by its thread's time on a core.

    Empty where that is not known, or where looks found what it waits for.
    """
    running = _share(finding.evidence.get("wait_on_core_share"))
    if running is None or finding.evidence.get("seen_cause") is not None:
        return {}
    return {"storage": 1.0 - running, "computing": running, "neither": 1.0 - running}


def _share(value: float | str | None) -> float | None:
    return min(max(value, 0.0), 1.0) if isinstance(value, int | float) else None


def _stacks(run: Facts) -> Measured | None:
    """Where the rank in question spends the time that its peer does not."""
    return None if run.look is None else Measured(run.look.kind, run.look.words)
