"""`import memory FILE`: torch.profiler's memory timeline, for the question what the device's memory was full of.

In: what `prof.export_memory_timeline("x.json")` writes (torch/profiler/_memory_profiler.py): [times, sizes], times in
microseconds, a list of bytes at each, 0 and then one a category in the order of CATEGORIES.
Out: the document: the peak, what it was made of, what grows from peak to peak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import read_whole

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 256 << 20
LARGEST: Final = 1 << 53
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


def _read(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    try:
        content = orjson.loads(read_whole(path, MAX_BYTES))
    except orjson.JSONDecodeError as error:
        raise TuiadvisorError(f"{path}: truncated or no JSON ({error}); {HOW}") from None
    is_pair = (
        isinstance(content, list) and len(content) == 2 and all(isinstance(each, list) for each in content)
    )
    if not is_pair or not content[0] or len(content[0]) != len(content[1]):
        raise TuiadvisorError(f"{path}: no list of times beside one of sizes; {HOW}")
    times, sizes = content
    width = len(CATEGORIES) + 1
    if not all(isinstance(row, list) and len(row) == width for row in sizes):
        raise TuiadvisorError(f"{path}: not {width} sizes at each time, as torch 2.1 and later write; {HOW}")
    cells = [*times, *(cell for row in sizes for cell in row)]
    if not all(type(cell) in {int, float} and -LARGEST < cell < LARGEST for cell in cells):
        raise TuiadvisorError(f"{path}: a time or size that is no number; {HOW}")
    return np.array(times, dtype=np.float64), np.maximum(np.array(sizes, dtype=np.float64)[:, 1:], 0)


def memory_summary(document: dict[str, Any]) -> str:
    """The document in lines."""
    peak = document["peak_bytes"]
    lines = [
        f"{document['source']['path']}: {document['samples']:,} samples over {document['span_s']:.4g} s",
        f"peak {_mib(peak)} at {document['peak_at_s']:.4g} s, at the end {_mib(document['last_bytes'])}",
    ]
    for name, size in sorted(document["at_peak_bytes"].items(), key=lambda item: -item[1]):
        if size:
            lines.append(f"  {100 * size / peak:5.1f} %  {_mib(size):>16}  {name}")
    growth = document["growth_bytes"]
    if growth is not None and growth > 0:
        lines.append(f"its minimum rose by {_mib(growth)} from the first half to the second")
    return "\n".join([*lines, *(f"unknown {item['metric']}: {item['why']}" for item in document["unknown"])])


def _mib(size: float) -> str:
    return f"{size / 2**20:,.1f} MiB"
