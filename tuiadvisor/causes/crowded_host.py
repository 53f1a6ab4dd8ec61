"""Oversubscribed host: more threads want a core than there are, and everything a rank does there takes longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis


def measure_job(_diagnosis: Diagnosis, facts: Facts) -> Values:
    """What the kernel counts; unknown where it does not."""
    crowd = facts.crowd
    is_crowded = crowd is not None and crowd.is_crowded
    return {
        "ready_per_core": crowd.ready_per_core if crowd else None,
        "core_wait_share": crowd.core_wait_share if crowd else None,
        "host_crowded": int(is_crowded),
        "host_packed": int(crowd is not None and crowd.is_packed),
        "crowd_words": crowd.words if crowd else "",
        "crowd_note": ", on an oversubscribed host" if is_crowded else "",
    }


CROWDED_HOST: Final = Cause(
    rules=("crowded_host",),
    metrics="""
job ready_per_core ratio runnable threads per core, running or waiting for one, on the typical host
job core_wait_share share of its time the typical rank was ready to run and had no core
job host_crowded flag 1 if it was seen that ranks wait for cores; 0 if not, or not observed
job host_packed flag 1 if so many threads want each core that what ranks lose tells little; 0 if not, or not observed
job crowd_note text that the host is oversubscribed, in a few words; empty where it is not
job crowd_words text what an oversubscribed host means for a loss of all ranks; empty where it is not oversubscribed
""",
    measure_job=measure_job,
    needs_device=False,
)
