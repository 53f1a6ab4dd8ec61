"""What watching costs and how much of the run it saw in detail, as the probes measured it themselves.

In: Diagnosis, the ranks' facts.  Out: ProbeWork of the same window as every other number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor import phases
from tuiadvisor.causes.cause import rank_words
from tuiadvisor.events import StepFlag
from tuiadvisor.views.run_view import ProbeWork

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.advisor.cluster.rank_facts import RankFacts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.views.run_view import Finding

CORES: Final = frozenset({"native", "python"})
SEEN_IN_DETAIL: Final = frozenset(phases.of_kind("sync", "idle"))  # phases whose single calls tell more


def probe_work(diagnosis: Diagnosis | None, ranks: Iterable[RankFacts]) -> ProbeWork | None:
    """None before there is a steady step."""
    if diagnosis is None or not diagnosis.steady.num_steps:
        return None
    steady = diagnosis.steady
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
    )


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
