"""A recording that may be shared: every name of a person, machine, place or process replaced, the same by the same.

In: a recording.  Out: frames with the same measurements and other words. Nothing passes unless it is known to be
harmless: numbers that are measurements, states and phases from our own lists, versions, device models. Free text is
rebuilt from the words that our own messages are made of; unknown keys are left out. Step and event columns are
unpacked and packed anew, so no byte of the original frames is copied.

Kept on purpose: clock readings and wall time, ranks, sizes, versions of Python, torch, CUDA and NCCL, device models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EVENT_NAMES, STEP_NAMES, THREAD_STATES, RankState
from tuiadvisor.exporters.survey import Reading, decoded
from tuiadvisor.exporters.versions import device_model, is_layout_name, platform_name, version
from tuiadvisor.exporters.words import allowed_words, is_harmless_key, scrub
from tuiadvisor.importers.kinds import KINDS
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.attendance import (
    AGENT_RETURNED,
    AGENT_SILENT,
    BAD_FRAMES,
    FRAMES_MISSING,
    NOT_RECORDED,
)
from tuiadvisor.stream.frames import HUB_SOURCE, FrameKind, encode, pack_columns, unpack_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Payload = dict[str, object]

_STATES: Final = frozenset(state.name.lower() for state in RankState)
_GAPS: Final = frozenset({FRAMES_MISSING, AGENT_SILENT, AGENT_RETURNED, BAD_FRAMES, NOT_RECORDED})
_BACKENDS: Final = frozenset({"gloo", "nccl", "mpi", "ucc", "xccl", "hccl", "cpu:gloo,cuda:nccl"})
_DEVICES: Final = frozenset({"cpu", "cuda", "xpu", "mps", "hpu", "npu"})
_IMPORTS: Final = frozenset(KINDS)
_CARDS: Final = frozenset({"infiniband", "ethernet"})
_PATHS: Final = frozenset({"SAME", "PIX", "PXB", "PHB", "NODE", "SYS"})
_POLICIES: Final = frozenset(
    {"default", "local", "bind", "interleave", "prefer", "prefer (many)", "weighted interleave"}
)
_PIPELINE_FIELDS: Final = ("stages", "ranks", "micro_batches", "first_rank")
_SCHEDULES: Final = frozenset(
    {
        "ScheduleGPipe",
        "Schedule1F1B",
        "ScheduleInterleaved1F1B",
        "ScheduleLoopedBFS",
        "ScheduleInterleavedZeroBubble",
        "ScheduleZBVZeroBubble",
        "ScheduleDualPipeV",
    }
)
_MODEL_TEXTS: Final = (
    *("param_dtype", "param_dtypes", "mixed_precision", "autocast", "input", "input_dtype"),
    *("recompute", "wrappers", "sdp", "odd_shape"),
    "packed",
)
_MODEL_NUMBERS: Final = (
    *(
        "steps_before",
        "params",
        "trainable",
        "embedding",
        "conv",
        "mm",
        "mm_frozen",
        "mm_frozen_before",
        "mm_expert",
        "mm_odd",
    ),
    *(
        "mm_recomputed",
        "lora",
        "uninitialized",
        "not_looked_at",
        "models",
        "modules",
        "layers",
        "heads",
        "head",
        "multiprocessors",
    ),
    *(
        "attention_width",
        "attention_unclear",
        "tied",
        "experts",
        "top_k",
        "cut",
        "compiled",
        "quantized",
        "fp8",
    ),
    *("tf32", "cudnn_tf32", "cudnn_benchmark", "threads", "micro_steps", "workers", "pin_memory", "prefetch"),
    *(
        "persistent_workers",
        "encoder_decoder",
        "gathered_us",
        "config_layers",
        "config_heads",
        "config_hidden",
    ),
    *("config_head_size", "config_window", "config_vocabulary", "config_experts", "config_top_k"),
)
_TYPE_OR_SHAPE: Final = re.compile(
    r"(?:bfloat|float|complex|int|uint|qint|quint)[0-9]{1,3}(?:_e[0-9]m[0-9](?:fn|fnu|fnuz|b11fnuz)?)?|bool|[0-9]{1,12}(?:x[0-9]{1,12})*"
)
_CALL: Final = re.compile(
    r"(?:nccl|gloo|mpi|ucc|xccl):_?(?:all_?reduce|all_?gather|all_?to_?all|reduce|reduce_?scatter|broadcast|gather|scatter|barrier"
    r"|send|recv|coalesced)[a-z_]*(?: \d{1,8}(?:->|<-)\d{1,8})?"
)
_DTYPES: Final = frozenset(
    {
        *(
            "Float",
            "Double",
            "Half",
            "BFloat16",
            "ComplexFloat",
            "ComplexDouble",
            "Bool",
            "Byte",
            "Char",
            "Short",
            "Int",
        ),
        *("Long", "Float8_e4m3fn", "Float8_e5m2", "UInt16", "UInt32", "UInt64"),
    }
)
_RECORDERS: Final = frozenset({"fr", "nccl"})
_CALL_STATES: Final = frozenset({"scheduled", "started", "completed"})
_DEFAULT_GROUP: Final = "default_pg"
_CORES: Final = frozenset({"native", "python"})
_ATTACH_WAYS: Final = frozenset({"thread", "pending call", "remote_exec", "armed"})


@dataclass(slots=True)
class Names:
    """original -> replacement, one map a kind of name; filled by the first reading."""

    hosts: dict[str, str] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)  # serial numbers of devices
    boots: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    purposes: dict[str, str] = field(default_factory=dict)

    def label(self, text: str) -> str:
        """Scripts are numbered as they appear."""
        return self.labels.setdefault(text, f"script{len(self.labels)}.py") if text else ""

    def command(self, text: str) -> str:
        """Command lines too: equal ones stay equal, different ones different."""
        return self.commands.setdefault(text, f"command {len(self.commands)}") if text else ""

    def commit(self, text: str) -> str:
        """Commits of a repository that nobody outside may know."""
        return self.commits.setdefault(text, f"commit{len(self.commits)}") if text else ""

    def device(self, text: str) -> str:
        """Serial numbers; the process knows its device without NVML's prefix."""
        text = text.removeprefix("GPU-").removeprefix("MIG-")
        return self.devices.setdefault(text, f"GPU-{len(self.devices)}") if text else ""

    def boot(self, text: str) -> str:
        """Ids of a machine's boot."""
        return self.boots.setdefault(text, f"boot{len(self.boots)}") if text else ""

    def group(self, text: str) -> str:
        """Process groups: torch numbers them, and a program may name them; equal ones stay equal."""
        return text if text.isdigit() else self.groups.setdefault(text, f"group{len(self.groups)}")

    def purpose(self, text: str) -> str:
        """What a group is for is the program's own word, but for torch's default group."""
        if text in {"", _DEFAULT_GROUP}:
            return text
        return self.purposes.setdefault(text, f"purpose{len(self.purposes)}")

    def pid(self, number: int) -> int:
        """Process ids: 1, 2, 3, ... as they appear."""
        return self.pids.setdefault(number, len(self.pids) + 1)

    def source(self, name: str) -> str:
        """host/agentpid/startns of an agent."""
        if name == HUB_SOURCE:
            return name
        if name not in self.sources:
            host, _, rest = name.partition("/")
            pid = rest.partition("/")[0]
            number = self.pid(int(pid)) if pid.isdecimal() and len(pid) < 12 else 0
            self.sources[name] = f"{self.host(host)}/{number}/{len(self.sources)}"
        return self.sources[name]

    def host(self, name: str) -> str:
        """A machine's name; one that the first reading did not see gets a number of its own."""
        return self.hosts.setdefault(name, f"other{len(self.hosts)}") if name else ""


def anonymize(reading: Reading) -> Iterator[bytes]:
    """The frames without names. Reads twice: hosts keep their order, so nothing that sorts them changes."""
    names = _number_hosts(reading)
    for frame in decoded(reading("writing")):
        payload = _PAYLOADS[frame.kind](frame.payload, names)
        if payload is not None:
            yield encode(frame.kind, names.source(frame.source), frame.seq, frame.time_ns, payload)


def _number_hosts(reading: Reading) -> Names:
    hosts: set[str] = set()
    for frame in decoded(reading("reading")):
        if frame.source != HUB_SOURCE:
            hosts.add(frame.source.partition("/")[0])
        hosts.update(
            text for name in ("host", "hub_host") if isinstance(text := frame.payload.get(name), str) and text
        )
    width = len(str(max(len(hosts) - 1, 0)))
    return Names(hosts={name: f"node{index:0{width}}" for index, name in enumerate(sorted(hosts))})


# -- payloads ------------------------------------------------------------------------------------------------


def _numbers(payload: Payload) -> Payload:
    return {name: value for name, value in payload.items() if _is_number(value) and is_harmless_key(name)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(payload: Payload, name: str, replace: Callable[[str], str | None]) -> Payload:
    value = payload.get(name)
    return {name: replace(value)} if isinstance(value, str) else {}


def _one_of(allowed: frozenset[str], otherwise: str | None) -> Callable[[str], str | None]:
    return lambda text: text if text in allowed else otherwise


def _objects(payload: Payload, name: str) -> list[Payload]:
    value = payload.get(name)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _run(payload: Payload, names: Names) -> Payload:
    return {
        **_numbers(payload),
        **_text(payload, "tuiadvisor", version),
        **_text(payload, "label", names.label),
        **_text(payload, "command", names.command),
        **_text(payload, "hub_host", names.host),
        **_of_trace(payload, "imported", names),
        **_of_trace(payload, "traced", names),
    }


def _of_trace(payload: Payload, key: str, names: Names) -> Payload:
    """What was imported or put beside, without the names of its files: the notes may hold them."""
    told = payload.get(key)
    if not isinstance(told, dict):
        return {}
    late = told.get("late_ranks")
    kept: Payload = {
        **_text(told, "kind", _one_of(_IMPORTS, "other")),
        **_text(told, "source", names.label),
        **_text(told, "words", scrub),
        **_text(told, "because", scrub),
        **_text(told, "says", scrub),
        "late_ranks": [rank for rank in late if type(rank) is int] if isinstance(late, list) else None,
    }
    for name in ("uncompared", "cause_ranks"):
        if isinstance(ranks := told.get(name), list):
            kept[name] = [rank for rank in ranks if type(rank) is int]
    if told.get("steps_tell") is True:
        kept["steps_tell"] = True
    share = told.get("waits_share")
    if isinstance(share, (int, float)):
        kept["waits_share"] = share
    # Of the timeline only how fine it is: kernels have names of their authors'.
    device = told.get("device")
    resolution_ns = device.get("resolution_ns") if isinstance(device, dict) else None
    if type(resolution_ns) is int:
        kept["device"] = {"resolution_ns": resolution_ns}
    arithmetic = told.get("arithmetic")
    if isinstance(arithmetic, dict):  # its peak's source names the device
        kept["arithmetic"] = _numbers(arithmetic)
    for name in ("ranks", "steps") if key == "traced" else ():
        value = told.get(name)
        kept[name] = [one for one in value if type(one) is int] if isinstance(value, list) else []
    return {key: kept}


def _hello(payload: Payload, names: Names) -> Payload:
    gpus, distances = payload.get("gpus"), payload.get("numa_distances")
    return {
        **_numbers(payload),
        **_text(payload, "host", names.host),
        **_pid(payload, "agent_pid", names),
        **_text(payload, "boot_id", names.boot),
        **_text(payload, "python", version),
        **_text(payload, "platform", platform_name),
        **_text(payload, "driver", version),
        "numa_nodes": _integers(payload.get("numa_nodes")),
        "numa_distances": [_integers(row) for row in distances] if isinstance(distances, list) else None,
        "gpus": [device_model(name) for name in gpus if isinstance(name, str)]
        if isinstance(gpus, list)
        else [],
        "ranks": [_rank(entry, names) for entry in _objects(payload, "ranks")],
    }


def _pid(payload: Payload, name: str, names: Names) -> Payload:
    value = payload.get(name)
    return {name: names.pid(value)} if isinstance(value, int) and not isinstance(value, bool) else {}


def _rank(entry: Payload, names: Names) -> Payload:
    layout, hooks = entry.get("parallel"), entry.get("hooks")
    kept: Payload = {
        **_numbers(entry),
        **_pid(entry, "pid", names),
        **_text(entry, "state", _one_of(_STATES, None)),
        **_text(entry, "detail", scrub),
        **_text(entry, "phase", _one_of(frozenset(PHASES), None)),
        **_text(entry, "thread", _one_of(frozenset(THREAD_STATES), None)),
        **_text(entry, "backend", _one_of(_BACKENDS, "other")),
        **_text(entry, "device", _one_of(_DEVICES, "other")),
        **_text(entry, "label", names.label),
        **_text(entry, "command", names.command),
        **_text(entry, "git_commit", names.commit),
        **_text(entry, "device_uuid", names.device),
        **_text(entry, "schedule", _one_of(_SCHEDULES, "other")),
        **_text(entry, "attach_way", _one_of(_ATTACH_WAYS, None)),
        **_text(entry, "core", _one_of(_CORES, None)),
        **_text(entry, "core_why", scrub),
    }
    for name in ("python", "torch", "cuda", "nccl"):
        kept.update(_text(entry, name, version))
    if isinstance(layout, dict):
        kept["parallel"] = {
            name: size for name, size in layout.items() if is_layout_name(name) and _is_number(size)
        }
    kept |= _model(entry.get("model"))
    pipeline = entry.get("pipeline")
    if isinstance(pipeline, dict):
        kept["pipeline"] = {
            name: pipeline[name] for name in _PIPELINE_FIELDS if _is_number(pipeline.get(name))
        }
    if isinstance(device := entry.get("compute_device"), dict):
        kept["compute_device"] = _model(device)["model"]
    if isinstance(hooks, dict):
        kept["hooks"] = {
            name: scrub(text)
            for name, text in hooks.items()
            if isinstance(text, str) and is_harmless_key(name)
        }
    return kept


def _model(told: object) -> Payload:
    """Numbers, and texts in torch's own words; a class's name and what the environment says are the user's."""
    if not isinstance(told, dict):
        return {}
    kept: Payload = {name: value for name in _MODEL_NUMBERS if isinstance(value := told.get(name), int)}
    for name in _MODEL_TEXTS:
        said = told.get(name)
        if isinstance(said, str) and is_of_probe(said):
            kept[name] = said
    if isinstance(device := told.get("device_name"), str):
        kept["device_name"] = device_model(device)
    return {"model": kept}


def is_of_probe(text: str) -> bool:
    """Types, shapes, and what the probe itself calls wrappers and kernels: nobody's own words."""
    return all(
        _TYPE_OR_SHAPE.fullmatch(word) or set(re.findall(r"[^\W\d_]+|[^\w]", word)) <= allowed_words()
        for word in text.split()
    )


def _host(payload: Payload, names: Names) -> Payload:
    cores = payload.get("cpu_per_core")
    return {
        **_numbers(payload),
        **_text(payload, "host", names.host),
        "cpu_per_core": [value for value in cores if _is_number(value)] if isinstance(cores, list) else [],
        "gpus": [_gpu(entry, names) for entry in _objects(payload, "gpus")],
        # A card's name may be its owner's; which one it is of its host is enough.
        "nics": [
            {**_numbers(entry), "name": f"card{at}", **_text(entry, "kind", _one_of(_CARDS, None))}
            for at, entry in enumerate(_objects(payload, "nics"))
        ],
        "ranks": [_placed(entry) for entry in _objects(payload, "ranks")],
    }


def _placed(entry: Payload) -> Payload:
    """A rank's counters and the NUMA nodes that it may use; numbers of processors name nobody."""
    return {
        **_numbers(entry),
        **{name: _integers(entry[name]) for name in ("cpu_nodes", "memory_nodes") if name in entry},
        **_text(entry, "memory_policy", _one_of(_POLICIES, None)),
    }


def _integers(value: object) -> list[int] | None:
    return [one for one in value if type(one) is int] if isinstance(value, list) else None


def _gpu(entry: Payload, names: Names, depth: int = 0) -> Payload:
    pids, reasons, xids = entry.get("pids"), entry.get("throttle_reasons"), entry.get("xids")
    kept: Payload = {
        **_numbers(entry),
        **_text(entry, "name", device_model),
        **_text(entry, "uuid", names.device),
        **_text(entry, "nic_path", _one_of(_PATHS, None)),
    }
    if isinstance(peers := entry.get("peer_paths"), list):
        kept["peer_paths"] = [path if isinstance(path, str) and path in _PATHS else None for path in peers]
    if isinstance(pids, list):
        kept["pids"] = [names.pid(pid) for pid in pids if isinstance(pid, int)]
    if isinstance(reasons, list):
        kept["throttle_reasons"] = [scrub(text) for text in reasons if isinstance(text, str)]
    if isinstance(xids, list):
        kept["xids"] = [xid for xid in xids if _is_number(xid)]
    if isinstance(entry.get("is_lost"), bool):
        kept["is_lost"] = entry["is_lost"]
    if "parts" in entry and depth == 0:
        kept["parts"] = [_gpu(part, names, depth=1) for part in _objects(entry, "parts")] or None
    return kept


def _status(payload: Payload, names: Names) -> Payload:
    return {
        **_numbers(payload),
        **_text(payload, "host", names.host),
        "ranks": [_rank(entry, names) for entry in _objects(payload, "ranks")],
        **(
            {"recorders": [_answer(entry, names) for entry in _objects(payload, "recorders")]}
            if "recorders" in payload
            else {}
        ),
    }


def _answer(entry: Payload, names: Names) -> Payload:
    """What a rank's flight recorder told: numbers, torch's own names of calls, types and states."""
    kept: Payload = {
        **_numbers(entry),
        **_pid(entry, "pid", names),
        **_text(entry, "why", scrub),
        **_text(entry, "call", scrub),
        "groups": [
            {
                **_numbers(group),
                **_text(group, "name", names.group),
                **_text(group, "purpose", names.purpose),
                **_text(group, "backend", _one_of(_BACKENDS, "other")),
                "spans": [_integers(span) for span in _lists(group, "spans")],
            }
            for group in _objects(entry, "groups")
        ],
        "recorders": [
            {
                **_numbers(recorder),
                **_text(recorder, "name", _one_of(_RECORDERS, None)),
                **_text(recorder, "why", scrub),
                "entries": [_recorded(call, names) for call in _objects(recorder, "entries")],
            }
            for recorder in _objects(entry, "recorders")
        ],
    }
    if "counters" in entry:
        kept["counters"] = [
            [names.group(one[0]), *(_integers(one[1:]) or [])]
            for one in _lists(entry, "counters")
            if one and isinstance(one[0], str)
        ]
    return kept


def _recorded(call: Payload, names: Names) -> Payload:
    """One call: its group, its place there, its name, size and type, and when it was made."""
    numbers = ("collective_seq_id", "p2p_seq_id", "op_id", "record_id", "pg_id", "time_created_ns")
    kept: Payload = {name: call[name] for name in numbers if type(call.get(name)) is int}
    kept |= {name: True for name in ("is_p2p", "retired") if call.get(name) is True}
    kept |= _text(call, "profiling_name", lambda text: text if _CALL.fullmatch(text) else "operation")
    kept |= _text(call, "state", _one_of(_CALL_STATES, None))
    if isinstance(group := call.get("process_group"), list):
        words = [part for part in group[:2] if isinstance(part, str)]
        kept["process_group"] = [
            put(part) for put, part in zip((names.group, names.purpose), words, strict=False)
        ]
    if sizes := _lists(call, "input_sizes"):
        kept["input_sizes"] = [_integers(sizes[0])]
    if isinstance(dtypes := call.get("input_dtypes"), list):
        kept["input_dtypes"] = [one if one in _DTYPES else "other" for one in dtypes[:1]]
    return kept


def _lists(payload: Payload, name: str) -> list[list[object]]:
    value = payload.get(name)
    return [entry for entry in value if isinstance(entry, list)] if isinstance(value, list) else []


def _bye(payload: Payload, _names: Names) -> Payload:
    return _text(payload, "reason", scrub)


def _gap(payload: Payload, names: Names) -> Payload:
    return {
        **_numbers(payload),
        **_text(payload, "what", _one_of(_GAPS, "")),
        **_text(payload, "source", names.source),
        **_text(payload, "why", scrub),
    }


def _columns(column_names: tuple[str, ...]) -> Callable[[Payload, Names], Payload | None]:
    def packed(payload: Payload, _names: Names) -> Payload | None:
        try:
            columns = unpack_columns(payload, column_names)
        except TuiadvisorError:
            return None
        rows = list(zip(*(columns[name].tolist() for name in column_names), strict=True))
        return pack_columns(rows, column_names)

    return packed


_PAYLOADS: Final[dict[FrameKind, Callable[[Payload, Names], Payload | None]]] = {
    FrameKind.RUN: _run,
    FrameKind.HELLO: _hello,
    FrameKind.STEPS: _columns(STEP_NAMES),
    FrameKind.EVENTS: _columns(EVENT_NAMES),
    FrameKind.HOST: _host,
    FrameKind.STATUS: _status,
    FrameKind.BYE: _bye,
    FrameKind.GAP: _gap,
}
