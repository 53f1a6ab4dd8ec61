"""`import rocprof`: what `import kineto` says, of rocprofv3's files; and the run.

In: a CSV, a rocpd database, or a folder of either.  Out: the document with its text, and ImportedRun.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.importers.imported import ImportedRun, NoStepsError
from tuiadvisor.importers.kineto import demand_any, of_rocprof
from tuiadvisor.importers.kinetoreport import kineto_document, kineto_summary
from tuiadvisor.importers.kinetorun import kineto_run

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.importers.imported import Progress

WHAT: Final = "what rocprofv3 writes"
WORDS: Final = "rocprofv3's traces, by the devices' clocks"
NO_STEPS: Final = (
    "no ROCTx range is called step or iteration, so there are no steps for a recording: "
    'roctxRangePush("step N") around each, with --marker-trace'
)
NO_RANK: Final = "rocprofv3 does not say which rank a process is of: -o rank%env{RANK}% puts it into the name"


def rocprof_document(path: Path, progress: Progress | None = None) -> dict[str, Any]:
    """As of profiler traces."""
    demand_any(path, of_rocprof, WHAT)
    return _told(kineto_document(path, progress=progress))


def rocprof_run(path: Path, progress: Progress | None = None) -> tuple[dict[str, Any], ImportedRun]:
    """(the import's document, the run). NoStepsError where no range is a step."""
    demand_any(path, of_rocprof, WHAT)
    try:
        document, run = kineto_run(path, (), progress)
    except NoStepsError as error:
        raise NoStepsError(f"{path}: {NO_STEPS}", error.document and _told(error.document)) from None
    return _told(document), replace(run, kind="rocprof", words=WORDS)


def rocprof_summary(document: dict[str, Any]) -> str:
    """In lines."""
    return kineto_summary(document)


def _told(document: dict[str, Any]) -> dict[str, Any]:
    document["source"]["kind"] = "rocprof"
    if len(document["per_rank"]) > 1 and any(row["rank"] is None for row in document["per_rank"]):
        document["losses"].append(NO_RANK)
    return document
