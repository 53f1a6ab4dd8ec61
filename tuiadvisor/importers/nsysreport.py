"""`import nsys`: what `import kineto` says, of Nsight Systems' exports; and the run.

In: an .sqlite file or a folder of them.  Out: the document with its text, and ImportedRun.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.importers.imported import ImportedRun, NoStepsError
from tuiadvisor.importers.kineto import demand_any
from tuiadvisor.importers.kinetoreport import kineto_document, kineto_summary
from tuiadvisor.importers.kinetorun import kineto_run
from tuiadvisor.importers.nsys import has_whole_graphs, is_nsys

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.importers.imported import Progress

WHAT: Final = "an SQLite export of Nsight Systems"
WORDS: Final = "Nsight Systems' SQLite export, by the devices' clocks"
NO_STEPS: Final = (
    "no NVTX range is called step or iteration, so there are no steps for a recording: "
    'torch.cuda.nvtx.range_push(f"step {n}") around each'
)
BY_DEVICE: Final = (
    "ranks are the numbers of their devices: Nsight Systems does not say which process is of which rank"
)
WHOLE_GRAPHS: Final = (
    "CUDA graphs were traced as a whole, so their kernels and what they communicate were not seen: "
    "nsys profile --cuda-graph-trace=node"
)


def nsys_document(path: Path, progress: Progress | None = None) -> dict[str, Any]:
    """As of profiler traces."""
    demand_any(path, is_nsys, WHAT)
    return _told(path, kineto_document(path, progress=progress))


def nsys_run(path: Path, progress: Progress | None = None) -> tuple[dict[str, Any], ImportedRun]:
    """(the import's document, the run). NoStepsError where no range is a step."""
    demand_any(path, is_nsys, WHAT)
    try:
        document, run = kineto_run(path, (), progress)
    except NoStepsError as error:
        raise NoStepsError(f"{path}: {NO_STEPS}", error.document and _told(path, error.document)) from None
    document = _told(path, document)
    notes = tuple(note for note in (BY_DEVICE, WHOLE_GRAPHS) if note in document["losses"])
    return document, replace(run, kind="nsys", words=WORDS, notes=(*run.notes, *notes))


def nsys_summary(document: dict[str, Any]) -> str:
    """In lines."""
    return kineto_summary(document)


def _told(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    document["source"]["kind"] = "nsys"
    if any(" process " in row["file"] and row["rank"] is not None for row in document["per_rank"]):
        document["losses"].append(BY_DEVICE)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    if any(has_whole_graphs(file) for file in files if file.is_file() and is_nsys(file)):
        document["losses"].append(WHOLE_GRAPHS)
    return document
