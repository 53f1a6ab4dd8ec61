"""What each kind of frame may carry: names, types and bounds of its payload.

In: a JSON object straight from a stranger's bytes.  Out: the same, or FrameError; afterwards every known
field is null or of the promised type, so that no later code checks again. Unknown keys pass unread: newer
agents may say more.

Text may still hold control characters (a command line has newlines): whoever prints it escapes it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from tuiadvisor.errors import TuiadvisorError

MAX_TEXT_CHARS: Final = 65_536
MAX_ITEMS: Final = 65_536
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1


class FrameError(TuiadvisorError):
    """These bytes are not a frame that we wrote."""


class FrameKind(IntEnum):
    """What a frame says; the number is in its header."""

    RUN = 1  # first frame of a recording
    HELLO = 2  # an agent and its ranks
    STEPS = 3
    EVENTS = 4
    HOST = 5
    STATUS = 6
    BYE = 7
    GAP = 8  # written by the hub: something is missing here
    INDEX = 9  # written into the recording alone: where the frames before it lie


# (value, what it belongs to, its name there): the two make the place that an error names; only an error pays.
Check = Callable[[object, str, str], None]


def _integer(value: object, where: str, name: str) -> None:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise FrameError(f"frame payload: {where}{name} is not a 64-bit integer")


def _number(value: object, where: str, name: str) -> None:
    if type(value) is not float:
        _integer(value, where, name)


def _text(value: object, where: str, name: str) -> None:
    if type(value) is not str or len(value) > MAX_TEXT_CHARS:
        raise FrameError(f"frame payload: {where}{name} is not a text of at most {MAX_TEXT_CHARS} characters")


def _list_of(check: Check) -> Check:
    def checked(value: object, where: str, name: str) -> None:
        if type(value) is not list or len(value) > MAX_ITEMS:
            raise FrameError(f"frame payload: {where}{name} is not a list of at most {MAX_ITEMS} items")
        for item in value:
            if item is not None:
                check(item, where, name)

    return checked


def _object(fields: dict[str, Check]) -> Check:
    check_of = fields.get

    def checked(value: object, where: str, name: str) -> None:
        if type(value) is not dict:
            raise FrameError(f"frame payload: {where}{name} is not an object")
        inner = ""
        for field, item in value.items():
            if item is None or (check := check_of(field)) is None:
                continue
            # Nearly all fields are plain numbers and words: a call for each would cost more than reading the JSON did.
            kind = type(item)
            if kind is int:
                if (check is _integer or check is _number) and INT64_MIN <= item <= INT64_MAX:
                    continue
            elif kind is str:
                if check is _text and len(item) <= MAX_TEXT_CHARS:
                    continue
            elif kind is float and check is _number:
                continue
            inner = inner or f"{where}{name}."
            check(item, inner, field)

    return checked


def _map_of(check: Check) -> Check:
    def checked(value: object, where: str, name: str) -> None:
        if type(value) is not dict or len(value) > MAX_ITEMS:
            raise FrameError(f"frame payload: {where}{name} is not an object of at most {MAX_ITEMS} keys")
        for key, item in value.items():
            if len(key) > MAX_TEXT_CHARS:
                raise FrameError(f"frame payload: a key of {where}{name} is too long")
            if item is not None:
                check(item, where, name)

    return checked


def _ranks(fields: dict[str, Check]) -> Check:
    """A list of objects that each say which rank they speak of."""
    check = _object({"rank": _integer, **fields})

    def checked(value: object, where: str, name: str) -> None:
        if type(value) is not list or len(value) > MAX_ITEMS:
            raise FrameError(f"frame payload: {where}{name} is not a list of at most {MAX_ITEMS} items")
        for item in value:
            check(item, where, name)

    return checked


def _fields(check: Check, names: str) -> dict[str, Check]:
    return dict.fromkeys(names.split(), check)


_COLUMNS = _object({"rows": _integer, "columns": _object({})})

_HELLO_RANK = {
    **_fields(_integer, "local_rank world_size pid start_wall_ns budget_ppm"),
    **_fields(
        _text,
        "state detail python torch backend device command label cuda nccl git_commit device_uuid schedule container "
        "core",
    ),
    "parallel": _map_of(_integer),
    "pipeline": _map_of(_integer),
    "hooks": _map_of(_text),
}

_HOST_RANK = {
    **_fields(_number, "cpu_s run_s run_delay_s cpu_limit_cores"),
    **_fields(_integer, "cpu_periods throttled_periods looks stopped_looks nice"),
    **_fields(
        _integer,
        "storage_looks data_storage_looks workers worker_looks worker_storage_looks worker_running_looks",
    ),
    **_fields(_integer, "rss_bytes num_threads voluntary_switches involuntary_switches last_cpu numa_node"),
    **_fields(_text, "state cpus_allowed memory_policy"),
    **_fields(_list_of(_integer), "cpu_nodes memory_nodes stopped_at_ns"),
}

_STATUS_RANK = {
    **_fields(_integer, "phase_since_ns step lost_steps lost_events hooks_disabled errors"),
    **_fields(_text, "state detail phase thread no_step"),
    "so_far_ms": _map_of(_integer),
    "burst_ns": _list_of(_integer),
}

_SAMPLED = {
    **_fields(_integer, "look of pid num_steps steps_ms window_ms worker"),
    **_fields(_text, "subject way why"),
    "frames": _list_of(_object({**_fields(_text, "name file"), **_fields(_integer, "line own")})),
    "stacks": _list_of(_list_of(_integer)),
    "samples": _list_of(_integer),
    "native": _list_of(_text),
}

_RECORDED = {
    **_fields(_integer, "pg_id collective_seq_id p2p_seq_id op_id record_id time_created_ns"),
    **_fields(_text, "profiling_name state"),
    **_fields(_list_of(_text), "process_group input_dtypes"),
    "input_sizes": _list_of(_list_of(_integer)),
}

_RECORDERS = {
    **_fields(_integer, "pid asked_ns wall_ns still_since_ns spent_us own_rank evaluates ends"),
    **_fields(_text, "why call"),
    "groups": _list_of(
        _object(
            {**_fields(_text, "name purpose backend"), "seq": _integer, "spans": _list_of(_list_of(_integer))}
        )
    ),
    "recorders": _list_of(
        _object(
            {
                **_fields(_text, "name why"),
                **_fields(_integer, "num_entries from_first"),
                "entries": _list_of(_object(_RECORDED)),
            }
        )
    ),
}

SHAPES: Final[dict[FrameKind, Check]] = {
    FrameKind.RUN: _object(
        {
            **_fields(
                _integer, "created_wall_ns schema samples_per_step tokens_per_step flops_per_step peak_flops"
            ),
            **_fields(_text, "tuiadvisor label command hub_host"),
            "imported": _object(
                {
                    **_fields(_text, "kind source words because"),
                    "notes": _list_of(_text),
                    "waits_share": _number,
                    **_fields(_list_of(_integer), "late_ranks uncompared cause_ranks"),
                }
            ),
            "traced": _object(
                {
                    **_fields(_text, "kind source words because"),
                    "notes": _list_of(_text),
                    **_fields(_list_of(_integer), "late_ranks ranks steps"),
                }
            ),
        }
    ),
    FrameKind.HELLO: _object(
        {
            **_fields(_text, "host boot_id python platform driver cpu_model why_no_gpus"),
            **_fields(_integer, "agent_pid wall_ns mono_ns num_cpus memory_bytes"),
            "gpus": _list_of(_text),
            "network_cards": _list_of(_text),
            "storage": _list_of(_text),
            "numa_nodes": _list_of(_integer),
            "numa_distances": _list_of(_list_of(_integer)),
            "ranks": _ranks(_HELLO_RANK),
        }
    ),
    FrameKind.STEPS: _COLUMNS,
    FrameKind.EVENTS: _COLUMNS,
    FrameKind.HOST: _object(
        {
            "host": _text,
            **_fields(_integer, "mono_ns wall_ns num_cpus run_queue"),
            **_fields(_number, "cpu memory load_1m disk_read_bytes_s disk_write_bytes_s net_bytes_s iowait"),
            **_fields(_number, "server_read_bytes_s server_write_bytes_s"),
            **_fields(_number, "disk_reads_s disk_writes_s disk_busy"),
            "cpu_per_core": _list_of(_number),
            "gpus": _list_of(_object({})),
            "nics": _list_of(_object({})),
            "ranks": _ranks(_HOST_RANK),
        }
    ),
    FrameKind.STATUS: _object(
        {
            "host": _text,
            **_fields(_integer, "mono_ns wall_ns"),
            "ranks": _ranks(_STATUS_RANK),
            "stacks": _ranks(_SAMPLED),
            "recorders": _ranks(_RECORDERS),
        }
    ),
    FrameKind.BYE: _object({"reason": _text}),
    FrameKind.GAP: _object({**_fields(_text, "what source why"), "num_frames": _integer}),
    FrameKind.INDEX: _object(
        {**_fields(_integer, "offset previous frames steps_at due_ns"), "bases": _map_of(_integer)}
    ),
}


def check_payload(kind: FrameKind, payload: object) -> dict[str, object]:
    """The payload itself, once every known field has its promised type; FrameError otherwise."""
    SHAPES[kind](payload, "", kind.name)
    assert isinstance(payload, dict)  # noqa: S101  # every shape above is an object; this tells mypy
    return payload
