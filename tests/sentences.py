"""Every sentence that a user can meet, to be read as a whole: of the code and of the rules, by file and line.

    python tests/sentences.py [PART OF A PATH ...]

A sentence is a text of three words or more that is no docstring; what is filled in stands in braces. The list holds
some that nobody sees (code that is sent into a rank, styles): better too many than one too few.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
MIN_WORDS: Final = 3
MAX_FILLED: Final = 40  # characters of what is filled in
WORD: Final = re.compile(r"[A-Za-z]{2,}")


def sentences(source: str) -> list[tuple[int, str]]:
    """Line and text of each sentence in a module's source, in the order of its lines."""
    skipped, found = set[int](), list[tuple[int, str]]()
    for node in ast.walk(ast.parse(source)):  # what holds a text comes before the text
        if isinstance(node, ast.Name | ast.expr_context | ast.Attribute | ast.Call):
            continue  # most of them
        skipped.update(id(text) for text in (*_docstring(node), *_parts(node)))
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in skipped:
            text = " ".join((_text(node) or "").split())
            if _is_sentence(text):
                found.append((node.lineno, text))
    return sorted(found)


def _docstring(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            yield first.value


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """What lies within a text with something filled in belongs to it."""
    if isinstance(node, ast.JoinedStr):
        yield from (each for each in ast.walk(node) if each is not node and isinstance(each, ast.Constant))


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_filled(part) for part in node.values)
    return None


def _filled(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        return f"{{{ast.unparse(part.value)[:MAX_FILLED]}}}"
    return str(part.value) if isinstance(part, ast.Constant) else ""


def _is_sentence(text: str) -> bool:
    words = WORD.findall(re.sub(r"\{[^}]*\}", "", text))
    return len(words) >= MIN_WORDS and " " in text.strip()


def rule_sentences(document: object) -> Iterator[str]:
    """Every text of a rule or question file that is a sentence."""
    if isinstance(document, str) and _is_sentence(document):
        yield " ".join(document.split())
    elif isinstance(document, dict):
        for name, value in document.items():
            if name != "cases":
                yield from rule_sentences(value)
    elif isinstance(document, list):
        for value in document:
            yield from rule_sentences(value)


def main() -> None:
    """Print them."""
    wanted = sys.argv[1:]

    def is_wanted(path: Path) -> bool:
        return not wanted or any(part in str(path) for part in wanted)

    for path in filter(is_wanted, sorted((ROOT / "tuiadvisor").rglob("*.py"))):
        if found := sentences(path.read_text()):
            print(f"\n## {path.relative_to(ROOT)}", *(f"{line:5} {text}" for line, text in found), sep="\n")
    for path in filter(is_wanted, sorted((ROOT / "rules" / "catalog").rglob("*.toml"))):
        texts = rule_sentences(tomllib.loads(path.read_text()))
        print(f"\n## {path.relative_to(ROOT)}", *(f"      {text}" for text in texts), sep="\n")


if __name__ == "__main__":
    main()
