"""Styles: every role has one in every theme, with a ground, readable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from rich.color import Color, ColorTriplet

from tuiadvisor.phases import PHASES
from tuiadvisor.tui.draw import colours


@pytest.mark.parametrize("theme", colours.THEMES)
def test_every_theme_knows_the_same_roles(theme: str) -> None:
    """A role missing in one theme would silently look like text."""
    assert set(colours.THEMES["dark"]) == set(colours.THEMES[theme])


@pytest.mark.parametrize("theme", colours.THEMES)
def test_no_style_is_without_a_ground(theme: str) -> None:
    """Selected or not, known or not, a style names both its colours."""
    for role in [*colours.THEMES[theme], "no such role"]:
        for name in (role, f"@{role}"):
            style = colours.style(theme, name)
            assert style.color is not None
            assert style.bgcolor is not None


@pytest.mark.slow
def test_roles_in_the_code_are_in_the_themes() -> None:
    """A misspelt role in a page is found here."""
    known = set(colours.THEMES["dark"])
    folder = Path(colours.__file__).parent
    used = set()
    for path in folder.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            # A span is written as a pair whose second part is the role.
            if isinstance(node, ast.Tuple) and len(node.elts) == 2 and isinstance(node.elts[1], ast.Constant):
                first, role = node.elts[0], node.elts[1].value
                if isinstance(role, str) and isinstance(first, ast.JoinedStr) and role.isascii() and role:
                    used.add(role)
    assert {"text", "dim", "strong"} <= used
    assert set() == {role for role in used if role.partition(":")[0] not in known}


def luminance(colour: ColorTriplet) -> float:
    """Relative luminance, WCAG 2."""
    parts = [
        part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4
        for part in (colour.red, colour.green, colour.blue)
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(theme: str, role: str) -> float:
    style = colours.style(theme, role)
    assert isinstance(style.color, Color)
    assert isinstance(style.bgcolor, Color)
    both = sorted((luminance(style.color.get_truecolor()), luminance(style.bgcolor.get_truecolor())))
    return (both[1] + 0.05) / (both[0] + 0.05)


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize(
    "role",
    [
        "text",
        "strong",
        "dim",
        "title",
        "good",
        "warn",
        "bad",
        "accent",
        "header",
        "header_dim",
        "key",
        "badge:tune",
    ]
    + [f"phase:{phase}" for phase in PHASES],
)
def test_text_is_readable(theme: str, role: str) -> None:
    """Contrast of at least 4 to 1, WCAG asks 4.5 of body text and 3 of large text."""
    assert contrast(theme, role) >= 4.0
