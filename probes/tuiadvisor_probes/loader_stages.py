"""Which stage of the data loader a batch waits in, seen for the few steps of a burst and gone between them.

How many batches lie in the loader's queues when the training thread asks for its next one tells who is behind: nothing
anywhere, the workers; batches before the thread that pins them, that thread; a batch that lies ready and still takes
its time, the handing over itself. A loader without workers tells how long it collated. Two lengths of queues a batch,
2 us, and nothing that could wait.
"""

from __future__ import annotations

from functools import update_wrapper
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from .attributes import own
from .guard import INSPECTION, attempt
from .packed_lengths import squares
from .step_clock import GONE, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .guard import Hook
    from .host import Host

KIND_LOADER_BATCH, KIND_PACKED_BATCH = 52, 53
BATCHES_HELD_BITS = 20  # of an event's detail; above them the batches not yet made, plus one
SINGLE, MULTIPLE = "SingleProcessDataLoaderIter", "MultiProcessingDataLoaderIter"
STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"


def install(probe: Host) -> None:
    """In bursts, once a loader is there to be looked at."""

    def patch(module: Any) -> None:
        for prefix in ("_", "_Stateful"):
            for name, told in ((SINGLE, told_alone), (MULTIPLE, told_of_queues)):
                iterators = getattr(module, prefix + name, None)
                if iterators is not None and "_next_data" in vars(iterators):
                    probe.detail.only(iterators, "_next_data", _maker(probe, told))

    for name in ("torch.utils.data.dataloader", STATEFUL):
        probe.when_loaded(name, None, patch)


def _maker(probe: Host, told: Any) -> Callable[[Any], Any]:
    hook = probe.hook("loader_stages")

    def make(original: Any) -> Any:
        """Of one burst."""
        seen = told(probe, original, hook)

        def tuiadvisor_hook(iterator: Any) -> Any:
            clock = probe.clock
            if (
                get_ident() != clock.own[0]
                or not hook.active
                or not clock.detail_flag
                or clock.thin.alert & GONE
            ):
                return original(iterator)
            return seen(iterator)

        return update_wrapper(tuiadvisor_hook, original, updated=())

    return make


def told_of_queues(probe: Host, original: Any, hook: Hook) -> Callable[[Any], Any]:
    """A batch that worker processes make: what lay in the queues when it was asked for."""
    clock = probe.clock

    def tuiadvisor_hook(iterator: Any) -> Any:
        begin_ns = monotonic_ns()
        lengths = attempt(hook, _queued, iterator)
        asked_ns = monotonic_ns()
        batch = original(iterator)  # raises at the end of an epoch: no batch, no event
        came_ns = monotonic_ns()
        if lengths is not None:
            *queued, making = lengths
            num_workers, num_ready, num_behind, num_held = attempt(hook, _in_turn, iterator, queued) or queued
            detail = num_held + ((making + 1) << BATCHES_HELD_BITS)
            values = (clock.step, asked_ns, came_ns, num_workers, num_ready, num_behind, detail)
            attempt(hook, probe.ring.put_event, KIND_LOADER_BATCH, values)
        _tell_lengths(probe, hook, batch, came_ns)
        clock.own_ns += asked_ns - begin_ns + monotonic_ns() - came_ns
        return batch

    return tuiadvisor_hook


def told_alone(probe: Host, original: Any, hook: Hook) -> Callable[[Any], Any]:
    """A batch that the training thread makes itself: how long it collated, where its fetcher lets that be seen."""
    clock = probe.clock

    def tuiadvisor_hook(iterator: Any) -> Any:
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        collate: Any = own(fetcher).get("collate_fn")
        spent: list[int] = []

        def tuiadvisor_hook(samples: Any) -> Any:
            begin_ns = monotonic_ns()
            batch = collate(samples)
            spent.append(monotonic_ns() - begin_ns)
            return batch

        asked_ns = monotonic_ns()
        if callable(collate):
            object.__setattr__(fetcher, "collate_fn", tuiadvisor_hook)
        try:
            batch = original(iterator)
        finally:
            if callable(collate):
                object.__setattr__(fetcher, "collate_fn", collate)
        came_ns = monotonic_ns()
        values = (clock.step, asked_ns, came_ns, 0, UNKNOWN, UNKNOWN, sum(spent) if spent else UNKNOWN)
        attempt(hook, probe.ring.put_event, KIND_LOADER_BATCH, values)
        _tell_lengths(probe, hook, batch, came_ns)
        clock.own_ns += monotonic_ns() - came_ns
        return batch

    return tuiadvisor_hook


def _tell_lengths(probe: Host, hook: Hook, batch: Any, came_ns: int) -> None:
    """Of sequences that share a row, where the batch tells them."""
    found = attempt(INSPECTION, squares, batch)
    if found is not None:
        num, tokens, sum_of_squares = found
        values = (probe.clock.step, came_ns, came_ns, num, tokens, UNKNOWN, sum_of_squares)
        attempt(hook, probe.ring.put_event, KIND_PACKED_BATCH, values)


def _queued(iterator: Any) -> tuple[int, int, int, int, int]:
    """(workers, batches ready for this thread, made and not yet pinned or UNKNOWN, held as not in turn, being made)."""
    ready = iterator._data_queue
    made = iterator._worker_result_queue
    num_behind = UNKNOWN if made is ready else made.qsize()
    num_ready, num_held = ready.qsize(), _held(iterator)
    num_made = num_ready + num_held + max(num_behind, 0)
    return iterator._num_workers, num_ready, num_behind, num_held, max(len(iterator._task_info) - num_made, 0)


def _held(iterator: Any) -> int:
    """Batches that were read and are not yet in turn."""
    return sum(len(info) == 2 for info in iterator._task_info.values())


def _in_turn(iterator: Any, asked: Sequence[int]) -> Sequence[int]:
    """What was seen at asking, with batches in a queue only where the one in turn may have been among them.

    A queue does not tell whose batches it has. But all that were read for this one are held now: if they are more than
    lay there, the one in turn came after those, which were not in turn.
    """
    workers, num_ready, num_behind, num_held = asked
    num_read = 1 + _held(iterator) - num_held
    if num_read <= num_ready:
        return asked
    if num_behind > 0 and num_read > num_ready + num_behind:
        return workers, 0, 0, num_held + num_ready + num_behind
    return workers, 0, num_behind, num_held + num_ready
