"""What limits a step, as people read it: where the identifier of a loss is not the word for it.

In: a phase or a cause of a RunView.  Out: its words; the identifier itself stands in JSON.
"""

from __future__ import annotations

from typing import Final

LIMIT_NAMES: Final = {
    "comm_exposed": "exposed communication",
    "eval": "forward without backward",
    "h2d": "copy to device",
    "host": "own code or host",  # outside the phases, or all of them alike: either may be the cause
    "wandering_lateness": "rotating straggler",
    "taking_turns": "varying stragglers",
}


def limit_name(name: str) -> str:
    """'wandering_lateness' is 'rotating straggler'; others are read off the identifier."""
    return LIMIT_NAMES.get(name, name.replace("_", " "))
