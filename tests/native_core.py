"""The native core for tests, made once from the source that is tested; NATIVE_CORE names another build of it."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "probes" / "native"))
import core_build

VARIABLE = "NATIVE_CORE"
if VARIABLE in os.environ:
    from tuiadvisor.agent import payload

    payload.CORE_FILE = os.environ[VARIABLE]  # type: ignore[misc]


@cache
def why_not() -> str:
    """Why there is none; empty where there is."""
    return "" if core_build.is_current(path()) else core_build.build()


def path() -> Path:
    """Where it is."""
    return Path(os.environ.get(VARIABLE, core_build.OUTPUT))


def content() -> bytes:
    """Its bytes."""
    return path().read_bytes()
