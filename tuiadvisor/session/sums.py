"""Sums of money in words; it imports nothing, as the first frame needs it."""

from __future__ import annotations

from typing import Final

UNCOUNTED: Final = 1e12  # chosen: a sum that no training costs, and that nobody reads digit by digit


def sum_words(value: float) -> str:
    """A sum of money: 1,234.50; beyond what anybody counts in digits 1.23e+18."""
    return f"{value:,.2f}" if abs(value) < UNCOUNTED else f"{value:.3g}"
