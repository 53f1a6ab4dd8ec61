"""The report: whole by itself, nothing it was not given, nothing from outside acts in it."""

from __future__ import annotations

import errno
import re
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from snapshot import desks, views
from synthetic_run import Fault, Job, final_view
from unit.test_contents import recording

from tuiadvisor.app.reporting import report_of_shown, write_report
from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.report import charts, gantt
from tuiadvisor.report.inert import inert
from tuiadvisor.report.markdown import markdown_report
from tuiadvisor.report.page import Dossier, html_report
from tuiadvisor.text.format import seconds, share
from tuiadvisor.text.goodput import headline
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.views.goodput import kind_words
from tuiadvisor.views.run_list import RunEntry, summarized

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView

VIEWS = {
    "straggler": views.straggler(),
    "healthy": views.healthy(),
    "too early": views.too_early(),
    "lost ranks": views.lost_ranks(),
    "unknown": views.unknown_everything(),
    "one rank": views.one_rank(),
    "finished": views.finished(),
    "many": views.many(1024),
    "pipeline": views.pipeline(),
    "pipeline of many": views.pipeline(64, 64),
    "pipeline unknown": views.pipeline_unknown(),
}
SIZES = {
    "fitted": desks.sized(),
    "bounds of one run": desks.bounded(),
    "nothing": desks.unsized(),
}
VOID = {"meta", "br"}


class Checker(HTMLParser):
    """Remembers tags that were opened and not closed, scripts, and everything that would be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [value or "" for name, value in attrs if name in {"src", "href", "data", "srcset"}]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()


def html(view: RunView) -> str:
    return html_report([Dossier("run.tuirec", view)], None, "tuiadvisor 0.1.0")


@pytest.mark.parametrize("name", VIEWS)
def test_it_is_whole_and_loads_nothing(name: str) -> None:
    """Every tag is closed, no script, no handler, nothing but pictures that lie inside."""
    text = html(VIEWS[name])
    checker = Checker()
    checker.feed(text)
    assert [] == checker.open
    assert "script" not in checker.tags
    assert [] == checker.handlers
    assert [] == [link for link in checker.loads if not link.startswith("data:image/png;base64,")]
    assert [] == re.findall(r"@import|url\(", text)
    assert len(text) < 1_000_000


@pytest.mark.parametrize("name", SIZES)
def test_other_sizes_are_drawn_or_missed(name: str) -> None:
    """Each curve with its name, its limit and every size that was measured; where there is none, what is missing."""
    held = SIZES[name]
    text = html_report([Dossier("run.tuirec", views.healthy())], None, "tuiadvisor", held)
    checker = Checker()
    checker.feed(text)
    assert [] == checker.open
    section = text[text.index("Other sizes and cost") :]
    assert [curve.name for curve in held.curves] == re.findall(
        r"<title>([^<]*) over devices</title>", section
    )
    pictures = section.split("<svg ")[1:]
    assert len(held.curves) == len(pictures)
    for curve, picture in zip(held.curves, pictures, strict=True):
        told = re.findall(r"<title>([\d,]+) devices, (measured|predicted):", picture)
        kinds = {True: "measured", False: "predicted"}
        assert [(f"{point.devices:,}", kinds[point.is_measured]) for point in curve.points] == told
        assert (curve.limit is not None) == (f">{curve.limit_name}" in picture and bool(curve.limit_name))
    assert all(inert(note) in section for note in held.missing)
    plain = markdown_report([Dossier("run.tuirec", views.healthy())], None, "tuiadvisor", held)
    assert all(f"| {row.devices:,} |" in plain for row in held.rows)


def test_a_pipeline_is_drawn() -> None:
    """A bar for each chunk of the step, the bubble beside its ideal, the heavy stage, what splitting it brings."""
    view = views.pipeline()
    held = view.pipeline
    assert held is not None
    text = html(view)
    for chunk in held.chart:
        kind = gantt.NAMES[chunk.kind]
        assert f"<title>{kind}, micro-batch {chunk.micro_batch}, stage {chunk.stage}</title>" in text
    for part in ("bubble, measured", "(p-1)/(m+p-1)", "▶ stage 2", "Split stage 2", "uneven stages"):
        assert part in text
    plain = markdown_report([Dossier("run.tuirec", view)], None, "tuiadvisor")
    assert "rank 0    F0" in plain
    assert "Split stage 2" in plain
    unknown = html(views.pipeline_unknown())
    assert "The ranks hold stages of a pipeline" in unknown
    assert "Chain of a step" in html(views.straggler())


def test_what_the_run_says_is_in_it() -> None:
    """Verdict, figures, phases, ranks, evidence with its names, actions with commands, what was not seen."""
    text = html(views.straggler())
    for part in (
        "TUNE</span>rank 2 reads its data 11.8 ms late",
        "1.69\u00d7 (1.60\u00d7 to 1.75\u00d7, 90 %)",
        "28.6 ms</b><span>mean step",
        "step 222: rank 2 late",
        "data wait: 21 %, 5.10 ms",
        '<tr class="culprit">',
        "peers data wait</th><td>2.10 ms",
        "<code>py-spy dump --pid 41202 --subprocesses</code>",
        "unknown: the run uses no device",
        "torchrun --nproc-per-node 4 train.py --batch 64",
        "waiting for the last rank",
        "compute waits for communication",
        "<title>exposed 4.90 ms</title>",
    ):
        assert part in text
    lost = html(views.lost_ranks())
    assert "1,204 events dropped" in lost
    assert "killed by SIGKILL after step 341" in lost


def test_one_length_of_a_step_stands_on_a_page_and_its_phases_sum_to_it() -> None:
    """A median stood beside shares of a mean of 24.3 ms, so that no share was of what was shown."""
    view = views.straggler()
    mean_s = sum(value or 0.0 for value in view.step.seconds.values())
    view = replace(view, step=replace(view.step, median_s=0.0197, mean_s=mean_s))
    once, report = plain_summary(view, plain_ascii=False), markdown_report([Dossier("run", view)], None, "")
    page = html_report([Dossier("run", view), Dossier("other", view)], None, "")
    assert "mean 24.3 ms" in once
    assert "mean step: 24.3 ms" in report
    assert "24.3 ms" in page
    assert summarized(RunEntry("run", "run", "", 1), view).step_s == mean_s
    for text in (once, report, page):
        assert "19.7 ms" not in text


def test_goodput_and_where_the_wall_time_went_stand_in_both() -> None:
    """The same rows as on screen W, in the page and in the text."""
    view = final_view(Job(num_steps=120))
    assert view.wall is not None
    dossier = Dossier("/runs/a.tuirec", view, None)
    page = re.sub("<t[dh][^>]*>", "<td>", html_report([dossier], None, "tuiadvisor")).replace(
        "</th>", "</td>"
    )
    text = markdown_report([dossier], None, "tuiadvisor")
    for part in view.wall.waterfall:
        cells = [inert(kind_words(part.kind)), seconds(part.seconds), inert(share(part.share))]
        assert "<td>" + "</td><td>".join(cells) + "</td>" in page
        assert f"| {kind_words(part.kind)} | {seconds(part.seconds)} | " in text
    assert headline(view.wall) in text


def test_unknown_is_said_and_never_zero() -> None:
    """A run of which nothing was observed has no figure in its report."""
    text = html(views.unknown_everything())
    assert "unknown: no step was seen" in text
    assert "unknown: no arrival at a barrier was seen" in text
    assert [] == re.findall(r">0(?:\.0+)? (?:s|ms|%)<", text)


def test_text_from_outside_is_inert() -> None:
    """Labels, hosts, commands and messages are other people's text, in HTML and in Markdown."""
    view = views.straggler()
    bad = "<img src=x onerror=alert(1)>\"'\x1b[2J|`\u202e"
    finding = replace(view.findings[0], title=bad, message=bad, actions=(), evidence={bad: bad})
    hostile = replace(
        view,
        run=replace(view.run, label=bad, command=bad, hosts=(bad,), software={bad: bad}),
        ranks=tuple(replace(rank, host=bad, state_detail=bad) for rank in view.ranks),
        findings=(finding,),
        trend=replace(view.trend, marks=((222, bad),)),
        verdict=replace(view.verdict, sentence=bad, because=bad),
    )
    text = html_report([Dossier(bad, hostile)], None, bad)
    checker = Checker()
    checker.feed(text)
    assert "img" not in checker.tags
    assert [] == checker.open
    assert "\x1b" not in text
    assert "\u202e" not in text
    plain = markdown_report([Dossier(bad, hostile)], None, "tuiadvisor")
    assert "<img" not in plain.replace("\\<img", "")
    assert "\x1b" not in plain


def test_the_heat_map_is_a_picture_of_the_levels() -> None:
    """A pixel a rank and step, in the order of the ranks; what was not seen has a colour of its own."""
    data = charts.png([bytes([0, 7, 255]), bytes([3])], 3)
    assert (3, 2) == struct.unpack(">II", data[16:24])
    begin = data.index(b"IDAT")
    size = struct.unpack(">I", data[begin - 4 : begin])[0]
    raw = zlib.decompress(data[begin + 4 : begin + 4 + size])
    assert bytes([0, 0, 7, 8, 0, 8, 8, 3]) == raw


def test_many_ranks_stay_a_small_file() -> None:
    """1,024 ranks: the heat map shows all of them, the table those that need eyes."""
    text = html(views.many(1024))
    assert "and 1,023 more ranks, live and on time" in text
    assert len(text) < 200_000


def test_session_and_comparison_are_in_it() -> None:
    """What was stated stands apart from what was measured."""
    session = desks.guided_session({"effort_hours": 4.0})
    dossier = Dossier("/runs/after.tuirec", views.healthy(), session)
    for text in (
        html_report([dossier], desks.comparison(), "tuiadvisor"),
        markdown_report([dossier], desks.comparison(), "tuiadvisor"),
    ):
        assert "Improved: a step takes 16.9 ms instead of 28.6 ms" in text
        assert "uided session" in text
        assert "P6" in text
    assert "Stated, not measured" in html_report([dossier], None, "tuiadvisor")


def test_the_command_writes_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """HTML and Markdown by the name; two recordings are compared; no half file is left."""
    before = str(
        recording(tmp_path / "before.tuirec", Job(num_steps=120, faults=(Fault("backward", (2,), 0.015),)))
    )
    after = str(recording(tmp_path / "after.tuirec", Job(num_steps=120, seed=5)))
    page, note = tmp_path / "r.html", tmp_path / "r.md"
    assert 0 == main(["report", before, after, "-o", str(page)])
    assert "written to" in capsys.readouterr().out
    assert "Before and after" in page.read_text()
    assert "2 runs" in page.read_text()
    assert 0 == main(["report", before, "-o", str(note)])
    assert note.read_text().startswith("# ")
    assert [] == list(tmp_path.glob("*.part"))
    assert 2 == main(["report", before, "-o", str(tmp_path / "r.pdf")])
    assert "written as .html or .md" in capsys.readouterr().err
    assert 2 == main(["report", before, "-o", str(tmp_path / "nowhere" / "r.md")])
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("train.py", "train.py"),
        ('evil$(touch PWNED)\x1b[31m"x.py', "evil-touch-PWNED-31m-x.py"),
        ("-rf ../..", "rf"),
        ("$(;)", "run"),
    ],
)
def test_a_live_runs_report_has_a_name_that_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str, name: str
) -> None:
    """The script's name is a stranger's: a file called after it ran commands in the shell that it was pasted into."""
    monkeypatch.chdir(tmp_path)
    view = views.straggler()
    view = replace(view, run=replace(view.run, label=label), last_step=7)
    assert tmp_path / f"{name}-step7.html" == report_of_shown("", view, None, None, None)


def test_a_place_that_cannot_be_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2 as of any file that is named wrong; a full disk is a failure."""
    dossiers = [Dossier("run", views.straggler(), None)]
    with pytest.raises(TuiadvisorError, match="name another place") as wrong:
        write_report(str(tmp_path / "missing" / "a.html"), dossiers, None)
    assert wrong.value.exit_code == 2

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(TuiadvisorError, match="free space") as failed:
        write_report(str(tmp_path / "a.html"), dossiers, None)
    assert failed.value.exit_code == 1
