"""What the pages show in every state and size: nothing too wide, nothing too long, nothing silently missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from snapshot import views
from thinned import thinned
from unit.test_tui_navigator import FakeShell, Keyboard

from tuiadvisor.text import format as text_of
from tuiadvisor.text.efficiency import scaled
from tuiadvisor.text.goodput import notes
from tuiadvisor.text.line import length
from tuiadvisor.tui.contract.desk import NO_DESK, DeskState
from tuiadvisor.tui.contract.feed import FeedState
from tuiadvisor.tui.control.navigator import Navigator
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.overview import shared_rows
from tuiadvisor.views.goodput import WallPart
from tuiadvisor.views.run_view import Imported, ProbeWork, Unknown

STATES = {
    "straggler": views.live(views.straggler()),
    "healthy": views.live(views.healthy()),
    "too early": views.live(views.too_early()),
    "lost ranks": views.live(views.lost_ranks()),
    "unknown": views.live(views.unknown_everything()),
    "one rank": views.live(views.one_rank()),
    "finished": views.live(views.finished(), phase="ended"),
    "many": views.live(views.many(1024)),
    "looking": views.looking(),
    "attaching": views.attaching(),
    "hub lost": views.hub_lost(),
    "pipeline": views.live(views.pipeline()),
    "long pipeline": views.live(views.pipeline(num_ranks=64, num_chunks=16)),
    "pipeline unknown": views.live(views.pipeline_unknown()),
    "replay": views.replay(),
    "replay paused": views.replay(paused=True),
    "detailed": views.live(views.detailed()),
    "no ranks": views.live(replace(views.unknown_everything(), ranks=())),
    "failed": views.live(views.straggler(), phase="failed: ValueError: x"),
}
PAGES = {
    "overview": (),
    "ranks": ("2",),
    "pipeline": ("3", "down"),
    "rank": ("2", "down", "enter"),
    "finding": ("enter",),
    "help": ("?",),
    "palette": (":",),
    "runs": ("8", "down"),
    "compare": ("7",),
    "overlap": ("4",),
}
SIZES = [(60, 16), (80, 24), (100, 30), (120, 30), (160, 45), (200, 50), (81, 17)]


def screen(  # noqa: PLR0917 - a test's own short hand
    state: FeedState,
    width: int,
    height: int,
    keys: tuple[str, ...] = (),
    intro: str | None = None,
    desk: DeskState = NO_DESK,
) -> list[str]:
    """Return the rows of a screen."""
    place = Navigator(FakeShell(), state, intro=intro, clock=lambda: 0.0)
    place.take_desk(desk)
    place.rows(width, height)
    for key in keys:
        place.key(key, key if len(key) == 1 else None)
        place.rows(width, height)
    rows = place.rows(width, height)
    assert height == len(rows)
    assert [] == [row.text for row in rows if length(row) > width]
    return [row.text for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    "size", thinned(SIZES, [(60, 16), (80, 24), (160, 45)]), ids=lambda size: f"{size[0]}x{size[1]}"
)
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("state", STATES)
def test_every_page_fits_every_screen(state: str, page: str, size: tuple[int, int]) -> None:
    """Exactly as many rows as the screen has, none wider than it."""
    text = screen(STATES[state], *size, PAGES[page])
    assert text[-1].strip()


@pytest.mark.parametrize(
    "size", thinned(SIZES, [(60, 16), (80, 24), (160, 45)]), ids=lambda size: f"{size[0]}x{size[1]}"
)
@pytest.mark.parametrize("state", STATES)
def test_the_intro_fits_every_screen(state: str, size: tuple[int, int]) -> None:
    """It stands above the page that a run begins with, and leaves it its rows."""
    rows = screen(STATES[state], *size, intro="Look at this.\n\nThen at that, which is a longer text. " * 4)
    assert any("Look at this." in row for row in rows)


@pytest.mark.parametrize("size", [(10, 3), (59, 24), (80, 15), (1, 1)])
def test_a_screen_too_small_says_what_it_needs(size: tuple[int, int]) -> None:
    """And quits with q as always."""
    rows = Navigator(FakeShell(), STATES["straggler"]).rows(*size)
    assert len(rows) <= size[1]
    if size[0] > 40:
        assert "60x16" in " ".join(row.text for row in rows)


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (160, 45)])
def test_the_verdict_is_never_cut_off_the_overview(size: tuple[int, int]) -> None:
    """Badge and sentence stand on top, below the whole run, whatever else there is; then what to do first."""
    rows = screen(STATES["lost ranks"], *size)
    first = next(number for number, row in enumerate(rows) if "◆ TUNE  rank 2 reads its data" in row)
    assert first <= 4
    assert any("Give rank 2 more loader workers" in row for row in rows[first : first + 9])


def test_no_finding_is_cut_for_what_nobody_observed() -> None:
    """A critical finding ended in dots after three rows, and the reasons of five unknown phases had five."""
    view = views.straggler()
    finding = replace(
        view.findings[0], message=f"{'The others wait 12 ms a step for rank 2. ' * 6}This is its end."
    )
    unknown = tuple(Unknown(f"metric {number}", "nobody saw it, for a long reason") for number in range(9))
    shown = views.live(replace(view, findings=(finding, *view.findings[1:]), unknown=unknown))
    text = " ".join(row[100:] for row in screen(shown, 160, 45))
    assert "This is its end." in " ".join(text.split())
    assert "not observed" in text
    assert "metric 0" in text


def test_titles_and_figures_of_a_host_are_not_cut_where_rows_are_left() -> None:
    """Remarks ended in "ranks wait for cor..." and the host in "disk 999 kB/s ...", with empty rows below them."""
    view = views.straggler()
    title = "Oversubscribed host: the ranks wait for cores of their own"
    message = (
        "The typical rank was ready to run but had no core 18 % of the time: whatever it does takes longer. "
        * 3
    )
    remarks = [
        replace(view.findings[0], id=f"info{number}", severity="info", title=title, message=message)
        for number in range(5)
    ]
    host = replace(view.hosts[0], disk_reads_s_mean=123.0)
    shown = views.live(replace(view, findings=(view.findings[0], *remarks), hosts=(host,)))
    rows = [row[100:].split("ms/step")[0] for row in screen(shown, 160, 45)]
    text = " ".join(" ".join(rows).replace("11.8", "").split())
    assert text.count(title) == 5
    assert "disk 12.3 MB/s · 123 reads/s · net 3.40 MB/s" in text
    many = views.live(replace(view, hosts=tuple(replace(host, host=f"node{number}") for number in range(9))))
    (row, *_) = [row[100:].rstrip() for row in screen(many, 160, 45) if "node1 " in row]
    assert row.endswith("disk 12.3 MB/s")


def test_a_picture_leaves_the_cursor_of_the_map_where_it_is() -> None:
    """Whether C and P may be pressed was asked in a way that took the cell as opened."""
    keyboard = Keyboard(views.live(views.straggler()))
    keyboard.press("2", "<")
    assert "▼" in keyboard.press("<")
    keyboard.press("?", "escape")
    shown = keyboard.draw()
    assert "▼" in shown
    assert "C Code" in shown


def test_not_enough_yet_names_how_many_steps() -> None:
    """No decision before its time, and no word twice."""
    text = "\n".join(screen(STATES["too early"], 80, 24))
    assert "NOT YET" in text
    assert 2 == text.count("12 more steps")  # verdict and findings
    assert "KEEP" not in text


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (160, 45)])
def test_losses_are_on_the_overview(size: tuple[int, int]) -> None:
    """What was lost stands beside what was seen, on every size."""
    text = "\n".join(screen(STATES["lost ranks"], *size))
    assert "1,204 events dropped" in text


def test_no_losses_no_word() -> None:
    """The screen is calm when nothing was lost."""
    assert "lost" not in "\n".join(screen(STATES["straggler"], 80, 24))


def test_lost_ranks_say_what_happened() -> None:
    """A killed rank with its signal, a refused one with its remedy, on both screens and in full in its details."""
    for keys in ((), ("2",)):
        text = "\n".join(screen(STATES["lost ranks"], 80, 24, keys))
        assert "✖ killed" in text
        assert "killed by SIGKILL after step 341" in text
        assert "⊘ refused" in text
    detail = " ".join(" ".join(screen(STATES["lost ranks"], 80, 24, ("2", "G", "enter"))).split())
    assert "or set kernel.yama.ptrace_scope to 1" in detail


def test_unknown_is_a_word_never_a_zero() -> None:
    """No figure is invented where nothing was observed."""
    for keys in ((), ("2",), ("2", "down", "enter")):
        text = "\n".join(screen(STATES["unknown"], 100, 40, keys))
        assert "unknown" in text
        assert " 0 s" not in text
        assert " 0 %" not in text
        assert "0.0" not in text


def test_unknown_phases_are_listed() -> None:
    """The bar says which phases nobody observed."""
    assert "unknown: copy" in "\n".join(screen(STATES["straggler"], 80, 24))


def test_no_panel_is_empty_without_a_reason() -> None:
    """Trend, phases, ranks and findings each say why they are empty."""
    text = "\n".join(screen(STATES["no ranks"], 80, 24))
    for reason in (
        "no whole step seen yet",
        "no phase observed yet",
        "no rank known yet",
        "20 more steps",
    ):
        assert reason in text
    assert "no rank known yet" in "\n".join(screen(STATES["no ranks"], 80, 24, ("2",)))


def test_the_culprit_is_marked_on_every_screen() -> None:
    """By a glyph, not by colour alone."""
    overview = screen(STATES["straggler"], 80, 24)
    assert any(row.startswith(" ▶    2 node01") for row in overview)
    assert any(
        "▶ rank 2 arrives last: data wait, costs 11.8 ms/step since step 257" in row for row in overview
    )
    assert any(row.startswith(" ▶    2 node01") for row in screen(STATES["straggler"], 80, 24, ("2",)))


def test_of_many_ranks_the_culprit_is_always_shown() -> None:
    """A row for who needs eyes, a cell for every other, and how many do not fit."""
    text = screen(STATES["many"], 80, 24)
    assert any("▶  612 gpu076" in row for row in text)
    assert any("more ranks: press 2" in row for row in text)
    assert "more ranks" not in "\n".join(screen(STATES["many"], 200, 50))


def test_hub_lost_is_said_before_the_figures() -> None:
    """The header's badge and a notice with the reason."""
    text = screen(STATES["hub lost"], 80, 24)
    assert "HUB LOST" in text[0]
    assert "these are the last figures" in text[1]
    assert "No frame for 12 s" in text[1] + text[2]


def test_a_failure_keeps_its_reason() -> None:
    """What went wrong in the feed's thread reaches the screen."""
    text = screen(STATES["failed"], 80, 24)
    assert "✖ FAILED" in text[0]
    assert "ValueError: x" in text[1]


def test_a_finished_run_keeps_its_figures() -> None:
    """Ended in the header, figures as they were."""
    text = "\n".join(screen(STATES["finished"], 80, 24))
    assert "ENDED" in text
    assert "run finished" in text
    assert "16.9 ms" in text


def test_looking_and_attaching_show_progress() -> None:
    """Never an empty screen: what is being done and how far it is."""
    assert "looking for ranks…" in "\n".join(screen(STATES["looking"], 80, 24))
    text = "\n".join(screen(STATES["attaching"], 80, 24))
    assert "2 of 4" in text
    assert "Injecting into pid 41202." in text


def test_attaching_with_figures_shows_both() -> None:
    """Ranks that are in already are shown while others are being attached."""
    text = screen(views.live(views.straggler(), phase="attaching 3/4", progress=(3, 4)), 80, 24)
    assert "attaching 3/4" in text[1]
    assert "3 of 4" in text[1]


def test_the_replay_bar_has_place_speed_and_marks() -> None:
    """Where it is, how fast it goes, where findings begin."""
    bar = screen(STATES["replay"], 80, 24)[-2]
    assert "▶ step 341  4\u00d7" in bar
    assert 2 == bar.count("▲")
    assert 1 == bar.count("●")
    assert bar.rstrip().endswith("549")


def test_hostile_names_do_not_reach_the_terminal() -> None:
    """Label, host, state and messages are cleaned wherever they are drawn."""
    evil = "\x1b[2J\x1b]0;x\x07\u202enode\u200b"
    view = views.lost_ranks()
    ranks = tuple(replace(rank, host=evil, now=evil, state_detail=evil) for rank in view.ranks)
    finding = replace(
        view.findings[0], title=evil, message=evil, evidence={evil: evil}, measure_next=(evil,), hosts=(evil,)
    )
    view = replace(
        view,
        run=replace(view.run, label=evil, hosts=(evil,), backend=evil, torch=evil),
        ranks=ranks,
        findings=(finding,),
        verdict=replace(view.verdict, sentence=evil, verify=evil, finding=finding.id),
        losses=replace(view.losses, notes=(evil,)),
        trend=replace(view.trend, marks=((222, evil),)),
        hosts=tuple(replace(host, host=evil, gpus=(evil,)) for host in view.hosts),
        ended=evil,
    )
    for page, keys in PAGES.items():
        for size in ((80, 24), (160, 45)):
            text = "".join(screen(views.live(view, message=evil, phase=evil), *size, keys))
            assert all(character.isprintable() for character in text), page
            assert "\u202e" not in text


@pytest.mark.parametrize("num_ranks", [0, 1, 4, 8, 9, 100, 5000])
@pytest.mark.parametrize("num_findings", [0, 1, 3, 12])
@pytest.mark.parametrize("room", [3, 5, 8, 12, 30])
def test_shared_rows_fill_no_more_than_the_room(room: int, num_ranks: int, num_findings: int) -> None:
    """Each part has a row at least, and four ranks are worth more than a second finding."""
    chart, ranks, findings = shared_rows(room, num_ranks, num_findings)
    assert min(chart, ranks, findings) >= 1
    assert chart + ranks + findings <= max(room, 3)
    if num_ranks >= 4 and room >= 8:
        assert ranks >= 4


@pytest.mark.parametrize("page", ["2", "3", "4"])
@pytest.mark.parametrize("size", [(60, 16), (80, 24), (160, 45)])
def test_losses_are_said_on_every_screen_of_the_run(page: str, size: tuple[int, int]) -> None:
    """Under the header: dropped events, lost frames, the silent agent; nothing where nothing was lost."""
    assert "1,204 events dropped; 3 frames lost" in screen(STATES["lost ranks"], *size, (page,))[1]
    assert "lost" not in screen(STATES["straggler"], *size, (page,))[1]


def test_one_rank_has_nobody_to_exchange_with() -> None:
    """Not five times unknown, and no advice to look closer."""
    alone = views.one_rank()
    silent = replace(alone, overlap=replace(alone.overlap, comm_exposed_s=None))
    text = "\n".join(screen(views.live(silent), 80, 24, ("4",)))
    assert 2 == text.count("one rank: there is no gradient communication")
    assert "press D" not in text


def test_the_last_arriver_is_whole_on_80_columns() -> None:
    """Four digits and a share."""
    rows = screen(views.live(views.many(1024)), 80, 24, ("4",))
    assert any(row.rstrip().endswith("rank 612, 98 %") for row in rows)


def test_a_finding_that_does_not_fit_is_told_by_its_title() -> None:
    """A whole title rather than half a sentence."""
    text = "\n".join(screen(STATES["straggler"], 80, 24))
    assert "Rank 2 reads its data late" in text
    assert "its peers 2.1…" not in text


def test_the_reason_of_a_lost_rank_is_whole_below_the_table() -> None:
    """Where the table leaves room and nobody is a culprit."""
    text = "\n".join(screen(STATES["unknown"], 80, 24, ("2",)))
    assert "injected; blocked in C, the probe starts with the next Python call" in text


def test_an_ended_run_cannot_be_seen_in_detail() -> None:
    """The key says why."""
    rows = screen(STATES["finished"], 80, 24, ("4", "D"))
    assert "the run has ended" in rows[-1]


def test_goodput_of_an_earlier_moment_has_its_reason_and_the_window_its_name() -> None:
    """It was "no step yet, or an earlier moment" beside a figure of goodput that was of other seconds."""
    past = replace(views.straggler(), wall=None)
    told = " ".join(" ".join(screen(views.live(past), 80, 24, ("W",))).split())
    assert "an earlier moment is shown" in told
    assert "End goes there" in told
    # Screen 1 had a figure there, and this page was empty.
    assert "what is known at this moment" in told
    assert f"goodput of steady steps {text_of.share(past.useful_share)}" in told
    assert "what a step loses to" in told
    assert "goodput of steady steps" in "\n".join(screen(views.live(past), 160, 45))
    none_yet = replace(past, last_step=None)
    assert "goodput unknown: no step was seen yet" in "\n".join(screen(views.live(none_yet), 80, 24, ("W",)))


def test_steady_steps_that_lose_more_than_the_run_are_not_explained_by_its_start() -> None:
    """25 % of the steady steps and 84 % of the run: "start-up, warm-up, pauses are the difference" was no reason."""
    wall = views.from_start().wall
    assert wall is not None
    (better,) = [said for said in notes(replace(wall, end_to_end=0.6, steady=0.9)) if "steady" in said]
    (worse,) = [said for said in notes(replace(wall, end_to_end=0.84, steady=0.25)) if "steady" in said]
    assert "start-up" in better
    assert "25 %" in worse
    assert "start-up" not in worse


def test_a_head_says_less_where_there_is_less_room_instead_of_nothing() -> None:
    """Which steps the figures are of vanished from 80 columns where they begin at a change."""
    view = views.straggler()
    change = "since step 943 ranks 2, 5 and 11 work 68.3 ms longer a step"
    view = replace(view, window=replace(view.window, change=change, excluded={"warmup": 20, "partial": 38}))
    for width, has_change in ((80, False), (220, True)):
        text = "\n".join(screen(views.live(view), width, 45))
        assert text_of.steps(view.window.first_step, view.window.last_step) in text
        assert has_change == (change in text)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50)])
def test_why_nothing_is_decided_is_not_cut_beside_the_chart(width: int, height: int) -> None:
    """In the right column it went on behind the edge of the screen: "no step was seen by the devices' o"."""
    view = views.healthy()
    why = "no step was seen by the devices' own clocks, and of nothing else can it be told"
    window = replace(view.window, enough=False, why_undecided=why)
    view = replace(view, window=window, findings=(), verdict=replace(view.verdict, decision=None))
    keyboard = Keyboard(views.live(view))
    drawn = [row.text for row in keyboard.place.rows(width, height)]
    assert max(map(length, keyboard.place.rows(width, height))) <= width
    assert "else can it be told" in "\n".join(drawn)


def test_what_was_typed_and_finds_nothing_is_said_whole() -> None:
    """A row that is as long as what was typed, behind the edge of the screen."""
    keyboard = Keyboard(views.live(views.straggler()))
    keyboard.press("2", "/", *"a" * 38, "enter")
    drawn = keyboard.place.rows(80, 24)
    assert max(map(length, drawn)) <= 80
    assert "esc clears it" in " ".join(" ".join(row.text for row in drawn).split())


@pytest.mark.parametrize("key", "1234")
def test_a_long_name_of_a_job_leaves_the_screens_their_place(key: str) -> None:
    """Of the header at 80 columns all tabs were gone, so nothing said which screen this was."""
    view = views.finished()
    view = replace(view, run=replace(view.run, label="pretraining_multigpu_torchrun_resumed.py"))
    board = Keyboard(views.live(view, phase="ended"))
    head = board.press(key).splitlines()[0]
    assert f"{key} {board.place.page.title}" in head
    assert "pretr" in head
    assert "ed.py" in head


def test_a_count_of_parameters_is_whole() -> None:
    """A small model had 21.0 of them."""
    assert ("21", "1.19 M") == (scaled(21, ""), scaled(1_188_874, ""))


def test_a_verdict_that_was_cut_takes_the_rows_that_are_left_over() -> None:
    """Two rows and an ellipsis stood above four empty ones."""
    said = (
        "Not enough steps in this trace: "
        + " ".join(f"word{number}" for number in range(48))
        + " at the end."
    )
    view = views.one_rank()
    view = replace(view, verdict=replace(view.verdict, decision=None, sentence=said), findings=())
    text = "\n".join(screen(views.live(view), 80, 24))
    assert "at the end." in text
    full = views.many(64)
    full = replace(full, verdict=replace(full.verdict, decision=None, sentence=said))
    assert "at the end." not in "\n".join(screen(views.live(full), 80, 24))  # others need the rows


def test_of_an_imported_trace_no_probe_is_spoken_of() -> None:
    """There was none: "probe unknown of step; detail 100 % of steps" stood below it."""
    imported = Imported("kineto", "trace.json", "a trace", "", None)
    assert "probe" in sections.source(views.straggler(), 200).text
    assert "probe" not in sections.source(replace(views.straggler(), imported=imported), 200).text


@pytest.mark.parametrize("width", [76, 100, 140, 200])
def test_what_watching_costs_is_told_whole_or_in_short(width: int) -> None:
    """The end of "over its budget of 0.5 % without detail, too (native hooks)" was cut at 80 columns."""
    work = ProbeWork(0.031, 0.005, 0.05, 15, is_over=True, always_on=0.02, core="native")
    said = sections.source(replace(views.straggler(), probe=work), width).text
    assert len(said) <= width
    assert "probe ≥ 3.1 % of step, over its " in said
    assert said.endswith("%")
    assert (width >= 140) == ("(native hooks)" in said)


def test_an_imported_trace_leads_to_its_kernels_and_says_no_four_unknowns() -> None:
    """Nothing on its first screen named the page that an import is made for."""
    text = "\n".join(screen(views.live(views.traced()), 80, 24))
    assert "K Kernels" in text
    assert "K Kernels" not in "\n".join(screen(views.live(views.straggler()), 80, 24))
    seen = views.from_start()
    assert sections.lenses(seen, 78)
    assert seen.wall is not None
    unjudged = replace(seen.wall, waterfall=(WallPart("not_judged", 1.0, 1.0),), end_to_end=None)
    assert sections.lenses(replace(seen, wall=unjudged, goodput=None, efficiency=None), 78) == []


def test_a_sentence_that_is_cut_says_so_beside_what_stands_from_the_start() -> None:
    """The third row asks whether it hangs; of the sentence two are left, and the second ended as if it were whole."""
    view = views.too_early()
    verdict = replace(view.verdict, sentence="Not decided: " + "no step has ended since the attach, " * 8)
    ranks = tuple(replace(row, state="live", state_detail="no step seen") for row in view.ranks)
    view = replace(view, verdict=verdict, last_step=None, ranks=ranks)
    rows = ["".join(text for text, _ in row.spans) for row in sections.verdict(view, 80, 3)]

    assert [sections.WHERE_IT_STANDS in row for row in rows] == [False, False, True]
    assert rows[1].endswith("…")


def test_the_overview_says_whose_clock_its_step_is_from() -> None:
    """At 80 columns the source line has no room for it."""
    view = views.straggler()

    assert sections.step_title("step time", view) == "step time"
    assert sections.step_title("step time", replace(view, clock="device")) == "step time, the devices' clocks"
