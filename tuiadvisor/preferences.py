"""What the user prefers of the screens: theme, glyphs, units, thresholds, first screen. A small TOML file.

In: the file's text.  Out: Preferences; or one TuiadvisorError that names line and key. No files here:
`app.preferences_file` reads and writes.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from tuiadvisor.errors import TuiadvisorError, one_line

THRESHOLDS: Final = "thresholds"
DAY_MIN: Final = 24 * 60
UNITS: Final = frozenset({"ms", "s", "min", "h"})


@dataclass(frozen=True, slots=True)
class Preferences:
    """As they are without a file."""

    theme: str = "auto"
    glyphs: str = "auto"
    first_screen: str = "overview"
    bytes: str = "decimal"
    refresh_s: float = 0.5
    efficiency_floor: float = 0.8
    slow_line_ms: float = 300.0
    alerts: str = "on"
    repeat_alerts_min: float = 0.0
    quiet_from_h: float = 0.0
    quiet_until_h: float = 0.0
    quiet_hours_let: str = "hang"


@dataclass(frozen=True, slots=True)
class AlertRules:
    """When the terminal may be rung. Minutes of the day, local time; from == until: at any time."""

    quiet_from: int = 0
    quiet_until: int = 0
    lets_hang: bool = True  # a job that stands rings in quiet hours, too
    repeat_s: float | None = None  # what is still open rings again; None: once

    def is_quiet_at(self, minute: int) -> bool:
        """Whether a minute of the day lies in the quiet hours, which may hold midnight."""
        if self.quiet_from <= self.quiet_until:
            return self.quiet_from <= minute < self.quiet_until
        return minute >= self.quiet_from or minute < self.quiet_until


def alert_rules(held: Preferences) -> AlertRules:
    """What is preferred, as a rule."""
    return AlertRules(
        round(held.quiet_from_h * 60) % DAY_MIN,
        round(held.quiet_until_h * 60) % DAY_MIN,
        held.quiet_hours_let == "hang",
        held.repeat_alerts_min * 60 or None,
    )


def quiet_hours(text: str) -> tuple[int, int]:
    """Minutes of the day in "22:00-07:00". ValueError where it is none."""
    match = re.fullmatch(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)", text.strip(), re.ASCII)
    hours = [int(part) for part in match.groups()] if match else []
    if not hours or max(hours[0], hours[2]) > 23 or max(hours[1], hours[3]) > 59 or hours[:2] == hours[2:]:
        raise ValueError(f"{_shown(repr(text))} are no hours of the day; write 22:00-07:00")
    return hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]


@dataclass(frozen=True, slots=True)
class Option:
    """One of them. choices: what may stand there; else low to high."""

    name: str
    label: str
    about: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float = 0.0  # what left and right change
    table: str = ""

    @property
    def unit(self) -> str:
        """Of its number, as its name ends; empty where it has none."""
        last = self.name.rpartition("_")[2]
        return last if last in UNITS else ""


OPTIONS: Final = (
    Option(
        "theme", "colours", "auto takes what the terminal can show", ("auto", "dark", "light", "terminal")
    ),
    Option("glyphs", "glyphs", "ascii where the font lacks blocks and braille", ("auto", "ascii")),
    Option(
        "first_screen",
        "first screen",
        "of watch, replay, run and demo",
        ("overview", "ranks", "pipeline", "overlap", "runs"),
    ),
    Option("bytes", "units of bytes", "kB of 1,000 or KiB of 1,024", ("decimal", "binary")),
    Option(
        "refresh_s",
        "refresh every",
        "seconds; keys are answered at once whatever stands here",
        (),
        0.2,
        10.0,
        0.1,
    ),
    Option(
        "efficiency_floor",
        "efficiency floor",
        "parallel efficiency below which more devices are not worth it (POP: 0.8)",
        (),
        0.1,
        1.0,
        0.05,
        THRESHOLDS,
    ),
    Option(
        "slow_line_ms",
        "slow line from",
        "milliseconds; a terminal that answers slower is told in the footer",
        (),
        50.0,
        10_000.0,
        50.0,
        THRESHOLDS,
    ),
    Option(
        "alerts",
        "alerts",
        "bell and notification when a job stalls or a critical finding opens; quiet: the banner alone",
        ("on", "quiet"),
    ),
    Option(
        "repeat_alerts_min",
        "ring again after",
        "minutes, for what is still open; 0: once",
        (),
        0.0,
        1440.0,
        5.0,
    ),
    Option(
        "quiet_from_h",
        "quiet from",
        "hour of the day, local time: from then on banners alone",
        (),
        0.0,
        24.0,
        0.5,
    ),
    Option(
        "quiet_until_h",
        "quiet until",
        "hour of the day; the same as above: no quiet hours",
        (),
        0.0,
        24.0,
        0.5,
    ),
    Option(
        "quiet_hours_let",
        "quiet hours let",
        "what rings even then: a job that stands, or nothing",
        ("hang", "nothing"),
    ),
)
BY_NAME: Final = {option.name: option for option in OPTIONS}


def parsed(text: str, where: str) -> Preferences:
    """The preferences in a file's text. TuiadvisorError: file, line, key and what may stand there."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is only a ValueError
        raise TuiadvisorError(f"{where}: not TOML: {_shown(str(error), 120)}") from error
    found: dict[str, Any] = {}
    for key, value in document.items():
        if key == THRESHOLDS:
            if not isinstance(value, dict):
                raise TuiadvisorError(f"{_at(text, where, key)} is not a table; write [{THRESHOLDS}]")
            for name, number in value.items():
                found[name] = _checked(_known(name, THRESHOLDS, text, where), number, text, where)
        else:
            found[key] = _checked(_known(key, "", text, where), value, text, where)
    return Preferences(**found)


def changed(held: Preferences, name: str, value: object) -> Preferences:
    """With one of them changed. TuiadvisorError if the value cannot be."""
    return replace(held, **{name: checked(name, value)})  # type: ignore[arg-type]


def checked(name: str, value: object) -> str | float:
    """A value that may stand there; a number may be typed."""
    option = BY_NAME[name]
    if option.choices:
        if value not in option.choices:
            raise TuiadvisorError(f"{name} is {_shown(repr(value))}; write {', '.join(option.choices)}")
        return str(value)
    number = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
    if not option.low <= number <= option.high:
        raise TuiadvisorError(
            f"{name} is {_shown(repr(value))}; write a number from {option.low:g} to {option.high:g}"
        )
    return number


def moved(held: Preferences, name: str, by: int) -> Preferences:
    """The next choice, or a step more or less."""
    option, value = BY_NAME[name], getattr(held, name)
    if option.choices:
        place = (option.choices.index(value) + by) % len(option.choices)
        return changed(held, name, option.choices[place])
    number = round(value + by * option.step, 6)
    return changed(held, name, min(max(number, option.low), option.high))


def shown(held: Preferences, name: str) -> str:
    """A value as it is typed."""
    value = getattr(held, name)
    return value if isinstance(value, str) else f"{value:g}"


def toml(held: Preferences) -> str:
    """The whole file. Every key with what may stand there, so that it can be changed without this page."""
    lines = [
        "# Preferences of tuiadvisor's screens; key , on any screen changes them and writes this file anew."
    ]
    for table in ("", THRESHOLDS):
        lines += ["", f"[{table}]"] if table else [""]
        for option in OPTIONS:
            if option.table == table:
                value = getattr(held, option.name)
                text = f'"{value}"' if option.choices else f"{value:g}"
                hint = ", ".join(option.choices) or f"{option.low:g} to {option.high:g}: {option.about}"
                lines.append(f"{f'{option.name} = {text}':<28}  # {hint}")
    return "\n".join(lines) + "\n"


def _known(name: str, table: str, text: str, where: str) -> str:
    names = [option.name for option in OPTIONS if option.table == table]
    if name in names:
        return name
    other = BY_NAME.get(name)
    hint = f"known: {', '.join(names)}"
    if other is not None:
        hint = f"it belongs below [{THRESHOLDS}]" if other.table else f"it belongs above [{THRESHOLDS}]"
    raise TuiadvisorError(f"{_at(text, where, name)} is not a preference; {hint}")


def _checked(name: str, value: object, text: str, where: str) -> str | float:
    option = BY_NAME[name]
    if not option.choices and isinstance(value, str):
        raise TuiadvisorError(f"{_at(text, where, name)} is a text; write a number")
    try:
        return checked(name, value)
    except TuiadvisorError as error:
        raise TuiadvisorError(f"{where} line {_line(text, name)}: {error}") from error


def _at(text: str, where: str, name: str) -> str:
    return f"{where} line {_line(text, name)}: {_shown(repr(name))}"


def _line(text: str, name: str) -> int:
    """The line on which a key stands; 1 where it is written in a way that is not found."""
    pattern = re.compile(
        rf"""^\s*(?:\[?\s*{THRESHOLDS}\s*\.\s*)?\[?\s*["']?{re.escape(name)}["']?\s*[\]=.]"""
    )
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


def _shown(text: str, limit: int = 40) -> str:
    clean = one_line(text)
    return clean if len(clean) <= limit else f"{clean[: limit - 1]}…"


assert {option.name for option in OPTIONS} == {field.name for field in fields(Preferences)}  # noqa: S101
