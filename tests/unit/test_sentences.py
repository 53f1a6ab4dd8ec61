"""What users read: the list of all sentences is complete, and some ways of putting things are out."""

from __future__ import annotations

import re
import tomllib

import pytest
from sentences import ROOT, rule_sentences, sentences

# Each was met by a user and mended; the reason is the right-hand side.
OUT = {
    r"\bis no (?:duration|share|port|speed|device count|positive number)\b": "is not a …",
    r"\bfrom the first step compared on\b": "since the first step compared",
    r"\bthese are its last figures\b": "whose? these are the last figures",
    r"\bin money unknown\b": "unknown, once",
    r"\bprobe >": "a sign alone says nothing: at least",
}


def test_a_text_with_something_filled_in_is_one_sentence() -> None:
    """Docstrings are none, nor are names and words alone."""
    source = '"""Doc of three words."""\nx = f"rank {rank} is late: {why!r}"\ny = "two words"\nz = "one two three"\n'
    assert sentences(source) == [(2, "rank {rank} is late: {why}"), (4, "one two three")]


@pytest.mark.slow
def test_what_is_out_stays_out() -> None:
    """In the code and in the rules."""
    said = [
        text
        for path in sorted((ROOT / "tuiadvisor").rglob("*.py"))
        for _, text in sentences(path.read_text())
    ]
    for path in sorted((ROOT / "rules" / "catalog").rglob("*.toml")):
        said += rule_sentences(tomllib.loads(path.read_text()))
    assert len(said) > 3000
    assert [(text, better) for text in said for form, better in OUT.items() if re.search(form, text)] == []


@pytest.mark.parametrize(
    "text", ["'5x' is no duration; write 90s", "probes detached: these are its last figures."]
)
def test_the_forms_that_are_out_are_found(text: str) -> None:
    """The test above can fail."""
    assert any(re.search(form, text) for form in OUT)
