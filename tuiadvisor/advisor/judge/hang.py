"""Whether the job stands still, from what the ranks' rings say of their training threads.

In: roster, steps.  Out: what is measured for the rule on hangs, or None while anything moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.causes.hang import measured
from tuiadvisor.metrics.hang.detection import MIN_STILL_S, RankNow, standstill
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX
from tuiadvisor.phases import PAUSES

if TYPE_CHECKING:
    from tuiadvisor.advisor.cluster.membership import Roster
    from tuiadvisor.advisor.cluster.rank_facts import RankFacts
    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.causes.cause import Measured
    from tuiadvisor.metrics.steps.step_table import StepTable


def standing(roster: Roster, store: StepStore, table: StepTable | None) -> Measured | None:
    """What the rule is judged on."""
    if any(_was_live(facts) and (facts.still_s or 0.0) < MIN_STILL_S for facts in roster.ranks.values()):
        return None  # one that moves is enough, and most often the first of thousands does
    offsets = store.job_offsets()
    silent = roster.silent_agents()
    places = []
    for _, facts in sorted(roster.ranks.items()):
        if facts.source in silent:
            return None  # what its ranks do now is not known
        step = None
        own_step = facts.step if facts.state == "killed" else facts.still_step
        if own_step is not None and facts.rank in offsets:
            step = own_step + offsets[facts.rank]
        state = "live" if _was_live(facts) else facts.state
        places.append(
            RankNow(
                facts.rank,
                state,
                facts.still_phase,
                facts.still_s,
                step,
                thread=facts.still_thread,
                waits_asleep=facts.texts.get("backend") == "gloo" and not _on_device(facts),
                on_device=_on_device(facts),
            )
        )
    found = standstill(places, _longest_step_s(table))
    if found is None:
        return None
    host_of = {rank: facts.host for rank, facts in roster.ranks.items()}
    return measured(found, host_of, roster.world_size())


def _on_device(facts: RankFacts) -> bool:
    return facts.texts.get("device", "cpu") != "cpu"


def _was_live(facts: RankFacts) -> bool:
    """A probe that was taken out of a standing rank leaves the rank as it was."""
    return facts.state in {"live", "detached"} and facts.still_phase is not None


def _longest_step_s(table: StepTable | None) -> float | None:
    if table is None or table.num_steps < 2:
        return None
    at_rest = np.nansum(table.phase_s_PRK[[PHASE_INDEX[name] for name in PAUSES]], axis=0)
    working = (table.step_s_RK - at_rest)[:, 1:]
    known = working[np.isfinite(working)]
    return float(known.max()) if known.size else None
