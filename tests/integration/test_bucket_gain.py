"""What the buckets of a real DDP training promise, held against the same training with other buckets.

Time on a busy machine promises nothing, so what is compared are shares: how much of its own transfer each run exposes.
`tests/accuracy/bucket_gain.py` measures the promise in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bucket_runs import recorded

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
LAYERS, LAYER_BYTES = 8, 1024 * 1024 * 4


def test_smaller_buckets_hide_what_one_bucket_exposes(tmp_path: Path) -> None:
    """One bucket hides nothing, and buckets of 5 MiB would hide most of it; with them most of it is hidden."""
    before = recorded(tmp_path, "one", cap_mb=100, backward_ms=15)
    assert (1, LAYERS * LAYER_BYTES) == (len(before["buckets"]), before["num_bytes"])
    assert before["exposed_s"] == pytest.approx(before["transfer_s"], rel=0.5)
    assert "smaller_buckets" == before["lever"]
    assert 0 < before["saved_s"] <= before["hideable_s"] <= before["exposed_s"]
    assert before["hideable_s"] >= 0.5 * before["exposed_s"]

    after = recorded(tmp_path, "small", cap_mb=before["best_cap_mib"], backward_ms=15)
    assert len(after["buckets"]) > 1
    assert after["buckets"][0]["ready_s"] < 0.5 * after["backward_s"]
    exposed = [run["exposed_s"] / run["transfer_s"] for run in (before, after)]
    assert exposed[1] < 0.7 * exposed[0], exposed


def test_without_compute_there_is_little_to_hide_behind(tmp_path: Path) -> None:
    """Backward takes a fraction of the exchange: whatever the buckets, most of it stays exposed."""
    seen = recorded(tmp_path, "tiny", cap_mb=100, backward_ms=0)
    assert seen["ratio"] > 1
    assert seen["hideable_s"] <= seen["backward_s"]
    assert seen["hideable_s"] < 0.6 * seen["exposed_s"]
