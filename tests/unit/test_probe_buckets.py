"""Which gradients DDP sends together, as its logger tells it; and the rows that an exchange becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tuiadvisor.events import EventKind
from tuiadvisor_probes.buckets import MAX_BUCKETS, NUM_PIECES, layout

Row = tuple[int, tuple[int, ...]]


@dataclass
class Parameter:
    """What the probe asks of one."""

    nbytes: int
    requires_grad: bool = True

    def numel(self) -> int:
        """float32."""
        return self.nbytes // 4


class Module:
    """A DistributedDataParallel module's books."""

    def __init__(self, sizes: list[int], books: dict[str, Any], device_type: str = "cpu") -> None:
        self._module_parameters = [Parameter(size) for size in sizes]
        self._books = books
        self.device_type = device_type

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        return self._books


def rebuilt(*sizes: int) -> dict[str, Any]:
    """As DDP tells it after it has rebuilt its buckets."""
    return {"has_rebuilt_buckets": 1, "rebuilt_bucket_sizes": ", ".join(map(str, sizes))}


def told(found: Any, ready: list[int]) -> list[Row]:
    """Rows of an exchange in step 7: backward from 1,000 to 2,000, the reducer's clock from 900 on."""
    rows: list[Row] = []
    found.tell(lambda kind, slots: rows.append((kind, slots)), 7, ready, (900, 1000, 2000))
    return rows


def test_an_exchange_is_its_pieces_and_a_closing_row() -> None:
    """Two buckets, the last gradient a piece of its own; times on the host's clock."""
    ready = [500, 400, 300, 200]  # the last parameter first
    found = layout(Module([40, 80, 120, 40], rebuilt(160, 120)), ready)
    assert found is not None
    assert (3, 2) == found.first
    piece, closing = int(EventKind.BUCKET_PIECE), int(EventKind.GRADIENT_BUCKETS)
    assert [
        (piece, (7, 1100, 1100, 0, 0, 40, 1)),
        (piece, (7, 1200, 1200, 0, 1, 120, 1)),
        (piece, (7, 1300, 1300, 1, 2, 80, 1)),
        (piece, (7, 1400, 1400, 1, 3, 40, 1)),
        (closing, (7, 1000, 2000, 2, 4, 280, 70)),
    ] == told(found, ready)


def test_many_gradients_become_few_pieces_that_cross_no_bucket() -> None:
    """A thousand gradients in seven buckets: bytes and gradients are all there."""
    sizes = [40 + 4 * (number % 9) for number in range(1000)]
    ready = list(range(1000, 0, -1))
    order = sizes[::-1]
    bounds = [sum(order[start : start + 143]) for start in range(0, 1000, 143)]
    found = layout(Module(sizes, rebuilt(*bounds)), ready)
    assert found is not None
    assert 7 == found.num_buckets
    assert len(found.pieces) <= NUM_PIECES + 7 + 1
    assert bounds == [
        sum(size for bucket, size, _ in found.pieces if bucket == number) for number in range(7)
    ]
    assert list(range(999, -1, -1)) == [number for _, _, numbers in found.pieces for number in numbers]


def test_buckets_that_were_never_rebuilt_hold_the_last_parameters_first() -> None:
    """Known by the tenth iteration; before it nothing is."""
    books: dict[str, Any] = {"has_rebuilt_buckets": 0, "iteration": 3, "bucket_sizes": "120, 160"}
    assert layout(Module([40, 120, 120], books), [1, 2, 3]) is None
    found = layout(Module([40, 120, 120], books | {"iteration": 10}), [1, 2, 3])
    assert found is not None
    assert [2, 1, 0] == [number for _, _, numbers in found.pieces for number in numbers]


@pytest.mark.parametrize(
    ("module", "has_first"),
    [
        (Module([40, 80], rebuilt(120), "cuda"), False),
        (Module([40, 80], rebuilt(100)), False),
        (Module([40, 80, 40], rebuilt(40, 100)), True),
        (Module([40, 80], {"has_rebuilt_buckets": 1}), False),
        (Module([40, 80], {"has_rebuilt_buckets": 1, "rebuilt_bucket_sizes": "none"}), False),
        (Module([40, 80, 40, 40], rebuilt(40, 80, 80)), False),
    ],
)
def test_what_is_not_sure_is_not_told(module: Module, has_first: bool) -> None:
    """A device, sizes that no order makes, words instead of sizes, another number of gradients."""
    ready = [300, 200, 100][: len(module._module_parameters)]
    found = layout(module, ready)
    assert found is not None
    assert has_first == bool(found.first)
    assert [] == told(found, ready)


def test_of_too_many_buckets_only_the_first_is_told() -> None:
    """Where communication begins is known all the same."""
    num = MAX_BUCKETS + 1
    found = layout(Module([40] * num, rebuilt(*[40] * num)), list(range(num)))
    assert found is not None
    assert (0,) == found.first
    assert [] == told(found, list(range(num)))
