"""Array types and the few robust statistics that every metric shares.

Shapes are named by suffix: R ranks, K job steps, P phases. NaN means "not observed".
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SORTED_BELOW: Final = 512  # values a row: up to there sorting them all is faster than seeking the middle one
MAD_TO_SIGMA: Final = 1.4826  # a normal distribution's standard deviation in units of its MAD


def median(values: Floats) -> float:
    """Median of a series, equal to `np.median` to the last digit; NaN for none or where one is NaN."""
    if values.size == 0:
        return float("nan")
    return float(_middle_of_rows(values.reshape(1, -1))[0])


def medians(values_RK: Floats, axis: int) -> Floats:
    """Medians over axis 0 or 1 of a table, equal to `np.median` to the last digit; NaN where one is NaN, or for none.

    A view takes hundreds of them, and these cost a fifth of numpy's, which seeks three places one after the other.
    """
    if values_RK.shape[axis] == 0:
        return np.full(values_RK.shape[1 - axis], np.nan)
    return _middle_of_rows(values_RK if axis == 1 else values_RK.T)


def column_max(values_RK: Floats) -> Floats:
    """Largest value of each column, of those observed; NaN where none is."""
    largest = np.where(np.isnan(values_RK), -np.inf, values_RK).max(axis=0)
    return np.where(np.isfinite(largest), largest, np.nan)


def distinct(values: Ints, axis: int | None = None) -> Ints:
    """What `np.unique` gives; asked for the values alone, that first loads numpy.ma, a tenth of a short command."""
    return np.asarray(np.unique(values, axis=axis, return_counts=True)[0])


def _middle_of_rows(values: Floats) -> Floats:
    size = values.shape[1]
    half = size // 2
    if size == 2:  # of two ranks, thousands of steps: a twentieth of the time of sorting each
        return np.asarray((values[:, 0] + values[:, 1]) / 2, dtype=np.float64)
    ordered = np.array(values, dtype=np.float64, order="C")
    if size < SORTED_BELOW:
        ordered.sort(axis=1)
        lower, unknown = ordered[:, half - 1], np.asarray(np.isnan(ordered[:, -1]))
    else:
        ordered.partition(half, axis=1)
        lower, unknown = ordered[:, :half].max(axis=1), np.asarray(np.isnan(ordered[:, half:]).any(axis=1))
    upper = ordered[:, half]
    result = upper.copy() if size % 2 else (lower + upper) / 2
    if unknown.any():
        result[unknown] = np.nan
    return np.asarray(result)


def percentiles(values: Floats, low: float, high: float) -> tuple[float, float]:
    """Two percentiles of a series that is not empty, equal to `np.percentile` to the last digit; no NaN."""
    low_R, high_R = row_percentiles(values.reshape(1, -1), low, high)
    return float(low_R[0]), float(high_R[0])


def row_percentiles(values_RK: Floats, *percents: float) -> tuple[Floats, ...]:
    """Percentiles of every row, equal to `np.percentile` to the last digit; at least one column, no NaN."""
    ordered = np.sort(values_RK, axis=1)
    return tuple(_between(ordered, percent / 100) for percent in percents)


def _between(ordered_RK: Floats, share: float) -> Floats:
    """Linear between the two nearest values, from the nearer one: so numpy rounds it."""
    last = ordered_RK.shape[1] - 1
    place = last * share
    below = int(place)
    lower, upper = ordered_RK[:, below], ordered_RK[:, min(below + 1, last)]
    part, apart = place - below, upper - lower
    return np.asarray(lower + apart * part if part < 0.5 else upper - apart * (1 - part))


def finite_or_none(value: float) -> float | None:
    """The value, or None when it is NaN or infinite: views never carry either."""
    return float(value) if math.isfinite(value) else None


def finite_or_nones(values: Floats) -> list[float | None]:
    """Each value of a series, or None where it is NaN or infinite."""
    finite = np.isfinite(values)
    if finite.all():
        return list[float | None](values.tolist())
    if not finite.any():
        return [None] * values.size
    return [value if known else None for value, known in zip(values.tolist(), finite.tolist(), strict=True)]


def mean_or_none(values: Floats) -> float | None:
    """Mean of the finite values, None when there are none."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


def median_or_none(values: Floats) -> float | None:
    """Median of the finite values, None when there are none."""
    known = values[np.isfinite(values)]
    return median(known) if known.size else None


def mad_sigma(values: Floats) -> float:
    """Robust standard deviation of finite values; 0 when there are none."""
    if values.size == 0:
        return 0.0
    return median(np.abs(values - median(values))) * MAD_TO_SIGMA


def row_mad_sigma(values_RK: Floats) -> Floats:
    """mad_sigma of every row; no NaN."""
    if values_RK.shape[1] == 0:
        return np.zeros(values_RK.shape[0])
    distance = np.abs(values_RK - medians(values_RK, 1)[:, None])
    return np.asarray(medians(distance, 1) * MAD_TO_SIGMA)


def lower_quartile(values: Floats) -> float:
    """The value below which a quarter of the ranks lie: the peers' pace although most of them may be slow.

    Of 2, 3 or 4 ranks it is the fastest, of 64 the sixteenth: the reference stays right while up to three
    quarters of the ranks share a fault. ValueError on an empty array.
    """
    if values.size == 0:
        raise ValueError("no values to take a quartile of")
    return float(np.sort(values)[(values.size - 1) // 4])


def column_low_median(values_RK: Floats) -> Floats:
    """What half of the ranks have at most, each step, NaN ignored: of two ranks the smaller; NaN where none is known.

    The mean of the two middle ones is had by neither where they differ.
    """
    ordered = np.sort(values_RK, axis=0)  # NaN last
    num_known = values_RK.shape[0] - np.isnan(values_RK).sum(axis=0)
    place = np.maximum(num_known - 1, 0) // 2
    found: Floats = np.take_along_axis(ordered, place[None, :], axis=0)[0]
    return found


def column_median(values_RK: Floats) -> Floats:
    """Median over ranks for every step, NaN ignored; NaN where no rank is known."""
    if values_RK.shape[0] == 0:
        return np.full(values_RK.shape[1], np.nan)
    if not np.isnan(values_RK).any():
        return medians(values_RK, 0)
    # np.nanmedian is slow and warns on empty columns; sorting puts NaN last and does the same.
    ordered = np.sort(np.ascontiguousarray(values_RK.T), axis=1)
    count = values_RK.shape[0] - np.isnan(ordered).sum(axis=1)
    low = np.maximum(count - 1, 0) // 2
    high = np.minimum(count // 2, values_RK.shape[0] - 1)
    columns = np.arange(values_RK.shape[1])
    between = (ordered[columns, low] + ordered[columns, high]) / 2
    return np.where(count > 0, between, np.nan)


def row_median(values_RK: Floats) -> Floats:
    """Median over steps for every rank, NaN ignored; NaN where no step is known."""
    return column_median(np.ascontiguousarray(values_RK.T))


def row_mean(values_RK: Floats) -> Floats:
    """Mean over steps for every row, NaN ignored; NaN where no step is known."""
    known = ~np.isnan(values_RK)
    if known.all() and values_RK.shape[-1]:
        return np.asarray(values_RK.sum(axis=-1) / values_RK.shape[-1])
    count = known.sum(axis=-1)
    total = np.where(known, values_RK, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
