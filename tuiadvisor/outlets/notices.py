"""Which findings have opened, changed in severity or closed since the last look, each told once.

In: RunViews as they come, and the time.  Out: Notices. A finding is told once it has stood for SETTLE_S, milder once it
has been so for GONE_S, and closed once it has been gone for GONE_S: what flickers is no news. Remarks (severity info)
are none either. With more ranks it is told anew, with fewer it goes on; neither closes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.views.event import GONE_S, SETTLE_S

if TYPE_CHECKING:
    from collections.abc import Collection

    from tuiadvisor.views.run_view import Finding, FindingKey, RunView

SCHEMA: Final = 1

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """One piece of news of a run."""

    event: str  # opened | changed | closed
    finding: Finding
    was: str | None  # severity it was told with before
    view: RunView
    labels: Labels = ()  # of the user's own

    def document(self) -> dict[str, object]:
        """As JSON for commands and webhooks."""
        run, found, verdict = self.view.run, self.finding, self.view.decided
        return {
            "schema": SCHEMA,
            "event": self.event,
            "job": run.label,
            "labels": dict(self.labels),
            "world_size": run.world_size,
            "step": self.view.last_step,
            "finding": {
                "id": found.id,
                "title": found.title,
                "pattern": found.pattern,
                "severity": found.severity,
                "was": self.was,
                "ranks": list(found.ranks),
                "hosts": list(found.hosts),
                "phase": found.phase,
                "since_step": found.since_step,
                "loss_s_per_step": found.loss_s_per_step,
                "message": found.message,
            },
            "verdict": {"decision": verdict.decision, "sentence": verdict.sentence},
        }

    def text(self) -> str:
        """One line for people."""
        what = {"opened": "", "changed": f" (was {self.was})", "closed": " is over"}[self.event]
        own = "".join(f" {name}={value}" for name, value in self.labels)
        return (
            f"{self.view.run.label or 'training'}{own}: {self.finding.severity}{what}: {self.finding.message}"
        )


@dataclass(slots=True)
class _Told:
    finding: Finding
    severity: str | None  # as told; None: not told yet
    since_s: float  # first seen with the severity that it has now
    last_s: float  # seen last


class Notices:
    """Mutable: show it each view."""

    def __init__(self, labels: Labels = ()) -> None:
        """labels: of the user's own, in each notice."""
        self._labels = labels
        self._known: dict[FindingKey, _Told] = {}

    def look(self, view: RunView, now_s: float) -> list[Notice]:
        """What is news at this moment."""
        told: list[Notice] = []
        present = {found.key: found for found in view.findings if found.severity != "info"}
        for key, found in present.items():
            entry = self._known.get(key) or self._of_more_ranks(found, present)
            if entry is not None and key not in self._known:
                if now_s - entry.last_s < GONE_S:
                    continue  # the others may come back
                del self._known[entry.finding.key]
                self._known[key] = entry
            if entry is None or entry.finding.severity != found.severity:
                was = entry.severity if entry else None
                entry = self._known[key] = _Told(found, was, now_s, now_s)
            entry.finding, entry.last_s = found, now_s
            # What was critical is over in part: it is believed as late as an end is.
            wait_s = GONE_S if entry.severity == "critical" else SETTLE_S
            if entry.severity != found.severity and now_s - entry.since_s >= wait_s:
                told.append(
                    Notice(
                        "changed" if entry.severity else "opened", found, entry.severity, view, self._labels
                    )
                )
                entry.severity = found.severity
        for key, entry in list(self._known.items()):
            if key in present or now_s - entry.last_s < GONE_S:
                continue
            del self._known[key]
            if entry.severity is not None and not any(
                found.is_of(entry.finding) for found in present.values()
            ):
                told.append(Notice("closed", entry.finding, entry.severity, view, self._labels))
        return told

    def _of_more_ranks(self, found: Finding, present: Collection[FindingKey]) -> _Told | None:
        """What was known of the same trouble when it had these ranks and others."""
        return next(
            (
                entry
                for key, entry in self._known.items()
                if key not in present
                and entry.finding.is_of(found)
                and {*found.ranks} < {*entry.finding.ranks}
            ),
            None,
        )
