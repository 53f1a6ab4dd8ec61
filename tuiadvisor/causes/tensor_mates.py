"""Ranks that wait for each other inside forward and backward: of two that are late alike, one may be a victim.

In: late ranks, the mesh of the model.  Out: who is late for a reason that was seen, and who only waits for such a one.

Tensor parallel layers exchange activations. Where no hook sees these collectives (in compiled code, on devices) the
whole group arrives late at the gradient barrier when one of its ranks does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tuiadvisor.phases import COMPUTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuiadvisor.metrics.lateness.late_ranks import LateRank

TENSOR_AXES: Final = ("tp", "tensor")
_WAITED_IN: Final = frozenset({"host", "device", "unknown", *COMPUTE})
_MEET_IN: Final = frozenset({"forward", "backward"})  # where a group exchanges activations
MIN_OWN: Final = (
    0.03  # of its lateness: so much arises where no group meets; an optimizer takes some percent of a step
)
LESS_OWN: Final = 0.25  # of the leader's: who has less of that only waits


def tensor_groups(mesh: str, num_ranks: int) -> list[tuple[int, ...]]:
    """The ranks of each tensor parallel group of a mesh as "dp=2 tp=2"; none where it does not hold these ranks.

    Ranks fill a mesh with its last dimension first, as DeviceMesh does unless it is given another order.
    """
    names, sizes = [], []
    for part in mesh.split():
        name, _, size = part.partition("=")
        if not size.isdigit() or int(size) < 1:
            return []
        names.append(name.lower())
        sizes.append(int(size))
    axis = next((names.index(name) for name in TENSOR_AXES if name in names), None)
    if axis is None or sizes[axis] < 2 or math.prod(sizes) != num_ranks:
        return []
    stride = math.prod(sizes[axis + 1 :])
    groups: dict[tuple[int, int], list[int]] = {}
    for rank in range(num_ranks):
        groups.setdefault((rank // (stride * sizes[axis]), rank % stride), []).append(rank)
    return [tuple(ranks) for ranks in groups.values()]


def waits_for(
    entry: LateRank, stragglers: Iterable[LateRank], groups: Sequence[tuple[int, ...]]
) -> LateRank | None:
    """The late rank of its group that something outside holds back, surely or perhaps; None where this one has a cause.

    Perhaps: it may lack a core, which is too soon to tell. Or one that is late where no group meets, too (its data, its
    copies, its optimizer), while this one is late in nothing but forward and backward.
    """
    cause = entry.cause
    if (
        cause.off_core is not None
        or cause.more is not None
        or cause.is_collecting
        or cause.name not in _WAITED_IN
    ):
        return None
    mates = next((ranks for ranks in groups if entry.rank in ranks), ())
    return next(
        (
            one
            for one in stragglers
            if one is not entry
            and one.rank in mates
            and (one.cause.off_core is not None or one.cause.is_open or _leads(one, entry))
        ),
        None,
    )


def _leads(one: LateRank, entry: LateRank) -> bool:
    """Whether one has of its own what makes both late."""
    own_s = _own_s(one)
    total_s = sum(max(value, 0.0) for value in one.cause.parts.values())
    return own_s > 0 and own_s >= MIN_OWN * total_s and _own_s(entry) < LESS_OWN * own_s


def _own_s(entry: LateRank) -> float:
    """Seconds of its lateness outside of the phases in which its group meets."""
    return sum(max(value, 0.0) for name, value in entry.cause.parts.items() if name not in _MEET_IN)


def is_one_group(ranks: tuple[int, ...], groups: Sequence[tuple[int, ...]]) -> bool:
    """Whether several late ranks are all of one group, so that one of them may hold up the others."""
    return len(ranks) > 1 and any(set(ranks) <= set(group) for group in groups)
