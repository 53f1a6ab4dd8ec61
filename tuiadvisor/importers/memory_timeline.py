"""`import memory FILE`: torch.profiler's memory timeline, for the question what the device's memory was full of.

In: what `prof.export_memory_timeline("x.json")` writes (torch/profiler/_memory_profiler.py): [times, sizes], times in
microseconds, a list of bytes at each, 0 and then one a category in the order of CATEGORIES. Or what it writes to
"x.raw.json.gz": a row a change, its time in nanoseconds, -1 for what was there before.
Out: the document: the peak, what it was made of, what grows from peak to peak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import read_whole
from tuiadvisor.importers.jsontext import parsed
from tuiadvisor.metrics.traces.op_table import counted

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 256 << 20
LARGEST: Final = 1 << 53
LARGEST_NS: Final = 1 << 62
CHANGE: Final = ("time_ns", "action", "bytes", "category")  # a row of the raw form
CATEGORIES: Final = (
    *("parameters", "optimizer state", "inputs", "temporaries", "activations", "gradients"),
    *("autograd details", "unknown"),
)
FEW: Final = 8
HOW: Final = "write it with prof.export_memory_timeline('memory.json', device='cuda:0')"


def memory_document(path: Path) -> dict[str, Any]:
    """The peak and its parts. TuiadvisorError on anything else than a timeline."""
    time_us, parts = _read(path)
    total = parts.sum(axis=1)
    peak = int(np.argmax(total))
    half = total.size // 2
    growth = _growth(total)
    by_part = {name: int(parts[peak, at]) for at, name in enumerate(CATEGORIES)}
    largest = max(by_part, key=lambda name: by_part[name])
    return {
        "schema": 1,
        "source": {"kind": "memory", "path": str(path)},
        "samples": int(total.size),
        "span_s": float(time_us[-1] - time_us[0]) / 1e6,
        "peak_bytes": int(total[peak]),
        "peak_at_s": float(time_us[peak] - time_us[0]) / 1e6,
        "at_peak_bytes": by_part,
        "largest": largest,
        "last_bytes": int(total[-1]),
        "growth_bytes": growth,
        "peak_first_half_bytes": int(total[:half].max()) if half else None,
        "peak_second_half_bytes": int(total[half:].max()),
        "unknown": [
            {
                "metric": "out of memory",
                "why": "the timeline holds what tensors take; caches, contexts and NCCL do not",
            }
        ],
        "losses": [],
    }


def _growth(total: np.ndarray[Any, Any]) -> int | None:
    """By how much the least of the second half lies above that of the first; None: too few samples."""
    half = total.size // 2
    return int(total[half:].min() - total[:half].min()) if half >= FEW else None


Columns = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def _read(path: Path) -> Columns:
    """(microseconds, bytes of each category)."""
    try:
        content = parsed(read_whole(path, MAX_BYTES))
    except orjson.JSONDecodeError as error:
        raise TuiadvisorError(f"{path}: truncated or not JSON ({error}); {HOW}") from None
    if not isinstance(content, list) or not all(isinstance(each, list) for each in content):
        raise TuiadvisorError(f"{path}: no list of times beside one of sizes; {HOW}")
    # A timeline of as many samples as a change has cells holds lists.
    if content and all(len(row) == len(CHANGE) and not isinstance(row[0], list) for row in content):
        return _of_changes(path, content)
    if len(content) != len(("times", "sizes")) or not content[0] or len(content[0]) != len(content[1]):
        raise TuiadvisorError(f"{path}: no list of times beside one of sizes; {HOW}")
    times, sizes = content
    width = len(CATEGORIES) + 1
    if not all(isinstance(row, list) and len(row) == width for row in sizes):
        raise TuiadvisorError(f"{path}: not {width} sizes at each time, as torch 2.1 and later write; {HOW}")
    _check(path, [*times, *(cell for row in sizes for cell in row)], LARGEST)
    return np.array(times, dtype=np.float64), np.maximum(np.array(sizes, dtype=np.float64)[:, 1:], 0)


def _of_changes(path: Path, rows: list[list[Any]]) -> Columns:
    """What lives after each moment's changes; what was there before the first has no time of its own."""
    _check(path, [cell for row in rows for cell in row], LARGEST_NS)
    time_ns, _, size, category = (np.array(column) for column in zip(*rows, strict=True))
    if not ((category >= 0) & (category < len(CATEGORIES)) & (category == np.floor(category))).all():
        raise TuiadvisorError(f"{path}: a category that torch does not have; {HOW}")
    parts = np.zeros((len(rows), len(CATEGORIES)))
    parts[np.arange(len(rows)), category.astype(np.int64)] = size
    is_last = np.append(time_ns[1:] != time_ns[:-1], True)
    known = time_ns[time_ns >= 0]
    first = int(known[0]) if known.size else 0
    time_us = (np.where(time_ns < 0, first, time_ns)[is_last] - first) / 1e3
    return time_us, np.maximum(np.cumsum(parts, axis=0)[is_last], 0)


def _check(path: Path, cells: list[Any], largest: int) -> None:
    if not all(type(cell) in {int, float} and -largest < cell < largest for cell in cells):
        raise TuiadvisorError(f"{path}: a time or size that is no number; {HOW}")


def memory_summary(document: dict[str, Any]) -> str:
    """The document in lines."""
    peak = document["peak_bytes"]
    lines = [
        f"{document['source']['path']}: {counted(document['samples'], 'sample')} over {document['span_s']:.4g} s",
        f"peak {_size(peak)} at {document['peak_at_s']:.4g} s, at the end {_size(document['last_bytes'])}",
    ]
    for name, size in sorted(document["at_peak_bytes"].items(), key=lambda item: -item[1]):
        if size:
            lines.append(f"  {100 * size / peak:5.1f} %  {_size(size):>16}  {name}")
    growth = document["growth_bytes"]
    if growth is not None and growth > 0:
        lines.append(f"its minimum rose by {_size(growth)} from the first half to the second")
    return "\n".join([*lines, *(f"unknown {item['metric']}: {item['why']}" for item in document["unknown"])])


def _size(size: float) -> str:
    if size < 2**10:
        return f"{size:.0f} B"
    return f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB"
