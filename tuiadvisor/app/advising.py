"""The guided session behind its screen: reads its runs once, takes answers, saves after each one.

In: a recording or live views, answers.  Out: Guided. Answers lie beside the recording as NAME.session.json, the same
document that `tuiadvisor advise --session` reads and writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from tuiadvisor.advisor.compare.comparing import measure
from tuiadvisor.app.stand_ins import beside, name_of
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import NOTHING_GIVEN, GivenWork
from tuiadvisor.session.answers import checked_answer, checked_answers, read_saved
from tuiadvisor.session.conduct import Session, conduct
from tuiadvisor.session.document import document, saved_history
from tuiadvisor.session.guided import SKIP, Guided, guided
from tuiadvisor.session.intent import FILE_NAME, Intent, read_intent
from tuiadvisor.session.machine import read_machine
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.text import format as text_of
from tuiadvisor_rules.questions import load_questions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tuiadvisor.session.conduct import Bottleneck
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor_rules.questions import Question


def session_file(recording: str) -> Path | None:
    """Where the session on a recording is kept; None for a run that is not recorded."""
    return beside(recording).with_suffix(".session.json") if recording else None


def _checked(question: Question, text: str) -> str | float:
    """The answer; a mistake names what was asked, as it stands on the screen."""
    try:
        return checked_answer(question, text)
    except TuiadvisorError as error:
        raise TuiadvisorError(f"{str(error).removeprefix(f'{question.id}: ')}: {question.ask}") from None


def judged(shown: FeedState) -> tuple[bool, str]:
    """Whether a part of the run is on the screen, and which, in words."""
    last = None if shown.view is None else shown.view.last_step
    if shown.stretch is not None:
        chosen = text_of.steps(shown.stretch.first_step, shown.stretch.last_step)
        return True, f"{chosen} alone, as chosen with + and -"
    if shown.past is not None:
        return True, f"the run up to step {shown.past.step:,}, as shown; the run itself is further"
    replay = shown.replay
    if replay is None:
        return False, "the run so far" if last is None else f"the run up to step {last:,}"
    if replay.step is not None and replay.last_step is not None and replay.step < replay.last_step:
        return True, f"the run up to step {replay.step:,}, as shown; End, then 5, judges the whole of it"
    return False, "the whole recording"


class GuidedAdvice:
    """One session on one run."""

    def __init__(
        self,
        path: str,
        file: Path | None,
        others: tuple[str, ...],
        intent: Intent | None,
        *,
        live_path: str = "",
    ) -> None:
        """path: the recording, "" for a live run, which live_path keeps; file: where to save, None for nowhere."""
        self.path = path
        self.live_path = live_path
        self.file = file
        self.others = others
        self.questions = load_questions()
        self.intent = read_intent(FILE_NAME) if intent is None else intent
        self.machine = read_machine()
        self.runs: list[Recorded] = []
        self._whole: list[Recorded] = []  # of recordings, each to its end
        self.judged = ""  # of the run, in words
        self.problem = ""  # why nothing is saved
        self.last = ""  # the question that was answered last
        self.skipped: set[str] = set()
        saved = read_saved(file) if file is not None else None
        self.history: tuple[Bottleneck, ...] = saved_history(saved, str(file))
        # The file lies beside its recording: its answers are for this run however often it was read meanwhile.
        answers = saved.get("answers") if isinstance(saved, dict) else None
        self.answers = checked_answers(answers if isinstance(answers, dict) else {}, self.questions)

    def read(self, frames: Callable[[str], Iterable[bytes]], given: GivenWork = NOTHING_GIVEN) -> None:
        """Read the recordings; given: the work of a step of the first. TuiadvisorError if one is none."""
        here = GivenWork(measured=self.machine.peaks)
        for path in (self.path, *self.others):
            measured = measure(path, frames(path), given.over(here) if path == self.path else here)
            unit = measured.unit
            self._whole.append(
                Recorded(name_of(path), measured.view, unit.gradient_bytes, unit.num_collectives)
            )
        self.runs = list(self._whole)

    def take(self, shown: FeedState) -> None:
        """Judge what is on the screen: a recording to its end, or as much of it or of a live run as is shown."""
        is_part, self.judged = judged(shown)
        if self._whole:
            view = shown.view if is_part and shown.view is not None else self._whole[0].view
            self.runs = [replace(self._whole[0], view=view), *self._whole[1:]]
        elif shown.view is not None:
            name = self.live_path or shown.view.run.label or "live"
            self.runs = [Recorded(name, shown.view, is_file=bool(self.live_path))]

    def answer(self, name: str, text: str) -> None:
        """Keep an answer and save; an empty text takes it back. TuiadvisorError for one that cannot be."""
        question = next((one for one in self.questions if one.id == name), None)
        if question is None:
            raise TuiadvisorError(f"no question {name!r}")
        self.last = name
        if text == SKIP:
            self.skipped.add(name)
            return
        if text:
            self.answers[name] = _checked(question, text)
        else:
            self.answers.pop(name, None)
        self._save(self._session())

    def conduct(self) -> Guided:
        """The session with the answers so far."""
        return guided(self._session(), self._saved(), self.judged)

    def _session(self) -> Session:
        return conduct(
            self.runs,
            self.intent,
            self.answers,
            self.questions,
            self.history,
            machine=self.machine,
            last=self.last,
            skipped=self.skipped,
        )

    def _saved(self) -> str:
        if self.problem:
            return f"answers are not saved: {self.problem}"
        if self.file is None:
            return "answers are not saved: this run is not recorded (-o FILE)"
        return f"saved in {self.file.name}" if self.answers else f"answers go to {self.file.name}"

    def _save(self, session: Session) -> None:
        if self.file is None:
            return
        content = orjson.dumps(document(session), option=orjson.OPT_INDENT_2) + b"\n"
        part = self.file.with_name(self.file.name + ".part")
        try:
            part.write_bytes(content)
            part.replace(self.file)
        except OSError as error:
            self.problem = error.strerror or "the file cannot be written"
        else:
            self.problem = ""
