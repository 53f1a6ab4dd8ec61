"""Which gradients DDP's reducer sends together, and when they became ready: the timeline of one gradient exchange.

The reducer fills its buckets in the order in which gradients become ready and launches them in that order. Which
gradient is in which bucket is worked out once a module (50 us and 1 us a gradient), from the sizes of the buckets that
DDP tells its own logger. In detail each exchange is told as events: one a piece (gradients of one bucket that became
ready one after another), so that other sizes of buckets can be thought through later, and one that closes them. Both
cost 30 ns a gradient and 1 us a piece, in steps that are recorded in detail and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .attributes import unheard

if TYPE_CHECKING:
    from collections.abc import Callable

KIND_GRADIENT_BUCKETS, KIND_BUCKET_PIECE = 49, 50
NUM_UNTIL_REBUILT = (
    10  # iterations; DDP rebuilds its buckets in the second or never, and tells it by the tenth
)
NUM_PIECES = 24  # about so many of equal bytes, never across a bucket; the last gradient is one by itself
MAX_BUCKETS = 64  # of more nothing is told but where communication begins


class Layout:
    """The gradients of one DDP module by bucket, by their number in the reducer's list."""

    __slots__ = ("first", "num_buckets", "num_bytes", "num_elements", "pieces")

    def __init__(self, buckets: list[tuple[int, ...]], sizes: list[int], num_elements: int) -> None:
        """No bucket: where communication begins is not sure. sizes: bytes of each gradient."""
        self.first: tuple[int, ...] = buckets[0] if buckets else ()
        self.num_buckets = len(buckets)
        self.num_bytes = sum(sizes)
        self.num_elements = num_elements
        whole = sum(map(len, buckets)) == len(sizes) and len(buckets) <= MAX_BUCKETS
        self.pieces: list[tuple[int, int, tuple[int, ...]]] = _pieces(buckets, sizes) if whole else []

    def tell(
        self, put_event: Callable[..., None], step: int, ready: list[int], moments: tuple[int, int, int]
    ) -> None:
        """Events of an exchange. ready: ns after the first moment; the others: backward's begin and its end."""
        if not self.pieces:
            return
        base_ns, begin_ns, end_ns = moments
        for place, (bucket, num_bytes, numbers) in enumerate(self.pieces):
            times = [ready[number] for number in numbers]
            put_event(
                KIND_BUCKET_PIECE,
                (step, base_ns + min(times), base_ns + max(times), bucket, place, num_bytes, len(numbers)),
            )
        put_event(
            KIND_GRADIENT_BUCKETS,
            (
                step,
                begin_ns,
                end_ns,
                self.num_buckets,
                len(self.pieces),
                self.num_bytes,
                self.num_elements,
            ),
        )


def layout(module: Any, ready: list[int]) -> Layout | None:
    """How DDP's reducer has divided its gradients; None: its books do not tell yet.

    Buckets are filled in the order in which gradients became ready, or, where they are never rebuilt, from the last
    parameter on. On a device the host's times say nothing of communication, and no bucket is told.
    """
    with unheard():
        parameters = [parameter for parameter in module._module_parameters if parameter.requires_grad]
        sizes = [parameter.nbytes for parameter in parameters]
        num_elements = sum(parameter.numel() for parameter in parameters)
    if getattr(module, "device_type", "") != "cpu" or len(sizes) != len(ready):
        return Layout([], sizes, num_elements)
    books = module._get_ddp_logging_data()
    if books.get("has_rebuilt_buckets"):
        order = sorted(range(len(ready)), key=ready.__getitem__)
        wanted = books.get("rebuilt_bucket_sizes")
    elif books.get("iteration", 0) >= NUM_UNTIL_REBUILT:
        order = list(range(len(ready) - 1, -1, -1))
        wanted = books.get("bucket_sizes")
    else:
        return None
    wanted_bytes = [int(size) for size in str(wanted).split(",") if size.strip().isdigit()]
    return Layout(_filled(order, sizes, wanted_bytes), sizes, num_elements)


def _filled(order: list[int], sizes: list[int], wanted: list[int]) -> list[tuple[int, ...]]:
    """Buckets of exactly the wanted bytes, filled in this order, as far as they come out."""
    buckets: list[tuple[int, ...]] = []
    start = 0
    for left in wanted:
        stop = start
        while left > 0 and stop < len(order):
            left -= sizes[order[stop]]  # noqa: PLW2901 - what is left to fill
            stop += 1
        if left or stop == start:
            break
        buckets.append(tuple(order[start:stop]))
        start = stop
    return buckets


def _pieces(buckets: list[tuple[int, ...]], sizes: list[int]) -> list[tuple[int, int, tuple[int, ...]]]:
    """(bucket, bytes, gradients) of each piece, in the order of launch."""
    enough = -(-sum(sizes) // NUM_PIECES)
    last = buckets[-1][-1]  # what it takes no order and no size of buckets can hide
    pieces = []
    for bucket, numbers in enumerate(buckets):
        held: list[int] = []
        num_bytes = 0
        for number in numbers:
            if held and number == last:
                pieces.append((bucket, num_bytes, tuple(held)))
                held, num_bytes = [], 0
            held.append(number)
            num_bytes += sizes[number]
            if num_bytes >= enough or number == numbers[-1]:
                pieces.append((bucket, num_bytes, tuple(held)))
                held, num_bytes = [], 0
    return pieces
