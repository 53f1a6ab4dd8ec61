"""The prompt that is open in the footer, if there is one: keys go there first.

In: keys while a prompt is open.  Out: what was typed, to whoever asked for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.prompt import Prompt


class Prompts:
    """Mutable: at most one prompt at a time."""

    def __init__(self) -> None:
        self.prompt: Prompt | None = None

    def open(self, prompt: Prompt) -> None:
        """Ask for a text in the footer."""
        self.prompt = prompt

    def key(self, key: str, character: str | None) -> bool:
        """Take a key; False where nothing is asked, so that the key means something else."""
        prompt = self.prompt
        if prompt is None:
            return False
        if key == "escape":
            self.close(keep=False)
        elif key == "enter":
            self.close(keep=True)
        elif prompt.move is not None and key in {"up", "down"}:
            prompt.move(1 if key == "down" else -1)
        elif prompt.key(key, character) and prompt.change is not None:
            prompt.change(prompt.typed)
        return True

    def paste(self, text: str) -> None:
        """Take pasted text into the prompt, if one is open."""
        if self.prompt is not None:
            self.prompt.insert(text)
            if self.prompt.change is not None:
                self.prompt.change(self.prompt.typed)

    def close(self, *, keep: bool) -> None:
        """End the prompt; keep: do what was typed, else take it back. What is refused stays open to be mended."""
        prompt = self.prompt
        if prompt is None:
            return
        if keep and prompt.refuses is not None and (why := prompt.refuses(prompt.typed)):
            prompt.refused = why
            return
        self.prompt = None
        if keep:
            prompt.keep(prompt.typed)
        elif prompt.drop is not None:
            prompt.drop()
