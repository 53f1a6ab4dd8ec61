"""One line of text being typed in the footer: a filter, a step, a note, an answer, a command.

In: keys.  Out: the text, to whoever asked for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuiadvisor.text.line import clean

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LENGTH = 80


@dataclass(slots=True)
class Prompt:
    """A question, what was typed so far, and what becomes of it."""

    question: str
    hint: str
    keep: Callable[[str], None]  # enter: what was typed
    typed: str = ""
    change: Callable[[str], None] | None = None  # after each key: what is typed so far
    drop: Callable[[], None] | None = None  # escape
    move: Callable[[int], None] | None = None  # up and down, where they choose among something
    refuses: Callable[[str], str] | None = None  # why this is not taken; "" where it is
    refused: str = ""  # why what is typed was not taken: it stays to be mended

    def key(self, key: str, character: str | None) -> bool:
        """Take a key; returns whether the text changed."""
        before = self.typed
        if key == "backspace":
            self.typed = self.typed[:-1]
        elif key == "ctrl+u":
            self.typed = ""
        elif key == "ctrl+w":
            self.typed = self.typed.rstrip().rpartition(" ")[0]
        elif character and character.isprintable():
            self.insert(character)
        if self.typed != before:
            self.refused = ""
        return self.typed != before

    def insert(self, text: str) -> None:
        """Append typed or pasted text."""
        self.typed = (self.typed + clean(text))[:MAX_LENGTH]
