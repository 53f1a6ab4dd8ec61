"""Ranks as people type them: 3, or 0,3-5, or all."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Final

MAX_RANK: Final = 1 << 20


def rank_set(text: str) -> frozenset[int] | None:
    """The ranks meant, None for all; an argparse type, so a bad one is a usage error."""
    if text == "all":
        return None
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.isascii() and first.isdigit() and (not dash or (last.isascii() and last.isdigit()))):
            raise ArgumentTypeError(f"{text!r} names no ranks; write 3, or 0,3-5, or all")
        begin, end = int(first), int(last or first)
        if begin > end or end > MAX_RANK:
            raise ArgumentTypeError(f"{part!r} is no range of ranks")
        ranks.update(range(begin, end + 1))
    return frozenset(ranks)


def said(ranks: frozenset[int]) -> str:
    """The set in words: rank 3, ranks 0, 3-5."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    words = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"rank{'s' if len(ranks) > 1 else ''} {words}"
