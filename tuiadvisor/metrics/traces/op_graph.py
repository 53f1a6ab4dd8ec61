"""Which operation of a training step waits for which: the dependency model of pipeline and data parallelism.

In: the operations of one step on one data-parallel rank with their starts and ends.  Out: for every operation
the ones that must end before it starts, and the groups that transfer together. Op types are those of the
public per-operation traces. Source: "Understanding Stragglers in Large Model Training Using What-if Analysis"
(OSDI'25), section 3, and its published traces.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuiadvisor.metrics.steps.arrays import Floats
    from tuiadvisor.metrics.traces.op_table import Op

FORWARD: Final = "forward-compute"
BACKWARD: Final = "backward-compute"
P2P: Final = ("forward-send", "forward-recv", "backward-send", "backward-recv")
GATHER: Final = "params-all-gather"
SCATTER: Final = "grads-reduce-scatter"
SEPARATE: Final = "separate-grads-all-reduce"
CLIP: Final = "optimizer-clip-main-grad"
EMBEDDING: Final = "embedding-grads-all-reduce"
LAYERNORM: Final = "layernorm-grads-all-reduce"
COMMUNICATION: Final = frozenset((*P2P, GATHER, SCATTER, SEPARATE, CLIP, EMBEDDING, LAYERNORM))
COMPUTE: Final = frozenset((FORWARD, BACKWARD, "optimizer", "gc"))
KNOWN: Final = COMMUNICATION | COMPUTE  # whatever else there is must be refused by the reader
DATA_PARALLEL: Final = frozenset((GATHER, SCATTER, SEPARATE, CLIP))  # joined by all data-parallel ranks
EVERY_STAGE: Final = (GATHER, SCATTER, CLIP, "optimizer")  # where one stage has it
CLOCK_SLACK_S: Final = 5e-5  # clocks of two stages agree this well: decides what a first or last transfer is


@dataclass(frozen=True, slots=True)
class OpGraph:
    """Indices into the template's operations. order: ("start", op) and ("finish", group), ready to run."""

    waits_for: tuple[tuple[int, ...], ...]
    groups: tuple[tuple[int, ...], ...]  # a computation is a group of its own
    joins_dp: tuple[bool, ...]  # by group: all data-parallel ranks take part
    order: tuple[tuple[bool, int], ...]  # (is_finish, op or group)


def build(ops: Sequence[Op], start: Floats, end: Floats) -> OpGraph:
    """The graph of one step. TuiadvisorError when transfers and computations do not fit together."""
    if lacks := _why_not_whole(ops):
        raise TuiadvisorError(
            f"no step is whole, {lacks}: the table is cut within a step; record whole steps"
        )
    model = _Model(ops, start, end)
    for stage in range(model.num_stages):
        model.compute_stream(stage)
        model.transfer_streams(stage)
        model.data_parallel_stream(stage)
        model.after_the_last_compute(stage)
    model.join_groups()
    return model.graph()


def _why_not_whole(ops: Sequence[Op]) -> str:
    """What a step's operations lack that a table cut within a step does not have any more; "" where nothing is seen."""
    of = {(op.stage, op.optype) for op in ops}
    stages = sorted({op.stage for op in ops})
    for optype in EVERY_STAGE:
        without = [stage for stage in stages if (stage, optype) not in of]
        if 0 < len(without) < len(stages):
            return f"stage {without[0]} has no {optype}"
    # The ends send and receive round the ring, or, as no-ops of a recorder, both of them: else a stage is missing.
    for optype, back in (("forward-send", "forward-recv"), ("backward-recv", "backward-send")):
        if (stages[-1], optype) in of and (0, back) not in of:
            return f"stage {stages[-1]} has {optype} and there is no stage {stages[-1] + 1}"
    return ""


class _Model:
    """The graph while it grows; every method adds the waits of one kind."""

    def __init__(self, ops: Sequence[Op], start: Floats, end: Floats) -> None:
        self.ops, self.start, self.end = ops, start, end
        self.num_stages = max(op.stage for op in ops) + 1
        self.num_chunks = max(op.chunk for op in ops) + 1
        self.waits: defaultdict[int, list[int]] = defaultdict(list)
        self.of: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        for i, op in enumerate(ops):
            self.of[op.stage, op.optype].append(i)
        for members in self.of.values():
            members.sort(key=lambda i: ops[i].seq)
        self.real: dict[tuple[int, str], list[int]] = {}  # transfers that have a peer, in order
        self.groups: list[tuple[int, ...]] = []
        missing = [s for s in range(self.num_stages) if not self.of[s, FORWARD] or not self.of[s, BACKWARD]]
        if missing:
            raise TuiadvisorError(
                f"stage {missing[0]} has no {FORWARD} or {BACKWARD}: record both on every stage"
            )

    def computes(self, stage: int) -> list[int]:
        return self._by_start(self.of[stage, FORWARD] + self.of[stage, BACKWARD])

    def compute_stream(self, stage: int) -> None:
        """Computations run one after the other."""
        self._chain(self.computes(stage))

    def transfer_streams(self, stage: int) -> None:
        """Each transfer stream is ordered; a transfer feeds, or is fed by, the computation it belongs to."""
        for optype in P2P:
            self._chain(self._by_start(self.of[stage, optype]))
            self.real[stage, optype] = self._match(stage, optype)
        self._first_backward_transfers(stage)

    def _match(self, stage: int, optype: str) -> list[int]:
        direction, _, way = optype.partition("-")
        computes = self.of[stage, f"{direction}-compute"]
        transfers = self._by_start(self.of[stage, optype])
        if way == "recv":
            # Recorders also log receives posted after the last computation and sends before the first: no-ops.
            last = max(self.start[i] for i in computes)
            transfers = [i for i in transfers if self.start[i] <= last + CLOCK_SLACK_S]
        else:
            first = min(self.end[i] for i in computes)
            transfers = [i for i in transfers if self.end[i] >= first - CLOCK_SLACK_S]
        gap = len(computes) - len(transfers)
        if transfers and not (gap == 0 or (gap == 1 and stage in (0, self.num_stages - 1))):
            raise TuiadvisorError(
                f"stage {stage} has {len(transfers)} {optype} for {len(computes)} computations: "
                "record every transfer of whole steps"
            )
        if gap == 1 and way == "recv":
            computes = computes[1:]
        real = []
        for transfer, compute in zip(transfers, computes, strict=False):
            self._feed(transfer, compute, way)
            if self._has_peer(optype, compute):
                real.append(transfer)
        return real

    def _feed(self, transfer: int, compute: int, way: str) -> None:
        if way == "send":
            self.waits[transfer].append(compute)
            return
        self.waits[compute].append(transfer)
        peers = self.of[self.ops[compute].stage, self.ops[compute].optype]
        place = peers.index(compute)
        if place > 0:
            self.waits[transfer].append(peers[place - 1])

    def _has_peer(self, optype: str, compute: int) -> bool:
        """False at the two ends of the model, where there is nobody to send to or receive from."""
        op = self.ops[compute]
        chunk = op.chunk * self.num_stages + op.stage
        peer = chunk + (1 if optype in ("forward-send", "backward-recv") else -1)
        return 0 <= peer < self.num_chunks * self.num_stages

    def _first_backward_transfers(self, stage: int) -> None:
        """The first backward transfers are launched one forward computation ahead of the first backward."""
        computes = self.computes(stage)
        first = next(at for at, i in enumerate(computes) if self.ops[i].optype == BACKWARD)
        if first < 2:
            return
        for optype in ("backward-recv", "backward-send"):
            for transfer in self.of[stage, optype][:1]:
                self.waits[transfer].append(computes[first - 2])

    def data_parallel_stream(self, stage: int) -> None:
        """Parameters arrive before a chunk's first forward; gradients leave after its last backward."""
        gathers, scatters = self.of[stage, GATHER], self.of[stage, SCATTER]
        self._chain(self._by_start(gathers + scatters))
        last_gather = {self.ops[i].chunk: i for i in gathers}
        for chunk, gather in last_gather.items():
            forwards = [i for i in self.of[stage, FORWARD] if self.ops[i].chunk == chunk]
            if forwards:
                self.waits[min(forwards, key=lambda i: self.start[i])].append(gather)
        if not self._overlapped():
            return
        first_scatter = {self.ops[i].chunk: i for i in reversed(scatters)}
        for chunk, scatter in first_scatter.items():
            backwards = [i for i in self.of[stage, BACKWARD] if self.ops[i].chunk == chunk]
            if backwards:
                self.waits[scatter].append(max(backwards, key=lambda i: self.end[i]))

    def _overlapped(self) -> bool:
        return any(self.of[stage, SEPARATE] for stage in range(self.num_stages))

    def after_the_last_compute(self, stage: int) -> None:
        """Backward ends, then collection, norms, embeddings, gradients, clipping, optimizer; absent ones skipped."""
        chain = [max(self.computes(stage), key=lambda i: self.end[i]), *self.of[stage, "gc"]]
        tail = [*self.of[stage, LAYERNORM]]
        if stage in (0, self.num_stages - 1):
            tail += self.of[stage, EMBEDDING]
        if self._overlapped():
            last_scatter = self.of[stage, SCATTER][-1:]
            tail += self.of[stage, SEPARATE]
        else:
            last_scatter = []
            tail += self.of[stage, SCATTER]
        tail += [*self.of[stage, CLIP], *self.of[stage, "optimizer"]]
        self._chain(chain + tail)
        if last_scatter and tail:
            self.waits[tail[0]] += last_scatter

    def join_groups(self) -> None:
        """Who transfers with whom."""
        for stage in range(self.num_stages):
            for optype, step in (("forward-send", 1), ("backward-send", -1)):
                self._join_pairs(stage, optype, (stage + step) % self.num_stages)
        ends = (0, self.num_stages - 1)
        for members in zip(*[self.of[stage, EMBEDDING] for stage in dict.fromkeys(ends)], strict=False):
            self.groups.append(members)
        for members in zip(*[self.of[stage, CLIP] for stage in range(self.num_stages)], strict=False):
            self.groups.append(members)

    def _join_pairs(self, stage: int, send: str, peer: int) -> None:
        sends, receives = self.real[stage, send], self.real[peer, send.replace("send", "recv")]
        if len(sends) != len(receives):
            raise TuiadvisorError(
                f"stage {stage} has {len(sends)} {send} but stage {peer} {len(receives)} receives: "
                "record both ends of whole steps"
            )
        self.groups += list(zip(sends, receives, strict=True))

    def _chain(self, members: Iterable[int]) -> None:
        before = None
        for i in members:
            if before is not None:
                self.waits[i].append(before)
            before = i

    def _by_start(self, members: Iterable[int]) -> list[int]:
        return sorted(members, key=lambda i: (self.start[i], self.ops[i].seq, self.ops[i].optype))

    def graph(self) -> OpGraph:
        grouped = {i for group in self.groups for i in group}
        groups = (*self.groups, *((i,) for i in range(len(self.ops)) if i not in grouped))
        group_of = [0] * len(self.ops)
        for at, group in enumerate(groups):
            for i in group:
                group_of[i] = at
        waits = tuple(tuple(dict.fromkeys(self.waits[i])) for i in range(len(self.ops)))
        joins = tuple(self.ops[group[0]].optype in DATA_PARALLEL for group in groups)
        order = _order(waits, groups, group_of, self.ops)
        return OpGraph(waits, groups, joins, order)


def _order(
    waits: Sequence[Sequence[int]],
    groups: Sequence[Sequence[int]],
    group_of: Sequence[int],
    ops: Sequence[Op],
) -> tuple[tuple[bool, int], ...]:
    """Starts and finishes so that each comes after what it needs; a group ends once all of it has started."""
    open_waits = [len(w) for w in waits]
    next_of: defaultdict[int, list[int]] = defaultdict(list)
    for i, before in enumerate(waits):
        for j in before:
            next_of[j].append(i)
    to_start = [len(group) for group in groups]
    ready = [i for i, count in enumerate(open_waits) if count == 0]
    order: list[tuple[bool, int]] = []
    for i in ready:  # grows while we walk it
        order.append((False, i))
        group = group_of[i]
        to_start[group] -= 1
        if to_start[group]:
            continue
        order.append((True, group))
        for member in groups[group]:
            for after in next_of[member]:
                open_waits[after] -= 1
                if open_waits[after] == 0:
                    ready.append(after)
    if len(ready) < len(ops):
        stuck = next(ops[i] for i, count in enumerate(open_waits) if count)
        raise TuiadvisorError(
            f"the operations wait for each other in a circle at {stuck.optype} {stuck.seq} of stage "
            f"{stuck.stage}: the start times in the table are inconsistent"
        )
    return tuple(order)
