"""Answers: validated against their questions, whether typed or from a file.

In: text or parsed values.  Out: {question id: answer}. A wrong answer is one line naming the question.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.small_file import read_small
from tuiadvisor_rules.condition import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor_rules.questions import Question


class _Asks(Protocol):
    """What an answer has to fit."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def choices(self) -> tuple[str, ...]: ...
    @property
    def unit(self) -> str: ...


MAX_FILE_BYTES: Final = 1 << 20
MAX_TEXT: Final = 400
LARGEST: Final = 1e12
# A comma only where it parts thousands: 2,5 is no 25.
SAID: Final = re.compile(r"(?P<digits>\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?) ?(?P<word>[A-Za-z]*)")
TIMES: Final = {"k": "e3", "M": "e6"}
WORDS: Final = {"y": "yes", "n": "no", "true": "yes", "false": "no", "yes": "yes", "no": "no"}


def read_answers(path: str | Path, questions: tuple[Question, ...]) -> dict[str, str | float]:
    """A TOML or JSON file of id = answer."""
    where = Path(path)
    raw = read_small(where, MAX_FILE_BYTES, "are these answers?")
    try:
        table = json.loads(raw) if where.suffix == ".json" else tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise TuiadvisorError(f"{where}: neither TOML nor JSON (by its suffix): {error}") from error
    if not isinstance(table, dict):
        raise TuiadvisorError(f"{where}: must hold question = answer")
    try:
        return checked_answers(table, questions)
    except TuiadvisorError as error:
        raise TuiadvisorError(f"{where}: {error}") from error


def checked_answers(table: Mapping[str, object], questions: tuple[Question, ...]) -> dict[str, str | float]:
    """All answers, each valid for its question."""
    by_id = {question.id: question for question in questions}
    for name in table:
        if name not in by_id:
            raise TuiadvisorError(f"no question {name!r}{nearest(name, by_id)}")
    return {name: checked_answer(by_id[name], value) for name, value in table.items()}


def checked_answer(question: _Asks, value: object) -> str | float:
    """One answer as its question wants it; a number also as it is said: "4 h", "200,000", "200k"."""
    if question.kind == "number":
        number = _number(_plain(value, question.unit) if isinstance(value, str) else value)
        if number is None:
            raise TuiadvisorError(f"{question.id}: {str(value)[:40]!r} is no number of {question.unit}")
        return number
    if question.kind == "yes_no":
        word = WORDS.get(str(value).strip().lower())
        if word is None:
            raise TuiadvisorError(f"{question.id}: {str(value)[:40]!r}; answer yes or no")
        return word
    text = str(value).strip()
    if question.kind == "choice" and text not in question.choices:
        raise TuiadvisorError(f"{question.id}: {text[:40]!r}; answer one of {', '.join(question.choices)}")
    if not text or len(text) > MAX_TEXT or not text.isprintable():
        raise TuiadvisorError(f"{question.id}: one printable line of at most {MAX_TEXT} characters")
    return text


def _plain(text: str, unit: str) -> str:
    """Without the separators of thousands and the unit asked for; any other unit stays and makes it no number."""
    said = SAID.fullmatch(text.strip())
    if said is None:
        return text
    digits, word = said["digits"].replace(",", ""), said["word"]
    if word in TIMES:
        return f"{digits}{TIMES[word]}"
    is_unit = unit.partition(" ")[0].startswith(word.lower())
    return digits if is_unit else text


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and 0 <= number <= LARGEST else None


def read_saved(path: Path) -> object:
    """What an earlier session saved; None when there is none yet."""
    if not path.exists():
        return None
    raw = read_small(path, 16 * MAX_FILE_BYTES, "move it away or name another session")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise TuiadvisorError(
            f"{path}: not a saved session ({error}); move it away or name another"
        ) from error
