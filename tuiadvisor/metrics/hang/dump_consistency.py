"""Flight-recorder dumps that cannot be of the same hang: of an earlier job, or of an earlier moment.

In: every rank's dump and the process groups.  Out: ranks whose dump contradicts the others', and why.
A stale dump is behind everybody else and would be taken for the rank that all wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.hang.missing_ranks import ALL_TAKE_PART, COLLECTIVE, with_messages
from tuiadvisor.metrics.series.plausible import long_time, together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.metrics.hang.missing_ranks import Dump, Group
    from tuiadvisor.metrics.steps.arrays import Ints

# Torch's own default timeouts. That of NCCL's groups is taken for what clocks and long steps may put between the calls
# of ranks at least; that of all other groups where the calls tell none.
LEAST_APART_NS: Final = 600 * 10**9
DEFAULT_TIMEOUT_NS: Final = 1800 * 10**9
# A dump is written when the first call that waits has timed out: others are called until then, and the call before the
# hang at most as long before it as a collective may be waited for.
TIMEOUTS_APART: Final = 2
MINUTE_NS: Final = 60 * 10**9
MAX_MINUTES: Final = 600  # in a message


def contradicting(dumps: Sequence[Dump], groups: Mapping[str, Group]) -> dict[int, str]:
    """Rank -> why its dump is not of this hang. Of two that contradict each other alone, both are given."""
    found = _far_in_time(dumps)
    kept = [dump for dump in dumps if dump.rank not in found]
    against = _impossible(kept, groups)
    while against:
        count: dict[int, int] = {}
        for pair in against:
            for rank in pair:
                count[rank] = count.get(rank, 0) + 1
        most = max(count.values())
        for rank in sorted(rank for rank in count if count[rank] == most):
            found[rank] = next(why for pair, why in against.items() if rank in pair)
        against = {pair: why for pair, why in against.items() if not found.keys() & set(pair)}
    return found


def _far_in_time(dumps: Sequence[Dump]) -> dict[int, str]:
    newest = {
        dump.rank: max(times)
        for dump in dumps
        if (times := [op.created_ns for op in dump.operations if op.created_ns])
    }
    newest_R = np.array(list(newest.values()), dtype=np.int64)
    near_R = together(newest_R, _apart_ns(dumps))
    return {
        rank: _how_far(int(newest_R[column]), newest_R[near_R])
        for column, rank in enumerate(newest)
        if not near_R[column]
    }


def _apart_ns(dumps: Sequence[Dump]) -> int:
    """What the last calls of ranks of one hang may be apart, by the timeout of what most of them wait in."""
    heads = [
        min(pending, key=lambda op: op.order)
        for dump in dumps
        if (pending := [op for op in dump.operations if not op.completed])
    ]
    timeouts = sorted(op.timeout_ns for op in heads if op.timeout_ns is not None)
    usual = timeouts[len(timeouts) // 2] if timeouts else DEFAULT_TIMEOUT_NS
    return max(TIMEOUTS_APART * usual, LEAST_APART_NS)


def _how_far(newest_ns: int, others_ns: Ints) -> str:
    if not others_ns.size:
        return "as many dumps are of other times, and none of most: its last call and the others' are too far apart"
    apart_ns = newest_ns - int(np.median(others_ns))
    minutes = abs(apart_ns) / MINUTE_NS
    size = f"{minutes:.0f} min" if minutes < MAX_MINUTES else long_time(abs(apart_ns))
    return f"it is {size} {'older' if apart_ns < 0 else 'newer'} than the others'"


def _impossible(dumps: Sequence[Dump], groups: Mapping[str, Group]) -> dict[tuple[int, int], str]:
    """(who finished, who had not entered) -> what. A collective in which all take part ends after all are in it."""
    entered, finished = _reached(dumps)
    least: dict[str, int] = {}
    for (_, name), seq in entered.items():
        least[name] = min(seq, least.get(name, seq))
    against = {}
    for (rank, name), (seq, what) in finished.items():
        if least[name] >= seq:
            continue  # of thousands of ranks nobody is behind what most have finished
        for other in groups[name].members if name in groups else ():
            got = entered.get((other, name))
            if got is not None and got < seq:
                against[rank, other] = (
                    f"rank {rank} had finished {what} {seq} of group {name}, of rank {other} the last one is {got}"
                )
    return against


def _reached(
    dumps: Sequence[Dump],
) -> tuple[dict[tuple[int, str], int], dict[tuple[int, str], tuple[int, str]]]:
    """By rank and group: the last collective entered, and the last one finished in which all take part."""
    mixed = with_messages(dumps)
    # Where only calls are recorded that end after all are in them, so do those that the counters count.
    early = mixed | {
        op.group
        for dump in dumps
        for op in dump.operations
        if op.kind == COLLECTIVE and not ALL_TAKE_PART.search(op.name)
    }
    entered: dict[tuple[int, str], int] = {}
    finished: dict[tuple[int, str], tuple[int, str]] = {}
    for dump in dumps:
        for group, progress in dump.progress.items():
            if group not in mixed and progress.entered is not None:
                entered[dump.rank, group] = progress.entered
            if group not in early and progress.completed is not None:
                finished[dump.rank, group] = progress.completed, "collective"
        for op in dump.operations:
            if op.kind != COLLECTIVE:
                continue
            key = (dump.rank, op.group)
            entered[key] = max(entered.get(key, -1), op.seq)
            if op.completed and ALL_TAKE_PART.search(op.name):
                finished[key] = max(finished.get(key, (-1, "")), (op.seq, op.name))
    return entered, finished
