"""What watching costs and how much of the run it saw in detail, as the probes measured it themselves.

In: Diagnosis, all steps that are held, the ranks' facts.  Out: ProbeWork of the same window as every other number.
Where the devices' clocks judge, that window holds the measured steps alone, and those cost more (on an H200 some 450 us
beside 80): what watching takes is told of all steps between the first and the last of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor import phases
from tuiadvisor.causes.cause import rank_words
from tuiadvisor.events import StepFlag
from tuiadvisor.metrics.steps.step_table import select
from tuiadvisor.views.run_view import ProbeWork

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tuiadvisor.advisor.cluster.rank_facts import RankFacts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.views.run_view import DeviceView, Finding

CORES: Final = frozenset({"native", "python"})
SEEN_IN_DETAIL: Final = frozenset(phases.of_kind("sync", "idle"))  # phases whose single calls tell more


def probe_work(
    diagnosis: Diagnosis | None,
    held: StepTable | None,
    ranks: Iterable[RankFacts],
    devices: Mapping[int, DeviceView],
) -> ProbeWork | None:
    """None before there is a steady step. held: all steps by the threads' clocks. devices: by rank."""
    if diagnosis is None or not diagnosis.steady.num_steps:
        return None
    steady = diagnosis.steady
    if steady.is_sampled and held is not None:
        steady = _between(held, steady.step_of(0), steady.step_of(steady.num_steps - 1))
    cost, step = steady.probe_cost_s_RK, steady.step_s_RK
    known = np.isfinite(cost) & np.isfinite(step)
    in_detail = steady.flagged_RK(StepFlag.DETAIL) & steady.present_RK
    always_on = known & ~in_detail
    facts = list(ranks)
    budgets = {fact.budget_ppm for fact in facts}
    budget_ppm = budgets.pop() if len(budgets) == 1 else None
    share = float(cost[known].sum() / step[known].sum()) if known.any() else None
    budget = None if budget_ppm is None else budget_ppm / 1e6
    return ProbeWork(
        cost=share,
        budget=budget,
        detail=float(in_detail.sum() / steady.present_RK.sum()) if steady.present_RK.any() else None,
        num_detail_steps=int(in_detail.any(axis=0).sum()),
        always_on=float(cost[always_on].sum() / step[always_on].sum()) if always_on.any() else None,
        is_over=share is not None and budget is not None and share > budget,
        core=core_of(facts),
        is_hidden=bool(devices) and all(rank in devices and _hides(devices[rank]) for rank in steady.ranks),
    )


def _hides(device: DeviceView) -> bool:
    """Whether its thread has run so far ahead that it waited for nothing within a step, nor the device for it."""
    return device.behind_share is not None and device.behind_share >= 1.0


def _between(table: StepTable, first: int, last: int) -> StepTable:
    """These job steps, both included, as far as the table holds them."""
    num = table.num_steps
    begin, end = (min(max(table.column_of(step), 0), num) for step in (first, last + 1))
    return select(table, slice(begin, max(begin, end)))


def core_of(ranks: Iterable[RankFacts]) -> str:
    """What the hooks run on, of the ranks that have said it."""
    told = [fact.texts["core"] for fact in ranks if fact.texts.get("core") in CORES]
    num_native = told.count("native")
    if 0 < num_native < len(told):
        return f"native on {num_native} of {len(told)} ranks"
    return told[0] if told else ""


def with_burst_wanted(finding: Finding, work: ProbeWork | None) -> Finding:
    """The finding, asking first for a burst of detail where single calls would tell more and the window holds none."""
    lacks_batches = finding.evidence.get("loader_batches", 0) is None
    if work is None or work.num_detail_steps or not (finding.phase in SEEN_IN_DETAIL or lacks_batches):
        return finding
    whom = rank_words(finding.ranks) if finding.ranks else "all ranks"
    wanted = f"3 s of detail on {whom}, each call one by one: key D while watching"
    return replace(finding, measure_next=(wanted, *finding.measure_next))
