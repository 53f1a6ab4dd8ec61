"""What is said of those who read for the ranks: that they wait for storage, compute, or neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.metrics.lateness.readers import Readers

METRICS: Final = """
job reader_words text what those do who read for the ranks; empty where it was not seen, or nothing is surely most of it
job readers_storage_share share of the looks at whoever reads for the ranks, those that found it waiting for storage
job readers_running_share share of the looks at the loaders' workers, those that found one computing or ready to
job readers_wait_for_storage flag 1 if that is mostly what they do; 0 if not, unknown where it was not seen
job readers_compute flag 1 if they mostly compute; 0 if not, unknown where it was not seen
job threads_compute flag 1 if training threads that make their batches themselves compute for most of that time
job readers_sleep flag 1 if they mostly do neither; 0 if not, unknown where it was not seen
"""


def measure(readers: Readers | None) -> Values:
    """Of all ranks together."""
    doing = readers.doing if readers is not None else None
    return {
        "reader_words": words(readers),
        "readers_storage_share": readers.storage if readers is not None else None,
        "readers_running_share": readers.running if readers is not None else None,
        "threads_compute": None if readers is None else int(doing == "computing" and not readers.in_workers),
        **{
            name: None if doing is None else int(doing == which)
            for name, which in (
                ("readers_wait_for_storage", "storage"),
                ("readers_compute", "computing"),
                ("readers_sleep", "neither"),
            )
        },
    }


def words(readers: Readers | None) -> str:
    """' (the loaders' workers wait for storage in 84 % of the looks at them)'; empty where nothing is sure."""
    said = "" if readers is None or readers.doing is None else _words(readers)
    return said and f" ({said})"


def _words(readers: Readers) -> str:
    storage = f"{100 * readers.storage:.0f} %"
    if readers.doing == "storage":
        who = "the loaders' workers wait" if readers.in_workers else "the training threads, which read, wait"
        return f"{who} for storage in {storage} of the looks at them"
    if not readers.in_workers:
        part = f"at least {100 * (readers.of_wait or 0.0):.0f} % of that time"
        if readers.doing == "computing":
            return f"the training threads make the batches themselves, and compute for {part}"
        return (
            f"the training threads make the batches themselves, and neither compute nor wait for a core or storage "
            f"for {part}, as where they wait for the network or a lock"
        )
    running = 0.0 if readers.running is None else readers.running
    if readers.doing == "computing":
        looks = f"{100 * running:.0f} % of the looks at them"
        return f"the loaders' workers compute in {looks} and wait for storage in {storage}"
    looks = f"{100 * (1 - running - readers.storage):.0f} % of the looks at them"
    return (
        f"the loaders' workers neither compute nor wait for a disk or mounted files in {looks}, "
        "as where they wait for the network or a lock"
    )
