"""One line of text being typed in the footer: filter, seek, palette.

In: keys.  Out: the text.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuiadvisor.text.line import clean

MAX_LENGTH = 80


@dataclass(slots=True)
class Prompt:
    """A question and what was typed so far."""

    name: str
    question: str
    hint: str
    typed: str = ""

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
        return self.typed != before

    def insert(self, text: str) -> None:
        """Append typed or pasted text."""
        self.typed = (self.typed + clean(text))[:MAX_LENGTH]
