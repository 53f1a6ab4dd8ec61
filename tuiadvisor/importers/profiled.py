"""What a profiler saw of a device, as events that PyTorch's profiler names: so one reader judges all of them.

In: spans in nanoseconds with a name.  Out: events for `importers.trace_columns`, in batches. Steps are ranges of the
user's that are called a step or an iteration; those with an operator's name are operators.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH: Final = 20_000
LARGEST_NS: Final = (1 << 61) - 1
THREADS: Final = 1 << 24
MAX_NAME: Final = 400
STEP: Final = re.compile(
    r"(?:profilerstep#|(?:train(?:ing)?[ _-]?)?(?:step|iter|iteration|batch)[ _:#=-]*)(\d{1,9})",
    re.IGNORECASE,
)
UNNUMBERED: Final = re.compile(r"(?:train(?:ing)?[ _-]?)?(?:step|iteration)", re.IGNORECASE)
OPERATOR: Final = re.compile(r"[a-z_0-9]+::|\w+Backward\d*\b")
EMITTED: Final = re.compile(
    r", (?:seq|op_id|sizes|input_op_ids|stid) = "
)  # torch.autograd.profiler.emit_nvtx


class Ranges:
    """Ranges of one process in order: steps without a number are counted."""

    def __init__(self) -> None:
        self._num_steps = 0

    def event(self, name: str, span: tuple[int, int], thread: int) -> dict[str, Any]:
        """A step, an operator, or a range that says what it is of."""
        name = EMITTED.split(name[:MAX_NAME], maxsplit=1)[0].strip()
        step = STEP.fullmatch(name)
        if step or UNNUMBERED.fullmatch(name):
            number = step[1] if step else self._num_steps
            self._num_steps += 1
            return event("user_annotation", f"ProfilerStep#{number}", span, thread, {})
        return event("cpu_op" if OPERATOR.match(name) else "user_annotation", name, span, thread, {})


def is_span(start: Any, end: Any) -> bool:
    """Whether these are times of one event."""
    return type(start) is int and type(end) is int and 0 <= start <= end <= LARGEST_NS


def event(
    category: str, name: str, span: tuple[int, int], thread: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    """As PyTorch's profiler writes one."""
    start, end = span
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": thread % THREADS,
        # Microseconds as text: nanoseconds since a boot do not fit a double's.
        "ts": f"{start // 1000}.{start % 1000:03d}",
        "dur": f"{(end - start) // 1000}.{(end - start) % 1000:03d}",
        "args": arguments,
    }


def timeless(category: str, name: str, place: int) -> dict[str, Any]:
    """What ran at no usable time: whoever reads it counts it."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": place,
        "ts": None,
        "dur": None,
        "args": {},
    }


def batched(events: Iterator[dict[str, Any]]) -> Iterator[list[Any]]:
    """So many at a time."""
    batch: list[Any] = []
    for one in events:
        batch.append(one)
        if len(batch) >= BATCH:
            yield batch
            batch = []
    yield batch
