"""How far it pays to go: crossings of a known law, against those that follow from it by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scaling_tables import report_of

from tuiadvisor.scaling.cost import Aim

SERIAL, PARALLEL = 0.4, 99.6  # hours on one device


def table() -> str:
    """Strong scaling, T = a + b / n in hours."""
    rows = [f"{n},{SERIAL + PARALLEL / n:.6f}" for n in (8, 16, 32, 64, 128)]
    return "\n".join(["devices,total_h", *rows]) + "\n"


@pytest.mark.parametrize(("price", "hour"), [(1.0, 100.0), (2.0, 100.0), (1.0, 25.0)])
def test_the_next_hour_is_worth_its_price_up_to_a_size(tmp_path: Path, price: float, hour: float) -> None:
    """By the law itself: what all hours cost there is the least, or nearly (several laws fit so few sizes)."""
    aim = Aim(price_per_device_hour=price, price_of_time=hour)
    found = report_of(tmp_path, table(), aim=aim).frontier
    assert found is not None
    assert found.price_of_time is not None

    def costs(devices: float) -> float:
        return (devices * price + hour) * (SERIAL + PARALLEL / devices)

    least = costs(math.sqrt(hour * PARALLEL / (price * SERIAL)))
    assert costs(found.price_of_time) == pytest.approx(least, rel=0.01)
    assert min(costs(found.price_of_time / 3), costs(found.price_of_time * 3)) > 1.05 * least


def test_an_hour_that_is_worth_anything_is_worth_it_everywhere(tmp_path: Path) -> None:
    """As far as the law is asked; without a price of time nobody asks."""
    dear = report_of(tmp_path, table(), aim=Aim(price_per_device_hour=1.0, price_of_time=1e6)).frontier
    assert dear is not None
    assert dear.price_of_time is None
    unasked = report_of(tmp_path, table()).frontier
    assert unasked is not None
    assert unasked.price_of_time is None


def test_efficiency_falls_below_its_floor_where_the_law_says(tmp_path: Path) -> None:
    """Against the smallest size."""
    floor = 0.8
    found = report_of(tmp_path, table(), aim=Aim(efficiency_floor=floor)).frontier
    assert found is not None
    assert found.efficiency_floor is not None

    def work(devices: float) -> float:
        return devices * (SERIAL + PARALLEL / devices)

    assert work(8) / work(found.efficiency_floor) == pytest.approx(floor, abs=0.02)
    assert found.fastest is None  # a law without a cost a device never gets slower
