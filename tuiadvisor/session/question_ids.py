"""Ids of questions that code names; all others are known to the rules alone."""

from __future__ import annotations

from typing import Final

OTHER_SIZE: Final = "devices_wanted"  # how many devices another size would have; it may be put at any time
