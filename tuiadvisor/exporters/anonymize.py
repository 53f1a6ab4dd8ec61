"""A recording that may be shared: every name of a person, machine, place or process replaced, the same by the same.

In: a recording.  Out: frames with the same measurements and other words. Nothing passes unless it is known to be
harmless: numbers that are measurements, states and phases from our own lists, versions, device models. Free text is
rebuilt from the words that our own messages are made of; unknown keys are left out. Step and event columns are
unpacked and packed anew, so no byte of the original frames is copied.

Kept on purpose: clock readings and wall time, ranks, sizes, versions of Python, torch, CUDA and NCCL, device models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EVENT_NAMES, STEP_NAMES, THREAD_STATES, RankState
from tuiadvisor.exporters.anonymize_model import model_of
from tuiadvisor.exporters.anonymize_recorder import recorder_answer
from tuiadvisor.exporters.harmless import (
    BACKENDS,
    integers,
    is_number,
    numbers,
    objects,
    one_of,
    pid_of,
    text_of,
)
from tuiadvisor.exporters.pseudonyms import Names
from tuiadvisor.exporters.survey import Reading, decoded
from tuiadvisor.exporters.versions import device_model, is_layout_name, platform_name, version
from tuiadvisor.exporters.words import is_harmless_key, scrub
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
from tuiadvisor.views.devices import WHY_NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tuiadvisor.exporters.harmless import Payload

_STATES: Final = frozenset(state.name.lower() for state in RankState)
_GAPS: Final = frozenset({FRAMES_MISSING, AGENT_SILENT, AGENT_RETURNED, BAD_FRAMES, NOT_RECORDED})
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
_CORES: Final = frozenset({"native", "python"})
_ATTACH_WAYS: Final = frozenset({"thread", "pending call", "remote_exec", "armed"})


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


def _run(payload: Payload, names: Names) -> Payload:
    return {
        **numbers(payload),
        **text_of(payload, "tuiadvisor", version),
        **text_of(payload, "label", names.label),
        **text_of(payload, "command", names.command),
        **text_of(payload, "hub_host", names.host),
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
        **text_of(told, "kind", one_of(_IMPORTS, "other")),
        **text_of(told, "source", names.label),
        **text_of(told, "words", scrub),
        **text_of(told, "because", scrub),
        **text_of(told, "says", scrub),
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
        kept["arithmetic"] = numbers(arithmetic)
    for name in ("ranks", "steps") if key == "traced" else ():
        value = told.get(name)
        kept[name] = [one for one in value if type(one) is int] if isinstance(value, list) else []
    return {key: kept}


def _hello(payload: Payload, names: Names) -> Payload:
    gpus, distances = payload.get("gpus"), payload.get("numa_distances")
    return {
        **numbers(payload),
        **text_of(payload, "host", names.host),
        **pid_of(payload, "agent_pid", names),
        **text_of(payload, "boot_id", names.boot),
        **text_of(payload, "python", version),
        **text_of(payload, "platform", platform_name),
        **text_of(payload, "driver", version),
        **text_of(payload, "why_no_gpus", one_of(frozenset(WHY_NONE), None)),
        "numa_nodes": integers(payload.get("numa_nodes")),
        "numa_distances": [integers(row) for row in distances] if isinstance(distances, list) else None,
        "gpus": [device_model(name) for name in gpus if isinstance(name, str)]
        if isinstance(gpus, list)
        else [],
        "ranks": [_rank(entry, names) for entry in objects(payload, "ranks")],
    }


def _rank(entry: Payload, names: Names) -> Payload:
    layout, hooks = entry.get("parallel"), entry.get("hooks")
    kept: Payload = {
        **numbers(entry),
        **pid_of(entry, "pid", names),
        **text_of(entry, "state", one_of(_STATES, None)),
        **text_of(entry, "detail", scrub),
        **text_of(entry, "phase", one_of(frozenset(PHASES), None)),
        **text_of(entry, "thread", one_of(frozenset(THREAD_STATES), None)),
        **text_of(entry, "backend", one_of(BACKENDS, "other")),
        **text_of(entry, "device", one_of(_DEVICES, "other")),
        **text_of(entry, "label", names.label),
        **text_of(entry, "command", names.command),
        **text_of(entry, "git_commit", names.commit),
        **text_of(entry, "device_uuid", names.device),
        **text_of(entry, "schedule", one_of(_SCHEDULES, "other")),
        **text_of(entry, "attach_way", one_of(_ATTACH_WAYS, None)),
        **text_of(entry, "core", one_of(_CORES, None)),
        **text_of(entry, "core_why", scrub),
    }
    for name in ("python", "torch", "cuda", "nccl"):
        kept.update(text_of(entry, name, version))
    if isinstance(layout, dict):
        kept["parallel"] = {
            name: size for name, size in layout.items() if is_layout_name(name) and is_number(size)
        }
    kept |= model_of(entry.get("model"))
    pipeline = entry.get("pipeline")
    if isinstance(pipeline, dict):
        kept["pipeline"] = {
            name: pipeline[name] for name in _PIPELINE_FIELDS if is_number(pipeline.get(name))
        }
    if isinstance(device := entry.get("compute_device"), dict):
        kept["compute_device"] = model_of(device)["model"]
    if isinstance(hooks, dict):
        kept["hooks"] = {
            name: scrub(text)
            for name, text in hooks.items()
            if isinstance(text, str) and is_harmless_key(name)
        }
    return kept


def _host(payload: Payload, names: Names) -> Payload:
    cores = payload.get("cpu_per_core")
    return {
        **numbers(payload),
        **text_of(payload, "host", names.host),
        "cpu_per_core": [value for value in cores if is_number(value)] if isinstance(cores, list) else [],
        "gpus": [_gpu(entry, names) for entry in objects(payload, "gpus")],
        # A card's name may be its owner's; which one it is of its host is enough.
        "nics": [
            {**numbers(entry), "name": f"card{at}", **text_of(entry, "kind", one_of(_CARDS, None))}
            for at, entry in enumerate(objects(payload, "nics"))
        ],
        "ranks": [_placed(entry) for entry in objects(payload, "ranks")],
    }


def _placed(entry: Payload) -> Payload:
    """A rank's counters and the NUMA nodes that it may use; numbers of processors name nobody."""
    return {
        **numbers(entry),
        **{name: integers(entry[name]) for name in ("cpu_nodes", "memory_nodes") if name in entry},
        **text_of(entry, "memory_policy", one_of(_POLICIES, None)),
    }


def _gpu(entry: Payload, names: Names, depth: int = 0) -> Payload:
    pids, reasons, xids = entry.get("pids"), entry.get("throttle_reasons"), entry.get("xids")
    kept: Payload = {
        **numbers(entry),
        **text_of(entry, "name", device_model),
        **text_of(entry, "uuid", names.device),
        **text_of(entry, "nic_path", one_of(_PATHS, None)),
    }
    if isinstance(peers := entry.get("peer_paths"), list):
        kept["peer_paths"] = [path if isinstance(path, str) and path in _PATHS else None for path in peers]
    if isinstance(pids, list):
        kept["pids"] = [names.pid(pid) for pid in pids if isinstance(pid, int)]
    if isinstance(reasons, list):
        kept["throttle_reasons"] = [scrub(text) for text in reasons if isinstance(text, str)]
    if isinstance(xids, list):
        kept["xids"] = [xid for xid in xids if is_number(xid)]
    if isinstance(entry.get("is_lost"), bool):
        kept["is_lost"] = entry["is_lost"]
    if "parts" in entry and depth == 0:
        kept["parts"] = [_gpu(part, names, depth=1) for part in objects(entry, "parts")] or None
    return kept


def _status(payload: Payload, names: Names) -> Payload:
    return {
        **numbers(payload),
        **text_of(payload, "host", names.host),
        "ranks": [_rank(entry, names) for entry in objects(payload, "ranks")],
        **(
            {"recorders": [recorder_answer(entry, names) for entry in objects(payload, "recorders")]}
            if "recorders" in payload
            else {}
        ),
    }


def _bye(payload: Payload, _names: Names) -> Payload:
    return text_of(payload, "reason", scrub)


def _gap(payload: Payload, names: Names) -> Payload:
    return {
        **numbers(payload),
        **text_of(payload, "what", one_of(_GAPS, "")),
        **text_of(payload, "source", names.source),
        **text_of(payload, "why", scrub),
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
