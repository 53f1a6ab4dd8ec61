"""Recordings and running trainings from Python: what the commands print, as objects, dicts and Arrow tables.

    import tuiadvisor
    run = tuiadvisor.open("run.tuirec")
    run.verdict.sentence
    run.steps()          # an Arrow table: pandas, Polars and DuckDB take it without a copy

Mistakes in what was asked are TuiadvisorError with the one line that the command would have printed.
"""

from __future__ import annotations

import argparse
import html
import logging
import operator
import threading
import time
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from tuiadvisor import __version__
from tuiadvisor.advisor.compare.comparing import NOISE_FLOOR, ComparisonOptions, measure
from tuiadvisor.advisor.compare.comparing import compare as compare_measured
from tuiadvisor.app.whole_recording import frames_of, whole_view
from tuiadvisor.cli.foreign import kept_recording
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import NOTHING_GIVEN
from tuiadvisor.exporters.arrow import arrow_table
from tuiadvisor.integrations.trackers import summary
from tuiadvisor.report.comparison import comparison_document
from tuiadvisor.report.document import document
from tuiadvisor.report.page import Dossier, html_report
from tuiadvisor.session.against_intent import with_intent
from tuiadvisor.session.economy import economy
from tuiadvisor.session.intent import FILE_NAME, changed, read_intent

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tuiadvisor.app.live_feed import LiveFeed
    from tuiadvisor.app.live_session import Session, Visit
    from tuiadvisor.events import GivenWork
    from tuiadvisor.views.run_view import Finding, RunView, Verdict

    StrPath = str | os.PathLike[str]

logger: Final = logging.getLogger("tuiadvisor")
FRAME_HEIGHT: Final = 640  # pixels of a report in a notebook
LOOK_S: Final = 0.2
HOW_TO_WATCH: Final = "with tuiadvisor.watch(...) as live: ... attaches, and takes the probes out at its end"


class Run:
    """A recording, or another tool's traces as one. Read when something is asked of it; each answer is kept."""

    def __init__(
        self, path: StrPath, given: GivenWork = NOTHING_GIVEN, intent: Mapping[str, object] | None = None
    ) -> None:
        """given: the work of a step as the user states it; intent: what the run is for, wins over the file here.

        TuiadvisorError where there is no such recording, or the intent has a mistake.
        """
        self.path = Path(path)
        self._given = given
        self._intent = changed(read_intent(FILE_NAME), intent or {})
        self.recording = kept_recording(str(self.path))
        next(iter(frames_of(self.recording)), None)  # what is no recording is said here

    @cached_property
    def view(self) -> RunView:
        """Everything that the screens show at its end, the verdict against the intent with it."""
        return with_intent(whole_view(self.recording, self._given), self._intent)

    @property
    def verdict(self) -> Verdict:
        """The one decision: tune, rescale, stop, keep, or None with the reason in its sentence."""
        return self.view.decided

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The surest and costliest first."""
        return self.view.findings

    def diagnose(self) -> dict[str, Any]:
        """The document of `tuiadvisor diagnose --json`."""
        return {**document(self.view), "economics": economy(self.view, self._intent)}

    def summary(self) -> dict[str, float | str]:
        """Figures and verdict as a flat dict for W&B, MLflow or TensorBoard; what is not known is absent."""
        return summary(self.diagnose())

    def steps(self) -> Any:
        """A row a rank and step: pyarrow.Table, times in ns, null where unknown. Needs pyarrow."""
        return self._table("steps")

    def events(self) -> Any:
        """A row an event (collective, checkpoint, garbage collection, chunk): pyarrow.Table. Needs pyarrow."""
        return self._table("events")

    def ranks(self) -> Any:
        """A row a rank: pyarrow.Table. Needs pyarrow."""
        return self._table("ranks")

    def hosts(self) -> Any:
        """A row a host and second: pyarrow.Table. Needs pyarrow."""
        return self._table("hosts")

    def report(self) -> str:
        """The HTML report as one file that loads and runs nothing."""
        return html_report([Dossier(self.path.name, self.view)], None, f"tuiadvisor {__version__}")

    def _table(self, name: str) -> Any:
        return arrow_table(partial(_reading, self.recording), name)

    def _repr_html_(self) -> str:
        """The report in a frame."""
        return _framed(self.report())

    def __repr__(self) -> str:
        """The verdict in one line."""
        return f"<tuiadvisor.Run {self.path.name!r}: {self.verdict.sentence}>"


def open(  # noqa: A001  read as tuiadvisor.open
    path: StrPath, given: GivenWork = NOTHING_GIVEN, intent: Mapping[str, object] | None = None
) -> Run:
    """A recording, packed or not, or what `tuiadvisor open` takes and has steps. TuiadvisorError where it is none.

    intent: what `tuiadvisor intent` takes (objective, budget, remaining_steps, ...); it wins over the file here.
    """
    return Run(path, given, intent)


def compare(
    before: StrPath | Run,
    after: StrPath | Run,
    *,
    noise: float = NOISE_FLOOR,
    fail_if_slower: float | None = None,
    same_work: bool = False,
    ignore_load: bool = False,
) -> dict[str, Any]:
    """The document of `tuiadvisor compare --json`: improved, regressed, no change, not decided or not comparable.

    noise, fail_if_slower: shares, 0.02 is 2 %.
    """
    measured = [measure(_path(run), frames_of(_recording(run))) for run in (before, after)]
    asked = ComparisonOptions(noise, fail_if_slower, same_work, ignore_load)
    return comparison_document(compare_measured(measured[0], measured[1], asked))


def scale(*runs: StrPath | Run, table: StrPath | None = None, predict: Sequence[int] = ()) -> dict[str, Any]:
    """The document of `tuiadvisor scale --json`: recordings of one training at several sizes, or a CSV table of them.

    predict: numbers of devices. Sizes are judged by what the project's file here states (`tuiadvisor intent`).
    """
    from tuiadvisor.cli.scale import measured_sizes, over_stated  # noqa: PLC0415  needs scipy, an extra
    from tuiadvisor.scaling.analysis import analyse  # noqa: PLC0415
    from tuiadvisor.scaling.cost import Aim  # noqa: PLC0415
    from tuiadvisor.scaling.document import document as scaling_document  # noqa: PLC0415
    from tuiadvisor.scaling.series import Target  # noqa: PLC0415

    if (table is None) == (not runs) or len(runs) == 1:
        raise TuiadvisorError("give recordings of two sizes or more, or table=CSV: one of the two")
    sizes = measured_sizes([_path(run) for run in runs], None if table is None else str(table))
    aim, note = over_stated(Aim(), sizes)
    if note:
        logger.warning(note)
    return scaling_document(sizes, analyse(sizes, [Target(size) for size in predict], aim), aim)


class LiveRun:
    """A training while it is watched; a context manager that takes the probes out again."""

    def __init__(
        self, pids: Sequence[int], output: StrPath | None, on_finding: Callable[[dict[str, Any]], None] | None
    ) -> None:
        self._arguments = [f"--pid={_process(pid)}" for pid in pids]
        self._arguments += [] if output is None else [f"--output={output}"]
        self._on_finding = on_finding
        self._session: Session | Visit | None = None
        self._feed: LiveFeed | None = None
        self._stack = ExitStack()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Attach. TuiadvisorError where there is nothing to attach to."""
        from tuiadvisor.cli import watch as command  # noqa: PLC0415
        from tuiadvisor.cli import watching  # noqa: PLC0415

        parser = argparse.ArgumentParser("tuiadvisor.watch", exit_on_error=False)
        command.add_options(parser)
        with self._stack as stack:
            self._session, self._feed = watching.begin(parser.parse_args(self._arguments), stack)
            self._stack = stack.pop_all()
        self._begin_telling()
        return self

    def __exit__(self, *_: object) -> None:
        """Probes out; the recording, if one was asked for, is closed."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(5.0)
        self._stack.close()

    @property
    def view(self) -> RunView | None:
        """The newest view; None before the first frame."""
        return None if self._feed is None else self._feed.latest().view

    @property
    def verdict(self) -> Verdict | None:
        """The decision at this moment, or why there is none yet; None before the first frame."""
        return None if self.view is None else self.view.decided

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those that are open at this moment, the surest and costliest first."""
        return () if self.view is None else self.view.findings

    def wait(self, timeout_s: float = 60.0) -> Verdict | None:
        """Until there is a decision; None where there is none after so long, or the ranks have ended before."""
        session, feed = self._session, self._feed
        if session is None or feed is None:
            raise TuiadvisorError(f"nothing is watched yet: {HOW_TO_WATCH}")
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and not session.agent_ended():
            if feed.failure is not None:
                raise feed.failure
            view = self.view
            if view is not None and view.decided.decision is not None:
                return view.decided
            time.sleep(LOOK_S)
        return None

    def _repr_html_(self) -> str:
        """The report of what was seen so far, in a frame."""
        view = self.view
        if view is None:
            return html.escape(repr(self))
        name = view.run.label or "training"
        return _framed(html_report([Dossier(name, view)], None, f"tuiadvisor {__version__}"))

    def __repr__(self) -> str:
        """The verdict in one line."""
        view = self.view
        return f"<tuiadvisor.LiveRun: {'nothing seen yet' if view is None else view.decided.sentence}>"

    def _begin_telling(self) -> None:
        if self._on_finding is not None:
            told = partial(self._tell, self._on_finding)
            self._thread = threading.Thread(target=told, name="tuiadvisor-findings", daemon=True)
            self._thread.start()

    def _tell(self, on_finding: Callable[[dict[str, Any]], None]) -> None:
        from tuiadvisor.outlets.notices import Notices  # noqa: PLC0415

        notices = Notices()
        while not self._stopped.wait(LOOK_S):
            view = self.view
            for notice in notices.look(view, time.monotonic()) if view is not None else ():
                try:
                    on_finding(notice.document())
                except Exception:  # the user's own: it ends neither the watching nor what is told later
                    logger.exception("on_finding failed")


def watch(
    *pids: int,
    output: StrPath | None = None,
    on_finding: Callable[[dict[str, Any]], None] | None = None,
) -> LiveRun:
    """Watch the training of these processes, or the only one on this machine, for as long as the `with` block lasts.

    output: keep the recording there. on_finding: called from a thread with the JSON of `--on-finding`, once when a
    finding opens, changes severity or closes; what it raises is logged by the logger `tuiadvisor`.
    """
    return LiveRun(pids, output, on_finding)


def _process(pid: int) -> int:
    try:
        return operator.index(pid)
    except TypeError:
        raise TuiadvisorError(
            f"{pid!r}: no process; give the number of each: tuiadvisor.watch(4711, 4712)"
        ) from None


def _framed(page: str) -> str:
    """A report in a frame of its own: its styles stay inside, and nothing in it runs."""
    inside = html.escape(page, quote=True)
    return f'<iframe sandbox="" srcdoc="{inside}" width="100%" height="{FRAME_HEIGHT}" style="border:0"></iframe>'


def _path(run: StrPath | Run) -> str:
    return str(run.path if isinstance(run, Run) else run)


def _recording(run: StrPath | Run) -> str:
    return run.recording if isinstance(run, Run) else kept_recording(str(run))


def _reading(path: str, _title: str) -> Iterator[bytes]:
    return frames_of(path)
