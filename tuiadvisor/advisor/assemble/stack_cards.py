"""Cards of the stacks that were sampled: the sentence, the lines of code, what they rest on.

In: looks.  Out: StackCards. What is within sampling noise of the peer is not said to differ.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.sampling.line_kinds import LOADER, OWN_CODE, kind_of, line_kinds
from tuiadvisor.metrics.sampling.line_shares import LIMITS, compared, is_enough
from tuiadvisor.metrics.sampling.worker_loop import COLLATE, DATASET, IDLE
from tuiadvisor.metrics.sampling.worker_stages import worker_stages
from tuiadvisor.views.stack_card import CardLine, StackCard, StandsAt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.cluster.stack_looks import Look
    from tuiadvisor.metrics.sampling.code_line import CodeLine
    from tuiadvisor.metrics.sampling.line_shares import LineShare
    from tuiadvisor.metrics.sampling.sampled import Sampled
    from tuiadvisor.metrics.steps.step_table import StepTable

MAX_LINES: Final = 12
OF_WORKERS: Final = {DATASET: "dataset", COLLATE: "collate", IDLE: "idle workers"}
WAYS: Final = {"py-spy": "by py-spy, nothing stopped", "inside": "by a thread inside, for that time"}


def stack_cards(looks: Sequence[Look], table: StepTable | None = None) -> tuple[StackCard, ...]:
    """One a look, the newest first. table: the steps that are held; without them none is told at which it was taken."""
    cards = (_hang(look) if look.subject == "hang" else _card(look) for look in looks)
    return tuple(_at_step(card, _step_of(look, table)) for look, card in zip(looks, cards, strict=True))


def _at_step(card: StackCard, step: int | None) -> StackCard:
    if step is None:
        return card
    return replace(card, step=step, basis="; ".join(filter(None, (card.basis, f"at step {step:,}"))))


def _step_of(look: Look, table: StepTable | None) -> int | None:
    if table is None or look.told_ns is None or look.of not in table.ranks:
        return None
    row = table.ranks.index(look.of)
    told_s = (look.told_ns - int(table.origin_ns_R[row])) * 1e-9
    began = np.flatnonzero(table.begin_s_RK[row] <= told_s)
    return table.step_of(int(began[-1])) if began.size else None


def looks_within(looks: Sequence[Look], table: StepTable | None, *, from_the_start: bool) -> tuple[Look, ...]:
    """Those that were taken in the steps of the table, by its ranks' clocks.

    from_the_start: the steps are all until one of them, however few the table holds.
    """
    if table is None or not table.num_steps:
        return ()
    return tuple(look for look in looks if _is_within(look, table, from_the_start=from_the_start))


def _is_within(look: Look, table: StepTable, *, from_the_start: bool) -> bool:
    own = look.thread(look.of)
    if look.told_ns is None or own is None or look.of not in table.ranks:
        return False
    row = table.ranks.index(look.of)
    begins_s = table.begin_s_RK[row][np.isfinite(table.begin_s_RK[row])]
    told_s = (look.told_ns - int(table.origin_ns_R[row])) * 1e-9
    if not begins_s.size or look.told_ns > int(table.last_end_ns_R[row]):
        return False
    return from_the_start or told_s - (own.elapsed_s or 0.0) >= float(begins_s.min())


def _card(look: Look) -> StackCard:
    own = look.thread(look.of)
    peer = next((one for one in look.threads if one.rank != look.of and not one.is_worker), None)
    workers = [one for one in look.workers(look.of) if one.samples]
    lines = _lines(own, peer)
    beside = [one.lines() for one in workers]
    of_workers = [line for each in beside for line in each]
    worker_lines = _worker_lines(workers, of_workers)
    return StackCard(
        look=look.number,
        subject=look.subject,
        rank=look.of,
        peer=None if peer is None else peer.rank,
        words=_words(look, own, peer, lines, worker_lines),
        basis=_basis(own, peer, workers),
        step_s=None if own is None else own.step_s,
        num_samples=len(own.samples) if own else 0,
        num_peer_samples=len(peer.samples) if peer else None,
        lines=lines,
        workers=worker_lines,
        num_workers=len(workers),
        num_worker_samples=sum(len(one.samples) for one in workers),
        stands=(),
        notes=(*_stage_notes(workers), *_notes(look, own, peer)),
        kind=_kind(look, own, peer, workers),
    )


def _kind(look: Look, own: Sampled | None, peer: Sampled | None, workers: Sequence[Sampled]) -> str:
    """What makes the rank late, or all ranks wait for data; "" where the samples do not tell."""
    if own is None or not own.samples:
        return ""
    kind = _most_of(own) if look.subject == "input" else _beyond_peer(own, peer)
    if kind != LOADER:
        return "" if look.subject == "input" else kind
    stage, share = next(iter(worker_stages(workers).items()), ("", 0.0))
    return OF_WORKERS.get(stage, LOADER) if share >= LIMITS["most_workers"].value else LOADER


def _most_of(own: Sampled) -> str:
    """The kind of most samples."""
    return Counter(kind_of(own.stacks[index]) for index in own.samples).most_common(1)[0][0]


def _beyond_peer(own: Sampled, peer: Sampled | None) -> str:
    """Of the line at which it is most beyond its peer. Work that both do, one for longer, is no code of its own."""
    shares = compared(own.lines(), peer.lines()) if peer is not None and peer.samples else []
    more = next((one for one in shares if one.differs and one.share > (one.peer_share or 0.0)), None)
    if more is None:
        return ""
    kind = line_kinds(own).get(more.line, "")
    is_shared = (more.peer_share or 0.0) >= LIMITS["little_of_peer"].value * more.share
    return "" if kind == OWN_CODE and is_shared else kind


def _lines(own: Sampled | None, peer: Sampled | None) -> tuple[CardLine, ...]:
    if own is None:
        return ()
    beside = peer if peer is not None and peer.samples else None
    shares = compared(own.lines(), None if beside is None else beside.lines())
    called = {**(beside.called() if beside else {}), **own.called()}
    names = _short_files([one.line for one in shares])
    peer_step_s = beside.step_s if beside else None
    return tuple(
        _card_line(one, names[one.line], called.get(one.line, ""), own.step_s, peer_step_s)
        for one in shares[:MAX_LINES]
    )


def _card_line(
    one: LineShare, place: str, calls: str, step_s: float | None, peer_step_s: float | None
) -> CardLine:
    return CardLine(
        place=place,
        name=one.line.name,
        calls=calls,
        num=one.num,
        share=one.share,
        seconds=None if step_s is None else one.share * step_s,
        margin_s=None if step_s is None else one.margin * step_s,
        peer_num=one.peer_num,
        peer_share=one.peer_share,
        peer_seconds=None if peer_step_s is None or one.peer_share is None else one.peer_share * peer_step_s,
        differs=one.differs,
    )


def _worker_lines(workers: Sequence[Sampled], lines: Sequence[CodeLine]) -> tuple[CardLine, ...]:
    called: dict[CodeLine, str] = {}
    for worker in workers:
        called |= worker.called()
    shares = compared(lines, None)
    names = _short_files([one.line for one in shares])
    num_samples = sum(len(worker.samples) for worker in workers)
    # Of all samples, in many of which they may have had no work.
    return tuple(
        replace(
            _card_line(one, names[one.line], called.get(one.line, ""), None, None),
            share=one.num / max(num_samples, 1),
        )
        for one in shares[:MAX_LINES]
    )


def _short_files(lines: Sequence[CodeLine]) -> dict[CodeLine, str]:
    """file:line; with the folder where two files have one name."""
    folders: dict[str, set[str]] = {}
    for line in lines:
        folders.setdefault(line.file.rpartition("/")[2], set()).add(line.file)
    return {
        line: f"{name if len(folders[name := line.file.rpartition('/')[2]]) == 1 else line.file}:{line.line}"
        for line in lines
    }


def _words(
    look: Look,
    own: Sampled | None,
    peer: Sampled | None,
    lines: Sequence[CardLine],
    workers: Sequence[CardLine],
) -> str:
    if own is None or not own.samples:
        return _why_unseen(look, own)
    if look.subject in {"input", "host"}:
        return _own_words(look.of, lines, workers)
    if peer is None or not peer.samples:
        alone = f"rank {look.of} is compared with nobody: no peer's stacks were seen"
        return f"{_own_words(look.of, lines, workers)}; {alone}"
    if not is_enough(own.samples, peer.samples):
        least = int(LIMITS["least_samples"].value)
        return f"too few samples to compare rank {look.of} with rank {peer.rank}: {least} of each are needed"
    more = [line for line in lines if line.differs and line.share > (line.peer_share or 0.0)]
    if not more:
        return f"no difference between rank {look.of} and rank {peer.rank} beyond sampling noise"
    first = more[0]
    return (
        f"rank {look.of} spends {own_time(first)} at {first.place} in {first.name}; "
        f"its peer, rank {peer.rank}: {peer_time(first)}"
    )


def _own_words(rank: int, lines: Sequence[CardLine], workers: Sequence[CardLine]) -> str:
    own = f"rank {rank} spends no hundredth of its samples at one line"
    if lines:
        own = f"rank {rank} spends {own_time(lines[0])} at {lines[0].place} in {lines[0].name}"
    if not workers:
        return own
    share = f"{100 * workers[0].share:.0f} % of their samples"
    return f"its loader's workers spend {share} at {workers[0].place} in {workers[0].name}; {own}"


def _why_unseen(look: Look, own: Sampled | None) -> str:
    if own is None:
        return f"rank {look.of}: no stacks have come yet"
    return f"rank {look.of}: its stacks were not seen" + (f": {own.why}" if own.why else "")


def peer_time(line: CardLine) -> str:
    """Of the peer at this line."""
    return _time(line.peer_seconds, line.peer_share or 0.0)


def own_time(line: CardLine) -> str:
    """Of the rank, with what so few samples leave open."""
    if line.seconds is None or line.margin_s is None:
        return _time(line.seconds, line.share)
    if line.seconds >= 1:
        return f"{line.seconds:.1f} ± {max(line.margin_s, 0.1):.1f} s a step"
    if line.seconds >= 0.01:
        return f"{1000 * line.seconds:.0f} ± {max(1000 * line.margin_s, 1):.0f} ms a step"
    return f"{1000 * line.seconds:.1f} ± {max(1000 * line.margin_s, 0.1):.1f} ms a step"


def _time(seconds: float | None, share: float) -> str:
    if seconds is None:
        return f"{100 * share:.0f} % of its samples" if share else "none of its samples"
    if share == 0:
        return "none"
    if seconds >= 1:
        return f"{seconds:.1f} s a step"
    return f"{1000 * seconds:.0f} ms a step" if seconds >= 0.01 else f"{1000 * seconds:.2g} ms a step"


def _basis(own: Sampled | None, peer: Sampled | None, workers: Sequence[Sampled]) -> str:
    parts = [
        f"{len(one.samples)} samples of rank {one.rank} {WAYS.get(one.way, '')}".strip()
        for one in (own, peer)
        if one is not None and one.samples
    ]
    if workers:
        num = sum(len(one.samples) for one in workers)
        parts.append(f"{num} samples of {len(workers)} of its loader's workers")
    if own is not None and own.step_s is not None:
        parts.append(f"{own.num_steps} steps meanwhile")
    return "; ".join(parts)


def _stage_notes(workers: Sequence[Sampled]) -> tuple[str, ...]:
    """Which stage of their loop the loader's workers are in."""
    stages = worker_stages(workers)
    told = ", ".join(f"{100 * share:.0f} % {stage}" for stage, share in stages.items())
    return (f"its loader's workers: {told}",) if told else ()


def _notes(look: Look, own: Sampled | None, peer: Sampled | None) -> tuple[str, ...]:
    notes = [f"rank {one.rank}: {one.why}" for one in (own, peer) if one is not None and one.why]
    if own is not None and own.samples and own.step_s is None:
        num = "it is not known how many" if own.num_steps is None else f"only {own.num_steps}"
        notes.append(f"{num} steps ended meanwhile: shares of the samples, no times a step")
    failed = Counter(one.why for one in look.workers(look.of) if not one.samples)
    notes += [f"{num} of its loader's workers: {why}" for why, num in failed.items()]
    if look.subject == "input" and not look.workers(look.of):
        notes.append(
            "no worker process of its data loader was found: it loads in its own thread, or elsewhere"
        )
    return tuple(notes)


def _hang(look: Look) -> StackCard:
    threads = sorted(
        (one for one in look.threads if not one.is_worker), key=lambda one: (one.rank != look.of, one.rank)
    )
    stands = tuple(_stands(one) for one in threads)
    first = next((one for one in stands if one.rank == look.of), None)
    where = "no stack has come yet"
    if first is not None:
        where = "its stack was not seen" + (f": {first.why}" if first.why else "")
    if first is not None and first.place:
        where = f"stands at {first.place} in {first.name}"
    return StackCard(
        look=look.number,
        subject=look.subject,
        rank=look.of,
        peer=None,
        words=f"rank {look.of} {where}" if first is not None and first.place else f"rank {look.of}: {where}",
        basis="; ".join(f"{len(one.samples)} samples of rank {one.rank}" for one in threads if one.samples),
        step_s=None,
        num_samples=sum(len(one.samples) for one in threads),
        num_peer_samples=None,
        lines=(),
        workers=(),
        num_workers=0,
        num_worker_samples=0,
        stands=stands,
        notes=(),
    )


def _stands(one: Sampled) -> StandsAt:
    lines = one.lines()
    if not lines:
        return StandsAt(one.rank, "", "", "", None, one.native, one.why)
    line, num = Counter(lines).most_common(1)[0]
    place = _short_files([line])[line]
    return StandsAt(
        one.rank, place, line.name, one.called().get(line, ""), num / len(lines), one.native, one.why
    )
