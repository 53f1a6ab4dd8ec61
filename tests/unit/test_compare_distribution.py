"""How long the steps of two runs are, on one scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshot import desks

from tuiadvisor.advisor.compare.distribution import NUM_BINS, distribution
from tuiadvisor.report.comparison import comparison_document
from tuiadvisor.tui.pages.comparison import plain_comparison

SECONDS = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=60)


@given(SECONDS, SECONDS)
def test_every_step_is_in_one_bin_or_beyond(before: list[float], after: list[float]) -> None:
    """Whatever the lengths: the shares of each run sum to one."""
    found = distribution(np.array(before), np.array(after))
    assert found is not None
    for side, values in ((found.before, before), (found.after, after)):
        assert len(side.shares) == NUM_BINS
        assert sum(side.shares) + side.beyond == pytest.approx(1.0)
        assert side.longest_s == max(values)
        assert list(side.quantiles_s) == sorted(side.quantiles_s)


def test_one_long_pause_does_not_flatten_the_rest() -> None:
    """It is counted beyond the scale, which is that of the steps."""
    found = distribution(np.array([0.02] * 292 + [30.0] * 8), np.array([0.01] * 300))
    assert found is not None
    assert found.last_s < 0.03
    assert found.before.beyond == pytest.approx(8 / 300)
    assert found.after.beyond == 0.0
    assert found.before.longest_s == 30.0


def test_a_run_without_steps_has_no_picture() -> None:
    """Nothing observed, nothing drawn; the document says null."""
    assert distribution(np.array([]), np.array([1.0])) is None
    bare = replace(desks.comparison(), distribution=None)
    assert "how long its steps are" not in plain_comparison(bare, plain_ascii=True)
    assert comparison_document(bare)["distribution"] is None


@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_faster_run_stands_further_left_on_the_same_scale(ascii_only: bool) -> None:
    """Each with its median and range; the text stays within 80 columns."""
    text = plain_comparison(desks.comparison(), plain_ascii=ascii_only, width=80)
    rows = text.splitlines()
    before = next(row for row in rows if row.startswith("before "))
    after = next(row for row in rows if row.startswith("after "))
    tall = {"█", "#"} if not ascii_only else {"#"}

    def middle(row: str) -> float:
        places = [place for place, glyph in enumerate(row[8:]) if glyph.strip()]
        return sum(places) / len(places)

    assert middle(after) < middle(before)
    assert any(glyph in after for glyph in tall)
    assert "median 28.6 ms" in text
    assert "beyond, to " in text
    assert all(len(row) <= 80 for row in rows)
