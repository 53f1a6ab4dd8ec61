"""Flight-recorder dumps that cannot be of the same hang: of an earlier job, or of an earlier moment.

In: every rank's dump and the process groups.  Out: ranks whose dump contradicts the others', and why.
A stale dump is behind everybody else and would be taken for the rank that all wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.hang.missing_ranks import ALL_TAKE_PART, COLLECTIVE, with_messages
from tuiadvisor.metrics.series.plausible import together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.metrics.hang.missing_ranks import Dump, Group

# Who hangs made its last call shortly before the others; more than what clocks of hosts differ by is another job's.
APART_NS: Final = 3600 * 10**9


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
    near = together(np.array(list(newest.values()), dtype=np.int64), APART_NS)
    return {
        rank: "its last call and the others' are more than an hour apart"
        for rank, is_near in zip(newest, near.tolist(), strict=True)
        if not is_near
    }


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
    entered: dict[tuple[int, str], int] = {}
    finished: dict[tuple[int, str], tuple[int, str]] = {}
    for dump in dumps:
        for group, progress in dump.progress.items():
            if group not in mixed and progress.entered is not None:
                entered[dump.rank, group] = progress.entered
        for op in dump.operations:
            if op.kind != COLLECTIVE:
                continue
            key = (dump.rank, op.group)
            entered[key] = max(entered.get(key, -1), op.seq)
            if op.completed and ALL_TAKE_PART.search(op.name):
                finished[key] = max(finished.get(key, (-1, "")), (op.seq, op.name))
    return entered, finished
