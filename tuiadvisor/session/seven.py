"""The seven questions of a change, answered from what was measured: the card of the chosen fix.

In: Facts, candidates, answers.  Out: (question, answer); None: open, and what would answer it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.session.levers import risk_order
from tuiadvisor.views.names import limit_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.session.candidates import Candidate
    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.views.run_view import Finding

COMPARE: Final = "make the change, record again, then: tuiadvisor compare BEFORE AFTER"
Card = tuple[tuple[str, str | None, str], ...]  # question, answer, what would answer it


def seven_questions(run: Facts, found: tuple[Candidate, ...], answers: Mapping[str, str | float]) -> Card:
    """Of the best candidate's finding; empty where there is none."""
    best = next((one for one in found if not one.why_not), None)
    finding = next((one for one in run.findings if best is not None and one.id == best.finding), None)
    if best is None or finding is None:
        return ()
    mine = [one for one in found if one.finding == finding.id and not one.why_not]
    safest = min(mine, key=lambda one: (risk_order(one.risk), one.effort_hours or 0.0))
    tool = next(iter(finding.measure_next), None)
    again = {
        "yes": "yes, as you said: keep this recording as the baseline",
        "no": "no, as you said: fix that first",
    }
    return (
        ("1 what is slow?", finding.title, ""),
        ("2 where is the bottleneck?", _where(finding), ""),
        ("3 which metric proves it?", _proof(finding), ""),
        ("4 which tool shows it?", tool, "the finding names none"),
        ("5 what is the lowest-risk fix?", f"{safest.action} (risk {safest.risk})", ""),
        ("6 did goodput improve?", None, COMPARE),
        (
            "7 can we reproduce it?",
            again.get(str(answers.get("reproducible"))),
            "pip freeze; git rev-parse HEAD",
        ),
    )


def _where(finding: Finding) -> str:
    names = ", ".join(str(rank) for rank in finding.ranks[:6])
    ranks = f"rank{'s' * (len(finding.ranks) > 1)} {names}" if names else "the whole job"
    phase = f", {limit_name(finding.phase)}" if finding.phase else ""
    return f"layer {finding.layer}{phase}, {ranks}"


def _proof(finding: Finding) -> str | None:
    shown = [
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in finding.evidence.items()
        if value is not None
    ]
    return ", ".join(shown[:3]) or None
