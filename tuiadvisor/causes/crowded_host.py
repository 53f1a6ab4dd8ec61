"""Oversubscribed host, or a CPU limit: more threads want a core than may run, and all that ranks do takes longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause, rank_words
from tuiadvisor.causes.facts import CROWDED_WAIT
from tuiadvisor.causes.placement import at_lower_priority, bound_words, packed
from tuiadvisor.metrics.series.what_if import of_share

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Crowd, Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """What the kernel counts; unknown where it does not."""
    crowd = facts.crowd
    is_crowded = crowd is not None and crowd.is_crowded
    yields = is_crowded and crowd is not None and not crowd.is_limited  # a limit knows no priorities
    together = packed(facts.placements, facts.cores_of_hosts) if is_crowded else {}
    lower = _lower(tuple(sorted(at_lower_priority(diagnosis, facts)))) if yields else ""
    return {
        "ready_per_core": crowd.ready_per_core if crowd else None,
        "core_wait_share": crowd.core_wait_share if crowd else None,
        "host_crowded": int(is_crowded),
        "computes_on_host": int(not facts.on_device),
        "host_packed": int(crowd is not None and crowd.is_packed),
        "crowd_words": f"{crowd.words}{lower}" if crowd and crowd.words else "",
        "crowd_note": _note(crowd),
        "crowd_most_words": (
            f", {rank_words(diagnosis.lacking_ranks)} most" if diagnosis.lacking_ranks else lower
        )
        + (f", and {bound_words(together)}" if together else ""),
        "ranks_bound": int(bool(together)),
        "throttled_share": crowd.throttled_share if crowd else None,
        "cpu_limit_share": crowd.limited_share if crowd and crowd.is_limited else None,
        "cpu_limit_cores": crowd.limit_cores if crowd else None,
        "cpu_limit_words": _cores(crowd.limit_cores) if crowd and crowd.limit_cores else "unknown",
        "cpu_limited": int(crowd is not None and crowd.is_limited),
    }


def _lower(ranks: tuple[int, ...]) -> str:
    """Who yields where cores are short; that it makes them late was not found, or not yet."""
    return (
        f", and {rank_words(ranks)} {'is' if len(ranks) == 1 else 'are'} at a lower priority" if ranks else ""
    )


def _cores(num: float) -> str:
    said = f"{num:.3g}"
    return f"{said} core{'' if said == '1' else 's'}"


def _note(crowd: Crowd | None) -> str:
    if crowd is None or not crowd.is_crowded:
        return ""
    return ", held back by a CPU limit" if crowd.is_limited else ", on an oversubscribed host"


def gain(diagnosis: Diagnosis, facts: Facts) -> Gain | None:
    """With a limit that is never reached: at most what it held them back; as many waits as others have may remain."""
    crowd, steps = facts.crowd, diagnosis.steady_barrier.cycle_K
    if crowd is None or not crowd.is_limited or not steps.size:
        return None
    share = crowd.limited_share
    return of_share(float(steps.mean()), share, max(share - CROWDED_WAIT, 0.0))


def contention_gain(diagnosis: Diagnosis, facts: Facts) -> Gain | None:
    """With a core whenever one is wanted; as many waits as others have may remain.

    Not at best: whoever waits for a rank without a core sleeps that long, which no count of its own says. No step gets
    shorter than its thread ran, where that was counted. None behind a device, which may have work all the while.
    """
    crowd, steps = facts.crowd, diagnosis.steady_barrier.cycle_K
    if crowd is None or crowd.core_wait_share is None or facts.on_device or not steps.size:
        return None
    share = crowd.core_wait_share
    most = None if crowd.run_share is None else 1 - crowd.run_share
    return of_share(float(steps.mean()), share, max(share - CROWDED_WAIT, 0.0), most)


CPU_LIMIT: Final = Cause(
    rules=("cpu_limit",), gain=gain, lost_share="cpu_limit_share", at_best=True, needs_device=False
)
CROWDED_HOST: Final = Cause(
    rules=("crowded_host",),
    metrics="""
job ready_per_core ratio runnable threads per core, running or waiting for one, on the typical host
job core_wait_share share of its time the typical rank was ready to run and had no core
job computes_on_host flag 1 if the ranks compute on the host's cores, so that each wait for one lengthens the step
job host_crowded flag 1 if it was seen that ranks wait for cores; 0 if not, or not observed
job throttled_share share of the periods of its CPU limit in which the rank that feels it least was held back
job cpu_limit_share share of its time, for which that limit can have held the typical rank back
job cpu_limit_cores count cores that the smallest CPU limit of a rank's control group allows
job cpu_limit_words text the same in words
job cpu_limited flag 1 if the ranks wait for a core because of such a limit; 0 if not, or not observed
job ranks_bound flag 1 if ranks may run only on fewer CPUs than they are, of a host that has more
job host_packed flag 1 if so many threads want each core that what ranks lose tells little; 0 if not, or not observed
job crowd_note text that the host is oversubscribed, in a few words; empty where it is not
job crowd_most_words text who lacks one much more than others, yields by its priority, or is bound to what others are
job crowd_words text what an oversubscribed host means for a loss of all ranks; empty where it is not oversubscribed
""",
    measure_job=measure_job,
    gain=contention_gain,
    lost_share="core_wait_share",
    needs_device=False,
)
