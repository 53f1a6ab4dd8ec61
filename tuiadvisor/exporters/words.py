"""The words our own messages are made of: free text of a recording may keep these and nothing else.

A name that a stranger's message carries (a user, a path, a host) is no word of ours, so it cannot pass, whatever it
looks like. The list is read from our own source, the string constants of the parts that write into recordings: it
cannot fall behind them. Where there is no source to read, no word is known and all free text goes.
"""

from __future__ import annotations

import ast
import re
import signal
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

WRITERS: Final = (
    "tuiadvisor.agent",
    "tuiadvisor.inject",
    "tuiadvisor.stream",
    "tuiadvisor.events",
    "tuiadvisor_probes",
)
LEFT_OUT: Final = "..."
_TOKEN: Final = re.compile(r"[A-Za-z]+|[0-9]+(?:\.[0-9]+)?|\s+|.", re.DOTALL)
_PLACE: Final = re.compile(r"\S*[/\\@~]\S*")  # paths, addresses, user@host: gone as a whole
_WORD: Final = re.compile(r"[A-Za-z]+")
_UNITS: Final = frozenset({"s", "ms", "us", "ns", "steps", "step", "frames", "bytes", "times", "%"})
_HARMLESS: Final = frozenset(" ,.;:()'-%+<>=!?")
_IDENTITY: Final = frozenset(
    {"pid", "pids", "ppid", "tid", "uid", "gid", "user", "port", "inode", "serial", "id"}
)
_KEY: Final = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")


@cache
def allowed_words() -> frozenset[str]:
    """Every word in a string constant of the writers, docstrings left out, and the names of signals."""
    words: set[str] = set()
    for name in WRITERS:
        for path in _sources(name):
            words.update(_words_of(path))
    if words:
        words.update(entry.name for entry in signal.Signals)
    return frozenset(words)


def _sources(name: str) -> list[Path]:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return []
    origin = Path(spec.origin)
    paths = sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]
    return [path for path in paths if path.is_file()]


def _words_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return {
        word
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        for word in _WORD.findall(node.value)
    }


def scrub(text: str) -> str:
    """The text with every foreign word, path and bare number left out; measured numbers keep their unit."""
    if text in allowed_words():
        return text
    tokens = _TOKEN.findall(_PLACE.sub("\0", text[:2000]))
    kept: list[str] = []
    for index, token in enumerate(tokens):
        fine = token.isspace() or token in _HARMLESS or token in allowed_words()
        if token[0] in "0123456789":
            fine = _is_measured(tokens, index)
        if fine:
            kept.append(token)
        elif not kept or kept[-1] != LEFT_OUT:
            kept.append(LEFT_OUT)
    return "".join(kept)


def _is_measured(tokens: list[str], index: int) -> bool:
    """'12 s' and '341 steps' say nothing of anybody; '4711' may be a process."""
    following = [token for token in tokens[index + 1 : index + 3] if not token.isspace()]
    before = [token for token in tokens[max(index - 2, 0) : index] if not token.isspace()]
    return bool(following and following[0] in _UNITS) or bool(before and before[-1] == "step")


def is_harmless_key(name: str) -> bool:
    """A key of our own making that names a measurement, not an identity."""
    parts = re.sub(r"\d", "", name).split("_") if _KEY.fullmatch(name) else []
    return bool(parts) and not _IDENTITY & set(parts) and {part for part in parts if part} <= allowed_words()
