"""The buckets of a real DDP training, as they were and with another size: what must hold however fast the machine is.

How much smaller buckets hide depends on how fast transfer and compute are. That is simulated for links of any speed in
`test_advisor_exchange.py`, and measured on the machine at hand by `tests/accuracy/bucket_gain.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bucket_runs import seen

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.views.communication import ExchangeView

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.alone]
LAYERS, LAYER_MIB = 8, 4
MIB = 1 << 20


def exchange(folder: Path, *options: str) -> ExchangeView:
    """What is said of a run."""
    folder.mkdir()
    view = seen(folder, "--steps", "40", *options)
    assert view.exchange is not None, view.unknown
    return view.exchange


def assert_possible(found: ExchangeView) -> None:
    """No promise exceeds what was exposed, and the buckets follow each other as their gradients became ready."""
    assert LAYERS * LAYER_MIB * MIB == found.num_bytes == 4 * found.num_parameters
    assert 0 <= found.saved_low_s <= found.saved_s <= found.saved_high_s
    assert found.saved_s <= found.hideable_s <= found.exposed_s
    beyond = [one for one in found.sizes if one.saved_s and not 0 <= one.exposed_s <= found.exposed_s * 1.001]
    assert [] == beyond, found.exposed_s
    ready = [bucket.ready_s for bucket in found.buckets]
    assert sorted(ready) == ready
    assert all(
        one.end_s <= other.begin_s + 1e-9
        for one, other in zip(found.buckets, found.buckets[1:], strict=False)
    )


@pytest.mark.extended
def test_buckets_are_seen_as_ddp_makes_them(tmp_path: Path) -> None:
    """All layers in one bucket, then two in each: bytes and order are DDP's own, and no promise is too large."""
    slow = ("--backward-ms", "15")
    one = exchange(tmp_path / "one", "--cap-mb", "100", *slow)
    assert [LAYERS * LAYER_MIB * MIB] == [bucket.num_bytes for bucket in one.buckets]
    assert_possible(one)
    # Every layer's backward sleeps 15 ms before its gradient is ready: one bucket leaves after all of them.
    assert one.backward_s >= LAYERS * 0.015
    assert one.buckets[0].ready_s == pytest.approx(one.backward_s)
    small = exchange(tmp_path / "small", "--cap-mb", str(2 * LAYER_MIB), *slow)
    assert_possible(small)
    assert len(small.buckets) > 2
    # The first bucket is ready when its own layers are, which is long before the last layer's.
    assert small.buckets[0].ready_s <= small.backward_s - (len(small.buckets) - 1) * 0.015
