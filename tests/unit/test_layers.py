"""Imports go down only, and screens do no arithmetic on metrics."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]

# Layer -> prefixes it may import beside the standard library and itself. cli may import everything.
ALLOWED = {
    "tuiadvisor/errors.py": (),
    "tuiadvisor/phases.py": ("tuiadvisor_probes",),
    "tuiadvisor/events.py": ("tuiadvisor.phases",),
    "tuiadvisor/ownpython.py": (),
    "tuiadvisor/priority.py": (),
    "tuiadvisor/expendable.py": (),
    "tuiadvisor/log.py": ("tuiadvisor.loglines",),
    "tuiadvisor/loglimits.py": (),
    "tuiadvisor/loglines.py": ("tuiadvisor.loglimits", "tuiadvisor.errors", "platformdirs"),
    "tuiadvisor/shellword.py": (),
    "tuiadvisor/unpacking.py": ("zstandard", "tuiadvisor.errors"),
    "tuiadvisor/small_file.py": ("tuiadvisor.errors",),
    "tuiadvisor/markdown.py": ("tuiadvisor.errors",),
    "tuiadvisor/preferences.py": ("tuiadvisor.errors",),
    "tuiadvisor/views": (
        "tuiadvisor.views",
        "tuiadvisor.metrics.communication.bucket_timeline",
        "tuiadvisor.metrics.serving.histogram.Bounded",
        "tuiadvisor.stream.recording.RecordingSummary",
        "tuiadvisor.events",
        "tuiadvisor.phases",
    ),
    "tuiadvisor/text": (
        "tuiadvisor.text",
        "tuiadvisor.views",
        "tuiadvisor.metrics.serving.histogram.Bounded",
        "tuiadvisor.scaling.picture",
        "tuiadvisor.scaling.predict.Range",
        "tuiadvisor.events",
        "tuiadvisor.phases",
        "tuiadvisor.errors",
        "rich.cells",
    ),
    "tuiadvisor/tui": (
        "tuiadvisor.views",
        "tuiadvisor.text",
        "tuiadvisor.scaling.picture",
        "tuiadvisor.session.guided.Guided",
        "tuiadvisor.session.dialogue.Cause",
        "tuiadvisor.session.dialogue.Dialogue",
        "tuiadvisor.session.guided.SHORT",
        "tuiadvisor.session.question_ids.OTHER_SIZE",
        "tuiadvisor.session.guided.SKIP",
        "tuiadvisor.session.stages.Asked",
        "tuiadvisor.session.stages.Stage",
        "tuiadvisor.events",
        "tuiadvisor.phases",
        "tuiadvisor.errors",
        "tuiadvisor.preferences",
        "tuiadvisor.tui",
        "textual",
        "rich",
    ),
    "tuiadvisor/report": (
        "tuiadvisor.views",
        "tuiadvisor.text",
        "tuiadvisor.scaling.picture",
        "tuiadvisor.session.guided.Guided",
        "tuiadvisor.events",
        "tuiadvisor.phases",
        "tuiadvisor.markdown",
        "tuiadvisor.report",
    ),
    "tuiadvisor/efficiency": ("tuiadvisor.efficiency", "tuiadvisor.views.efficiency", "tuiadvisor.events"),
    "tuiadvisor/causes": (
        *(
            "tuiadvisor.causes",
            "tuiadvisor.efficiency",
            "tuiadvisor.metrics",
            "tuiadvisor.views",
            "tuiadvisor.events",
            "tuiadvisor.phases",
        ),
        *("tuiadvisor_rules", "numpy"),
    ),
    "tuiadvisor/advisor": (
        "tuiadvisor.paused_gc",
        "tuiadvisor.advisor",
        "tuiadvisor.efficiency",
        "tuiadvisor.causes",
        "tuiadvisor.views",
        "tuiadvisor.stream",
        "tuiadvisor.metrics",
        "tuiadvisor.events",
        "tuiadvisor.phases",
        "tuiadvisor.errors",
        "tuiadvisor_rules",
        "numpy",
    ),
    "tuiadvisor/metrics": (
        "tuiadvisor.metrics",
        "tuiadvisor.events",
        "tuiadvisor.phases",
        "tuiadvisor.errors",
        "numpy",
    ),
    "tuiadvisor/exporters": (
        "tuiadvisor.exporters",
        "tuiadvisor.advisor",
        "tuiadvisor.importers.kinds",
        "tuiadvisor.metrics",
        "tuiadvisor.views",
        "tuiadvisor.stream",
        "tuiadvisor.events",
        "tuiadvisor.phases",
        "tuiadvisor.errors",
        "numpy",
        "orjson",
        "pyarrow",
    ),
    "tuiadvisor/outlets": (
        "tuiadvisor.outlets",
        "tuiadvisor.views",
        "tuiadvisor.log",
        "tuiadvisor.errors",
        "tuiadvisor.expendable",
        "tuiadvisor.__version__",
        "opentelemetry",
        "orjson",
        "prometheus_client",
    ),
    "tuiadvisor/integrations": ("tuiadvisor.integrations", "transformers", "lightning", "pytorch_lightning"),
    "tuiadvisor/mcpserver": (
        *(
            "tuiadvisor.mcpserver",
            "tuiadvisor.api",
            "tuiadvisor.app",
            "tuiadvisor.report",
            "tuiadvisor.views",
        ),
        *("tuiadvisor.errors", "tuiadvisor.__version__", "tuiadvisor_rules"),
        *("mcp", "mcp_types", "orjson"),
    ),
    "tuiadvisor/session": (
        "tuiadvisor.session",
        "tuiadvisor.views",
        "tuiadvisor.scaling",
        "tuiadvisor.errors",
        "tuiadvisor.events.MeasuredPeak",
        "tuiadvisor.shellword",
        "tuiadvisor.small_file",
        "tuiadvisor.markdown",
        "tuiadvisor.phases",
        "tuiadvisor_rules",
    ),
    "tuiadvisor/app": (
        *(
            "tuiadvisor.app",
            "tuiadvisor.causes",
            "tuiadvisor.views",
            "tuiadvisor.text",
            "tuiadvisor.tui",
            "tuiadvisor.advisor",
        ),
        *(
            "tuiadvisor.session",
            "tuiadvisor.scaling",
            "tuiadvisor.report",
            "tuiadvisor.stream",
            "tuiadvisor.agent",
        ),
        *(
            "tuiadvisor.launch",
            "tuiadvisor.events",
            "tuiadvisor.phases",
            "tuiadvisor.log",
            "tuiadvisor.errors",
            "tuiadvisor.paused_gc",
            "tuiadvisor.preferences",
            "tuiadvisor.priority",
            "tuiadvisor.expendable",
        ),
        *("tuiadvisor.ownpython", "tuiadvisor.shellword", "tuiadvisor.__version__", "tuiadvisor_rules"),
        "tuiadvisor.small_file",
        "tuiadvisor.unpacking",
        *("tuiadvisor.metrics.steps", "tuiadvisor.metrics.traces", "numpy"),
        *("aiohttp", "orjson", "platformdirs", "textual", "textual_serve"),
    ),
    "tuiadvisor/scaling": (
        "tuiadvisor.scaling",
        "tuiadvisor.unpacking",
        "tuiadvisor.errors",
        "numpy",
        "scipy",
    ),
    "tuiadvisor/importers": (
        "tuiadvisor.unpacking",
        "tuiadvisor.paused_gc",
        "tuiadvisor.importers",
        "tuiadvisor.efficiency",
        "tuiadvisor.views",
        "tuiadvisor.metrics",
        "tuiadvisor.events",
        "tuiadvisor.phases",
        "tuiadvisor.errors",
        "tuiadvisor.__version__",
        "tuiadvisor_rules",
        "numpy",
        "orjson",
        "prometheus_client",
        "pyarrow",
        "zstandard",
    ),
    "tuiadvisor/stream": (
        "tuiadvisor.unpacking",
        "tuiadvisor.stream",
        "tuiadvisor.paused_gc",
        "tuiadvisor.priority",
        "tuiadvisor.expendable",
        "tuiadvisor.events",
        "tuiadvisor.phases",
        "tuiadvisor.log",
        "tuiadvisor.loglimits",
        "tuiadvisor.errors",
        "tuiadvisor.shellword",
        "tuiadvisor.__version__",
        "zmq",
        "orjson",
        "zstandard",
        "numpy",
    ),
    "tuiadvisor/launch": (
        "tuiadvisor.launch",
        "tuiadvisor.stream",
        "tuiadvisor.log",
        "tuiadvisor.loglimits",
        "tuiadvisor.errors",
        "tuiadvisor.ownpython",
        "orjson",
    ),
    "tuiadvisor/inject": (
        "tuiadvisor.inject",
        "tuiadvisor.priority",
        "tuiadvisor.expendable",
        "tuiadvisor.errors",
        "tuiadvisor_probes",
        "psutil",
    ),
    "tuiadvisor/agent": (
        "tuiadvisor.agent",
        "tuiadvisor.inject",
        "tuiadvisor.stream",
        "tuiadvisor.events",
        "tuiadvisor.phases",
        "tuiadvisor.ownpython",
        "tuiadvisor.priority",
        "tuiadvisor.expendable",
        "tuiadvisor.log",
        "tuiadvisor.errors",
        "tuiadvisor_probes",
        "psutil",
        "pynvml",
        "amdsmi",
        "zmq",
        "orjson",
    ),
    "rules/tuiadvisor_rules": ("tuiadvisor_rules",),
    "probes/tuiadvisor_probes": ("tuiadvisor_probes", "torch"),
    "demo": ("torch",),
}
# Rooms of a package from the bottom up: each imports only from those before it.
ROOMS = {
    "tuiadvisor/metrics": (
        "cover",
        *(
            "steps",
            "series",
            "window",
            "lateness",
            "pauses",
            "pipeline",
            "communication",
            "hang",
            "traces",
            "serving",
            "sampling",
        ),
        "diagnosis",
        "diagnosing",
    ),
    "tuiadvisor/advisor": (
        *(
            "steps",
            "detail",
            "cluster",
            "judge",
            "assemble",
            "intake",
            "looking",
            "concluding",
            "fold",
            "compare",
        ),
    ),
    "tuiadvisor/tui": ("draw", "contract", "pages", "terminal", "control"),
}
# Modules with a clock or a file in them have no place among the metrics.
NO_IO = {"time", "os", "pathlib", "socket", "subprocess", "io", "random"}


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Absolute dotted names of everything a file imports, `from x import y` as x.y."""
    found = []
    package = (
        ".".join(path.relative_to(ROOT).with_suffix("").parts[:-1])
        .removeprefix("probes.")
        .removeprefix("rules.")
    )
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = f"{package}.{node.module or ''}".rstrip(".") if node.level else node.module or ""
            found += [f"{base}.{alias.name}" for alias in node.names]
    return tuple(found)


def files(layer: str) -> list[Path]:
    """Python files of a layer."""
    path = ROOT / layer
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def is_allowed(name: str, prefixes: tuple[str, ...]) -> bool:
    """Whether an import is of the standard library or below one of the prefixes."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@pytest.mark.slow
@pytest.mark.parametrize("layer", ALLOWED)
def test_layer_imports_only_what_lies_below(layer: str) -> None:
    """A file that reaches upwards or sideways is named with its import."""
    found = files(layer)
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in found
        for name in imports(path)
        if not is_allowed(name, ALLOWED[layer])
    ]
    assert found, f"{layer} has no files: the folders have moved, move this test with them"
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("package", ROOMS)
def test_no_arrow_runs_back_up_between_rooms(package: str) -> None:
    """Whoever reads a room needs those before it and no other."""
    dotted, rooms = package.replace("/", "."), ROOMS[package]
    found = [path for path in files(package) if path.name != "__init__.py"]
    wrong = []
    for path in found:
        own = path.relative_to(ROOT / package).with_suffix("").parts[0]
        for name in imports(path):
            room = name.removeprefix(dotted + ".").partition(".")[0]
            if name.startswith(dotted + ".") and room not in rooms[: rooms.index(own) + 1]:
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert found
    assert wrong == []


@pytest.mark.slow
def test_no_two_files_import_each_other() -> None:
    """Neither at run time nor for types: what two files need of each other is a third one."""
    modules = {
        ".".join(path.relative_to(ROOT / base).with_suffix("").parts).removesuffix(".__init__"): path
        for base, package in (
            (".", "tuiadvisor"),
            ("probes", "tuiadvisor_probes"),
            ("rules", "tuiadvisor_rules"),
        )
        for path in (ROOT / base / package).rglob("*.py")
    }
    graph = {
        module: {_module(name, modules) for name in imports(path)} - {None, module}
        for module, path in modules.items()
    }
    assert len(graph) > 100
    assert [] == list(_circles(graph))


def _module(name: str, modules: Mapping[str, Path]) -> str | None:
    """The file of ours that `from a.b import c` reads: a.b.c if that is one, else a.b."""
    base = name.rpartition(".")[0]
    return name if name in modules else base if base in modules else None


def _circles(graph: Mapping[str, set[str | None]]) -> Iterator[str]:
    """What is left once all that imports nothing of the rest is taken away, again and again."""
    left = dict(graph)
    while free := [module for module, needed in left.items() if not needed & left.keys()]:
        for module in free:
            del left[module]
    yield from sorted(left)


def test_metrics_know_neither_files_nor_clocks() -> None:
    """Metrics read event time only, so that live and replay agree."""
    wrong = [
        f"{path.name}: {name}"
        for path in files("tuiadvisor/metrics")
        for name in imports(path)
        if name.partition(".")[0] in NO_IO
    ]
    assert wrong == []


def test_probe_imports_torch_only_when_it_is_there() -> None:
    """The probe takes torch from sys.modules: importing it could load it into a process that has none."""
    assert [name for path in files("probes") for name in imports(path) if name.startswith("torch")] == []


@pytest.mark.slow
def test_login_node_side_never_imports_torch() -> None:
    """`pip install tuiadvisor` works without torch."""
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files("tuiadvisor")
        for name in imports(path)
        if name.partition(".")[0] == "torch"
    ]
    assert wrong == []


@pytest.mark.slow
def test_screens_do_no_arithmetic_on_the_view() -> None:
    """No + - * / with a field of the RunView in a screen: what it shows was computed before."""
    from dataclasses import fields

    from tuiadvisor.scaling import picture
    from tuiadvisor.views import run_view

    records = [
        getattr(run_view, name)
        for name in dir(run_view)
        if hasattr(getattr(run_view, name), "__dataclass_fields__")
    ]
    sizes = {field.name for record in (picture.SizeRow, picture.Point) for field in fields(record)}
    names = {field.name for record in records for field in fields(record)}
    metrics = {name for name in names if name.endswith(("_s", "_s_per_step", "_bytes")) or name in {
        "shares", "seconds", "overlap", "score", "slowdown", "goodput", "compute", "idle", "last_arrivals"}} | sizes  # fmt: skip  # noqa: E501
    wrong = []
    for path in files("tuiadvisor/tui"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.BitOr, ast.Mod)):
                sides = [side for side in (node.left, node.right) if isinstance(side, ast.Attribute)]
                wrong += [f"{path.name}:{node.lineno} {side.attr}" for side in sides if side.attr in metrics]
    assert wrong == []
