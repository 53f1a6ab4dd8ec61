"""Roles to styles: one table a theme, colour-blind safe, with a theme of the terminal's own 16 colours.

In: a role of `line` ("@" in front: on the ground of a selection).  Out: rich Style, never None.
A role not listed falls back to the part before its colon, then to "text".
"""

from __future__ import annotations

from functools import cache

from rich.style import Style

from tuiadvisor.phases import TABLE

# A phase's styles stand in its row; the rest of a step lies back, on a ground of each theme's own.
_OF_PHASES = {f"phase:{phase.name}": f"{phase.ink} on {phase.colour}" for phase in TABLE} | {
    f"bar:{phase.name}": f"{phase.quiet_ink} on {phase.colour}" for phase in TABLE
}
_OF_PHASES_IN_16_COLOURS = {
    f"{kind}:{phase.name}": phase.ansi for kind in ("phase", "bar") for phase in TABLE
}

_DARK = _OF_PHASES | {
    "": "#d5dae3 on #14171c",
    "selected": "on #2b3442",
    "text": "#d5dae3",
    "strong": "bold #f2f5f9",
    "dim": "#7d8797",
    "title": "bold #9fb0c8",
    "rule": "#343c49",
    "header": "#d5dae3 on #1e2530",
    "header_strong": "bold #ffffff on #1e2530",
    "header_dim": "#8b97a8 on #1e2530",
    "key": "bold #8fc7ff on #1e2530",
    "tab": "bold #14171c on #9fb0c8",
    "accent": "#8fc7ff",
    "good": "#5fd3a5",
    "warn": "#f0c05a",
    "bad": "#ff7a66",
    "unknown": "italic #7d8797",
    "badge": "bold #14171c on #9fb0c8",
    "badge:tune": "bold #14171c on #f0c05a",
    "badge:rescale": "bold #14171c on #8fc7ff",
    "badge:stop": "bold #14171c on #ff7a66",
    "badge:keep": "bold #14171c on #5fd3a5",
    "badge:critical": "bold #14171c on #ff7a66",
    "badge:warning": "bold #14171c on #f0c05a",
    "badge:info": "bold #14171c on #8fc7ff",
    "badge:live": "bold #14171c on #5fd3a5",
    "badge:replay": "bold #14171c on #8fc7ff",
    "badge:paused": "bold #14171c on #f0c05a",
    "badge:lost": "bold #14171c on #ff7a66",
    "spark": "#6ea8e0",
    "area": "#24405f",
    "mark": "bold #f0c05a",
    "band": "#35506d",
    "curve": "bold #8fc7ff",
    "curve_band": "bold #8fc7ff on #1c2732",
    "limit": "#ff9d6c",
    "phase": "#14171c on #6b7484",
    "phase:other": "#c3cad6 on #4a5261",
    "bar": "#8b93a1 on #6b7484",
    "bar:other": "#79828f on #4a5261",
    # Eight heights in four colours: every change of colour in a row costs 11 to 19 bytes on the wire.
    "heat": "#7d8797",
    "heat:0": "#5f7387",
    "heat:1": "#5f7387",
    "heat:2": "#5f9fc4",
    "heat:3": "#5f9fc4",
    "heat:4": "#eda03f",
    "heat:5": "#eda03f",
    "heat:6": "#ff5b45",
    "heat:7": "#ff5b45",
    "heat:unknown": "#4b5463",
    "intro": "#d5dae3 on #202836",
    "intro_title": "bold #8fc7ff on #202836",
    "intro_dim": "#8b97a8 on #202836",
}

_LIGHT = _DARK | {
    "": "#23282f on #f7f8fa",
    "selected": "on #d5e2f2",
    "text": "#23282f",
    "strong": "bold #000000",
    "dim": "#667080",
    "title": "bold #3a4c66",
    "rule": "#c6ccd6",
    "header": "#23282f on #e3e8ef",
    "header_strong": "bold #000000 on #e3e8ef",
    "header_dim": "#5b6674 on #e3e8ef",
    "key": "bold #0b5cad on #e3e8ef",
    "tab": "bold #ffffff on #5b6674",
    "accent": "#0b5cad",
    "good": "#0a7a53",
    "warn": "#8a5a00",
    "bad": "#b3261e",
    "unknown": "italic #667080",
    "badge": "bold #ffffff on #5b6674",
    "badge:tune": "bold #ffffff on #8a5a00",
    "badge:rescale": "bold #ffffff on #0b5cad",
    "badge:stop": "bold #ffffff on #b3261e",
    "badge:keep": "bold #ffffff on #0a7a53",
    "badge:critical": "bold #ffffff on #b3261e",
    "badge:warning": "bold #ffffff on #8a5a00",
    "badge:info": "bold #ffffff on #0b5cad",
    "badge:live": "bold #ffffff on #0a7a53",
    "badge:replay": "bold #ffffff on #0b5cad",
    "badge:paused": "bold #ffffff on #8a5a00",
    "badge:lost": "bold #ffffff on #b3261e",
    "spark": "#2f6fb0",
    "area": "#b7cfe8",
    "mark": "bold #8a5a00",
    "band": "#9dbbda",
    "curve": "bold #0b5cad",
    "curve_band": "bold #0b5cad on #e0e9f3",
    "limit": "#b3261e",
    "phase:other": "#23282f on #b9c0cb",
    "bar:other": "#8f98a5 on #b9c0cb",
    "heat": "#667080",
    "heat:0": "#8fa3b8",
    "heat:1": "#8fa3b8",
    "heat:2": "#3f7fb8",
    "heat:3": "#3f7fb8",
    "heat:4": "#b8660c",
    "heat:5": "#b8660c",
    "heat:6": "#b3120a",
    "heat:7": "#b3120a",
    "heat:unknown": "#b9c0cb",
    "intro": "#23282f on #e9eff7",
    "intro_title": "bold #0b5cad on #e9eff7",
    "intro_dim": "#5b6674 on #e9eff7",
}

# The terminal's own colours on its own ground: right on light and dark, and what remains under NO_COLOR
# (reverse, bold, dim) still reads.
_TERMINAL = _OF_PHASES_IN_16_COLOURS | {
    "": "default on default",
    "selected": "reverse",
    "text": "",
    "strong": "bold",
    "dim": "dim",
    "title": "bold",
    "rule": "dim",
    "header": "reverse",
    "header_strong": "bold reverse",
    "header_dim": "reverse",
    "key": "bold reverse",
    "tab": "bold",
    "accent": "cyan",
    "good": "green",
    "warn": "yellow",
    "bad": "bold red",
    "unknown": "dim italic",
    "badge": "bold reverse",
    "badge:tune": "bold reverse yellow",
    "badge:rescale": "bold reverse cyan",
    "badge:stop": "bold reverse red",
    "badge:keep": "bold reverse green",
    "badge:critical": "bold reverse red",
    "badge:warning": "bold reverse yellow",
    "badge:info": "bold reverse cyan",
    "badge:live": "bold reverse green",
    "badge:replay": "bold reverse cyan",
    "badge:paused": "bold reverse yellow",
    "badge:lost": "bold reverse red",
    "spark": "blue",
    "area": "blue",
    "mark": "bold yellow",
    "band": "dim",
    "curve": "bold blue",
    "curve_band": "bold blue",
    "limit": "red",
    "phase": "reverse",
    "bar": "reverse",
    "heat": "dim",
    "heat:0": "",
    "heat:1": "",
    "heat:2": "cyan",
    "heat:3": "cyan",
    "heat:4": "yellow",
    "heat:5": "yellow",
    "heat:6": "red",
    "heat:7": "red",
    "heat:unknown": "dim",
    "intro": "",
    "intro_title": "bold",
    "intro_dim": "dim",
}

THEMES: dict[str, dict[str, str]] = {"dark": _DARK, "light": _LIGHT, "terminal": _TERMINAL}


def _definition(table: dict[str, str], role: str) -> str:
    return table.get(role, table.get(role.partition(":")[0], table["text"]))


@cache
def style(theme: str, role: str) -> Style:
    """Return the whole style of a role, ground included: a segment without one crashes under NO_COLOR."""
    table = THEMES[theme]
    ground = Style.parse(table[""])
    if not role.startswith("@"):
        return ground + Style.parse(_definition(table, role))
    own = Style.parse(_definition(table, role[1:]))
    selected = Style.parse(table["selected"])
    if selected.reverse:
        # Reversed colours would turn each word of the row into a block of its own colour.
        return ground + (own if own.bgcolor else selected + Style(bold=own.bold))
    # A phase or a badge keeps its own ground inside a selected row.
    return ground + selected + own


def ground(theme: str) -> tuple[str, str]:
    """Return (foreground, background) of the theme for the Textual screen behind everything."""
    if theme == "terminal":
        return "ansi_default", "ansi_default"
    foreground, _, background = THEMES[theme][""].partition(" on ")
    return foreground, background
