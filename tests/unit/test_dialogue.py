"""One question at a time: the best one, what an answer moves, and when nothing more is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from snapshot import desks, views
from synthetic_run import Fault, Job, final_view
from test_tui_navigator import Keyboard
from thinned import crossed

from tuiadvisor.app.advising import GuidedAdvice, judged
from tuiadvisor.app.whole_recording import whole_view
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import NOTHING_GIVEN
from tuiadvisor.session import whys
from tuiadvisor.session.answers import checked_answer
from tuiadvisor.session.conduct import Session, conduct
from tuiadvisor.session.dialogue import MAX_ANSWERS, tried
from tuiadvisor.session.evidence import facts
from tuiadvisor.session.guided import SKIP, Guided, guided
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.machine import Machine
from tuiadvisor.session.markdown import gain_words, markdown
from tuiadvisor.session.question_ids import OTHER_SIZE
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.suspects import ELSE, SEEN, weights
from tuiadvisor.tui.contract.desk import Answer
from tuiadvisor.tui.pages.dialogue import DialoguePage
from tuiadvisor.tui.pages.guidance import answer_text, changes
from tuiadvisor.views.run_view import SeenCause
from tuiadvisor_rules.questions import load_questions

QUESTIONS = load_questions()
LATE = Recorded("late", final_view(Job(num_ranks=4, num_steps=200, faults=(Fault("data", (2,), 0.02),))))
SLOW_INPUT = Recorded("input", final_view(Job(num_ranks=4, num_steps=200, data_s=0.03)))
SMALL = Recorded("8", final_view(Job(num_ranks=8, num_steps=200)))
LARGE = Recorded("16", final_view(Job(num_ranks=16, num_steps=200, forward_s=0.004, backward_s=0.006)))
NODES = final_view(Job(num_ranks=16, num_steps=200, ranks_per_host=8))
TWO_NODES = Recorded("devices", replace(NODES, run=replace(NODES.run, device="cuda")))
STALLED = Recorded("hang", views.stalled())
STORIES = {"slow": (LATE,), "input": (SLOW_INPUT,), "more devices": (SMALL, LARGE), "hang": (STALLED,)}


def held(
    runs: tuple[Recorded, ...], answers: dict[str, str | float], last: str = "", skipped: tuple[str, ...] = ()
) -> Session:
    return conduct(runs, Intent(), answers, QUESTIONS, last=last, skipped=skipped)


def standing(session: Session) -> tuple[object, ...]:
    """What a question may move."""
    found = session.dialogue
    return found.decision, found.change, found.causes[0].words if found.causes else ""


@pytest.mark.slow
@pytest.mark.parametrize(("story", "place"), crossed(STORIES, [0, -1]))
def test_each_story_ends_within_seven_answers(story: str, place: int) -> None:
    """Whatever is answered; and then it says why nothing more is asked."""
    answers: dict[str, str | float] = {}
    last = ""
    while (asked := held(STORIES[story], answers, last).dialogue.question) is not None:
        last = asked.id
        answers[last] = tried(next(one for one in QUESTIONS if one.id == last))[place]
        assert len(answers) <= MAX_ANSWERS
    assert held(STORIES[story], answers, last).dialogue.why_over


@pytest.mark.parametrize("story", ["slow", "input"])
def test_the_first_question_moves_decision_change_or_first_cause(story: str) -> None:
    """Two of its answers lead to different places, and it says which."""
    dialogue = held(STORIES[story], {}).dialogue
    assert dialogue.question is not None
    question = next(one for one in QUESTIONS if one.id == dialogue.question.id)
    places = {standing(held(STORIES[story], {question.id: answer})) for answer in tried(question)}
    assert len(places) > 1
    assert "separate" in dialogue.why_asked


@pytest.mark.parametrize("seen", get_args(SeenCause))
def test_what_was_seen_to_make_a_rank_late_is_the_only_cause_listed(seen: SeenCause) -> None:
    """A rank that signals stop is not asked for the size of its share of the data."""
    (finding,) = [one for one in LATE.view.findings if one.id == "straggler"]
    known = replace(finding, phase="host", evidence={**finding.evidence, "seen_cause": seen})
    dialogue = held((Recorded("late", replace(LATE.view, findings=(known,))),), {}).dialogue
    (cause,) = dialogue.causes
    assert cause.words == SEEN[seen]
    assert cause.now == 1.0
    assert dialogue.question is None or dialogue.question.id != "shards_equal"


def test_a_rank_seen_to_be_late_in_a_phase_alone_has_several_causes() -> None:
    """Its time says where, not why."""
    (finding,) = [one for one in LATE.view.findings if one.id == "straggler"]
    assert "seen_cause" not in finding.evidence
    assert len(held((LATE,), {}).dialogue.causes) > 1


def test_what_the_verdict_says_to_act_on_is_no_keep_where_its_cost_is_not_known() -> None:
    """As of a host that others crowd, or a rank kept from running: the overview said TUNE and the dialogue KEEP."""
    view = replace(LATE.view, verdict=replace(LATE.view.verdict, speedup=None))
    session = held((Recorded("late", view),), {})
    assert ("tune", "tune") == (session.decision.decision, session.dialogue.decision)
    assert "was not measured" in session.decision.why
    assert session.decision.speedup is None
    assert session.dialogue.change not in ("", "none", "open")
    assert session.loop.change == session.dialogue.change
    assert "unknown" == gain_words(session.decision)


def test_what_is_not_decided_is_no_keep_on_the_screens() -> None:
    """Too few steps: the decision to go on as it is says that it is none."""
    few = Recorded("few", final_view(Job(num_ranks=2, num_steps=12)))
    session = held((few,), {})
    assert session.decision.is_open
    assert "unknown" == gain_words(session.decision)
    assert "Decision: none yet" in markdown(session)
    board = Keyboard(views.live(few.view), desk=desks.desk(session=guided(session, "")))
    for key in ("5", "d"):
        text = board.press(key)
        assert "NOT YET" in text
        assert "KEEP" not in text


def test_an_answer_moves_the_list_and_rewrites_the_one_change() -> None:
    """Before and now stand beside one another; what is stated is never the measured loss."""
    before = held((LATE,), {}).dialogue
    after = held((LATE,), {"host_cpus_full": "no"}, "host_cpus_full").dialogue
    assert all(cause.before is None for cause in before.causes)
    moved = {cause.words: (cause.before, cause.now) for cause in after.causes}
    was, now = moved["too few loader workers"]
    assert was is not None
    assert was < now
    assert after.change_before == before.change != after.change
    assert sum(cause.now for cause in after.causes) == pytest.approx(1.0)


def test_an_answer_may_change_the_decision() -> None:
    """With what it was before."""
    dialogue = held((LATE,), {"run_worth_finishing": "as good"}, "run_worth_finishing").dialogue
    assert (dialogue.decision_before, dialogue.decision, dialogue.question) == ("tune", "stop", None)


def of_price(answers: dict[str, str | float]) -> Session:
    """With nothing left to ask but what an engineer's hour costs."""
    others = tuple(one.id for one in QUESTIONS if one.id != "engineer_price")
    return held((LATE,), answers, skipped=others)


def test_an_engineers_price_is_asked_where_it_decides_and_decides_then() -> None:
    """Forty hours for a rest of a few: at one price of an hour the change pays, at another it does not."""
    known: dict[str, str | float] = {"effort_hours": 4.0, "price": 2.0, "remaining_steps": 1e6}
    asked = of_price(known).dialogue
    assert asked.question is not None
    assert (asked.question.id, asked.why_asked) == ("engineer_price", "it decides between tune and stop")
    cheap, dear = (of_price({**known, "engineer_price": price}) for price in (0.01, 1000.0))
    assert (cheap.decision.decision, dear.decision.decision) == ("tune", "stop")
    assert cheap.decision.break_even_steps is not None
    assert "the change costs 4,000" in dear.decision.why


@pytest.mark.parametrize(
    "known",
    [
        {"effort_hours": 4.0, "price": 2.0, "remaining_steps": 1e6, "objective": "time"},
        {"effort_hours": 4.0, "remaining_steps": 1e6, "run_worth_finishing": "as good"},
    ],
)
def test_an_engineers_price_that_decides_nothing_is_not_asked(known: dict[str, str | float]) -> None:
    """Whoever wants the result early asked for no money to decide; a run that may end today pays for no change."""
    assert of_price(known).dialogue.question is None


@pytest.mark.slow
def test_the_remaining_run_is_asked_where_the_decision_needs_it() -> None:
    """How long it is decides whether forty hours of work pay; an intent that says it in samples is enough."""
    answers: dict[str, str | float] = {"effort_hours": 40.0}
    skipped = tuple(one.id for one in QUESTIONS if one.id != "remaining_steps")
    asked = held((LATE,), answers, skipped=skipped).dialogue.question
    assert asked is not None
    assert asked.id == "remaining_steps"
    assert held((LATE,), {**answers, "remaining_steps": 1000.0}).dialogue.decision == "stop"
    assert held((LATE,), {**answers, "remaining_steps": 1e8}).dialogue.decision == "tune"
    stated = conduct((LATE,), Intent(remaining_samples=1e9), answers, QUESTIONS, skipped=skipped)
    assert stated.dialogue.question is None


def test_after_the_last_answer_it_says_how_many_questions_are_left_on_the_other_screen() -> None:
    """“what is left to ask is on screen 5” stood above “no question left that could change it”."""
    answers: dict[str, str | float] = {OTHER_SIZE: 64.0, "lengths_differ": "no", "objective": "time"}
    spare = [one.id for one in QUESTIONS if one.kind == "yes_no" and one.id not in answers]
    answers |= dict.fromkeys(spare[: MAX_ANSWERS - len(answers)], "no")
    over = held((LATE,), answers).dialogue
    assert over.question is None
    assert "what is left to ask is on screen 5" in over.why_over
    assert over.num_left > 0


def test_large_numbers_stand_as_they_were_typed() -> None:
    """An engineer's 500,000 hours read "5e+05 h", a million steps "1e+06 steps"."""
    session = guided(held((LATE,), {"effort_hours": 500_000.0, "remaining_steps": 1e6}), "")
    assert ("cost", True) in [(name, "500,000 h" in text) for name, text in session.card]
    asked = [one for stage in session.stages for one in stage.asked if one.id == "remaining_steps"]
    assert [answer_text(one) for one in asked] == [f"1,000,000 {asked[0].unit}"]


@pytest.mark.slow
def test_what_was_skipped_is_not_asked_again() -> None:
    """Until nothing is left."""
    skipped: tuple[str, ...] = ()
    for _ in range(len(QUESTIONS)):
        asked = held((LATE,), {}, skipped=skipped).dialogue.question
        if asked is None:
            break
        assert asked.id not in skipped
        skipped = (*skipped, asked.id)
    assert asked is None
    # It said that no further answer would change anything, of questions that were worth asking a moment before.
    over = held((LATE,), {}, skipped=skipped).dialogue
    assert over.num_left > 0
    assert f"{over.num_left} questions that were skipped could still change it" in over.why_over


def test_the_command_that_finds_an_answer_out_names_the_late_rank() -> None:
    """It can be pasted: no RANK to fill in."""
    skipped: tuple[str, ...] = ()
    while (asked := held((LATE,), {}, skipped=skipped).dialogue.question) is not None:
        assert "RANK" not in asked.measure
        if asked.id == "shards_equal":
            assert "tuiadvisor stacks 2 --lines" in asked.measure
            return
        skipped = (*skipped, asked.id)
    pytest.fail("equal shards were never asked of a late rank")


@pytest.mark.parametrize(
    ("live_path", "files"),
    [
        ("", ("before.tuirec", "after.tuirec")),
        ("my run.tuirec", ("'my run.tuirec'", "'my run-after.tuirec'")),
    ],
)
def test_commands_of_a_live_run_name_recordings_and_never_its_script(
    live_path: str, files: tuple[str, str]
) -> None:
    """`record -o train-after.py` would stand beside the user's program; what is recorded is named, in quotes."""
    advice = GuidedAdvice("", None, (), Intent(), live_path=live_path)
    advice.take(views.live(LATE.view))
    commands = [text for name, text in advice.conduct().loop if name in {"run", "then"}]
    assert f"tuiadvisor record --for 60s -o {files[1]}" == commands[0]
    assert f"tuiadvisor compare {files[0]} {files[1]} --fail-if-slower 5%" == commands[1]
    assert not any(".py" in command for command in commands)


def test_the_command_that_finds_an_answer_out_names_the_recording() -> None:
    """Quoted where its name has blanks; a live run that nobody records has no name to give."""
    skipped = tuple(one.id for one in QUESTIONS if one.id != "lengths_vary")
    late = Recorded(
        "late", final_view(Job(num_ranks=4, num_steps=200, faults=(Fault("forward", (2,), 0.02),)))
    )
    for name, is_file, word in (
        ("last night.tuirec", True, "'last night.tuirec'"),
        ("train.py", False, "RUN"),
    ):
        run = replace(late, name=name, is_file=is_file)
        asked = held((run,), {}, skipped=skipped).dialogue.question
        assert asked is not None
        assert f"tuiadvisor diagnose {word} --json" in asked.measure


@pytest.mark.slow
def test_nothing_of_a_pipeline_is_asked_without_one() -> None:
    """Also where nobody knows whether there is one."""
    unknown = Recorded("a", replace(LATE.view, run=replace(LATE.view.run, parallel={})))
    skipped: tuple[str, ...] = ()
    while (asked := held((unknown,), {}, skipped=skipped).dialogue.question) is not None:
        skipped = (*skipped, asked.id)
    assert not {"stages_equal", "micro_batches"} & {*skipped}


def test_a_job_that_hangs_is_asked_nothing() -> None:
    """What lets it go on comes first."""
    dialogue = held((STALLED,), {}).dialogue
    assert dialogue.question is None
    assert "hangs" in dialogue.why_over


def test_a_job_that_hangs_is_not_kept_as_it_is() -> None:
    """The session decides what the verdict says: nothing else while no step completes, and what lets it go on."""
    session = held((STALLED,), {})
    assert session.decision.decision == "hang"
    assert "wait for rank 3" in session.decision.why
    assert session.loop.change == session.dialogue.change
    assert session.would_change == ("Steps that complete again.",)


STATED_SIZE: dict[str, str | float] = {"devices_wanted": 64.0}


def asked_in_turn(runs: tuple[Recorded, ...], words: dict[str, str | float]) -> tuple[list[str], Session]:
    """The questions that came, each answered by `words`, until one comes that is not in them."""
    answers, asked = dict(STATED_SIZE), []
    while (found := held(runs, answers)).dialogue.question is not None:
        name = found.dialogue.question.id
        if name not in words:
            break
        asked.append(name)
        answers[name] = words[name]
    return asked, found


@pytest.mark.slow
def test_whether_64_devices_are_worth_it_is_answered_within_seven_answers() -> None:
    """What decides, what remains, what an hour is worth, what a device costs: then it stands with its break-even."""
    words: dict[str, str | float] = {
        "objective": "time", "remaining_steps": 1e6, "time_worth": 50.0, "price": 2.0,
    }  # fmt: skip
    asked, session = asked_in_turn((SMALL, LARGE), words)
    assert asked == list(words)
    dialogue = session.dialogue
    assert (dialogue.decision, session.decision.num_devices) == ("rescale", 64)
    assert "break-even" in dialogue.wanted
    assert "pays, even in the worst case" in dialogue.wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "decision", "says"),
    [
        # An hour that is worth next to nothing buys no devices; what money decides, more devices do not save.
        ({"objective": "time", "remaining_steps": 1e6, "time_worth": 0.01, "price": 2.0}, "rescale", "open"),
        ({"objective": "cost", "remaining_steps": 1e6}, "rescale", "open"),
        ({}, "keep", "x as fast"),
    ],
)
def test_a_size_that_does_not_surely_pay_is_not_moved_to(
    words: dict[str, str | float], decision: str, says: str
) -> None:
    """The interval of two measured sizes reaches both sides: a measured size may be better, 64 are never chosen."""
    _, session = asked_in_turn((SMALL, LARGE), words)
    assert session.dialogue.decision == decision
    assert session.decision.num_devices != 64
    assert says in session.dialogue.wanted


@pytest.mark.slow
def test_bounds_of_one_run_never_decide_to_move() -> None:
    """They say what another size would take and what an hour earlier costs; a recording of it decides."""
    asked, session = asked_in_turn((TWO_NODES,), {"objective": "time"})
    assert asked == ["objective"]
    dialogue = session.dialogue
    assert dialogue.decision == "keep"
    assert "an hour earlier costs" in dialogue.wanted
    assert "bounds from this run alone" in dialogue.wanted
    assert "at 64 devices" in dialogue.change
    _, other = asked_in_turn((TWO_NODES,), {"objective": "cost", "remaining_steps": 1e6})
    assert "does not pay, even in the best case" in other.dialogue.wanted
    assert other.dialogue.change == "none: stay at 16 devices"


def test_a_size_of_which_nothing_is_known_says_why() -> None:
    """Ranks that share the processors of one host tell nothing of others, and nothing is asked about it."""
    dialogue = held((LATE,), STATED_SIZE).dialogue
    assert "64 devices: unknown, its ranks" in dialogue.wanted
    assert "share the processors of one host" in dialogue.wanted
    assert dialogue.question is not None
    assert dialogue.question.id not in {"objective", "time_worth"}


def test_another_size_can_be_asked_for_at_any_time() -> None:
    """N, whatever is asked."""
    keyboard = board()
    keyboard.press("N", *"64", "enter")
    assert keyboard.shell.asked[-1] == Answer("devices_wanted", "64")


def test_too_few_steps_end_the_dialogue_with_what_is_known() -> None:
    """No answer replaces steps; what the run, or an imported trace, shows without them stands there."""
    short = Recorded("short", final_view(Job(num_ranks=4, num_steps=6)))
    dialogue = held((short,), {}).dialogue
    assert dialogue.question is None
    assert short.view.verdict.sentence
    assert dialogue.why_over.endswith(short.view.verdict.sentence)
    assert dialogue.change == "none before more steps were recorded"


def board() -> Keyboard:
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=guided(held((LATE,), {}), "")))
    keyboard.press("d")
    return keyboard


def test_y_and_n_answer_what_is_asked_and_never_jump() -> None:
    """Nor copy, nor go to a finding; s skips."""
    keyboard = board()
    asked = keyboard.place.at(DialoguePage).question()
    assert asked is not None
    keyboard.press("n", "y", "s")
    answers = [one for one in keyboard.shell.asked if isinstance(one, Answer)]
    assert [Answer(asked.id, word) for word in ("no", "yes", SKIP)] == answers
    assert keyboard.page == "dialogue"
    assert not keyboard.shell.copied


def test_n_where_no_yes_or_no_is_asked_says_what_is() -> None:
    """And where nothing is asked, that."""
    number = held((LATE,), {"effort_hours": 40.0}, skipped=tuple(
        one.id for one in QUESTIONS if one.id != "remaining_steps"))  # fmt: skip
    for session, words in (
        (number, "n: this question is not answered by yes or no: enter, then type it"),
        (held((STALLED,), {}), "nothing is asked"),
    ):
        keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=guided(session, "")))
        keyboard.press("d")
        assert words in keyboard.press("n")
        assert keyboard.page == "dialogue"
        assert not [one for one in keyboard.shell.asked if isinstance(one, Answer)]


def test_yes_and_no_stand_in_the_footer_only_where_they_answer() -> None:
    """A question with three answers had "y Yes  n No" below it."""
    assert "y Yes  n No" in board().press("1", "d")
    three = next(one for one in QUESTIONS if one.kind == "choice")
    session = guided(held((LATE,), {}), "")
    assert session.dialogue is not None
    assert session.dialogue.question is not None
    question = replace(session.dialogue.question, id=three.id, kind="choice", choices=("a", "b", "c"))
    session = replace(session, dialogue=replace(session.dialogue, question=question))
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=session))
    text = keyboard.press("d")
    assert "y Yes" not in text
    assert "n No" not in text
    assert "up and down choose" in keyboard.press("y")


def test_enter_takes_the_answer_that_is_highlighted_from_the_first_on() -> None:
    """Down and enter gave the first answer: nothing was highlighted before."""
    keyboard = board()
    asked = keyboard.place.at(DialoguePage).question()
    assert asked is not None
    assert keyboard.place.page.cursor == ("answer", "yes")
    keyboard.press("down", "enter")
    assert keyboard.shell.asked[-1] == Answer(asked.id, "no")
    assert "take this answer back" not in "\n".join(row.text for row in keyboard.place.rows(160, 45))


def test_a_new_question_is_shown_from_its_first_word_on() -> None:
    """Who had scrolled down and answered saw the foot of the next question alone, with y and n to answer it."""
    keyboard = board()
    asked = keyboard.place.at(DialoguePage).question()
    assert asked is not None
    following = held((LATE,), {}, skipped=(asked.id,))
    assert following.dialogue is not None
    assert following.dialogue.question is not None
    keyboard.press("pagedown")
    assert keyboard.place.page.top > 0
    keyboard.place.take_desk(desks.desk(session=guided(held((LATE,), {}), "")))
    keyboard.draw()
    assert keyboard.place.page.top > 0  # the same question: where the reader is
    keyboard.place.take_desk(desks.desk(session=guided(following, "")))
    shown = keyboard.draw()
    assert keyboard.place.page.top == 0
    assert following.dialogue.question.ask[:40] in shown


def test_the_last_answer_can_be_taken_back_where_it_stands() -> None:
    session = guided(held((LATE,), {"effort_hours": 40.0}, last="effort_hours"), "")
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=session))
    assert "take this answer back" in keyboard.press("d")
    keyboard.press("up", "enter")
    assert keyboard.shell.asked[-1] == Answer("effort_hours", "")


def test_the_answer_to_another_size_stands_above_the_fold() -> None:
    """N, 64, enter: on 80 columns nothing seemed to happen, for what it would bring stood five rows further down."""
    session = guided(held((SMALL,), dict(STATED_SIZE), last="devices_wanted"), "")
    assert session.dialogue is not None
    assert session.dialogue.wanted
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=session))
    keyboard.press("d")
    shown = " ".join(row.text.strip() for row in keyboard.place.rows(80, 24))
    assert f"other size: {session.dialogue.wanted[:40]}" in " ".join(shown.split())
    assert shown.count("other size:") == 1


def test_a_number_is_typed() -> None:
    """Enter asks for it at once: it is all that can be chosen."""
    number = held((LATE,), {"effort_hours": 40.0}, skipped=tuple(
        one.id for one in QUESTIONS if one.id != "remaining_steps"))  # fmt: skip
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=guided(number, "")))
    keyboard.press("d", "enter", *"5000", "enter")
    assert keyboard.shell.asked[-1] == Answer("remaining_steps", "5000")


def test_a_mistake_names_the_question_not_a_key() -> None:
    """As it stands on the screen."""
    advice = GuidedAdvice("", None, (), Intent())
    advice.take(views.live(LATE.view))
    with pytest.raises(TuiadvisorError, match="How many steps of this run remain") as found:
        advice.answer("remaining_steps", "many")
    assert "remaining_steps" not in str(found.value)


def test_an_answer_and_a_skip_lead_to_another_question() -> None:
    """The session behind the screen keeps both."""
    advice = GuidedAdvice("", None, (), Intent())
    advice.take(views.live(LATE.view))
    seen = []
    for word in ("no", SKIP):
        found = advice.conduct().dialogue
        assert found is not None
        assert found.question is not None
        seen.append(found.question.id)
        advice.answer(found.question.id, word)
    assert len({*seen}) == 2
    assert list(advice.answers) == seen[:1]


def test_the_advisor_judges_what_is_shown_and_says_so() -> None:
    """A replay that stands at an earlier step is judged up to there; at its end the whole of it is."""
    shown = views.replay(views.straggler())
    assert shown.replay is not None
    here = replace(shown, replay=replace(shown.replay, step=120, last_step=500))
    assert judged(here) == (True, "the run up to step 120, as shown; End, then 5, judges the whole of it")
    there = replace(shown, replay=replace(shown.replay, step=500, last_step=500))
    assert judged(there) == (False, "the whole recording")
    advice = GuidedAdvice("", None, (), Intent())
    advice.take(here)
    keyboard = Keyboard(here, desk=desks.desk(session=advice.conduct()))
    keyboard.press("5")
    assert "judged: the run up to step 120" in " ".join(row.text for row in keyboard.place.rows(160, 45))


def test_weights_are_no_percentages() -> None:
    """They would pass for probabilities, which nobody observed."""
    session = held((LATE,), {})
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=guided(session, "")))
    keyboard.press("d")
    rows = [row.text for row in keyboard.place.rows(80, 40)]
    begin = next(place for place, row in enumerate(rows) if "causes by weight" in row)
    assert "not a probability" in " ".join(rows[begin : begin + 2])
    causes = rows[begin + 2 : begin + 4]
    assert any(row.rstrip()[-1:].isdigit() for row in causes)
    assert not any("%" in row for row in causes)


def shown(session: Guided | None, width: int = 160, height: int = 70, note: str = "") -> str:
    """The page with this session, as text."""
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=session, session_note=note))
    keyboard.press("d")
    return "\n".join(row.text for row in keyboard.place.rows(width, height))


def answers_of(keyboard: Keyboard) -> list[Answer]:
    return [one for one in keyboard.shell.asked if isinstance(one, Answer)]


def test_what_is_typed_is_nothing_until_there_is_something() -> None:
    """Spaces are no answer and no number of devices."""
    number = held((LATE,), {"effort_hours": 40.0}, skipped=tuple(
        one.id for one in QUESTIONS if one.id != "remaining_steps"))  # fmt: skip
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=guided(number, "")))
    keyboard.press("d", "enter", "space", "enter", "N", "space", "enter")
    assert [] == answers_of(keyboard)
    keyboard.press("N", *"64 ", "enter")
    assert [Answer(OTHER_SIZE, "64")] == answers_of(keyboard)


def test_what_is_no_answer_stays_to_be_mended() -> None:
    """It closed the input, its reason was cut off at 80 columns, and the digits typed next went to other screens."""
    number = held((LATE,), {"remaining_steps": 1e6}, skipped=tuple(
        one.id for one in QUESTIONS if one.id != "effort_hours"))  # fmt: skip
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=guided(number, "")))
    text = keyboard.press("d", "enter", *"4 d", "enter")
    assert "'4 d' is no number of hours" in text
    assert "answer 4 d" in text
    assert [] == answers_of(keyboard)
    text = keyboard.press("backspace")
    assert "is no number" not in text
    assert "hours; esc stops" in text
    keyboard.press("h", "enter")
    assert [Answer("effort_hours", "4 h")] == answers_of(keyboard)


@pytest.mark.parametrize(
    ("said", "number"),
    [("4 h", 4.0), ("4h", 4.0), ("4 hours", 4.0), ("1,200", 1200.0), ("200k", 2e5), ("1.5", 1.5)],
)
def test_a_number_may_be_typed_as_it_is_said(said: str, number: float) -> None:
    (hours,) = [one for one in QUESTIONS if one.id == "effort_hours"]
    assert number == checked_answer(hours, said)


@pytest.mark.parametrize("said", ["4 d", "30 min", "2,5", "1,2000", "4 h h", "h", "-4", "nan", ""])
def test_another_unit_or_half_a_number_is_none(said: str) -> None:
    """A comma that parts no thousands may be a decimal one: it is not guessed."""
    (hours,) = [one for one in QUESTIONS if one.id == "effort_hours"]
    with pytest.raises(TuiadvisorError, match="is no number of hours"):
        checked_answer(hours, said)


def test_yes_typed_for_a_number_names_the_question() -> None:
    """It said "no question of yes or no", which is about the key."""
    number = held((LATE,), {"remaining_steps": 1e6}, skipped=tuple(
        one.id for one in QUESTIONS if one.id != "effort_hours"))  # fmt: skip
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=guided(number, "")))
    keyboard.press("d")
    assert "this question is not answered by yes or no: enter, then type it" in keyboard.press("y")


def test_of_a_job_that_hangs_no_other_losses_cause_is_listed() -> None:
    """It listed what its last steps lost, links and switches, and the hang last with a weight of 0."""
    other = next(one for one in LATE.view.findings if one.id == "straggler")
    stalled = replace(STALLED.view, findings=(*STALLED.view.findings, other))
    dialogue = held((Recorded("hang", stalled),), {}).dialogue
    assert "hang" == dialogue.decision
    assert () == dialogue.causes
    assert "causes by weight" not in shown(guided(held((Recorded("hang", stalled),), {}), ""))


def test_of_a_job_that_hung_and_was_ended_nobody_waits_that_it_moves() -> None:
    over = replace(
        STALLED.view,
        ended="all ranks ended, 4 of 4 killed",
        ranks=tuple(replace(row, state="killed") for row in STALLED.view.ranks),
    )
    session = held((Recorded("hang", over),), {})
    assert "The job hung: nothing else can be decided of it." == session.dialogue.why_over
    assert session.decision.why.endswith("nothing else can be decided of a job that hung")


@pytest.mark.slow
def test_without_an_answer_the_one_change_is_what_the_overview_says_first() -> None:
    """Of a rank without loader workers the overview said to give it some, the dialogue to look at its data.

    The answer that moves "too few loader workers" to the first place leaves it there, the other one takes it away.
    """
    recording = Path(__file__).parents[1] / "recordings" / "h200" / "data-ahead.tuirec"
    late = Recorded("late", whole_view(str(recording), NOTHING_GIVEN))
    first = late.view.findings[0].actions[0].text
    assert "DataLoader worker processes" in first
    for answers, change in (({}, first), ({"storage_at_ceiling": "no"}, first)):
        assert change == held((late,), dict(answers)).dialogue.change
    assert first != held((late,), {"storage_at_ceiling": "yes"}).dialogue.change


def test_where_nothing_is_asked_no_key_answers() -> None:
    """Each says so; another size can still be asked for."""
    for session in (guided(held((STALLED,), {}), ""), None):
        keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=session))
        keyboard.press("d")
        for key in ("s", "y", "n"):
            assert "nothing is asked now" in keyboard.press(key)
        keyboard.press("enter")
        assert [] == answers_of(keyboard)
        keyboard.press("N", *"8", "enter")
        assert [Answer(OTHER_SIZE, "8")] == answers_of(keyboard)


def test_before_the_session_has_begun_it_says_why() -> None:
    """A run that cannot be judged has a reason of its own."""
    assert "The dialogue begins when the run has been read." in shown(None)
    assert "too few steps so far" in shown(None, note="too few steps so far")


@pytest.mark.slow
def test_what_an_answer_moved_stands_before_and_now() -> None:
    """The answer itself, up and down of the causes, the change and the decision that were."""
    before = held((LATE,), {})
    assert "you said:" not in shown(guided(before, ""))
    assert "▲" not in shown(guided(before, "")).partition("── dialogue")[2]  # it is on the ribbon, too
    after = held((LATE,), {"host_cpus_full": "no"}, "host_cpus_full")
    text = shown(guided(after, ""))
    assert "you said:" in text
    assert "1 answer given" in text
    moved = [cause for cause in after.dialogue.causes if cause.before not in {None, cause.now}]
    assert moved, "the test must be able to fail"
    glyphs = {"▲" if cause.now > (cause.before or 0.0) else "▼" for cause in moved}
    assert glyphs == {"▲", "▼"} & set(text)
    dialogue = after.dialogue
    turned = replace(dialogue, change_before="an older change", decision_before="keep", decision="tune")
    text = shown(replace(guided(after, ""), dialogue=turned))
    for part in ("ONE change now:", "before: an older change", "KEEP → "):
        assert part in text
    still = replace(dialogue, change_before="", decision_before=None)
    text = shown(replace(guided(after, ""), dialogue=still))
    assert "ONE change:" in text
    assert "before: " not in text
    assert "→  TUNE" not in text


def test_what_was_judged_is_said() -> None:
    """A replay that stands at an earlier step is judged up to there."""
    session = guided(held((LATE,), {}), "")
    assert "judged: the run up to step 120" in shown(replace(session, judged="the run up to step 120"))
    assert "judged:" not in shown(replace(session, judged=""))


def test_without_an_open_cause_it_says_so() -> None:
    """An empty list would look unread."""
    session = guided(held((LATE,), {}), "")
    assert session.dialogue is not None
    text = shown(replace(session, dialogue=replace(session.dialogue, causes=())))
    assert "no finding whose cause is open" in text
    assert "no finding whose cause is open" not in shown(session)


def test_another_size_is_told_unless_it_is_the_reason_already() -> None:
    """Once is enough."""
    session = guided(held((LATE,), {}), "")
    assert session.dialogue is not None
    for wanted, count in (("64 devices do not pay", 1), (session.dialogue.why, 0), ("", 0)):
        text = shown(replace(session, dialogue=replace(session.dialogue, wanted=wanted)))
        assert count == text.count("other size:")
    for left, words in (
        (0, "no question left that could change it"),
        (2, "2 more questions can still change it"),
    ):
        assert words in shown(replace(session, dialogue=replace(session.dialogue, num_left=left)))


@pytest.mark.parametrize("width", [80, 160])
def test_what_it_rests_on_is_shown_where_there_is_room(width: int) -> None:
    """What was stated, each with its answer; on a low screen the question comes first."""
    none = shown(guided(held((LATE,), {}), ""), width, 90)
    assert "nothing yet: what the run shows stands alone" in none
    stated = guided(held((LATE,), {"host_cpus_full": "no"}, "host_cpus_full"), "")
    (asked,) = [one for stage in stated.stages for one in stage.asked if one.answer is not None]
    text = shown(stated, width, 90)
    assert "nothing yet" not in text
    begin = text.index("stated so far")
    assert asked.ask.split()[0] in text[begin:]
    for row in stated.card:
        assert row[0] in text
    low = shown(stated, width, 16)
    assert "stated so far" not in low
    assert "dialogue" in low


def test_the_decision_beside_the_patterns_is_whole_or_says_where_it_is() -> None:
    """On 80 columns its sentence ended in "What that", above an empty row."""
    session = guided(held((LATE,), {}), "")
    for why, end in (
        ("a word " * 18 + "to the end.", "to the end."),
        ("a word " * 90 + "to the end.", "(d: all of it)"),
    ):
        desk = desks.desk(session=replace(session, why=why))
        text = Keyboard(views.live(views.straggler()), desk=desk).press("5")
        assert end in text
        assert "gain" in text


def test_what_a_trace_says_of_its_devices_ranks_the_causes() -> None:
    """Before any answer, and without a finding: launches that come late are no slow storage."""
    parts = (
        ("the training thread launches too late in forward", 0.3),
        ("exposed communication, which nothing hides", 0.1),
        ("the training thread launches too late in the optimizer", 0.1),
        ("held back by other streams or events", 0.06),
        ("copies alone", 0.01),
    )
    run = replace(facts("trace", views.healthy()), findings=(), device_parts=parts, device_compute=0.43)
    told = weights(run, {})
    assert next(iter(told)) in {"too little work a step for its fixed costs", "very many tiny kernels"}
    assert told["very many tiny kernels"] == pytest.approx(4 * told["more to send than the links carry"])
    assert "held back by other streams or events" in told
    assert "copies alone" not in told
    loads = (("the training thread waits for data: the loader", 0.5), *parts)
    assert next(iter(weights(replace(run, device_parts=loads), {"host_cpus_full": "no"}))) != next(iter(told))
    answered = weights(run, {"memory_bound_kernels": "tiny"})
    assert next(iter(answered)) == "very many tiny kernels"


def test_where_every_cause_was_denied_something_else_is_one() -> None:
    """The list stood as before the answers: 50, 25 and 25, the host busy with other work first after a no to it."""
    run = facts("late", LATE.view)
    answers: dict[str, str | float] = {"host_shared": "no", "shards_equal": "yes", "lengths_vary": "no"}
    assert ELSE not in weights(run, {})
    denied = {**answers, "storage_at_ceiling": "no", "host_cpus_full": "no"}
    assert ELSE not in weights(run, denied)  # speaks for too few workers
    only_late = replace(
        run, findings=tuple(replace(one, phase="backward") for one in run.findings if one.id == "straggler")
    )
    told = weights(only_late, answers)
    assert ELSE == next(iter(told))
    assert sum(told.values()) == pytest.approx(1.0)
    assert told[ELSE] == pytest.approx(0.5)
    assert ELSE not in weights(only_late, {**answers, "shards_equal": "no"})


def test_why_a_device_idles_is_told_by_its_trace() -> None:
    """Of a trace whose device computed 41 % of its time "no waiting was seen in its steps" was said."""
    parts = (("nothing runs on it, before its first event in the trace or after its last", 0.58),)
    run = replace(facts("trace", views.healthy()), device_parts=parts, device_compute=0.41)
    told = whys.why("idle", run, (), Machine()).answer
    assert "computes 41 % of its time" in told
    assert "58 % nothing runs on it" in told


def test_what_would_change_the_decision_has_its_label_once() -> None:
    """It stood before each of three in one card."""
    rows = [
        row.text for row in changes(("Time as the objective.", "A price a device-hour.", "A deadline."), 60)
    ]
    assert rows == [
        "would change it: Time as the objective.",
        "or: A price a device-hour.",
        "or: A deadline.",
    ]
    assert changes((), 60) == []
    assert changes((), 40) == []


def test_in_a_narrow_card_what_would_change_the_decision_stands_below_its_label() -> None:
    """Beside it the card of screen 5 had a tail of four rows, two words each."""
    told = "An objective: without one no number of devices is better than another."
    assert [row.text for row in changes((told, "A deadline."), 40)] == [
        "would change it:",
        "- An objective: without one no number of",
        "  devices is better than another.",
        "- A deadline.",
    ]
