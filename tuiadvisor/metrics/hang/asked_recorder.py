"""What one standing rank said of its flight recorders, as a dump like those of files.

In: its entry in a STATUS frame, from a stranger.  Out: Asked. Unlike a dump of Gloo's, the answer tells who belongs to
a group and whether the recorder goes back to its first call, so that a group without a call is one never entered.
Of an imported dump there are `counters`: [group, last collective entered, last completed], -1 where it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import one_line
from tuiadvisor.metrics.hang.missing_ranks import COLLECTIVE, Dump, Group, Operation, Progress
from tuiadvisor.metrics.hang.recorder_dump import UNDEFINED, operations_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_ASKED_GROUPS: Final = 64  # of a rank
MAX_ASKED_ENTRIES: Final = 128  # of a recorder
MAX_ASKED_CHARS: Final = 120  # of a name
MAX_ASKED_MEMBERS: Final = 1 << 17  # of a group
BACKWARD: Final = "backward"  # in autograd's engine, which calls collectives that are recorded
MONITORED: Final = "monitored_barrier"  # of messages, in no recorder
BACKENDS: Final = {"fr": "gloo", "nccl": "nccl"}  # recorder -> whose calls it holds
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One rank's answer. Equal to itself alone: what is judged of it is kept for the next picture."""

    rank: int
    pid: int | None
    still_since_ns: int  # on its host's clock: since when it had not moved
    wall_ns: int  # when it was asked
    dump: Dump | None
    groups: Mapping[str, Group]
    why: str  # there is no dump, or a part of it is missing
    evaluates: bool = False  # its model is in eval mode, or what it is in computes without gradients
    ends: bool = False  # it is on its way out, by Ctrl-C, a signal or sys.exit
    stood_ns: int = 0  # for how long it had not moved when it was asked; 0 where that is not known
    call: str = ""  # of torch.distributed or of autograd's engine, that its thread was met in

    @property
    def newest_ns(self) -> int:
        """When it entered its last recorded call, wall clock; 0 where that is not known."""
        return max((op.created_ns or 0 for op in self.dump.operations), default=0) if self.dump else 0

    @property
    def stands_in(self) -> str:
        """The newest collective that its thread is in: "barrier"; "" where it is in none, or nothing tells."""
        under_way = [op for op in self.dump.operations if not op.completed] if self.dump else []
        if not self.call or not under_way:
            return self.call if self.call == MONITORED else ""
        return max(under_way, key=lambda op: op.order).name.rpartition(":")[2]


def asked(entry: Entry, rank: int) -> Asked:
    """The believable part of what a rank said."""
    told = {
        name: group
        for group in _objects(entry, "groups")[:MAX_ASKED_GROUPS]
        if isinstance(name := group.get("name"), str) and name
    }
    recorders = {
        name: one
        for one in _objects(entry, "recorders")
        if isinstance(name := one.get("name"), str) and name in BACKENDS
    }
    groups: dict[str, Group] = {}
    operations: list[Operation] = []
    num_heard = 0
    progress: dict[str, Progress] = {}
    for recorder, said in recorders.items():
        own = {name: group for name, group in told.items() if BACKENDS[recorder] in str(group.get("backend"))}
        keys = {name: _key(name, group, recorder) for name, group in own.items()}
        described = {
            keys[name]: Group(keys[name], _purpose(group), _members(group.get("spans")))
            for name, group in own.items()
        }
        calls = [
            one
            for one in _objects(said, "entries")[:MAX_ASKED_ENTRIES]
            if (name := _name(one)) in keys and _is_of_now(one, own[name])
        ]
        found = operations_of([_renamed(one, keys) for one in calls], described)
        groups |= described
        operations += found
        num_heard += bool(found)
        if not said.get("why"):
            progress |= _progress(recorder, said, own, keys, found)
    whys = [_printable(one.get("why")) for one in (entry, *recorders.values())]
    why = next((why for why in whys if why), "")
    if not recorders and not why:
        why = "its process groups have no flight recorder"
    is_known = any(not one.get("why") for one in recorders.values())
    own_rank = _count(entry.get("own_rank"))
    if own_rank is not None and own_rank != rank:
        is_known, why = False, f"its process group has it as rank {own_rank}"
    counters = entry.get("counters")
    if isinstance(counters, list):
        progress |= _counted(counters, groups)
    beside = _call(entry) or _unheard(told, recorders)
    still_since_ns, asked_ns = (_count(entry.get(name)) or 0 for name in ("still_since_ns", "asked_ns"))
    return Asked(
        rank=rank,
        pid=_count(entry.get("pid")),
        still_since_ns=still_since_ns,
        wall_ns=_count(entry.get("wall_ns")) or 0,
        dump=Dump(rank, _in_order(operations, num_heard), progress, isinstance(counters, list), beside=beside)
        if is_known
        else None,
        groups=groups,
        why=why,
        evaluates=entry.get("evaluates") == 1,
        ends=entry.get("ends") == 1,
        stood_ns=max(asked_ns - still_since_ns, 0),
        call=_printable(entry.get("call")),
    )


def _call(entry: Entry) -> str:
    """The call of torch.distributed that its thread is in; a message or a monitored barrier is in no recorder."""
    call = _printable(entry.get("call"))
    return "" if call == BACKWARD else call


def _unheard(told: Mapping[str, Entry], recorders: Mapping[str, Entry]) -> str:
    """What it may wait in though no recorder says so: collectives of a backend of which none told, other groups."""
    heard = {BACKENDS[name] for name, one in recorders.items() if not one.get("why")}
    for group in told.values():
        backends = {part.rpartition(":")[2] for part in str(group.get("backend")).split(",")}
        unheard = sorted(_printable(backend) for backend in backends - heard)
        if unheard and (_has_several(group) or _count(group.get("seq")) != 0):
            return f"a collective of {unheard[0]}"
    return "a collective of a further group" if len(told) >= MAX_ASKED_GROUPS else ""


def _is_of_now(call: Entry, group: Entry) -> bool:
    """Whether a call can be of the group that bears its name today: that has counted it.

    Who destroys the groups and makes them anew gives their names again, and recorders keep the old calls.
    """
    seq, reached = _count(call.get("collective_seq_id")), _count(group.get("seq"))
    return seq is None or reached is None or _has_several(group) or seq <= reached


def _has_several(group: Entry) -> bool:
    """Backends, of which torch gives the number of one."""
    return "," in str(group.get("backend"))


def _progress(
    recorder: str, said: Entry, own: Mapping[str, Entry], keys: Mapping[str, str], found: Iterable[Operation]
) -> dict[str, Progress]:
    """How far the rank got in groups of which the recorder holds no call."""
    with_calls = {op.group for op in found if op.kind == COLLECTIVE}
    progress = {}
    for name, group in own.items():
        seq = _count(group.get("seq"))
        if keys[name] in with_calls:
            continue
        if said.get("from_first") == 1 or seq == 0:
            progress[keys[name]] = Progress(0, 0)
        elif (
            seq is not None and not _has_several(group) and recorder == "nccl"
        ):  # Gloo's counts messages, too
            progress[keys[name]] = Progress(seq, None)
    return progress


def _counted(counters: list[Any], groups: Mapping[str, Group]) -> dict[str, Progress]:
    """Of the groups that were described; a counter that cannot be true is unknown."""
    progress = {}
    for one in counters[:MAX_ASKED_GROUPS]:
        if isinstance(one, list) and len(one) == 3 and isinstance(one[0], str):
            name, entered, completed = _printable(one[0]), _count(one[1]), _count(one[2])
            if name in groups:
                progress[name] = Progress(entered, completed)
    return progress


def _key(name: str, group: Entry, recorder: str) -> str:
    """A group of several backends counts its calls for each of them."""
    name = _printable(name)
    return f"{name}/{BACKENDS[recorder]}" if _has_several(group) else name


def _renamed(call: Entry, keys: Mapping[str, str]) -> Entry:
    names = {"profiling_name": _printable(call.get("profiling_name"))} if "profiling_name" in call else {}
    described = [_printable(part) for part in call["process_group"][1:2]]
    return {**call, **names, "process_group": [keys[_name(call)], *described]}


def _name(call: Entry) -> str:
    group = call.get("process_group")
    return group[0] if isinstance(group, list) and group and isinstance(group[0], str) else ""


def _purpose(group: Entry) -> str:
    purpose = _printable(group.get("purpose"))
    return "" if purpose == UNDEFINED else purpose


def _members(spans: object) -> tuple[int, ...]:
    """The ranks of [first, distance, how many]; none where one of them cannot be true."""
    ranks: list[int] = []
    for span in spans if isinstance(spans, list) else ():
        if not isinstance(span, list) or len(span) != 3 or any(_count(part) is None for part in span):
            return ()
        first, distance, num = span
        if num < 1 or distance < 1 or len(ranks) + num > MAX_ASKED_MEMBERS:
            return ()
        if first + distance * (num - 1) >= MAX_ASKED_MEMBERS:
            return ()
        ranks += range(first, first + distance * num, distance)
    return tuple(dict.fromkeys(ranks))


def _in_order(operations: list[Operation], num_recorders: int) -> tuple[Operation, ...]:
    """By when they were called: recorders number their calls each for itself."""
    if num_recorders > 1:
        operations = sorted(operations, key=lambda op: (op.created_ns or 0, op.order))
        operations = [replace(op, order=order) for order, op in enumerate(operations)]
    return tuple(operations)


def _printable(value: object) -> str:
    return one_line(value[:MAX_ASKED_CHARS], " ") if isinstance(value, str) else ""


def _objects(entry: Entry, name: str) -> list[Entry]:
    value = entry.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 62 else None
