"""Which collective hangs and which ranks have not entered it, from every rank's flight recorder.

In: each dumped rank's pending operations and how far it got in each process group.  Out: the collectives that
wait, the ranks missing from them, and the ranks of which nothing is known; never a rank without evidence.
A rank that is itself blocked is a victim: only ranks that wait for nobody are named as the origin. So is one whose
device stopped: its thread has entered everything, but what it has not completed others of its group have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

COLLECTIVE: Final = "collective"
P2P: Final = "p2p"
MAX_LISTED: Final = 8  # ranks in a sentence; of more their number
# No rank leaves these before all have entered; the root of a broadcast may, and the ranks of a reduce.
ALL_TAKE_PART: Final = re.compile(r"all_?reduce|all_?gather|all_?to_?all|reduce_scatter|barrier")


@dataclass(frozen=True, slots=True)
class Operation:
    """One recorded call. peer: the global rank of the other side of a p2p call, None for collectives."""

    group: str
    kind: str
    seq: int
    name: str
    sizes: str
    dtype: str
    order: int
    completed: bool
    created_ns: int | None
    peer: int | None = None
    # Gloo's counters and its op_id count sends and receives, which it does not record; its seq does not.
    beside_messages: bool = False
    timeout_ns: int | None = None  # after which its group's watchdog ends it and dumps
    life: int = 0  # of the groups that bore this name in this process: torch counts all groups up, each process its own


@dataclass(frozen=True, slots=True)
class Progress:
    """Last sequence number a rank has entered and completed in a group; None where not recorded."""

    entered: int | None
    completed: int | None


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank's flight recorder. has_status: groups absent from `progress` were never used."""

    rank: int
    operations: tuple[Operation, ...]
    progress: Mapping[str, Progress]
    has_status: bool
    beside: str = ""  # what it may be waiting in of which its recorder holds nothing


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: name as the backend numbers it, what it is for, its ranks (empty: unknown)."""

    name: str
    description: str
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """One operation that some ranks wait in."""

    group: Group
    operation: Operation
    waiting: tuple[int, ...]
    missing: tuple[int, ...]  # recorded, and have not entered
    unrecorded: tuple[int, ...]  # members without usable evidence
    origin: bool  # its missing ranks wait for nobody themselves
    untold: tuple[
        int, ...
    ] = ()  # of the unrecorded, those whose dump holds neither a call of the group nor counters

    @property
    def since_ns(self) -> int | None:
        """When the first of the waiting ranks entered, wall clock; None when not recorded."""
        return self.operation.created_ns


@dataclass(frozen=True, slots=True)
class StoppedDevice:
    """A rank whose device has not completed what another one of the group has: nobody it could wait for there."""

    rank: int
    operation: Operation  # its first pending call
    peer: int  # who got furthest in the group
    peer_completed: int  # that one's last completed sequence number


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks that call different operations as the same collective: their programs differ in their order."""

    group: Group
    seq: int
    calls: tuple[tuple[str, tuple[int, ...]], ...]  # operation, who calls it; the fewest ranks first

    @property
    def words(self) -> str:
        """One sentence."""
        parts = "; ".join(f"{_ranks(ranks)} in {name}" for name, ranks in self.calls)
        return f"group {self.group.name}, sequence {self.seq}: ranks call different operations: {parts}"


@dataclass(frozen=True, slots=True)
class Hang:
    """waits: origin first. missing: the ranks named. because: the verdict or the abstention in words."""

    waits: tuple[Waiting, ...]
    missing: tuple[int, ...]
    mismatch: str  # ranks that call different things under one sequence number; "" when none
    because: str
    stopped: tuple[StoppedDevice, ...] = ()
    different: Mismatch | None = None  # as `mismatch`
    beside: tuple[tuple[int, str], ...] = ()  # missing ranks that may themselves wait in what nobody recorded


def diagnose(dumps: Sequence[Dump], groups: Mapping[str, Group]) -> Hang:
    """The hang behind these dumps. Never names a rank of which no dump says that it is missing."""
    if not any(not op.completed for dump in dumps for op in dump.operations):
        return Hang((), (), "", _nothing_pends(dumps, groups))
    return _Case(dumps, groups).answer()


def _nothing_pends(dumps: Sequence[Dump], groups: Mapping[str, Group]) -> str:
    """Who has not entered what others wait in has nothing pending either: only their dumps would tell."""
    recorded = {dump.rank for dump in dumps}
    others = {rank for group in groups.values() for rank in group.members} - recorded
    if not others:
        return "no operation is pending on any recorded rank: no hang in these dumps"
    who = _ranks(sorted(recorded)) if len(recorded) <= MAX_LISTED else f"{len(recorded)} ranks"
    return (
        f"no operation is pending on {who}; whether others wait for that only their dumps would tell: "
        f"{len(others)} of {len(others) + len(recorded)} ranks gave none"
    )


def with_messages(dumps: Sequence[Dump]) -> set[str]:
    """Groups whose counters may be of sends and receives."""
    return {op.group for dump in dumps for op in dump.operations if op.kind == P2P or op.beside_messages}


class _Case:
    """All dumps together, with each rank's first pending operation: its head."""

    def __init__(self, dumps: Sequence[Dump], groups: Mapping[str, Group]) -> None:
        self.dumps = {dump.rank: dump for dump in dumps}
        self.groups = groups
        self.pending = {
            dump.rank: sorted((op for op in dump.operations if not op.completed), key=lambda op: op.order)
            for dump in dumps
        }
        self.head = {rank: ops[0] for rank, ops in self.pending.items() if ops}
        self.mixed = with_messages(dumps)
        self.entered_of = {dump.rank: self._entered(dump) for dump in dumps}
        self.mismatches = self._mismatches()

    def _entered(self, dump: Dump) -> dict[str, int]:
        """Last collective entered by group, from calls and, where only collectives run, from the counters."""
        entered: dict[str, int] = {}
        for op in dump.operations:
            if op.kind == COLLECTIVE:
                entered[op.group] = max(entered.get(op.group, -1), op.seq)
        for group, progress in dump.progress.items():
            # In a group with sends and receives the counter may be theirs.
            if group not in self.mixed and progress.entered is not None:
                entered[group] = max(entered.get(group, -1), progress.entered)
        return entered

    def members(self, op: Operation) -> tuple[int, ...]:
        group = self.groups.get(op.group)
        return group.members if group else ()

    def absent(self, rank: int, op: Operation) -> bool | None:
        """Has this rank not entered op? None: the dumps do not say."""
        dump = self.dumps.get(rank)
        if dump is None:
            return None
        if op.kind == P2P:
            return self._absent_p2p(dump, op)
        entered = self.entered_of[rank].get(op.group)
        if entered is not None:
            return entered < op.seq
        # Counters of a rank that used other groups, but never this one.
        return True if dump.has_status and op.group not in self.mixed else None

    def _absent_p2p(self, dump: Dump, op: Operation) -> bool | None:
        if len(self.members(op)) != 2:
            return None  # the counter of a larger group counts all its pairs: not comparable
        seqs = [other.seq for other in dump.operations if other.group == op.group and other.kind == P2P]
        progress = dump.progress.get(op.group)
        if progress is not None and progress.entered is not None:
            seqs.append(progress.entered)
        return max(seqs) < op.seq if seqs else None

    def others(self, rank: int, op: Operation) -> tuple[int, ...]:
        if op.kind == P2P:
            return (op.peer,) if op.peer is not None else ()
        return tuple(member for member in self.members(op) if member != rank)

    def blocked_by(self, rank: int) -> set[int]:
        """Whom a rank's head waits for: not entered, unknown, or queued behind something else there."""
        op = self.head.get(rank)
        if op is None:
            return set()
        blockers = set()
        for other in self.others(rank, op):
            absent = self.absent(other, op)
            if absent is None and op.kind == P2P and other in self.dumps:
                absent = not self._has_other_side(other, rank, op)
            queued = absent is False and not self._is_head(other, op) and self._is_pending(other, op)
            if absent or absent is None or queued:
                blockers.add(other)
        return blockers

    def _has_other_side(self, rank: int, peer: int, op: Operation) -> bool:
        """Is this rank's first pending call in the group's sends and receives the one with this peer?"""
        head = self.head.get(rank)
        return head is not None and (head.group, head.kind, head.peer) == (op.group, P2P, peer)

    def _is_head(self, rank: int, op: Operation) -> bool:
        head = self.head.get(rank)
        return head is not None and (head.group, head.kind, head.seq) == (op.group, op.kind, op.seq)

    def _is_pending(self, rank: int, op: Operation) -> bool:
        return any(
            (o.group, o.kind, o.seq) == (op.group, op.kind, op.seq) for o in self.pending.get(rank, ())
        )

    def is_origin(self, rank: int) -> bool:
        """Waits for nobody; who waits for somebody the dumps do not tell may be a victim."""
        if rank in self.dumps and self.dumps[rank].beside:
            return False
        op = self.head.get(rank)
        if op is not None and op.kind == COLLECTIVE and (op.group, op.seq) in self.mismatches:
            return False  # it is where it should be by number, in another call than the others
        is_told = op is None or bool(self.others(rank, op)) or set(self.members(op)) == {rank}
        return rank in self.dumps and is_told and not self.blocked_by(rank)

    def answer(self) -> Hang:
        waits = self._waits()
        different = next(iter(self.mismatches.values()), None)
        mismatch = different.words if different else ""
        stopped = self._stopped()
        origins = [wait for wait in waits if wait.origin]
        if origins or stopped:
            late = {rank for wait in origins for rank in wait.missing if self.is_origin(rank)}
            named = late | {device.rank for device in stopped}
            of_wait = [(wait, [rank for rank in wait.missing if rank in named]) for wait in origins]
            words = [_verdict(wait, ranks) for wait, ranks in _told(of_wait)]
            words += [_stopped_words(device) for device in stopped]
            because = "; ".join(words)
        else:
            named, because = set(), mismatch or self._abstention(waits)
        return Hang(
            tuple(waits), tuple(sorted(named)), mismatch, because, stopped, different, self._beside(waits)
        )

    def _beside(self, waits: Sequence[Waiting]) -> tuple[tuple[int, str], ...]:
        """Who is missing, is in no recorded call that would hold it up, and may wait in another."""
        missing = sorted({rank for wait in waits for rank in wait.missing})
        whats = [(rank, self.dumps[rank].beside) for rank in missing if rank in self.dumps]
        return tuple((rank, what) for rank, what in whats if what and not self.blocked_by(rank))

    def _stopped(self) -> tuple[StoppedDevice, ...]:
        """Ranks whose first pending call somebody else has completed, which takes all of the group.

        Their thread may be far ahead of the device, so that they have entered whatever others wait in.
        """
        found = []
        furthest: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
        for rank, op in sorted(self.head.items()):
            if op.kind != COLLECTIVE or not ALL_TAKE_PART.search(op.name):
                continue
            if (op.group, op.seq) in self.mismatches:
                continue  # what others completed under its number was another call
            entered = max(
                one.seq for one in self.pending[rank] if (one.group, one.kind) == (op.group, op.kind)
            )
            at = op.group, op.seq, entered
            if at not in furthest:
                furthest[at] = self._furthest(op, entered)
            completed, peer = next((one for one in furthest[at] if one[1] != rank), (-1, -1))
            if completed >= op.seq:
                found.append(StoppedDevice(rank, op, peer, completed))
        return tuple(found)

    def _furthest(self, op: Operation, entered: int) -> list[tuple[int, int]]:
        """The two of its group that have completed most, with how much: one of them is not the rank in question."""
        reached = [
            (self._completed(self.dumps[other], op, entered), other)
            for other in self.members(op)
            if other in self.dumps
        ]
        return sorted(reached, reverse=True)[:2]

    def _completed(self, dump: Dump, op: Operation, entered: int) -> int:
        """The last collective of the group that this rank has completed; -1 where its dump does not show this one done.

        It stands there as done, or a later one does that the rank in question has entered, too: one that nobody else
        has come to is a damaged number. Nor is the group's counter believed beyond what the rank has entered itself.
        """
        ops = [one for one in dump.operations if one.group == op.group and one.kind == COLLECTIVE]
        pending = min((one.seq for one in ops if not one.completed), default=None)
        progress = dump.progress.get(op.group) if op.group not in self.mixed else None
        done = {one.seq for one in ops if one.completed}
        if progress is not None and progress.completed is not None:
            own = progress.completed if progress.entered is None else progress.entered
            done.add(min(progress.completed, own))
        if op.seq not in done and not any(op.seq <= seq <= entered for seq in done):
            return -1
        return max(done) if pending is None else min(max(done), pending - 1)

    def _waits(self) -> list[Waiting]:
        at: dict[tuple[str, str, int], list[int]] = {}
        for rank, op in sorted(self.head.items()):
            if op.kind == COLLECTIVE:
                at.setdefault((op.group, op.kind, op.seq), []).append(rank)
        waits = []
        for ranks in at.values():
            op = min(
                (self.head[rank] for rank in ranks), key=lambda op: (op.created_ns is None, op.created_ns)
            )
            members = self.members(op)
            absent = {rank: self.absent(rank, op) for rank in members}
            missing = tuple(rank for rank in members if absent[rank])
            unrecorded = tuple(rank for rank in members if absent[rank] is None)
            origin = any(self.is_origin(rank) for rank in missing)
            group = self.groups.get(op.group) or Group(op.group, "", ())
            untold = tuple(rank for rank in unrecorded if rank in self.dumps)
            waits.append(Waiting(group, op, tuple(ranks), missing, unrecorded, origin, untold))
        # First those that victims of others are not missing from: there the job is held up.
        waits.sort(
            key=lambda wait: (
                not wait.origin,
                not all(self.is_origin(rank) for rank in wait.missing),
                -len(wait.waiting),
                wait.group.name,
            )
        )
        return waits

    def _mismatches(self) -> dict[tuple[str, int], Mismatch]:
        """By group and number, of collectives that somebody waits in; who has left them early called them, too."""
        waited = {(op.group, op.seq) for ops in self.pending.values() for op in ops if op.kind == COLLECTIVE}
        calls: dict[tuple[str, int], dict[str, list[int]]] = {}
        for rank, dump in sorted(self.dumps.items()):
            for op in dump.operations:
                if op.kind == COLLECTIVE and (op.group, op.seq) in waited:
                    calls.setdefault((op.group, op.seq), {}).setdefault(op.name, []).append(rank)
        return {
            (name, seq): Mismatch(
                self.groups.get(name) or Group(name, "", ()),
                seq,
                tuple(
                    sorted(((what, tuple(r)) for what, r in by_name.items()), key=lambda c: (len(c[1]), c[1]))
                ),
            )
            for (name, seq), by_name in sorted(calls.items())
            if len(by_name) > 1
        }

    def _abstention(self, waits: Sequence[Waiting]) -> str:
        unrecorded = sorted({rank for wait in waits for rank in wait.unrecorded})
        if unrecorded:
            alone = waits[0].waiting if len(waits) == 1 and len(waits[0].waiting) == 1 else ()
            untold = sorted({rank for wait in waits for rank in wait.untold})
            more = "; collect all dumps" if set(unrecorded) - set(untold) else ""
            return (
                f"{_ranks(alone) + ' waits' if alone else 'ranks wait'} in {waits[0].operation.name}, but "
                f"{nothing_known_words(unrecorded, untold)}: who is missing cannot be told{more}"
            )
        if any(wait.missing for wait in waits):
            return "ranks wait for each other in a circle: compare the order of collectives in their programs"
        if waits and not waits[0].group.members:
            return (
                f"{_ranks(waits[0].waiting)} {'waits' if len(waits[0].waiting) == 1 else 'wait'} in "
                f"{waits[0].operation.name}, but the dumps do not say which ranks belong to its group: who is missing "
                "cannot be told"
            )
        if waits:
            return (
                f"every rank has entered {waits[0].operation.name} and none has left: "
                "no rank is missing; look at the network and the devices"
            )
        return "only sends and receives are pending, and the dumps do not say whose other side is missing"


def _told(of_wait: list[tuple[Waiting, list[int]]]) -> list[tuple[Waiting, list[int]]]:
    """Each rank once, with the first collective that it is missing from."""
    told: set[int] = set()
    kept = []
    for wait, ranks in of_wait:
        fresh = [rank for rank in ranks if rank not in told]
        told |= set(fresh)
        if fresh:
            kept.append((wait, fresh))
    return kept


def _verdict(wait: Waiting, missing: Sequence[int]) -> str:
    where = f"{wait.operation.name} of group {wait.group.name}"
    if wait.group.description:
        where += f" ({wait.group.description})"
    verb = "has" if len(missing) == 1 else "have"
    words = f"{_ranks(missing)} {verb} not entered {where}, sequence {wait.operation.seq}"
    if wait.unrecorded:
        words += f"; {nothing_known_words(wait.unrecorded, wait.untold)}"
    return words


def nothing_known_words(
    unrecorded: Sequence[int],
    untold: Sequence[int],
    ranks_words: Callable[[tuple[int, ...]], str] | None = None,
) -> str:
    """Of whom it is not known whether they have entered, and why: without a dump, or with one that does not say."""
    in_words = ranks_words or _ranks
    undumped, silent = tuple(sorted(set(unrecorded) - set(untold))), tuple(untold)
    parts = [f"of {in_words(undumped)} there is no usable dump"] if undumped else []
    if silent:
        dumps = "dump of" if len(silent) == 1 else "dumps of"
        hold = "holds" if len(silent) == 1 else "hold"
        parts.append(
            f"the {dumps} {in_words(silent)} {hold} no call of that group, nor a counter (pg_status) that tells"
        )
    return "; ".join(parts)


def _stopped_words(device: StoppedDevice) -> str:
    op = device.operation
    return (
        f"the device of rank {device.rank} has stopped: it has not completed {op.name} of group {op.group}, "
        f"sequence {op.seq}, of which rank {device.peer} has completed up to {device.peer_completed}"
    )


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
