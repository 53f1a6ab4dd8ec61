"""One goodput figure everywhere: screens, text, report, JSON, session, comparison, job, metrics and trackers agree."""

from __future__ import annotations

import re
from functools import cache

import pytest
from prometheus_client import generate_latest
from snapshot import desks, views
from synthetic_run import Fault, Job, encoded, folded, frames
from test_goodput_waterfall import born
from unit.test_tui_pages import screen

from tuiadvisor.advisor.compare.comparing import compare, measure
from tuiadvisor.app.job_of_run import job_of
from tuiadvisor.integrations.trackers import FIGURES
from tuiadvisor.outlets.page import registry_of
from tuiadvisor.report.document import document
from tuiadvisor.report.page import Dossier, html_report
from tuiadvisor.session.conduct import conduct
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.stream.frames import Frame
from tuiadvisor.text import format as text_of
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.views.lost_by import by_layer, by_lens
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.questions import load_questions

FAULTS = {
    "slow data": (Fault("data", None, 0.008),),
    "checkpoints": (Fault("checkpoint", None, 0.5, every=40),),
    "late rank": (Fault("backward", (2,), 0.006),),
}


@cache
def sequence(name: str) -> tuple[Frame, ...]:
    return tuple(born(frames(Job(num_steps=300, faults=FAULTS[name])), 30.0, young=True))


@cache
def view(name: str) -> RunView:
    found: RunView = folded(list(sequence(name))).view()
    return found


def said(text: str) -> set[str]:
    """Every share that is called goodput, but those of the steady steps and of the rest of the run."""
    return set(re.findall(r"(?<!steady )goodput[: ]+(\d[\d.]* %)", text))


@pytest.mark.parametrize("name", FAULTS)
def test_every_place_says_the_same(name: str) -> None:
    run = view(name)
    share = run.useful_share
    assert share is not None
    shown = text_of.share(share)
    live = views.live(run)
    assert said("\n".join(screen(live, 80, 24))) == {shown}
    assert said("\n".join(screen(live, 160, 45))) == {shown}
    assert said("\n".join(screen(live, 80, 60, keys=("W",)))) == {shown}
    job = desks.desk(job=job_of(("a", run), []))
    assert said("\n".join(screen(live, 80, 60, keys=("J",), desk=job))) == {shown}
    assert said(plain_summary(run, plain_ascii=False)) == {shown}
    assert said(html_report([Dossier("run.rec", run)], None, "a test")) == {shown}


@pytest.mark.parametrize("name", FAULTS)
def test_documents_hold_the_same_number(name: str) -> None:
    run = view(name)
    share = run.useful_share
    told = document(run)
    assert told["goodput"]["end_to_end"] == share
    assert run.wall is not None
    useful = next(part for part in run.wall.waterfall if part.kind == "useful")
    assert useful.seconds / (run.wall.span_s - run.wall.unknown_s) == pytest.approx(share)
    lost = [sum(row.seconds for row in rows) for rows in (by_layer(run), by_lens(run))]
    assert lost == [pytest.approx(run.wall.span_s - run.wall.unknown_s - useful.seconds)] * 2
    page = generate_latest(registry_of(lambda: run, "1.2")).decode()
    assert float(re.findall(r'goodput_ratio\{[^}]*of="end_to_end"[^}]*\} (\S+)', page)[0]) == pytest.approx(
        share
    )
    path = FIGURES["goodput"]
    assert told[path[0]][path[1]] == share
    held = conduct((Recorded("a.rec", run),), Intent(), {}, load_questions())
    stage = next(entry for entry in held.stages if entry.pattern == "P2")
    text = next(item.text or "" for item in stage.evidence if item.name == "goodput")
    assert text.startswith(f"{100 * (share or 0):.0f} %")
    one = measure("a.rec", [encoded(frame) for frame in sequence(name)])
    assert compare(one, one).goodput.shown == (share, share)  # type: ignore[union-attr]
