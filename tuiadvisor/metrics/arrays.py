"""Array types and the few robust statistics that every metric shares.

Shapes are named by suffix: R ranks, K job steps, P phases. NaN means "not observed".
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MAD_TO_SIGMA: Final = 1.4826  # a normal distribution's standard deviation in units of its MAD


def finite_or_none(value: float) -> float | None:
    """The value, or None when it is NaN or infinite: views never carry either."""
    return float(value) if np.isfinite(value) else None


def mean_or_none(values: Floats) -> float | None:
    """Mean of the finite values, None when there are none."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


def median_or_none(values: Floats) -> float | None:
    """Median of the finite values, None when there are none."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else None


def mad_sigma(values: Floats) -> float:
    """Robust standard deviation of finite values; 0 when there are none."""
    if values.size == 0:
        return 0.0
    return float(np.median(np.abs(values - np.median(values)))) * MAD_TO_SIGMA


def row_mad_sigma(values_RK: Floats) -> Floats:
    """mad_sigma of every row; no NaN."""
    if values_RK.shape[1] == 0:
        return np.zeros(values_RK.shape[0])
    distance = np.abs(values_RK - np.median(values_RK, axis=1, keepdims=True))
    return np.asarray(np.median(distance, axis=1) * MAD_TO_SIGMA)


def lower_quartile(values: Floats) -> float:
    """The value below which a quarter of the ranks lie: the peers' pace although most of them may be slow.

    Of 2, 3 or 4 ranks it is the fastest, of 64 the sixteenth: the reference stays right while up to three
    quarters of the ranks share a fault. ValueError on an empty array.
    """
    if values.size == 0:
        raise ValueError("no values to take a quartile of")
    return float(np.sort(values)[(values.size - 1) // 4])


def column_median(values_RK: Floats) -> Floats:
    """Median over ranks for every step, NaN ignored; NaN where no rank is known."""
    if values_RK.shape[0] == 0:
        return np.full(values_RK.shape[1], np.nan)
    if not np.isnan(values_RK).any():
        return np.asarray(np.median(values_RK, axis=0))
    # np.nanmedian is slow and warns on empty columns; sorting puts NaN last and does the same.
    ordered = np.sort(values_RK, axis=0)
    count = np.sum(~np.isnan(ordered), axis=0)
    low = np.maximum(count - 1, 0) // 2
    high = np.maximum(count // 2, 0)
    high = np.minimum(high, values_RK.shape[0] - 1)
    columns = np.arange(values_RK.shape[1])
    middle = (ordered[low, columns] + ordered[high, columns]) / 2
    return np.where(count > 0, middle, np.nan)


def row_median(values_RK: Floats) -> Floats:
    """Median over steps for every rank, NaN ignored; NaN where no step is known."""
    return column_median(np.ascontiguousarray(values_RK.T))


def row_mean(values_RK: Floats) -> Floats:
    """Mean over steps for every row, NaN ignored; NaN where no step is known."""
    known = ~np.isnan(values_RK)
    count = known.sum(axis=-1)
    total = np.where(known, values_RK, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
