"""`tuiadvisor advise`: the guided session on a plain terminal, or from an answers file."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.app.desk import Desk
from tuiadvisor.app.measured_recording import measured
from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.app.screens import show_screens
from tuiadvisor.app.stand_ins import beside
from tuiadvisor.app.survey import surveyed
from tuiadvisor.cli.document import document_bytes, print_document
from tuiadvisor.cli.foreign import as_recordings, foreign
from tuiadvisor.cli.options.intent import add_intent_options, intent_of
from tuiadvisor.cli.options.peaks import measured_here
from tuiadvisor.cli.options.work import add_work, work_of
from tuiadvisor.errors import TuiadvisorError, unwritable
from tuiadvisor.session.answers import checked_answer, checked_answers, read_answers, read_saved
from tuiadvisor.session.conduct import Session, conduct, identity
from tuiadvisor.session.document import document, saved_answers, saved_history
from tuiadvisor.session.machine import read_machine
from tuiadvisor.session.markdown import decision_lines, markdown, why_lines
from tuiadvisor.session.question_ids import OTHER_SIZE
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.serving import is_serving, serving_json, serving_markdown, serving_session
from tuiadvisor.session.spoken import moment_lines
from tuiadvisor.session.whys import NAMES
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.text.printed import fitted, say
from tuiadvisor.tui.contract.desk import Advise
from tuiadvisor.tui.contract.feed import End
from tuiadvisor_rules.questions import load_questions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection

    from tuiadvisor.events import GivenWork
    from tuiadvisor.session.stages import Asked
    from tuiadvisor_rules.questions import Question

    Answers = dict[str, str | float]
    Hold = Callable[[Answers, str, Collection[str]], Session]  # answers, the last question, those skipped

MAX_RUNS: Final = 32
ROOM_TO_ANSWER: Final = 12  # cells beside a question


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "run", metavar="RUN", help="the recording to judge, or a page saved by import serving -o FILE.json"
    )
    parser.add_argument(
        "others", nargs="*", default=(), metavar="OTHER", help="recordings of other configurations"
    )
    parser.add_argument("--answers", metavar="FILE", help="answers as TOML or JSON; nothing is asked then")
    parser.add_argument(
        "--devices", type=int, metavar="N", help="are N devices worth it? asks first what that depends on"
    )
    parser.add_argument("--session", metavar="FILE", help="save here as JSON, and resume what is there")
    parser.add_argument("--why", choices=NAMES, help="answer only this question, in plain words")
    parser.add_argument("--json", action="store_true", help="one JSON document, schema 1")
    parser.add_argument(
        "--tui", action="store_true", help="as a screen: keyboard only, answers saved as given"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the session: .md or .json")
    add_work(parser)
    add_intent_options(parser)


def run(options: argparse.Namespace) -> int:
    """Read, ask what is open, decide, show, save."""
    _check(options)
    if _is_saved_page(options.run):
        return _on_serving(options)
    if options.tui:
        with as_recordings([options.run, *options.others]) as read:
            options.run, options.others = read[options.run], [read[path] for path in options.others]
            return show(options)
    paths = [options.run, *options.others]
    with as_recordings(paths) as read:
        given = [work_of(options), *(measured_here() for _ in options.others)]
        runs = [_recorded(path, read[path], work) for path, work in zip(paths, given, strict=True)]
    questions, intent = load_questions(), intent_of(options)
    machine = read_machine()
    saved = read_saved(Path(options.session)) if options.session else None
    history = saved_history(saved, options.session or "")
    answers = checked_answers(saved_answers(saved, identity(runs[0].view)), questions)
    answers |= _given(options, questions)

    def hold(given: Answers, last: str = "", skipped: Collection[str] = ()) -> Session:
        return conduct(runs, intent, given, questions, history, machine=machine, last=last, skipped=skipped)

    asks = not (options.answers or options.json or options.why) and sys.stdin.isatty()
    session = _asked(hold, answers, options.session) if asks else hold(answers)
    if options.session:
        _write(options.session, _json(session))
    if options.output:
        text = _json(session) if options.output.endswith(".json") else markdown(session).encode()
        _write(options.output, text)
    if options.json:
        print_document(document(session))
    elif options.why:
        say("\n".join(why_lines(session.whys[NAMES.index(options.why)])))
    elif asks:
        say("\n".join(decision_lines(session)))
    else:
        say(markdown(session).removesuffix("\n"))
    return 0


def _given(options: argparse.Namespace, questions: tuple[Question, ...]) -> Answers:
    """The answers of the command line."""
    given = read_answers(options.answers, questions) if options.answers else {}
    if options.devices is not None:
        asked = next(one for one in questions if one.id == OTHER_SIZE)
        given[OTHER_SIZE] = checked_answer(asked, str(options.devices))
    return given


def _on_serving(options: argparse.Namespace) -> int:
    """The patterns on an imported metrics page: nothing is asked, so nothing is saved either."""
    given = [name for name in ("tui", "answers", "session", "why", "others") if getattr(options, name)]
    if given:
        raise TuiadvisorError(
            f"{options.run}: an imported metrics page takes no {given[0]}; give --json or -o alone"
        )
    session = serving_session(options.run)
    if options.output:
        is_json = options.output.endswith(".json")
        _write(
            options.output,
            document_bytes(serving_json(session)) if is_json else serving_markdown(session).encode(),
        )
    if options.json:
        print_document(serving_json(session))
    else:
        say(serving_markdown(session))
    return 0


def _asked(hold: Hold, answers: dict[str, str | float], file: str | None) -> Session:
    """The session after its questions; who leaves amid them finds the answers so far in the file."""
    try:
        return ask_all(hold, answers, input)
    except KeyboardInterrupt:
        if file:
            _write(file, _json(hold(answers, "", ())))
        raise


def _check(options: argparse.Namespace) -> None:
    if len(options.others) >= MAX_RUNS:
        raise TuiadvisorError(f"{1 + len(options.others)} recordings; give at most {MAX_RUNS}")
    if options.output and Path(options.output).suffix not in {".md", ".json"}:
        raise TuiadvisorError(f"{options.output}: a session is written as .md or .json")


def _is_saved_page(path: str) -> bool:
    """What `import serving --json` wrote, or a JSON file that nobody knows: why it is none is said where it is read."""
    try:
        return is_serving(path) and foreign(path) is None
    except TuiadvisorError:
        return True


def show(options: argparse.Namespace) -> int:
    """The same session as a screen, beside the recording's own screens."""
    work = work_of(options)
    survey = surveyed(options.run, work)
    feed = ReplayFeed(ReplaySource(options.run), survey)
    feed.command(End())
    feed.start()
    desk = Desk(
        feed,
        beside(options.run).parent,
        options.run,
        others=tuple(options.others),
        intent=intent_of(options),
        session_file=options.session or "",
        given=work,
    )
    desk.command(Advise())
    try:
        show_screens(desk, first_page="advisor")
    finally:
        feed.stop()
    return 0


def _recorded(path: str, read: str, work: GivenWork) -> Recorded:
    found = measured(path, work, read)
    return Recorded(path, found.view, found.unit.gradient_bytes, found.unit.num_collectives)


def ask_all(hold: Hold, answers: dict[str, str | float], read: Callable[[str], str]) -> Session:
    """One question at a time, the one that splits the causes best, until no answer would change anything.

    An empty line skips, ? tells how to measure, q ends the asking. answers: what is known beforehand; each answer is
    added as it is given, so that none is lost when the user leaves.
    """
    questions = {question.id: question for question in load_questions()}
    skipped: set[str] = set()
    last, is_first = "", True
    while True:
        session = hold(answers, last, skipped)
        found = session.dialogue
        say("\n".join(moment_lines(found, is_first=is_first)))
        is_first = False
        if found.question is None:
            print()
            return session
        name = found.question.id
        if not _take_answer(found.question, questions[name], answers, read):
            return session
        print()
        last = name if name in answers else ""
        skipped |= set() if last else {name}


def _take_answer(
    asked: Asked, question: Question, answers: dict[str, str | float], read: Callable[[str], str]
) -> bool:
    """Ask until it is answered or skipped; False: the user wants no further question."""
    while (answer := _ask(asked, read)) != "q":
        if answer == "?":
            say(f"  Measure it: {asked.measure}")
            continue
        try:
            if answer:
                answers[asked.id] = checked_answer(question, answer)
        except TuiadvisorError as error:
            say(f"  {str(error).removeprefix(f'{asked.id}: ')}")
        else:
            return True
    return False


def _ask(asked: Asked, read: Callable[[str], str]) -> str:
    how = {"yes_no": "yes/no", "number": asked.unit}.get(asked.kind, "/".join(asked.choices))
    # What is read beside the cursor is one row; readline breaks a longer one within a word.
    rows = f"{asked.ask} [{how}; empty: skip, ?: how to measure, q: decide now]"
    if sys.stdout.isatty():
        *above, rows = fitted(rows, shutil.get_terminal_size().columns - ROOM_TO_ANSWER).split("\n")
        print(*above, sep="\n", end="\n" if above else "")
    try:
        return read(f"{rows} ").strip()
    except EOFError:
        return "q"


def _json(session: Session) -> bytes:
    return document_bytes(document(session))


def _write(path: str, content: bytes) -> None:
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise unwritable(path, error) from error
