"""What is read off the terminal: ASCII or not, which colours."""

from __future__ import annotations

import pytest

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.text import terminal


@pytest.mark.parametrize(
    ("expected", "environ", "encoding"),
    [
        (False, {}, "utf-8"),
        (False, {"LANG": "en_US.UTF-8"}, "utf-8"),
        (False, {"LC_CTYPE": "C.UTF-8"}, "utf-8"),  # what Python itself sets where there is no locale
        (True, {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8"),
        (True, {"LC_ALL": "C", "LANG": "en_US.UTF-8"}, "utf-8"),
        (True, {"LANG": "de_DE.ISO-8859-1"}, "utf-8"),
        (True, {"LANG": "en_US.UTF-8"}, "ascii"),
        (True, {"LANG": "en_US.UTF-8"}, None),
        (True, {"LANG": "en_US.UTF-8", "TERM": "linux"}, "utf-8"),
        (True, {"LANG": "en_US.UTF-8", "TUIADVISOR_ASCII": "1"}, "utf-8"),
        (False, {"LANG": "en_US.UTF-8", "TUIADVISOR_ASCII": "0"}, "utf-8"),
    ],
)
def test_ascii_where_the_terminal_has_no_utf8(
    expected: bool, environ: dict[str, str], encoding: str | None
) -> None:
    """A locale that was set decides before Python's own guess."""
    assert expected is terminal.ascii_only(environ, encoding)


@pytest.mark.parametrize(
    ("expected", "environ", "num_colours"),
    [
        ("dark", {}, 256),
        ("light", {"COLORFGBG": "0;15"}, 256),
        ("dark", {"COLORFGBG": "15;0"}, 1 << 24),
        ("terminal", {}, 16),
        ("terminal", {}, None),
        ("terminal", {"NO_COLOR": ""}, 256),
        ("light", {"TUIADVISOR_THEME": "light", "NO_COLOR": "1"}, 16),
        ("dark", {"TUIADVISOR_THEME": "nonsense"}, 256),
    ],
)
def test_the_theme_fits_the_terminal(expected: str, environ: dict[str, str], num_colours: int | None) -> None:
    """The user's wish, else the terminal's own colours where there are few."""
    assert expected == terminal.first_theme(environ, num_colours)


def test_without_a_terminal_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the way out, no screens drawn into a pipe."""
    monkeypatch.setattr("sys.__stdin__", None)
    with pytest.raises(TuiadvisorError, match="--once"):
        terminal.require_terminal()


def test_the_users_own_switches_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is unset is set."""
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "full")
    monkeypatch.delenv("TEXTUAL_FPS", raising=False)
    terminal.prepare()
    import os

    assert "full" == os.environ["TEXTUAL_ANIMATIONS"]
    assert "30" == os.environ["TEXTUAL_FPS"]
