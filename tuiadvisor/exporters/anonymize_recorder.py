"""What a rank's flight recorder told, with other names of groups, and torch's own of calls, types and states.

In: an answer of a STATUS frame.  Out: the same without names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tuiadvisor.exporters.harmless import BACKENDS, integers, lists, numbers, objects, one_of, pid_of, text_of
from tuiadvisor.exporters.words import scrub

if TYPE_CHECKING:
    from tuiadvisor.exporters.harmless import Payload
    from tuiadvisor.exporters.pseudonyms import Names

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


def recorder_answer(entry: Payload, names: Names) -> Payload:
    """What a rank's flight recorder told: numbers, torch's own names of calls, types and states."""
    kept: Payload = {
        **numbers(entry),
        **pid_of(entry, "pid", names),
        **text_of(entry, "why", scrub),
        **text_of(entry, "call", scrub),
        "groups": [
            {
                **numbers(group),
                **text_of(group, "name", names.group),
                **text_of(group, "purpose", names.purpose),
                **text_of(group, "backend", one_of(BACKENDS, "other")),
                "spans": [integers(span) for span in lists(group, "spans")],
            }
            for group in objects(entry, "groups")
        ],
        "recorders": [
            {
                **numbers(recorder),
                **text_of(recorder, "name", one_of(_RECORDERS, None)),
                **text_of(recorder, "why", scrub),
                "entries": [_recorded(call, names) for call in objects(recorder, "entries")],
            }
            for recorder in objects(entry, "recorders")
        ],
    }
    if "counters" in entry:
        kept["counters"] = [
            [names.group(one[0]), *(integers(one[1:]) or [])]
            for one in lists(entry, "counters")
            if one and isinstance(one[0], str)
        ]
    return kept


def _recorded(call: Payload, names: Names) -> Payload:
    """One call: its group, its place there, its name, size and type, and when it was made."""
    numbers = ("collective_seq_id", "p2p_seq_id", "op_id", "record_id", "pg_id", "time_created_ns")
    kept: Payload = {name: call[name] for name in numbers if type(call.get(name)) is int}
    kept |= {name: True for name in ("is_p2p", "retired") if call.get(name) is True}
    kept |= text_of(call, "profiling_name", lambda text: text if _CALL.fullmatch(text) else "operation")
    kept |= text_of(call, "state", one_of(_CALL_STATES, None))
    if isinstance(group := call.get("process_group"), list):
        words = [part for part in group[:2] if isinstance(part, str)]
        kept["process_group"] = [
            put(part) for put, part in zip((names.group, names.purpose), words, strict=False)
        ]
    if sizes := lists(call, "input_sizes"):
        kept["input_sizes"] = [integers(sizes[0])]
    if isinstance(dtypes := call.get("input_dtypes"), list):
        kept["input_dtypes"] = [one if one in _DTYPES else "other" for one in dtypes[:1]]
    return kept
