"""The file of preferences: read once before screens are shown, written whole when one of them is changed.

~/.config/tuiadvisor/preferences.toml, or where XDG_CONFIG_HOME says.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from platformdirs import user_config_path

from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.preferences import AlertRules, Preferences, alert_rules, parsed, toml
from tuiadvisor.small_file import read_small

MAX_BYTES: Final = 64 << 10
_held: list[Preferences] = [Preferences()]
_quiet: list[bool] = [False]
_this_time: list[tuple[tuple[int, int] | None, float | None]] = [(None, None)]


def path() -> Path:
    """Where it lies."""
    folder = user_config_path("tuiadvisor", appauthor=False)
    if not folder.is_absolute():  # the XDG convention: a relative path is ignored
        folder = Path.home() / ".config" / "tuiadvisor"
    return folder / "preferences.toml"


def current() -> Preferences:
    """What was read, or what nobody changed."""
    return _held[0]


def be_quiet() -> None:
    """No bell and no notification this time, whatever is preferred; nothing of it is kept."""
    _quiet[0] = True


def is_quiet() -> bool:
    """Whether alerts are banners alone this time."""
    return _quiet[0]


def ring_by(hours: tuple[int, int] | None, repeat_s: float | None) -> None:
    """Other quiet hours (minutes of the day) or another interval this time; None: as preferred."""
    _this_time[0] = hours, repeat_s


def rules(held: Preferences) -> AlertRules:
    """When the terminal may be rung: as preferred, but for what was said this time."""
    hours, repeat_s = _this_time[0]
    found = alert_rules(held)
    if hours is not None:
        found = replace(found, quiet_from=hours[0], quiet_until=hours[1])
    return found if repeat_s is None else replace(found, repeat_s=repeat_s)


def load() -> Preferences:
    """Read the file; without one nothing is preferred. TuiadvisorError with line and key for a bad one."""
    _held[0] = read(path())
    return current()


def read(file: Path) -> Preferences:
    """The preferences in a file. TuiadvisorError if it is bad."""
    try:
        if not file.exists():
            return Preferences()
    except OSError as error:
        raise FailureError(f"{file}: cannot be read: {error.strerror}") from error
    raw = read_small(file, MAX_BYTES, "move it away to start afresh")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise TuiadvisorError(f"{file} line {line}: not UTF-8") from error
    return parsed(text, str(file))


def save(held: Preferences) -> Path:
    """Write all of them in one step: whoever reads meanwhile sees the old file or the new one. FailureError if not."""
    # A link into a folder of dotfiles stays a link.
    file = Path(os.path.realpath(path()))
    beside = ""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, beside = tempfile.mkstemp(prefix=".preferences-", dir=file.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(toml(held))
            opened.flush()
            os.fsync(opened.fileno())
        Path(beside).replace(file)
    except OSError as error:
        if beside:
            with contextlib.suppress(OSError):
                Path(beside).unlink()
        raise FailureError(f"{file}: cannot be written: {error.strerror}") from error
    _held[0] = held
    return file
