"""A report of one or more recordings: the session beside each, the sizes, and the file."""

from __future__ import annotations

import re
import time
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from tuiadvisor import __version__
from tuiadvisor.app.advising import GuidedAdvice, session_file
from tuiadvisor.app.progress import read_frames
from tuiadvisor.app.sizing import Sizing
from tuiadvisor.app.stand_ins import beside, name_of
from tuiadvisor.errors import unwritable
from tuiadvisor.events import NOTHING_GIVEN
from tuiadvisor.report.markdown import markdown_report
from tuiadvisor.report.page import Dossier, html_report
from tuiadvisor.session.recorded import Recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.compare.measured import Measured
    from tuiadvisor.events import GivenWork
    from tuiadvisor.scaling.picture import Picture
    from tuiadvisor.session.guided import Guided
    from tuiadvisor.views.comparison import Comparison
    from tuiadvisor.views.run_view import RunView


def session_of(path: str, given: GivenWork = NOTHING_GIVEN) -> Guided | None:
    """The guided session that lies beside a recording, held again on it; None where there is none."""
    file = session_file(path)
    if file is None or not file.exists():
        return None
    conductor = GuidedAdvice(path, file, (), None)
    conductor.read(read_frames, given)
    return conductor.conduct()


def sizes_of(measured: Sequence[Measured]) -> Picture:
    """The last run among the sizes of those before it; alone, what its own step bounds. TuiadvisorError if the
    project's file of intent is bad.
    """
    runs = [
        Recorded(Path(one.path).stem, one.view, one.unit.gradient_bytes, one.unit.num_collectives)
        for one in reversed(measured)
    ]
    sizing = Sizing()
    sizing.take(runs)
    return sizing.picture()


def report_of_shown(
    recording: str,
    view: RunView,
    session: Guided | None,
    comparison: Comparison | None,
    sizing: Sizing | None,
) -> Path:
    """Write what the screens show of a run beside its recording, "" for a live run that is kept nowhere; where it is.

    session, comparison, sizing: what the screens hold; of another run they are left out.
    """
    kept, named = beside(recording), name_of(recording)
    name = f"{kept.stem or _file_name(view.run.label)}-step{view.last_step or 0}.html"
    path = (kept.parent if recording else Path.cwd()) / PurePath(name).name
    if session is not None and session.run not in {named, view.run.label}:
        session = None
    if comparison is not None and recording not in {comparison.before.path, comparison.after.path}:
        comparison = None
    dossier = Dossier(named or "live run", view, session)
    write_report(str(path), [dossier], comparison, _sizes_of_shown(recording, view, sizing))
    return path


def _file_name(label: str) -> str:
    """A training's name as a file may be called that people type and paste: the label is a stranger's word."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", label).strip(".-") or "run"


def _sizes_of_shown(recording: str, view: RunView, sizing: Sizing | None) -> Picture:
    """What the screen of scaling says of this run; where it was not looked at, what the run alone says."""
    if sizing is not None and sizing.current == recording:
        return sizing.picture()
    alone = Sizing()
    alone.take([Recorded(Path(recording).stem or view.run.label or "this run", view)])
    return alone.picture()


def write_report(
    path: str, dossiers: Sequence[Dossier], comparison: Comparison | None, sizes: Picture | None = None
) -> None:
    """Write by rename, so that no half report is ever there. TuiadvisorError if it cannot be written."""
    made_by = f"tuiadvisor {__version__}, {time.strftime('%Y-%m-%d %H:%M')}"
    render = html_report if path.endswith(".html") else markdown_report
    text = render(dossiers, comparison, made_by, sizes)
    part = Path(f"{path}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
