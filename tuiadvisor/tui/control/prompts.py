"""What is typed in the footer: filter, step, note, answer, size, preference, command; and what becomes of it.

In: keys while a prompt is open.  Out: commands to the shell, changes of the pages the prompt belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.preferences import changed, moved, shown
from tuiadvisor.tui.contract.prompt import Prompt
from tuiadvisor.tui.pages.guidance import answer_hint, typed_answer

if TYPE_CHECKING:
    from tuiadvisor.preferences import Preferences
    from tuiadvisor.tui.control.place import Place

FILTER_HINT = "7, 8-15, host, stage 2, live, outlier …; enter keeps it, esc clears it"
RUNS_HINT = "name, job or verdict; enter keeps it, esc clears it"
SEEK_HINT = "its number; enter goes there, esc closes"


class Prompts:
    """The open prompt, if there is one."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.prompt: Prompt | None = None

    def open(self, name: str, question: str, hint: str, typed: str = "") -> None:
        """Ask for a text in the footer."""
        self.prompt = Prompt(name, question, hint, typed)

    def key(self, key: str, character: str | None) -> bool:
        """Take a key; False where nothing is asked, so that the key means something else."""
        prompt = self.prompt
        if prompt is None:
            return False
        if key == "escape":
            self.close(keep=False)
        elif key == "enter":
            self.close(keep=True)
        elif prompt.name == "palette" and key in {"up", "down"}:
            self.place.palette.move(1 if key == "down" else -1)
        elif prompt.key(key, character):
            self._typed(prompt)
        return True

    def paste(self, text: str) -> None:
        """Take pasted text into the prompt, if one is open."""
        if self.prompt is not None:
            self.prompt.insert(text)
            self._typed(self.prompt)

    def _typed(self, prompt: Prompt) -> None:
        if prompt.name == "filter":
            self.place.filtered().filter = prompt.typed
        elif prompt.name == "palette":
            self.place.palette.typed = prompt.typed

    def close(self, *, keep: bool) -> None:
        """End the prompt; keep: do what was typed, else take it back."""
        prompt, self.prompt = self.prompt, None
        if prompt is None:
            return
        if prompt.name == "filter" and not keep:
            self.place.filtered().filter = ""
        elif prompt.name == "note" and keep:
            self._bookmark(prompt.typed)
        elif prompt.name == "answer" and keep:
            self._answer(prompt.typed)
        elif prompt.name == "size" and keep:
            self._state_size(prompt.typed)
        elif prompt.name == "preference" and keep:
            self._prefer_typed(prompt.typed)
        elif prompt.name == "seek" and keep:
            self._seek(prompt.typed)
        elif prompt.name == "palette":
            chosen = self.place.palette.opened()
            self.place.stack.remove(self.place.palette)
            if keep and chosen is not None:
                self.place.perform(chosen[1])

    def _seek(self, typed: str) -> None:
        where = self.place.state.replay or self.place.state.past
        text = typed.replace(",", "").strip()
        if not text:
            return
        if not (text.isascii() and text.isdecimal()):
            self.place.say(f"“{typed}” is not a step number: digits only")
            return
        step = int(text)
        first, last = (where.first_step, where.last_step) if where is not None else (None, None)
        if (first is not None and step < first) or (last is not None and step > last):
            ends = f"{first or 0:,} to {last:,}" if last is not None else f"steps from {first:,} on"
            what = (
                "not in this recording: it" if self.place.state.replay is not None else "not held: the fold"
            )
            self.place.say(f"step {step:,} is {what} holds {ends}")
            return
        self.place.shell.ask("seek_step", step)

    def _bookmark(self, note: str) -> None:
        step = self.place.state.replay.step if self.place.state.replay is not None else None
        if step is None:
            self.place.say("b: no step has been replayed yet")
            return
        self.place.shell.ask("bookmark", (step, note.strip()))

    def ask_question(self) -> None:
        """Ask for the answer to the question the session points at."""
        asked = self.place.advisor.question()
        if asked is not None:
            typed = "" if asked.answer is None else str(asked.answer)
            empty = "empty skips it" if asked.answer is None else "empty takes it back"
            self.open("answer", "answer", f"{answer_hint(asked)}; {empty}, esc stops", typed)

    def _answer(self, typed: str) -> None:
        """Send what was typed and ask the next open question of this pattern."""
        asked = self.place.advisor.question()
        if asked is None:
            return
        if typed.strip() or asked.answer is not None:
            self.place.shell.ask("answer", (asked.id, typed_answer(asked, typed)))
        if self.place.advisor.advance():
            self.ask_question()
        else:
            self.place.say("that was the last open question of this pattern: right goes on to the next")

    def ask_size(self) -> None:
        """Ask for what may be stated about sizes."""
        entry = self.place.scaling.entry()
        if entry is not None:
            self.open("size", entry.label, f"{entry.hint}; empty takes it back, esc stops", entry.text)

    def _state_size(self, typed: str) -> None:
        entry = self.place.scaling.entry()
        if entry is not None and typed.strip() != entry.text:
            self.place.shell.ask("state_size", (entry.name, typed))

    def ask_preference(self) -> None:
        """Take the next choice of a preference, or ask for its value."""
        option = self.place.preferences.option()
        if option is None:
            return
        if option.choices:
            self.prefer(moved(self.place.preferences.held, option.name, 1))
        else:
            typed = shown(self.place.preferences.held, option.name)
            self.open("preference", option.label, f"{option.about}; esc stops", typed)

    def _prefer_typed(self, typed: str) -> None:
        option = self.place.preferences.option()
        if option is None:
            return
        try:
            self.prefer(changed(self.place.preferences.held, option.name, typed.strip()))
        except TuiadvisorError as error:
            self.place.say(str(error))

    def prefer(self, preferences: Preferences) -> None:
        """Show it at once and keep it."""
        if preferences != self.place.preferences.held:
            self.place.preferences.held = preferences
            self.place.shell.prefer(preferences)
            self.place.shell.ask("save_preferences", preferences)

    def filter_hint(self) -> str:
        """What may be typed into the filter."""
        return RUNS_HINT if self.place.page is self.place.runs else FILTER_HINT
