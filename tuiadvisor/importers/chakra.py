"""`import chakra PATH`: PyTorch's execution traces, with Kineto's times where they lie beside, and linked ones (.et).

In: JSON of torch.profiler.ExecutionTraceObserver ("schema": "1.1.1-chakra…"; nodes with id, name,
ctrl_deps: the parent, inputs, attrs; before Chakra "1.0.1", with parent, input_shapes and rf_id), and profiler traces
of the same process: an operator's rf_id is its "Record function id" there.
Out: the document: operators with their shapes, collectives with their bytes, process groups; seconds are an operator's
own, without what it calls. An execution trace alone has no times.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.chakra_et import EtNode, NoEtError, is_et, nodes_of
from tuiadvisor.importers.files import listed, opened, read_whole
from tuiadvisor.importers.jsontext import parsed
from tuiadvisor.importers.traceevents import TraceFile
from tuiadvisor.metrics.traces.op_table import counted

if TYPE_CHECKING:
    from pathlib import Path

HEAD_BYTES: Final = 1 << 12
MAX_BYTES: Final = 256 << 20
MAX_NODES: Final = 5_000_000
MAX_CALLS: Final = 5_000_000  # of a profiler's trace
MAX_ITEM_BYTES: Final = 64
MAX_BESIDE: Final = 64  # other files of the folder that are looked into for times
MAX_GROUPS: Final = 4096
LONGEST_US: Final = 1e12
SHOWN: Final = 12
KERNELS_SHOWN: Final = 5
ET_HEAD_BYTES: Final = 1 << 16
HOW_LINKED: Final = "write it again with chakra_trace_link and chakra_converter"
CUT_TIMES: Final = "a linked trace's times are whole microseconds: fractions are cut off"
SHAPE_CHARS: Final = 80
SCHEMA: Final = re.compile(rb'"schema"\s*:\s*"[^"]{0,40}chakra')
BEFORE: Final = re.compile(rb'"schema"\s*:\s*"1\.0\.\d"[^{}\[\]]{0,400}"nodes"\s*:')  # of torch 1.11 to 2.1
COLLECTIVE: Final = re.compile(r"(?:c10d|_c10d_functional|c10d_functional)::(\w{1,60})")
GROUPS: Final = "## process_group:init ##"
HOW: Final = "write it with torch.profiler.ExecutionTraceObserver().register_callback('et.json')"
NO_TIMES: Final = (
    "no profiler trace of the same process with record function ids beside it: "
    "profile(execution_trace_observer=…) writes both"
)


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    parent: int
    rf_id: int
    shape: str
    num_bytes: int | None


@dataclass(slots=True)
class _Trace:
    """One execution trace."""

    file: str
    pid: int | None
    nodes: dict[int, _Node] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)
    linked: tuple[EtNode, ...] = ()  # of Chakra's own form, which has times


def chakra_document(path: Path) -> dict[str, Any]:
    """All execution traces of a folder. TuiadvisorError where there is none."""
    files = listed(path, (".json", ".et"))
    if path.is_file():  # the profiler's trace lies beside it
        files = [path, *(one for one in _beside(path) if one.name != path.name)]
    traces, others, losses = [], [], []
    for file in files:
        try:
            if is_linked(file):
                if file == path or path.is_dir():
                    traces.append(_read_linked(file))
            elif not is_chakra(file):
                others.append(file)
            elif file == path or path.is_dir():
                traces.append(_read(file))
        except TuiadvisorError as error:
            losses.append(str(error).replace(f"{path}/", ""))
    if not traces:
        raise TuiadvisorError(losses[0] if losses else f"{path}: no execution trace in it; {HOW}")
    times = _times(others[:MAX_BESIDE], {trace.pid for trace in traces if trace.pid is not None})
    timed = [trace.file for trace in traces if trace.pid in times or _has_times(trace)]
    losses += [f"{trace.file}: {CUT_TIMES}" for trace in traces if _has_times(trace)]
    unknown = [{"metric": "time", "why": NO_TIMES}] if len(timed) < len(traces) else []
    return {
        "schema": 1,
        "source": {"kind": "chakra", "path": str(path), "files": len(traces), "timed": len(timed)},
        "nodes": sum(len(trace.nodes) + len(trace.linked) for trace in traces),
        "operators": _operators(traces, times),
        "kernels": _kernels(traces),
        "collectives": _collectives(traces, times),
        "process_groups": [group for trace in traces for group in trace.groups][:MAX_GROUPS],
        "unknown": [*unknown, {"metric": "steps", "why": "an execution trace has no clock of its own"}],
        "losses": losses,
    }


def _beside(path: Path) -> list[Path]:
    with suppress(TuiadvisorError):  # nothing is there
        return listed(path.parent, (".json",))
    return []


def is_chakra(path: Path) -> bool:
    """By its schema, which stands at its beginning."""
    with opened(path) as file:
        head = file.read(HEAD_BYTES)
    return SCHEMA.search(head) is not None or BEFORE.search(head) is not None


def is_linked(path: Path) -> bool:
    """Whether it is of Chakra's own form: by its first messages."""
    with opened(path) as file:
        return is_et(file.read(ET_HEAD_BYTES))


def _read_linked(path: Path) -> _Trace:
    nodes: list[EtNode] = []
    try:
        for node in nodes_of(read_whole(path, MAX_BYTES)):
            if len(nodes) == MAX_NODES:
                raise TuiadvisorError(f"{path}: more than {MAX_NODES} nodes; {HOW_LINKED}")
            nodes.append(node)
    except NoEtError:
        raise TuiadvisorError(f"{path}: truncated or damaged execution trace; {HOW_LINKED}") from None
    if not nodes:
        raise TuiadvisorError(f"{path}: no node in it; {HOW_LINKED}")
    return _Trace(path.name, None, linked=tuple(nodes))


def _has_times(trace: _Trace) -> bool:
    return any(node.seconds is not None for node in trace.linked)


def _read(path: Path) -> _Trace:
    try:
        content = parsed(read_whole(path, MAX_BYTES))
    except orjson.JSONDecodeError as error:
        raise TuiadvisorError(f"{path}: truncated or not JSON ({error}); {HOW}") from None
    nodes = content.get("nodes") if isinstance(content, dict) else None
    if not isinstance(nodes, list) or len(nodes) > MAX_NODES:
        raise TuiadvisorError(f"{path}: no list of at most {MAX_NODES} nodes; {HOW}")
    pid = content.get("pid")
    trace = _Trace(path.name, pid if type(pid) is int else None)
    for node in nodes:
        if (
            not isinstance(node, dict)
            or type(node.get("id")) is not int
            or not isinstance(node.get("name"), str)
        ):
            continue
        if node["name"] == GROUPS:
            trace.groups += _groups(node)
        trace.nodes[node["id"]] = _node(node)
    if not trace.nodes:
        raise TuiadvisorError(f"{path}: no node in it; {HOW}")
    return trace


def _node(node: dict[str, Any]) -> _Node:
    parent, attributes = node.get("ctrl_deps", node.get("parent")), node.get("attrs")
    rf_id = node["rf_id"] if type(node.get("rf_id")) is int else -1
    for each in attributes if isinstance(attributes, list) else ():
        if isinstance(each, dict) and each.get("name") == "rf_id" and type(each.get("value")) is int:
            rf_id = each["value"]
    inputs = node.get("inputs")
    if not isinstance(inputs, dict):
        inputs = {"values": inputs, "shapes": node.get("input_shapes")}
    name = "".join(char for char in node["name"][:120] if char.isprintable())
    shapes = inputs.get("shapes")
    told = [_shape(one) for one in shapes[:8]] if isinstance(shapes, list) else []
    text = "·".join(one for one in told if one)
    num_bytes = _bytes(inputs.get("values")) if COLLECTIVE.match(name) else None
    return _Node(name, parent if type(parent) is int else -1, rf_id, text[:SHAPE_CHARS], num_bytes)


def _shape(value: Any) -> str:
    """Of a tensor; a list of numbers or of tensors has none."""
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        return ""
    return "x".join(str(one)[:12] for one in value[:8])


def _bytes(values: Any) -> int | None:
    """Of the tensors that a collective is called with: id, storage, offset, elements, bytes of each, device."""
    first = values[0] if isinstance(values, list) and values else None
    tensors = first if isinstance(first, list) and first and isinstance(first[0], list) else [first]
    total = 0
    for one in tensors:
        sizes = one[3:5] if isinstance(one, list) else []
        if len(sizes) < 2 or not all(type(each) is int for each in sizes):
            return None
        num, size = (int(each) for each in sizes)
        if not 0 <= num < 1 << 50 or not 0 < size <= MAX_ITEM_BYTES:
            return None
        total += num * size
    return total


def _groups(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The node's first value is JSON of its own."""
    inputs = node.get("inputs")
    values = inputs.get("values") if isinstance(inputs, dict) else None
    try:
        told = (
            orjson.loads(values[0])
            if isinstance(values, list) and values and isinstance(values[0], str)
            else []
        )
    except orjson.JSONDecodeError:
        return []
    groups = []
    for one in told[:MAX_GROUPS] if isinstance(told, list) else ():
        if isinstance(one, dict):
            ranks = one.get("ranks")
            size = one.get("group_size")
            groups.append(
                {
                    "name": str(one.get("pg_name"))[:80],
                    "description": str(one.get("pg_desc"))[:80],
                    "ranks": [rank for rank in ranks if type(rank) is int] if isinstance(ranks, list) else [],
                    "size": size if type(size) is int else None,
                }
            )
    return groups


def _times(files: list[Path], pids: set[int]) -> dict[int | None, dict[int, float]]:
    """Process -> rf_id -> seconds, out of the profiler's traces of these processes."""
    found: dict[int | None, dict[int, float]] = {}
    num_calls = 0
    for file in files:
        try:
            for batch in TraceFile(file).batches():
                for event in batch:
                    call = _call(event, pids)
                    if call is not None and num_calls < MAX_CALLS:
                        num_calls += 1
                        found.setdefault(call[0], {})[call[1]] = call[2]
        except TuiadvisorError:
            continue  # another tool's JSON
    return found


def _call(event: Any, pids: set[int]) -> tuple[int, int, float] | None:
    if not isinstance(event, dict) or event.get("cat") not in {"cpu_op", "user_annotation"}:
        return None
    arguments, took, pid = event.get("args"), event.get("dur"), event.get("pid")
    rf_id = arguments.get("Record function id") if isinstance(arguments, dict) else None
    if type(rf_id) is not int or type(pid) is not int or pid not in pids:
        return None
    if not isinstance(took, int | float) or isinstance(took, bool) or not 0 <= took < LONGEST_US:
        return None
    return pid, rf_id, took / 1e6


def _own_seconds(trace: _Trace, times: dict[int | None, dict[int, float]]) -> dict[int, float]:
    """Of each node that was timed: without the nodes it calls."""
    mine = times.get(trace.pid, {})
    own = {key: mine[node.rf_id] for key, node in trace.nodes.items() if node.rf_id in mine}
    for key, node in trace.nodes.items():
        if key in own and node.parent in own and node.parent != key:
            own[node.parent] -= mine[node.rf_id]
    return {key: max(seconds, 0.0) for key, seconds in own.items()}


def _operators(traces: list[_Trace], times: dict[int | None, dict[int, float]]) -> list[dict[str, Any]]:
    calls: dict[tuple[str, str], int] = defaultdict(int)
    seconds: dict[tuple[str, str], float] = {}
    for trace in traces:
        own = _own_seconds(trace, times)
        for key, node in trace.nodes.items():
            if "::" in node.name:
                calls[node.name, node.shape] += 1
                if key in own:
                    seconds[node.name, node.shape] = seconds.get((node.name, node.shape), 0.0) + own[key]
        for one in trace.linked:
            if one.is_on_host and "::" in one.name:
                calls[one.name, ""] += one.is_first
                if _has_times(trace):
                    seconds[one.name, ""] = seconds.get((one.name, ""), 0.0) + (one.seconds or 0.0)
    rows = [
        {"op": op, "shape": shape, "calls": count, "own_s": seconds.get((op, shape))}
        for (op, shape), count in calls.items()
    ]
    return sorted(rows, key=lambda row: (-(row["own_s"] or 0.0), -int(row["calls"] or 0), str(row["op"])))


def _kernels(traces: list[_Trace]) -> list[dict[str, Any]]:
    """What ran on the device, by name; only linked traces have it."""
    calls: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    timed: set[str] = set()
    for trace in traces:
        has_times = _has_times(trace)
        for node in trace.linked:
            if not node.is_on_host:
                calls[node.name] += 1
                seconds[node.name] += node.seconds or 0.0
                timed |= {node.name} if has_times else set()
    rows = [
        {"name": name, "calls": count, "seconds": seconds[name] if name in timed else None}
        for name, count in calls.items()
    ]
    return sorted(rows, key=lambda row: (-float(row["seconds"] or 0.0), str(row["name"])))


def _collectives(traces: list[_Trace], times: dict[int | None, dict[int, float]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, int | None], list[float | None]] = defaultdict(list)
    for trace in traces:
        mine = times.get(trace.pid, {})
        for node in trace.nodes.values():
            if call := COLLECTIVE.match(node.name):
                found[call[1].strip("_"), node.num_bytes].append(mine.get(node.rf_id))
        for (op, num_bytes), took in _linked_collectives(trace).items():
            found[op, num_bytes] += took
    rows = []
    for (op, num_bytes), took in found.items():
        known = [each for each in took if each is not None]
        rows.append(
            {"op": op, "bytes": num_bytes, "calls": len(took), "host_s": sum(known) if known else None}
        )
    return sorted(rows, key=lambda row: (-int(row["bytes"] or 0), str(row["op"])))


def _linked_collectives(trace: _Trace) -> dict[tuple[str, int | None], list[float | None]]:
    """Of each call the host's own time: the parts of an operator follow each other, and belong to its first."""
    found: dict[tuple[str, int | None], list[float | None]] = defaultdict(list)
    has_times = _has_times(trace)
    for node in trace.linked:
        call = COLLECTIVE.match(node.name) if node.is_on_host else None
        if call is None:
            continue
        took = found[call[1].strip("_"), node.num_bytes]
        if node.is_first or not took:
            took.append(0.0 if has_times else None)
        if has_times:
            took[-1] = (took[-1] or 0.0) + (node.seconds or 0.0)
    return found


def chakra_summary(document: dict[str, Any]) -> str:
    """The document in lines."""
    source = document["source"]
    timed = f"{source['timed']} with times, {counted(document['nodes'], 'node')}"
    lines = [
        f"{source['path']}: {source['files']} execution trace{'s' * (source['files'] != 1)}, {timed}",
        f"{'own ms':>10} {'calls':>8}  operator",
    ]
    for row in document["operators"][:SHOWN]:
        took = "unknown" if row["own_s"] is None else f"{1e3 * row['own_s']:.3f}"
        lines.append(f"{took:>10} {row['calls']:>8,}  {row['op']} {row['shape']}".rstrip())
    for row in document["kernels"][:KERNELS_SHOWN]:
        took = "unknown" if row["seconds"] is None else f"{1e3 * row['seconds']:.3f}"
        lines.append(f"{took:>10} {row['calls']:>8,}  on the device: {row['name'][:SHAPE_CHARS]}")
    for row in document["collectives"][:SHOWN]:
        size = "unknown bytes" if row["bytes"] is None else counted(row["bytes"], "byte")
        lines.append(f"collective {row['op']}, {size}: {counted(row['calls'], 'call')}")
    lines += [f"unknown {item['metric']}: {item['why']}" for item in document["unknown"]]
    return "\n".join([*lines, *(f"lost: {loss}" for loss in document["losses"])])
