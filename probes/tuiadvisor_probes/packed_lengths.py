"""How unequal the sequences are that share a row of a batch: the sum of the squares of their lengths.

Attention works on each sequence for itself, so batches of equal tokens are unequal work. Read of batches as the data
loader hands them out, in the host's memory, in bursts of detail alone; nothing on a device is ever asked for.
"""

from __future__ import annotations

import sys
from typing import Any

from .attributes import entries, is_operated_unheard
from .forward_look import MAX_LOOKED_AT, POSITIONS

BOUNDARIES = ("cu_seqlens", "cu_seqlens_q", "cu_seq_lens", "cu_seq_lens_q")
LENGTHS = ("seqlens", "seq_lens")


def squares(batch: Any) -> tuple[int, int, int] | None:
    """(sequences, their tokens, sum of the squares of their lengths); None where the batch does not tell them."""
    named = entries(batch)
    # A mode of the training's own would be handed what we compute, and might change its own state.
    if named is None or not is_operated_unheard():
        return None
    lengths = _lengths(named)
    if not lengths or min(lengths) < 0:
        return None
    return len(lengths), sum(lengths), sum(length * length for length in lengths)


def _lengths(named: dict[Any, Any]) -> list[int]:
    for name in BOUNDARIES:
        borders = _numbers(dict.get(named, name))
        if borders:
            return _differences(borders)
    for name in LENGTHS:
        lengths = _numbers(dict.get(named, name))
        if lengths:
            return lengths
    positions: Any = dict.get(named, POSITIONS)
    if not _is_readable(positions) or positions.dim() != 2:
        return []
    rows, width = positions.shape
    begins = (positions == 0).flatten().nonzero().flatten().tolist()
    # A row that begins within a sequence tells no lengths.
    if not set(range(0, rows * width, width)).issubset(begins):
        return []
    return _differences([*begins, rows * width])


def _differences(borders: list[int]) -> list[int]:
    return [borders[place + 1] - borders[place] for place in range(len(borders) - 1)]


def _numbers(values: Any) -> list[int]:
    """Of one dimension, or of one row of two."""
    if not _is_readable(values):
        return []
    flat = values[0] if values.dim() == 2 and values.shape[0] == 1 else values
    return flat.tolist() if flat.dim() == 1 else []


def _is_readable(values: Any) -> bool:
    """A plain tensor of whole numbers in the host's memory, not too many of them."""
    torch: Any = sys.modules["torch"]
    return (
        type(values) is torch.Tensor
        and values.device.type == "cpu"
        and values.dtype in (torch.int32, torch.int64)
        and 0 < values.numel() <= MAX_LOOKED_AT
    )
