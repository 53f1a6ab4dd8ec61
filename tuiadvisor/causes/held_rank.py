"""A rank that something outside keeps from going on, and whose lateness does not tell it: unseen, or of too few steps.

Compiled tensor parallel layers and loops of one's own meet in calls that no hook sees: no rank is late there. That a
process is stopped, lacks a core or hits its CPU limit is seen of each rank nevertheless, and so is that they keep pace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause, Measured, priority_words, rank_words, storage_words
from tuiadvisor.metrics.series.what_if import of_share
from tuiadvisor.metrics.steps.arrays import mean_or_none

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.lateness.off_core import HeldRank
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.views.run_view import Finding
    from tuiadvisor_rules.loader import Rule

WORDS: Final = {
    "stopped": "{is_} stopped by a signal or a debugger in {share} of the looks at {its} process",
    "core": "{is_} ready to run but without a core {share} of the time, the typical other one {others}",
    "data": "{waits} for {its} next batch {share} of the time, the typical other one {others}",
    "limit": "{is_} held back by the CPU limit of {its} container ({limit:.3g} cores) {share} of the time",
}

UNSEEN: Final = (
    "Who arrives late is not observed in this job, but its ranks keep pace with one another, "
    "so this may set the pace of all."
)
UNSETTLED: Final = (
    "It explains the lateness in most steps; what is lost by it is not settled yet, "
    "for steps are of any length then."
)
BETWEEN: Final = (
    "All ranks are seen to meet now and then; in between the others wait as long where no hook sees it, and keep pace "
    "with it."
)
IN_PAUSES: Final = (
    "The others wait for it mostly in long steps, as where an epoch begins; what is lost by it is a part of what those "
    "take."
)
NOT_WAITED_FOR: Final = " The others are not seen to sleep longer than it, so it may cost nothing."


def measure(diagnosis: Diagnosis, _facts: Facts, _job: Values) -> list[Measured]:
    """One subject a reason."""
    reasons: dict[str, list[HeldRank]] = {}
    for one in diagnosis.held:
        reasons.setdefault(one.reason, []).append(one)
    return [_measured(diagnosis, reason, group) for reason, group in reasons.items()]


def _measured(diagnosis: Diagnosis, reason: str, group: list[HeldRank]) -> Measured:
    table, worst = diagnosis.table, max(group, key=lambda one: one.share)
    ranks = tuple(sorted(table.ranks[one.row] for one in group))
    said = WORDS[reason].format(
        is_="is" if len(ranks) == 1 else "are",
        waits="waits" if len(ranks) == 1 else "wait",
        its="its" if len(ranks) == 1 else "their",
        share=f"{100 * worst.share:.0f} %",
        others=f"{100 * worst.others:.0f} %",
        limit=worst.limit_cores or 0.0,
    )
    return Measured(
        "held",
        {
            "held_rank_words": f"{rank_words(ranks)} {said}{priority_words(worst.priority)}"
            f"{storage_words(worst.storage)}",
            "held_note": _note(diagnosis, worst),
            "held_share": worst.share,
            "held_share_of_others": worst.others,
            "held_share_low": worst.surely,
            "is_held_stopped": int(reason == "stopped"),
            "is_held_limited": int(reason == "limit"),
            "is_held_by_data": int(reason == "data"),
            "waits_for_storage": int(worst.storage is not None),
            "yields_cores": int(worst.priority is not None),
        },
        ranks,
        tuple(sorted({table.hosts[one.row] for one in group})),
        "data_wait" if reason == "data" else None,
        gain=_gain(diagnosis, worst),
        at_best=True,  # a part of what holds it may pass while it would wait for the others anyway
    )


def _note(diagnosis: Diagnosis, worst: HeldRank) -> str:
    if worst.in_pauses:
        note = IN_PAUSES
    elif diagnosis.compared_rows.size <= 1:
        note = UNSEEN
    else:
        note = BETWEEN if worst.reason == "data" else UNSETTLED
    return note if worst.gained > 0 else f"{note}{NOT_WAITED_FOR}"


def _gain(diagnosis: Diagnosis, worst: HeldRank) -> Gain | None:
    """At best all that holds it beyond the others; surely what they were seen to wait for it."""
    columns = diagnosis.elapsed_K
    cycle_K = diagnosis.barrier.cycle_K[columns] if worst.in_pauses else diagnosis.steady_barrier.cycle_K
    step_s = mean_or_none(cycle_K)
    return None if step_s is None else of_share(step_s, max(worst.share - worst.others, 0.0), worst.gained)


def who_waits(_finding: Finding, _rule: Rule) -> str:
    """Who spins while it waits is not seen to wait."""
    return "whether the others wait for that is not seen"


HELD_RANK: Final = Cause(
    rules=("held_rank",),
    metrics="""
held held_rank_words text which ranks something outside keeps from running, and what
held held_note text what is known of lateness
held held_share share of the looks at its process, or of its time, in which the worst of them is kept from running
held held_share_of_others share the same of the typical other rank
held held_share_low share of its time that it is surely kept from running beyond the typical other, chance left out
held is_held_stopped flag 1 if their processes are stopped by a signal or a debugger
held is_held_limited flag 1 if a CPU limit holds them back
held is_held_by_data flag 1 if they wait for their data loaders
held waits_for_storage flag 1 if whoever reads for them waits for storage, and the others' readers do not
held yields_cores flag 1 if they lack a core at a lower priority than the others, a higher nice value
""",
    scope="held",
    measure=measure,
    names_ranks=True,
    needs_device=False,
    leaves_open=who_waits,
)
