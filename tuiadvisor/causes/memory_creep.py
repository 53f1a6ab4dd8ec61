"""Memory of a host or a device that fills steadily: the run ends when nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis


METRICS: Final = ("memory_share", "memory_left_s", "memory_span_s", "memory_words", "memory_is_ours")


def measure_job(_diagnosis: Diagnosis, facts: Facts) -> Values:
    """Of the memory that is full first; all unknown where none fills."""
    filling = facts.filling
    if filling is None:
        return dict.fromkeys(METRICS)
    return {
        "memory_share": filling.creep.share,
        "memory_left_s": filling.creep.left_s,
        "memory_span_s": filling.creep.span_s,
        "memory_words": filling.words,
        "memory_is_ours": int(filling.is_ours),
    }


MEMORY_CREEP: Final = Cause(
    rules=("memory_creep",),
    metrics="""
job memory_share share of the memory in use of the host or device that is full first, if one fills steadily
job memory_left_s s until it is full, at its pace
job memory_span_s s over which it was seen to fill
job memory_words text whose memory fills, how full it is, what grows, how fast, and when it is full
job memory_is_ours flag 1 if it is a device's or the ranks' processes grow; 0 where something else on the host does
""",
    measure_job=measure_job,
    needs_device=False,
)
