"""Each screen in each state as a picture: 80x24 and 160x45, from fixed RunViews."""

from __future__ import annotations

from dataclasses import replace
from time import tzset
from typing import TYPE_CHECKING

import pytest
from snapshot import desks, views

from tuiadvisor.scaling.cost import Aim
from tuiadvisor.tui.control.app import Screens
from tuiadvisor.tui.control.navigator import Navigator
from tuiadvisor.views.run_view import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.tui.contract.desk import DeskState
    from tuiadvisor.tui.contract.feed import FeedState

SIZES = [(80, 24), (160, 45)]
INTRO = """A real training of 4 ranks runs on this machine; the probes went in while it was running.

Look at the verdict in the first line, then at the row of each rank.

1 overview   2 ranks   enter details   ? keys   q leave"""

CASES: dict[str, tuple[FeedState, tuple[str, ...]]] = {
    "overview-straggler": (views.live(views.straggler()), ()),
    "overview-without-ribbon": (views.live(views.from_start()), ("H",)),
    "ranks-without-ribbon": (views.live(views.straggler()), ("2", "H")),
    "overview-stalled": (views.live(views.stalled()), ()),
    "ranks-stalled": (views.live(views.stalled()), ("2",)),
    "advisor-stalled": (views.live(views.stalled()), ("5",)),
    "overview-healthy": (views.live(views.healthy()), ()),
    "overview-not-enough-yet": (views.live(views.too_early()), ()),
    "overview-lost-ranks": (views.live(views.lost_ranks()), ()),
    "overview-unknown": (views.live(views.unknown_everything()), ()),
    "overview-one-rank": (views.live(views.one_rank()), ()),
    "overview-finished": (views.live(views.finished(), phase="ended"), ()),
    "overview-1024-ranks": (views.live(views.many(1024)), ()),
    "overview-looking": (views.looking(), ()),
    "overview-standing": (views.live(views.standing()), ()),
    "overview-attaching": (views.attaching(), ()),
    "overview-hub-lost": (views.hub_lost(), ()),
    "overview-paused": (views.live(views.straggler(), phase="paused"), ()),
    "overview-replay": (views.replay(), ()),
    "overview-past": (views.past(), ()),
    "ranks-past": (views.past(), ("2",)),
    "ranks-straggler": (views.live(views.straggler()), ("2", "down")),
    "ranks-lost": (views.live(views.lost_ranks()), ("2", "G")),
    "ranks-unknown": (views.live(views.unknown_everything()), ("2",)),
    "ranks-1024-sorted": (views.live(views.many(1024)), ("2", "s", "down")),
    "ranks-1024-filtered": (views.live(views.many(1024)), ("2", "slash", "g", "p", "u", "0", "7")),
    "ranks-hosts": (views.live(views.grouped_many()), ("2",)),
    "ranks-stages": (views.live(views.grouped_many()), ("2", "a", "down", "enter")),
    "ranks-replicas": (views.live(views.grouped_many()), ("2", "a", "a", "s", "down")),
    "ranks-phases": (views.live(views.grouped_many()), ("2", "s", "M")),
    "ranks-values": (views.live(views.with_values(views.straggler())), ("2", "v", "less_than_sign")),
    "ranks-16384-values": (views.live(views.with_values(views.grouped_many(16384, 8))), ("2", "v")),
    "ranks-group-filtered": (
        views.live(views.grouped_many()),
        ("2", "slash", *"stage", "space", "2", "enter"),
    ),
    "ranks-16384": (views.live(views.grouped_many(16384, 8)), ("2",)),
    "ranks-one": (views.live(views.one_rank()), ("2",)),
    "ranks-finished": (views.live(views.finished(), phase="ended"), ("2",)),
    "ranks-hub-lost": (views.hub_lost(), ("2",)),
    "ranks-replay-paused": (views.replay(paused=True), ("2",)),
    "pipeline": (views.live(views.pipeline()), ("3",)),
    "pipeline-even": (views.live(views.pipeline(num_chunks=32, heavy=None)), ("3", "down")),
    "pipeline-16-ranks": (views.live(views.pipeline(num_ranks=16)), ("3",)),
    "pipeline-unknown": (views.live(views.pipeline_unknown()), ("3",)),
    "pipeline-none": (views.live(views.straggler()), ("3",)),
    "what-if-all": (views.live(views.with_prospects()), ("3",)),
    "what-if": (views.live(views.with_prospects()), ("3", "i")),
    "what-if-at-best": (views.live(views.with_prospects()), ("3", "i", "i")),
    "pipeline-no-step": (views.live(views.unknown_everything()), ("3",)),
    "rank-detail": (views.live(views.straggler()), ("2", "s", "down", "enter")),
    "rank-card": (views.live(views.with_card()), ("2", "s", "down", "enter")),
    "hang-card": (views.live(views.with_hang_card()), ("enter",)),
    "finding-detail": (views.live(views.straggler()), ("enter",)),
    "kernels": (views.live(views.traced()), ("K",)),
    "kernels-none": (views.live(views.straggler()), ("K",)),
    "efficiency": (views.live(views.efficient()), ("F",)),
    "goodput": (views.live(views.from_start()), ("W",)),
    "goodput-attached": (views.live(views.from_start(is_attached=True)), ("W",)),
    "goodput-unknown": (views.live(views.too_early()), ("W",)),
    "help": (views.live(views.straggler()), ("2", "question_mark")),
    "help-terms": (views.live(views.straggler()), ("question_mark", *["down"] * 8)),
    "selftest": (views.live(views.straggler()), ("T",)),
    "selftest-answered": (views.live(views.straggler()), ("T", "down", "enter")),
    "palette": (views.replay(), ("colon", "s", "t", "e", "p")),
    "seek": (views.replay(), ("S", "1", "2", "0")),
    "overlap-detailed": (views.live(views.detailed()), ("4",)),
    "overlap-buckets": (views.live(views.in_buckets()), ("4",)),
    "overlap-buckets-unknown": (
        views.live(
            replace(
                views.detailed(),
                unknown=(
                    *views.detailed().unknown,
                    Unknown("buckets", "only 3 steady steps were seen in detail"),
                ),
            )
        ),
        ("4",),
    ),
    "pipeline-lost": (views.live(views.lost_ranks()), ("3",)),
    "pipeline-finished": (views.live(views.finished(), phase="ended"), ("3",)),
    "pipeline-one-rank": (views.live(views.one_rank()), ("3",)),
    "pipeline-hub-lost": (views.hub_lost(), ("3",)),
    "overlap-lost": (views.live(views.lost_ranks()), ("4",)),
    "overlap-finished": (views.live(views.finished(), phase="ended"), ("4",)),
    "overlap-one-rank": (views.live(views.one_rank()), ("4",)),
    "overlap-hub-lost": (views.hub_lost(), ("4",)),
    "overlap-not-seen": (views.live(replace(views.straggler(), overlap=views.NO_OVERLAP)), ("4",)),
    "overlap-unknown": (views.live(views.unknown_everything()), ("4",)),
    "events": (views.with_events(), ("E", "down")),
    "events-filtered": (views.with_events(), ("E", "slash", *"rank", "space", "2", "enter")),
    "events-none": (views.live(views.straggler()), ("E",)),
    "overview-stretch": (views.stretch(), ()),
    "ranks-stretch": (views.stretch(), ("2",)),
    "log": (views.live(views.lost_ranks()), ("L",)),
    "why-not": (views.live(views.straggler()), ("x",)),
}


@pytest.fixture(autouse=True)
def _the_same_time_of_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Navigator, "wall_time", lambda _: "10:00:00")
    monkeypatch.setenv("TZ", "UTC")
    tzset()


def screens(
    state: FeedState,
    theme: str = "dark",
    *,
    ascii_only: bool = False,
    intro: str | None = None,
    desk: DeskState | None = None,
) -> Screens:
    beside = desks.FakeDesk(desk) if desk is not None else None
    return Screens(
        views.FakeFeed(state),
        theme=theme,
        ascii_only=ascii_only,
        intro=intro,
        desk=beside,
        preferences_file="/home/me/.config/tuiadvisor/preferences.toml",
    )


DESKS: dict[str, tuple[DeskState, tuple[str, ...]]] = {
    "runs": (desks.desk(), ("8", "down", "m", "down", "m")),
    "runs-filtered": (desks.desk(open_path="/runs/before.tuirec"), ("8", "slash", "k", "e", "e", "p")),
    "home": (desks.desk(jobs=desks.jobs(), is_looking=False, can_attach=True), ("0", "down")),
    "home-asks": (desks.desk(jobs=desks.jobs(), is_looking=False, can_attach=True), ("0", "enter")),
    "home-empty": (replace(desks.desk(is_looking=False), runs=(), has_live=False), ("0",)),
    "runs-none": (replace(desks.desk(), runs=(), has_live=False), ("8",)),
    "advisor": (desks.desk(session=desks.guided_session()), ("5",)),
    "advisor-question": (
        desks.desk(session=desks.guided_session({"effort_hours": 4.0})),
        ("5", "right", "down"),
    ),
    "advisor-answer": (desks.desk(session=desks.guided_session()), ("5", "right", "right", "down", "enter")),
    "dialogue": (desks.desk(session=desks.guided_session()), ("d",)),
    "dialogue-answered": (
        desks.desk(session=desks.guided_session({"host_cpus_full": "no"}, "host_cpus_full")),
        ("d",),
    ),
    "advisor-reading": (desks.desk(session_note="reading before.tuirec: 43 %"), ("5",)),
    "job": (desks.desk(job=views.job()), ("J",)),
    "timeline": (desks.desk(timeline=views.timeline()), ("Z", "down", "+")),
    "timeline-none": (desks.desk(timeline_note="no recording is open: tuiadvisor open TRACE"), ("Z",)),
    "scaling": (desks.desk(scaling=desks.sized()), ("6",)),
    "scaling-entry": (desks.desk(scaling=desks.sized()), ("6", "down", "down")),
    "scaling-typing": (desks.desk(scaling=desks.sized()), ("6", "enter", "backspace", "3")),
    "scaling-nothing-stated": (desks.desk(scaling=desks.sized(Aim(), ())), ("6",)),
    "scaling-one-run": (desks.desk(scaling=desks.bounded()), ("6",)),
    "scaling-one-host": (desks.desk(scaling=desks.bounded(Aim(), "strong", 8)), ("6",)),
    "scaling-no-data": (desks.desk(scaling=desks.unsized()), ("6",)),
    "scaling-one-size": (desks.desk(scaling=desks.sized(rows=desks.MEASURED[:1])), ("6",)),
    "scaling-reading": (desks.desk(scaling_note="reading before.tuirec: 43 %"), ("6",)),
    "scaling-still-reading": (
        desks.desk(
            scaling=desks.bounded(), scaling_note="reading after.tuirec, 1 more recording to read: 43 %"
        ),
        ("6",),
    ),
    "preferences": (desks.desk(), ("comma", "down")),
    "compare": (desks.desk(comparison=desks.comparison()), ("7",)),
    "compare-worth": (
        desks.desk(
            comparison=desks.comparison(),
            comparison_worth="Saves 3.1 to 3.42 hours over the 1,000,000 steps that remain (12.4 to 13.7 device-hours, "
            "24.8 to 27.3 EUR).",
        ),
        ("7",),
    ),
    "compare-none": (desks.desk(), ("7",)),
    "compare-reading": (desks.desk(comparison_note="reading before.tuirec: 43 %"), ("7",)),
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", CASES)
def test_screen(snap_compare: Callable[..., bool], name: str, size: tuple[int, int]) -> None:
    """The picture is the one that was looked at."""
    state, keys = CASES[name]
    is_same = snap_compare(screens(state), press=keys, terminal_size=size)
    assert is_same, f"look at snapshot_report.html; if that is meant: -k '{name}' --snapshot-update"


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", DESKS)
def test_desk(snap_compare: Callable[..., bool], name: str, size: tuple[int, int]) -> None:
    """What lies beside the run."""
    desk, keys = DESKS[name]
    assert snap_compare(screens(views.live(views.straggler()), desk=desk), press=keys, terminal_size=size)


@pytest.mark.parametrize("name", ["runs", "compare", "advisor-question", "scaling"])
def test_desk_in_sixteen_colours(snap_compare: Callable[..., bool], name: str) -> None:
    """In the terminal's own colours."""
    desk, keys = DESKS[name]
    assert snap_compare(screens(views.live(views.straggler()), "terminal", desk=desk), press=keys)


@pytest.mark.parametrize("theme", ["light", "terminal"])
@pytest.mark.parametrize("keys", [(), ("2", "down")], ids=["overview", "ranks"])
def test_theme(snap_compare: Callable[..., bool], theme: str, keys: tuple[str, ...]) -> None:
    """The same screens in the other colours."""
    assert snap_compare(screens(views.live(views.straggler()), theme), press=keys)


@pytest.mark.parametrize("theme", ["light", "terminal"])
def test_groups_in_other_colours(snap_compare: Callable[..., bool], theme: str) -> None:
    """A late rank in a group of others, in other colours."""
    assert snap_compare(screens(views.live(views.grouped_many()), theme), press=("2", "a"))


def test_groups_in_ascii(snap_compare: Callable[..., bool]) -> None:
    """A glyph of its own for what stands out, without UTF-8."""
    assert snap_compare(
        screens(views.live(views.grouped_many()), "terminal", ascii_only=True), press=("2", "a")
    )


@pytest.mark.parametrize("theme", ["light", "terminal"])
def test_pipeline_in_other_colours(snap_compare: Callable[..., bool], theme: str) -> None:
    """The chart in the other colours, the terminal's sixteen among them."""
    assert snap_compare(screens(views.live(views.pipeline()), theme), press=("3",))


def test_pipeline_in_ascii(snap_compare: Callable[..., bool]) -> None:
    """Letters, dots and equal signs: nothing of the chart needs more than ASCII."""
    assert snap_compare(screens(views.live(views.pipeline()), "terminal", ascii_only=True), press=("3",))


def test_scaling_in_ascii(snap_compare: Callable[..., bool]) -> None:
    """Curve, interval and limits stay apart without UTF-8."""
    state = views.live(views.straggler())
    beside = desks.desk(scaling=desks.sized())
    assert snap_compare(screens(state, "terminal", ascii_only=True, desk=beside), press=("6",))


def test_scaling_in_light_colours(snap_compare: Callable[..., bool]) -> None:
    """On a light ground."""
    beside = desks.desk(scaling=desks.sized())
    assert snap_compare(screens(views.live(views.straggler()), "light", desk=beside), press=("6",))


def test_scaling_without_colours(snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Under NO_COLOR glyphs alone tell the curve from its interval and the limits."""
    monkeypatch.setenv("NO_COLOR", "1")
    beside = desks.desk(scaling=desks.sized())
    assert snap_compare(screens(views.live(views.straggler()), "terminal", desk=beside), press=("6", "down"))


def test_ascii(snap_compare: Callable[..., bool]) -> None:
    """Without UTF-8 the same places hold ASCII."""
    assert snap_compare(screens(views.live(views.lost_ranks()), "terminal", ascii_only=True))


def test_no_colour(snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Under NO_COLOR nothing is lost that only a colour would say."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(screens(views.live(views.straggler()), "terminal"), press=["down", "down"])


def test_intro(snap_compare: Callable[..., bool]) -> None:
    """The card of the demo."""
    assert snap_compare(screens(views.live(views.straggler()), intro=INTRO))


def test_too_small(snap_compare: Callable[..., bool]) -> None:
    """What a window too small says."""
    assert snap_compare(screens(views.live(views.straggler())), terminal_size=(50, 12))
