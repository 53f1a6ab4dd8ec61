"""A profiler's trace beside a recording of the same job: read, brought together, written as a new recording."""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuiadvisor.app.progress import Rereading
from tuiadvisor.cli.options.peaks import measured_peaks
from tuiadvisor.cli.recording_with_trace import beside, recorded, with_trace
from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.exporters.rewrite import refuse_existing, write_recording
from tuiadvisor.importers.traced import traced_job
from tuiadvisor.shellword import shell_word
from tuiadvisor.text.format import ranks as named_ranks
from tuiadvisor.text.printed import say_on_stderr
from tuiadvisor.text.terminal import shows_screens

if TYPE_CHECKING:
    from tuiadvisor.app.opening import OpeningDesk
    from tuiadvisor.cli.recording_with_trace import Beside
    from tuiadvisor.importers.imported import Progress


def write_beside(
    recording: Path, trace: Path, output: str, progress: Progress
) -> tuple[dict[str, Any], Beside]:
    """(what the import says of the trace, what was added). TuiadvisorError: why they do not fit; nothing is written."""
    refuse_existing(output)
    if not recording.is_file():
        raise TuiadvisorError(f"{recording}: no such recording; tuiadvisor runs lists those of a folder")
    job = traced_job(trace, measured_peaks(), progress)
    reading = Rereading(str(recording))
    try:
        added = beside(trace.resolve().name or str(trace), job, recorded(reading))
    except TuiadvisorError as error:
        raise TuiadvisorError(f"{one_line(str(trace))} beside {one_line(str(recording))}: {error}") from None
    write_recording(output, with_trace(reading, added))
    return job.document, added


def sentence(added: Beside, output: str) -> str:
    """What was put where."""
    first, last = added.steps
    return (
        f"{output}: with the trace of {named_ranks(added.ranks)} in steps {first} to {last}; "
        f"tuiadvisor replay {shell_word(output)}, then K and Z"
    )


def open_beside(recording: Path, trace: Path, options: argparse.Namespace, progress: Progress) -> int:
    """The recording with the trace's detail: its screens, or its summary or document; nothing is left behind."""
    name = recording.resolve().name.replace(os.sep, "_")
    with tempfile.TemporaryDirectory(prefix="tuiadvisor-") as folder:
        path = str(Path(folder, name))
        if options.json or options.once or not shows_screens():
            _, added = write_beside(recording, trace, path, progress)
            say_on_stderr(sentence(added, str(recording)).partition(";")[0])
            commands = importlib.import_module("tuiadvisor.cli.commands")
            words = ["diagnose", "--json", path] if options.json else ["replay", "--once", path]
            code: int = commands.run(words)
            return code
        replay = importlib.import_module("tuiadvisor.cli.replay")
        replayed = argparse.ArgumentParser()
        replay.add_options(replayed)
        picture = importlib.import_module("tuiadvisor.cli.first_picture").FirstPicture

        def prepare(opening: OpeningDesk) -> None:
            write_beside(recording, trace, path, picture(opening))
            importlib.import_module("tuiadvisor.app.stand_ins").stand_in(path, str(recording))

        replay.show(replayed.parse_args([path]), None, prepare, ("reading", one_line(str(trace))))
    return 0
