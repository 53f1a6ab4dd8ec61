"""The application in Textual's own test terminal: keys, states, sizes, colours, leaving."""

from __future__ import annotations

import pytest
from snapshot import views

from tuiadvisor.tui.contract.feed import (
    End,
    FeedState,
    NextFinding,
    Pause,
    PreviousFinding,
    Quit,
    SeekStep,
    Speed,
    Step,
    Stride,
)
from tuiadvisor.tui.control.app import Screens

pytestmark = pytest.mark.slow


def screens(
    state: FeedState, theme: str = "dark", intro: str | None = None
) -> tuple[Screens, views.FakeFeed]:
    feed = views.FakeFeed(state)
    return Screens(feed, theme=theme, ascii_only=False, intro=intro), feed


def text_of(app: Screens) -> str:
    """Return what is drawn on the canvas."""
    return "\n".join(app.canvas.render_line(row).text for row in range(app.size.height))


async def test_the_first_frame_is_there_without_waiting() -> None:
    """Drawn with the first layout, not with the first tick."""
    app, _ = screens(views.live(views.straggler()))
    async with app.run_test(size=(80, 24)):
        assert "TUNE" in text_of(app)


async def test_keys_reach_the_pages() -> None:
    """Screen, cursor, detail, back; keys with names of their own in Textual."""
    app, _ = screens(views.live(views.straggler()))
    async with app.run_test(size=(80, 24)) as pilot:
        for keys, expected in (
            (["2"], "ranks by rank"),
            (["s"], "ranks by caused wait"),
            (["R".lower()], "reversed"),
            (["slash", "3"], "1 of 4"),
            (["escape", "down", "enter"], "where its step goes"),
            (["escape", "1", "enter"], "what to do"),
            (["question_mark"], "on finding"),
            (["escape", "colon"], "commands ─"),
            (["escape", "ctrl+p"], "commands ─"),
        ):
            await pilot.press(*keys)
            assert expected in text_of(app), keys


async def test_enter_opens_the_only_thing_there_is() -> None:
    """The chain of a job without a pipeline marks one stage: its rank, at the first enter."""
    app, _ = screens(views.live(views.straggler()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        assert "where its step goes" not in text_of(app)
        await pilot.press("enter")
        assert "where its step goes" in text_of(app)


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_leaving_tells_the_feed(key: str) -> None:
    """The feed hears quit, the application ends without an error."""
    app, feed = screens(views.live(views.straggler()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
    assert [Quit()] == feed.commands
    assert 0 == (app.return_code or 0)


async def test_replay_keys_reach_the_feed() -> None:
    """By the names Textual gives them."""
    app, feed = screens(views.replay())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(
            "left_square_bracket",
            "right_square_bracket",
            "left_curly_bracket",
            "right_curly_bracket",
            "x",
            "end",
            "space",
        )
        await pilot.press("S", "1", "2", "enter")
    assert [
        Step(-1),
        Step(1),
        PreviousFinding(),
        NextFinding(),
        Speed(8.0),
        End(),
        Pause(),
        SeekStep(12),
    ] == feed.commands


async def test_a_newer_state_is_drawn_and_only_its_rows_are_repainted() -> None:
    """An equal state repaints nothing."""
    app, feed = screens(views.live(views.straggler()))
    async with app.run_test(size=(80, 24)) as pilot:
        feed.show(views.live(views.healthy()))
        app.take_state()
        assert "KEEP" in text_of(app)
        await pilot.pause()
        repainted: list[object] = []
        app.canvas.refresh = lambda *regions, **_: repainted.extend(regions)  # type: ignore[method-assign,assignment,return-value]
        app.take_state()
        assert [] == repainted
        feed.show(views.live(views.healthy(), phase="paused"))
        app.take_state()
        assert [0, 23] == sorted(region.y for region in repainted)  # type: ignore[attr-defined]


async def test_the_screen_follows_the_size() -> None:
    """Smaller, too small, and back."""
    app, _ = screens(views.live(views.straggler()))
    async with app.run_test(size=(160, 45)) as pilot:
        assert "what to do first" in text_of(app)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "what to do first" not in text_of(app)
        assert "TUNE" in text_of(app)
        await pilot.resize_terminal(50, 10)
        await pilot.pause()
        assert "60x16" in text_of(app)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "TUNE" in text_of(app)


@pytest.mark.parametrize("theme", ["dark", "light", "terminal"])
async def test_without_colours_every_page_is_drawn(theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under NO_COLOR no segment is without a style, and no colour is left: default on default."""
    monkeypatch.setenv("NO_COLOR", "1")
    app, _ = screens(views.live(views.lost_ranks()), theme)
    async with app.run_test(size=(80, 24)) as pilot:
        for key in ("2", "down", "enter", "escape", "1", "enter", "question_mark", "escape", "colon"):
            await pilot.press(key)
            for strips in app.screen._compositor.render_strips():
                for segment in strips:
                    assert segment.style is not None
                    assert segment.style.color is None or segment.style.color.is_default
                    assert segment.style.bgcolor is None or segment.style.bgcolor.is_default


async def test_themes_change_the_ground_and_stay_drawn() -> None:
    """Dark, light, the terminal's own, and round again."""
    app, _ = screens(views.live(views.straggler()))
    async with app.run_test(size=(80, 24)) as pilot:
        grounds = []
        for _ in range(4):
            strip = app.canvas.render_line(1)
            grounds.append(next(segment.style.bgcolor for segment in strip if segment.style))
            await pilot.press("t")
        assert grounds[0] == grounds[3]
        assert 3 == len({str(ground) for ground in grounds})


async def test_ascii_is_ascii() -> None:
    """Where the terminal has no UTF-8 nothing else is written."""
    feed = views.FakeFeed(views.replay(views.lost_ranks()))
    app = Screens(feed, theme="terminal", ascii_only=True, intro="Look … here.")
    async with app.run_test(size=(80, 24)) as pilot:
        for key in ("escape", "2", "down", "enter", "1", "enter", "question_mark"):
            assert text_of(app).isascii()
            await pilot.press(key)


async def test_the_mouse_opens_and_scrolls() -> None:
    """A click on a rank opens it, the wheel moves a long table."""
    app, _ = screens(views.live(views.many(256)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("2")
        await pilot.click(offset=(10, 5))
        assert "where its step goes" in text_of(app)
        await pilot.press("escape")
        app.on_mouse_scroll_down()
        assert "4\u2013" in text_of(app)
        app.on_mouse_scroll_up()
        assert "1\u2013" in text_of(app)


async def test_pasted_text_goes_into_the_prompt() -> None:
    """And nowhere else."""
    from textual import events

    app, _ = screens(views.live(views.many(64)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "slash")
        app.post_message(events.Paste("gpu001"))
        await pilot.pause()
        assert "8 of 64" in text_of(app)


async def test_the_intro_is_closed_by_a_key() -> None:
    """The demo's card lies over the figures until then."""
    app, _ = screens(views.live(views.straggler()), intro="Look at the verdict.")
    async with app.run_test(size=(80, 24)) as pilot:
        assert "Look at the verdict." in text_of(app)
        await pilot.press("escape")
        assert "Look at the verdict." not in text_of(app)


async def test_unfocused_screens_are_drawn_less_often() -> None:
    """Nobody looks: every two seconds is enough."""
    now_s = 100.0
    feed = views.FakeFeed(views.live(views.straggler()))
    app = Screens(feed, theme="dark", ascii_only=False, clock=lambda: now_s)
    async with app.run_test(size=(80, 24)) as pilot:
        app.app_focus = False
        await pilot.pause()
        app.tick()
        feed.show(views.live(views.healthy()))
        now_s += 1.0
        app.tick()
        assert "TUNE" in text_of(app)
        now_s += 1.5
        app.tick()
        assert "KEEP" in text_of(app)


async def test_keys_of_groups_reach_the_ranks() -> None:
    """By the names Textual gives them: group, open, all, map, filter."""
    app, _ = screens(views.live(views.grouped_many()))
    async with app.run_test(size=(100, 30)) as pilot:
        for keys, expected in (
            (["2"], "hosts by rank"),
            (["down", "enter"], "-8 gpu000"),
            (["enter", "e"], "-8 gpu001"),
            (["e", "a"], "stages by rank"),
            (["a"], "replicas by rank"),
            (["M"], "far longer"),
            (["M", "slash", *"outlier", "enter"], "3 of 1,024"),
        ):
            await pilot.press(*keys)
            assert expected in text_of(app), keys


async def test_keys_back_in_time_reach_a_live_feed() -> None:
    """The same as in a replay, and End to the live edge."""
    app, feed = screens(views.past())
    async with app.run_test(size=(80, 24)) as pilot:
        assert "PAST" in text_of(app)
        await pilot.press(
            "left_square_bracket", "right_square_bracket", "left", "right", "left_curly_bracket"
        )
        await pilot.press("right_curly_bracket", "S", "2", "0", "0", "enter", "end")
    assert [
        Step(-1),
        Step(1),
        Stride(-1),
        Stride(1),
        PreviousFinding(),
        NextFinding(),
        SeekStep(200),
        End(),
    ] == feed.commands
