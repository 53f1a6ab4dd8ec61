"""Watch running PyTorch training from a terminal, find the straggler, decide: tune, rescale or stop.

From Python: `tuiadvisor.open("x.tuirec")`, `compare`, `scale`, `watch` (docs/python.md; types in __init__.pyi).
"""

from __future__ import annotations

__version__ = "0.3.0"
_FROM_PYTHON = ("LiveRun", "Run", "TuiadvisorError", "compare", "open", "scale", "watch")


def __getattr__(name: str) -> object:
    """The Python interface, once somebody asks for it: the first frame of the screens does not wait for numpy."""
    if name in _FROM_PYTHON:
        import importlib  # noqa: PLC0415  before this package nothing may be imported: see ownpython

        return getattr(importlib.import_module("tuiadvisor.api"), name)
    raise AttributeError(f"module 'tuiadvisor' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What completion offers: the Python interface, loaded or not, and none of the modules behind it."""
    return sorted([*_FROM_PYTHON, *(name for name in globals() if name.startswith("__"))])
