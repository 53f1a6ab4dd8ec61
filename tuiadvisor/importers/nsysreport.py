"""`import nsys`: what `import kineto` says, of Nsight Systems' exports; and the run.

In: an .sqlite file or a folder of them.  Out: the document with its text, and ImportedRun.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.importers.imported import ImportedRun, NoStepsError
from tuiadvisor.importers.kinetoreport import kineto_document, kineto_summary
from tuiadvisor.importers.kinetorun import kineto_run

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.importers.imported import Progress

WORDS: Final = "Nsight Systems' SQLite export, by the devices' clocks"
NO_STEPS: Final = (
    "no NVTX range is called step or iteration, so there are no steps for a recording: "
    'torch.cuda.nvtx.range_push(f"step {n}") around each'
)
BY_DEVICE: Final = (
    "ranks are the numbers of their devices: Nsight Systems does not say which process is of which rank"
)


def nsys_document(path: Path, progress: Progress | None = None) -> dict[str, Any]:
    """As of profiler traces."""
    return _told(kineto_document(path, progress=progress))


def nsys_run(path: Path, progress: Progress | None = None) -> tuple[dict[str, Any], ImportedRun]:
    """(the import's document, the run). NoStepsError where no range is a step."""
    try:
        document, run = kineto_run(path, (), progress)
    except NoStepsError as error:
        raise NoStepsError(f"{path}: {NO_STEPS}", error.document and _told(error.document)) from None
    document = _told(document)
    notes = (*run.notes, BY_DEVICE) if BY_DEVICE in document["losses"] else run.notes
    return document, replace(run, kind="nsys", words=WORDS, notes=notes)


def nsys_summary(document: dict[str, Any]) -> str:
    """In lines."""
    return kineto_summary(document)


def _told(document: dict[str, Any]) -> dict[str, Any]:
    document["source"]["kind"] = "nsys"
    if any(" process " in row["file"] and row["rank"] is not None for row in document["per_rank"]):
        document["losses"].append(BY_DEVICE)
    return document
