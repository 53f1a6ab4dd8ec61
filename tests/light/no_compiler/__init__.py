"""Stands for torch._dynamo where nothing is compiled: functions that it shall leave alone are left alone."""

from collections.abc import Callable
from typing import Any

from . import trace_rules, utils

__all__ = ["OptimizedModule", "disable", "graph_break", "trace_rules", "utils"]


class OptimizedModule:
    """No module is one."""


def disable(function: Callable[..., Any], *_recursive: bool, **_options: bool) -> Callable[..., Any]:
    """The function: nothing traces it."""
    return function


def graph_break(*_message: str, **_options: str) -> None:
    """Of no graph."""
