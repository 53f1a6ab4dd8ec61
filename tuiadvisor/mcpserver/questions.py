"""What an assistant may ask: each question is a method, each answer plain JSON of bounded size.

The answers are the documents of the commands' --json. Command lines are left out: they may hold secrets, and what an
assistant is told leaves the machine with it.
"""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from tuiadvisor import api
from tuiadvisor.app.jobs import jobs_here, slurm_jobs
from tuiadvisor.app.recordings import recordings
from tuiadvisor.app.stated import against_stated
from tuiadvisor.app.whole_recording import end_view
from tuiadvisor.errors import FailureError, SeveralTrainingsError, TuiadvisorError
from tuiadvisor.report.document import document
from tuiadvisor.views.run_list import summarized
from tuiadvisor_rules.evaluate import show
from tuiadvisor_rules.user import load_rules

if TYPE_CHECKING:
    from tuiadvisor.mcpserver.paths import Roots
    from tuiadvisor.views.run_list import RunEntry

# The SDK reads the types of these methods where they run, so they are plain ones.
Answer = dict[str, Any]
# Of the document of `diagnose --json`; the other sections are given when they are asked for.
SUMMARY: Final = (
    *("schema", "clock", "imported", "run", "window", "step", "overlap", "efficiency", "stragglers"),
    *("goodput", "findings", "verdict", "unknown", "losses"),
)
MAX_ROWS: Final = 64  # of any list: an answer has to fit into a conversation
MAX_READ: Final = 50  # recordings; a verdict costs reading a whole one
MAX_RUNS: Final = 32
MAX_WATCH_S: Final = 600.0


class Questions:
    """Read-only, but for `watch`, which the server offers only where the user allowed it."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def list_jobs(self) -> Answer:
        """PyTorch trainings that run on this machine now, and the user's jobs in Slurm. Touches none of them."""
        here, note = jobs_here()
        queued, slurm_note = slurm_jobs()
        jobs = [asdict(entry) for entry in (*here, *queued)]
        return _plain(
            {
                "jobs": [_without(job, "command", "apart", "key", "rank_pids", "watched") for job in jobs],
                "note": note,
                "slurm_note": slurm_note,
            }
        )

    def list_runs(self, folder: str = ".", newest: int = 8) -> Answer:
        """Recordings (.tuirec) of a folder, newest first: step time, verdict. `newest`: so many are read for it."""
        found = [entry for entry in recordings(self._roots.folder(folder)) if self._roots.holds(entry.path)]
        rows = [self._read(entry) for entry in found[: max(min(newest, MAX_READ), 0)]]
        shown = [_without(asdict(row), "spark") for row in rows]
        runs = [{name: _readable(value) for name, value in row.items()} for row in shown]
        return _plain({"num_recordings": len(found), "runs": runs})

    def diagnose(self, run: str, sections: list[str] | None = None) -> Answer:
        """The verdict on a recording with its findings, stragglers and step time; null means unknown, never zero.

        sections: more of it by name, as listed under `more_sections` (per_rank, hosts, pauses, collectives, ...).
        """
        return _chosen(api.open(self._roots.file(run)).diagnose(), sections)

    def compare(self, before: str, after: str, same_work: bool = False, ignore_load: bool = False) -> Answer:
        """Two recordings: improved, regressed, no change, not decided, or not comparable and why.

        same_work: the user vouches that a step does the same work in both. ignore_load: judge although the machine
        was busier in one of them.
        """
        paths = [self._roots.file(path) for path in (before, after)]
        return _plain(api.compare(*paths, same_work=same_work, ignore_load=ignore_load))

    def explain(self, finding: str, run: str | None = None) -> Answer:
        """What a finding means by its id: when it fires, thresholds with their sources, why, how to verify, what to do.

        run: a recording, for what it says of this finding there.
        """
        try:
            answer: Answer = {"id": finding, "explanation": show(finding, load_rules())}
        except ValueError as error:  # a RuleError: the rules know nothing of ours
            raise TuiadvisorError(str(error)) from error
        if run is not None:
            found = api.open(self._roots.file(run)).diagnose()["findings"]
            answer["in_run"] = [one for one in found if one["id"] == finding]
        return _plain(answer)

    def scale(
        self, runs: list[str] | None = None, table: str | None = None, predict: list[int] | None = None
    ) -> Answer:
        """What more or fewer devices bring, with intervals: from recordings at two sizes or more, or a CSV table.

        table: columns devices and one of step_s, throughput, total_h. predict: numbers of devices.
        """
        given, sizes = runs or [], predict or []
        if len(given) > MAX_RUNS or len(sizes) > MAX_RUNS or any(size < 1 for size in sizes):
            raise TuiadvisorError(f"at most {MAX_RUNS} recordings and {MAX_RUNS} sizes of one device or more")
        paths = [self._roots.file(path) for path in given]
        return _plain(api.scale(*paths, table=table and self._roots.file(table), predict=sizes))

    def watch(
        self, pids: list[int] | None = None, seconds: float = 60.0, sections: list[str] | None = None
    ) -> Answer:
        """Attach to a running training, wait for a verdict (at most so long), take the probes out, say what was seen.

        pids: its ranks or their launcher; none: the only training on this machine. The training goes on.
        """
        try:
            with api.watch(*(pids or [])) as live:
                live.wait(min(max(seconds, 1.0), MAX_WATCH_S))
                view = live.view
        except SeveralTrainingsError:  # its words name them by their command lines
            raise TuiadvisorError(
                "several trainings run there; name the pids of one that list_jobs tells"
            ) from None
        if view is None or not view.ranks:
            raise FailureError("no rank was seen; tuiadvisor doctor says what is forbidden on this machine")
        return _chosen(document(view), sections)

    def _read(self, entry: RunEntry) -> RunEntry:
        shown = replace(entry, path=self._roots.shown(entry.path))
        try:
            return summarized(shown, against_stated(end_view(self._roots.file(entry.path))))
        except TuiadvisorError as error:
            return replace(shown, state="broken", problem=str(error))


def _chosen(whole: Answer, sections: list[str] | None) -> Answer:
    """The summary and the sections asked for. TuiadvisorError for a name that is none."""
    asked = sections or []
    unknown = [name for name in asked if name not in whole]
    if unknown:
        raise TuiadvisorError(f"no section {unknown[0]!r}; there are {', '.join(whole)}")
    chosen = {name: whole[name] for name in whole if name in {*SUMMARY, *asked}}
    chosen["run"] = _without(chosen["run"], "command")
    return _plain({**chosen, "more_sections": [name for name in whole if name not in chosen]})


def _without(row: Answer, *names: str) -> Answer:
    return {name: value for name, value in row.items() if name not in names}


def _readable(value: Any) -> Any:
    """JSON holds no file name in another encoding than UTF-8: it is shown with marks, and cannot be asked about."""
    return os.fsencode(value).decode("utf-8", "replace") if isinstance(value, str) else value


def _plain(answer: Answer) -> Answer:
    """As it is read back from JSON; long lists are cut, and `cut` says how long they were."""
    cut: dict[str, int] = {}
    plain: Answer = _bounded(orjson.loads(orjson.dumps(answer)), "", cut)
    return {**plain, "cut": cut} if cut else plain


def _bounded(value: Any, name: str, cut: dict[str, int]) -> Any:
    if isinstance(value, dict):
        return {key: _bounded(inner, f"{name}.{key}".lstrip("."), cut) for key, inner in value.items()}
    if isinstance(value, list):
        if len(value) > MAX_ROWS:
            cut[name] = max(len(value), cut.get(name, 0))
        return [_bounded(inner, name, cut) for inner in value[:MAX_ROWS]]
    return value
