"""What we use of Textual beside its public interface: one import, a few names; here it fails first when one is gone."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import textual
from textual.app import App

import tuiadvisor
from tuiadvisor.tui.terminal import textual_private

ADAPTER = "tui/terminal/textual_private.py"
WHAT_NOW = f"Textual {textual.__version__} lacks it: the docstring of tuiadvisor/{ADAPTER} says what to do"


PRIVATE = ("textual._", "rich._")


def test_only_the_adapter_imports_a_private_module() -> None:
    """Neither of Textual nor of Rich, at run time or for types."""
    package = Path(tuiadvisor.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(
            private in (source := path.read_text()) for private in PRIVATE
        )  # parsing all takes two seconds
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [*(alias.name for alias in node.names), getattr(node, "module", None) or ""]
        if name.startswith(PRIVATE)
    }
    assert {ADAPTER} == found


@pytest.mark.parametrize("name", ["_display", "_begin_update", "_end_update", "post_display_hook"])
def test_the_application_still_has(name: str) -> None:
    """Methods that frame_writer overrides or calls."""
    assert hasattr(App, name), WHAT_NOW


@pytest.mark.parametrize("name", ["_batch_count", "_driver", "_running", "_closed"])
def test_the_application_still_keeps(name: str) -> None:
    """State that decides whether a frame is written."""
    assert hasattr(App(), name), WHAT_NOW


@pytest.mark.parametrize(
    ("update", "names"),
    [(textual_private.LayoutUpdate, {"strips", "region"}), (textual_private.ChopsUpdate, {"chops", "spans"})],
    ids=["whole", "parts"],
)
def test_a_frame_still_has(update: type, names: set[str]) -> None:
    """What is read of the two kinds of frame."""
    assert names <= set(inspect.signature(update.__init__).parameters), WHAT_NOW
