"""Alerts: a banner on every screen, and one bell for what opens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from snapshot import views
from test_tui_navigator import Keyboard

from tuiadvisor.preferences import AlertRules, quiet_hours
from tuiadvisor.tui.control.alerts import AGAIN_S, SHOWN_S, Alerts
from tuiadvisor.tui.control.clipboard import alert_sequence
from tuiadvisor.views.event import Alert
from tuiadvisor.views.run_view import RunView


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_stall_is_told_once_and_its_timer_runs(clock: Clock) -> None:
    """The bell rings when it opens, not each second; the banner has who waits, and what lets the rank go on."""
    alerts = Alerts(clock)
    assert alerts.take(views.live(views.healthy())) is None
    told = [alerts.take(views.live(views.stalled(seconds))) for seconds in (6.0, 7.0, 125.0)]
    assert [True, False, False] == [bool(each) for each in told]
    assert told[0] is not None
    assert "wait for rank 3" in told[0].words
    assert told[0].ranks == (3,)
    shown = "\n".join(row.text for row in alerts.rows(views.live(views.stalled(125.0)), 80))
    assert "STALLED 2 min 05 s" in shown
    assert "kill -CONT 41203" in shown


def test_the_head_and_the_banner_name_one_step(clock: Clock) -> None:
    """The probe tells several steps at a time: the last ones before a stall stay with the rank that stands."""
    view = views.stalled()
    assert view.stall is not None
    assert view.last_step is not None
    behind = replace(view, last_step=338, stall=replace(view.stall, step=341))
    top = Keyboard(views.live(behind)).place.drawn[0].text
    assert "step 341" in top
    assert "338" not in top


def test_a_stall_that_comes_back_at_once_is_not_told_again(clock: Clock) -> None:
    """A job that stutters rings once a minute at most."""
    alerts = Alerts(clock)
    told = []
    for passed_s in (0.0, 5.0, AGAIN_S):
        clock.now_s += passed_s
        told.append(bool(alerts.take(views.live(views.stalled()))))
        alerts.take(views.live(views.healthy()))
    assert told == [True, False, True]


def test_a_stall_that_comes_back_at_once_and_stays_is_told_when_the_minute_is_over(clock: Clock) -> None:
    """Nobody is left uncalled beside a job that hangs, because it had stuttered before."""
    alerts = Alerts(clock)
    assert alerts.take(views.live(views.stalled()))
    alerts.take(views.live(views.healthy()))
    told = []
    for passed_s in (5.0, AGAIN_S - 5.0, AGAIN_S):
        clock.now_s += passed_s
        told.append(bool(alerts.take(views.live(views.stalled()))))
    assert told == [False, True, False]


def test_the_command_is_never_cut_off(clock: Clock) -> None:
    """On a narrow screen it has a row of its own."""
    stalled = views.stalled()
    assert stalled.stall is not None
    many = replace(stalled, stall=replace(stalled.stall, words=stalled.stall.words * 4))
    rows = Alerts(clock).rows(views.live(many), 60)
    assert len(rows) == 3
    assert rows[-1].text.strip() == "kill -CONT 41203"
    assert {len(row.text) for row in rows} == {60}


@pytest.mark.parametrize(
    "words",
    [
        (
            "ranks 0, 1 and 2 wait for rank 3, stopped by a signal or a debugger; they are in all_reduce "
            "(collective 225 of group default_pg)"
        ),
        "ranks 0, 1 and 2 wait for rank 3, which has not entered all_reduce (collective 48,211 of group default_pg)",
    ],
)
def test_a_narrow_banner_has_who_waits_for_whom_and_in_what(clock: Clock, words: str) -> None:
    """At 80 columns its last part was cut."""
    stalled = views.stalled()
    assert stalled.stall is not None
    rows = Alerts(clock).rows(views.live(replace(stalled, stall=replace(stalled.stall, words=words))), 80)
    shown = " ".join(row.text.strip() for row in rows)
    assert words in shown
    assert "kill -CONT 41203" in shown
    assert len(rows) <= 3


def test_what_a_banner_has_no_room_for_goes_by_whole_clauses(clock: Clock) -> None:
    """Not in the middle of a word or of a list of ranks; what remains ends in a sign."""
    stalled = views.stalled()
    assert stalled.stall is not None
    words = "ranks 0, 1 and 2 wait for rank 3; " + "; ".join(
        f"ranks {2 * number}, {2 * number + 1} and 99 may be in all_reduce" for number in range(9)
    )
    rows = Alerts(clock).rows(views.live(replace(stalled, stall=replace(stalled.stall, words=words))), 80)
    shown = " ".join(row.text.strip() for row in rows).removesuffix(" · kill -CONT 41203")
    kept, sign = shown.split("s: ", 1)[1].rsplit(" ", 1)
    assert sign == "…"
    assert words.startswith(f"{kept}; ")


def test_one_word_is_no_second_row_of_a_banner(clock: Clock) -> None:
    """At 160 columns "compared." stood alone below, on a ground as wide as the screen."""
    quiet, view = views.healthy(), views.straggler()
    message = (
        "The others wait 24.8 ms a step (33 % of the mean steady step) for rank 1: 25.1 ms late in 100 % of the steps, "
        "in backward, since the first step compared."
    )
    view = replace(view, findings=(replace(view.findings[0], severity="critical", message=message),))
    alerts = Alerts(clock)
    alerts.take(views.live(quiet))
    alerts.take(views.live(view))
    shown = {
        width: [row.text.strip() for row in alerts.rows(views.live(view), width)] for width in (200, 160, 120)
    }
    assert [f"■ CRITICAL {message}"] == shown[200]
    assert [f"■ CRITICAL {message.removesuffix(', since the first step compared.')} …"] == shown[160]
    assert f"■ CRITICAL {message}" == " ".join(shown[120])


def test_a_banner_names_the_key_that_does_what_the_command_does(clock: Clock) -> None:
    """A command alone, without a verb, stood there; of a recording nothing can be looked at any more."""
    view = views.stalled()
    assert view.stall is not None
    view = replace(view, stall=replace(view.stall, held="missing", command="tuiadvisor stacks"))
    alerts = Alerts(clock)
    shown = "\n".join(row.text for row in alerts.rows(views.live(view), 100))
    assert "C shows where each rank stands, as does tuiadvisor stacks" in shown
    assert "C shows" not in "\n".join(row.text for row in alerts.rows(views.replay(view), 100))


def test_a_critical_finding_that_opens_is_told_and_its_banner_goes(clock: Clock) -> None:
    """It is a finding among others after half a minute."""
    alerts = Alerts(clock)
    alerts.take(views.live(views.healthy()))
    state = views.live(views.straggler())
    told = alerts.take(state)
    assert told is not None
    assert "Rank 2 waits" in told.words
    assert told.ranks == (2,)
    assert "■ CRITICAL" in alerts.rows(state, 80)[0].text
    clock.now_s += SHOWN_S
    assert alerts.take(state) is None
    assert alerts.rows(state, 80) == []


def critical(*ranks: int, subject: str = "", message: str = "late") -> RunView:
    """A critical finding of these ranks."""
    view = views.straggler()
    found = replace(view.findings[0], severity="critical", ranks=ranks, subject=subject, message=message)
    return replace(view, findings=(found,))


def test_a_rank_that_joins_is_news_and_one_that_leaves_is_none(clock: Clock) -> None:
    """Each set of ranks was an alert of its own: rank 2 rang for each rank that came or went beside it."""
    alerts = Alerts(clock)
    alerts.take(views.live(views.healthy()))
    told = []
    for ranks in ((2,), (2, 3), (2,), (2, 3), (3,), (2, 3, 4)):
        clock.now_s += AGAIN_S / 3
        told.append(bool(alerts.take(views.live(critical(*ranks)))))
    assert told == [True, True, False, False, False, True]


def test_two_findings_of_one_rule_and_the_same_ranks_are_two(clock: Clock) -> None:
    """The second had the name of the first, which had been told already: nobody heard of it."""
    alerts = Alerts(clock)
    alerts.take(views.live(views.healthy()))
    first, second = (
        critical(subject="evaluation", message="evaluates"),
        critical(subject="periodic", message="pauses"),
    )
    both = replace(first, findings=(*second.findings, *first.findings))
    assert alerts.take(views.live(first)) is not None
    clock.now_s += SHOWN_S
    told = alerts.take(views.live(both))
    assert told is not None
    assert "pauses" in told.words
    assert "pauses" in alerts.rows(views.live(both), 80)[0].text


def killed(view: RunView, *details: str, ended: str = "all ranks ended, 2 of 4 killed") -> RunView:
    """The first ranks of it, gone."""
    rows = [
        replace(row, state="killed", state_detail=each)
        for row, each in zip(view.ranks, details, strict=False)
    ]
    return replace(view, ranks=(*rows, *view.ranks[len(details) :]), ended=ended)


def test_a_job_that_dies_rings_once(clock: Clock) -> None:
    """It ended in silence: two ranks gone, and the bell is for a stall alone."""
    alerts, end = (
        Alerts(clock),
        killed(views.healthy(), "killed by SIGTERM after step 340", "killed by SIGKILL"),
    )
    alerts.take(views.live(views.healthy()))
    assert alerts.take(views.live(end)) == Alert(
        "train.py: rank 1 killed by SIGKILL; 1 more rank ended with it", (1,)
    )
    clock.now_s += 10_000
    assert alerts.take(views.live(end)) is None
    first = Alerts(clock)
    assert first.take(views.live(end)) is None  # whoever comes later reads it


def test_a_job_that_was_asked_to_end_rings_for_nothing(clock: Clock) -> None:
    """As by scancel, or Ctrl-C in another window."""
    alerts = Alerts(clock)
    alerts.take(views.live(views.healthy()))
    end = killed(views.healthy(), "killed by SIGTERM after step 340", "killed by SIGINT")
    assert alerts.take(views.live(end)) is None


def test_what_was_there_at_first_is_no_news(clock: Clock) -> None:
    """Whoever attaches to a run with a straggler reads the verdict; no bell."""
    alerts = Alerts(clock)
    assert alerts.take(views.live(views.straggler())) is None
    assert alerts.rows(views.live(views.straggler()), 80) == []


@pytest.mark.parametrize("state", [views.replay(), views.past()])
def test_recordings_and_the_past_ring_for_nothing(clock: Clock, state: views.FeedState) -> None:
    """Nobody has to be called for what is over."""
    assert Alerts(clock).take(replace(state, view=views.stalled())) is None


def test_quiet_keeps_the_banner(clock: Clock) -> None:
    """Quiet hours are for ears."""
    alerts = Alerts(clock)
    alerts.is_quiet = True
    assert alerts.take(views.live(views.stalled())) is None
    assert "STALLED" in alerts.rows(views.live(views.stalled()), 80)[0].text


def test_the_sequence_holds_nothing_that_a_name_could_smuggle_in() -> None:
    """A job's name with control characters stays text; tmux gets its wrapping; a console the bell alone."""
    bare = alert_sequence("a\x1b]0;x\x07b", {"TERM": "xterm-256color"})
    assert bare == "\a\x1b]9;a ]0;x b\a"
    inside = alert_sequence("job", {"TERM": "tmux-256color", "TMUX": "/tmp/t,1,0"})  # noqa: S108
    assert inside == "\a\x1bPtmux;\x1b\x1b]9;job\a\x1b\\"
    assert alert_sequence("job", {"TERM": "linux"}) == "\a"


class Day:
    """A clock of the wall, turned by hand."""

    def __init__(self, hour: int) -> None:
        self.minute = hour * 60

    def __call__(self) -> int:
        return self.minute


NIGHT = AlertRules(22 * 60, 7 * 60)


def test_quiet_hours_hold_midnight() -> None:
    """From ten at night to seven: not at seven any more."""
    quiet = [hour for hour in range(24) if NIGHT.is_quiet_at(hour * 60)]
    assert quiet == [0, 1, 2, 3, 4, 5, 6, 22, 23]
    assert not any(AlertRules().is_quiet_at(minute) for minute in range(24 * 60))
    assert AlertRules(9 * 60, 10 * 60).is_quiet_at(9 * 60)


def test_a_finding_of_the_night_rings_in_the_morning_while_it_is_open(clock: Clock) -> None:
    """Nothing is lost by quiet hours but the noise."""
    day = Day(23)
    alerts = Alerts(clock, day)
    alerts.rules = NIGHT
    alerts.take(views.live(views.healthy()))
    assert alerts.take(views.live(views.straggler())) is None
    assert "■ CRITICAL" in alerts.rows(views.live(views.straggler()), 80)[0].text
    day.minute = 7 * 60
    told = alerts.take(views.live(views.straggler()))
    assert told is not None
    assert "Rank 2 waits" in told.words
    assert alerts.take(views.live(views.straggler())) is None


@pytest.mark.parametrize(("lets_hang", "rings"), [(True, True), (False, False)])
def test_a_hang_passes_at_night_unless_nothing_may(clock: Clock, *, lets_hang: bool, rings: bool) -> None:
    """Whoever wants to sleep through it says so."""
    alerts = Alerts(clock, Day(3))
    alerts.rules = replace(NIGHT, lets_hang=lets_hang)
    assert bool(alerts.take(views.live(views.stalled()))) is rings


def test_what_is_still_open_rings_again(clock: Clock) -> None:
    """Every ten minutes, as preferred; by itself once."""
    alerts = Alerts(clock, Day(12))
    alerts.rules = AlertRules(repeat_s=600.0)
    told = []
    for _ in range(5):
        told.append(bool(alerts.take(views.live(views.stalled()))))
        clock.now_s += 300.0
    assert told == [True, False, True, False, True]


@pytest.mark.parametrize(
    "text", ["22-7", "24:00-07:00", "22:60-07:00", "07:00-07:00", "", "22:00", "٢٢:00-07:00"]
)
def test_hours_that_are_none_are_refused(text: str) -> None:
    """With what to write."""
    assert quiet_hours("22:00-7:30") == (1320, 450)
    with pytest.raises(ValueError, match="write 22:00-07:00"):
        quiet_hours(text)


def test_a_finding_that_was_told_and_goes_on_is_no_news(clock: Clock) -> None:
    """The same rank's lateness rang anew each time that it had been a warning for more than a minute."""
    alerts, critical = Alerts(clock), views.straggler()
    alerts.take(views.live(views.healthy()))
    warning = replace(critical, findings=(replace(critical.findings[0], severity="warning"),))
    told = []
    for view in (critical, *[warning] * 10, critical, views.healthy(), critical):
        clock.now_s += AGAIN_S / 4
        told.append(bool(alerts.take(views.live(view))))
    assert told == [True] + [False] * 13
    alerts.take(views.live(views.healthy()))
    clock.now_s += AGAIN_S
    assert alerts.take(views.live(critical))
