"""`tuiadvisor stacks [RANKS]`: where ranks that hang are, and in which collective.

Each rank tells its stack and how far its process groups got; py-spy adds frames in C, and ranks that cannot answer.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.advisor.judge.hang import stall_of_answers
from tuiadvisor.agent import nccl_ras
from tuiadvisor.agent.flight_recorder import ask_recorders
from tuiadvisor.agent.stacks import RankStacks, find_spy, stacks_of
from tuiadvisor.cli.document import print_document
from tuiadvisor.cli.options.rank_set import rank_set, said
from tuiadvisor.cli.options.target import ranks_of
from tuiadvisor.cli.options.training import add_target
from tuiadvisor.cli.stack_lines import print_lines
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.metrics.hang.asked_recorder import asked
from tuiadvisor.metrics.hang.sequence_numbers import GroupPlace, RankPlace, StuckCall, in_words, stuck_calls

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tuiadvisor.agent.discovery import RankProcess
    from tuiadvisor.views.stall import Stall

NO_SPY: Final = "py-spy is not installed beside tuiadvisor: pip install 'tuiadvisor[stacks]'"
MAX_WHYS: Final = 3
STATES: Final = {"R": "running", "S": "asleep", "D": "waits for a device", "T": "stopped", "t": "traced"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "ranks",
        nargs="?",
        type=rank_set,
        metavar="RANKS",
        help="0,3-5 or all (default all): ranks of this machine",
    )
    add_target(parser)
    parser.add_argument(
        "--lines",
        action="store_true",
        help="2 s of samples of one rank and a peer: the lines of code at which it spends more time",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    """Look and print. 1 if nothing at all could be seen."""
    processes = ranks_of(options)
    if options.lines:
        return print_lines(processes, options.ranks, as_json=options.json)
    spy = find_spy()
    found = stacks_of(processes, spy)  # all of them: who is missing shows only beside the others
    shown = [one for one in found if options.ranks is None or one.rank in options.ranks]
    if not shown:
        raise TuiadvisorError(f"{said(options.ranks)}: not on this machine")
    if not any(one.stack or one.native for one in shown):
        raise FailureError("nothing could be seen: " + "; ".join(f"{_name(one)}: {one.why}" for one in shown))
    moving = any(one.moved for one in found)
    stopped = {one.rank for one in found if one.state == "T" and one.rank is not None}
    calls = (
        ()
        if moving
        else stuck_calls([_place(one) for one in found if one.was_asked and one.rank is not None])
    )
    ras = nccl_ras.ask_ranks([one.pid for one in found])
    recorded = None if moving else _recorded(processes, found, stopped)
    if options.json:
        document = _document(shown, calls, spy, stopped, moving=moving)
        print_document(document | {"nccl_ras": _ras(ras), "flight_recorders": _of_recorders(recorded)})
    else:
        said_by_nccl = [] if ras is None else [*ras.words(), *([f"unknown: {ras.why}"] if ras.why else [])]
        is_told = recorded is not None and bool(recorded.collectives)
        said_by_recorders = _said_by_recorders(recorded)
        print(
            "\n".join(
                [
                    *said_by_recorders,
                    *said_by_nccl,
                    *_lines(shown, calls, spy, stopped, moving=moving, is_told=is_told),
                ]
            )
        )
    return 0


def _recorded(processes: list[RankProcess], found: list[RankStacks], stopped: set[int]) -> Stall | None:
    """What the flight recorders say of ranks that have a number; None where nobody has one."""
    numbered = [
        (one.rank, process) for one, process in zip(found, processes, strict=True) if one.rank is not None
    ]
    if not numbered:
        return None
    entries = ask_recorders([process for _, process in numbered])
    answers = [asked(entry, rank) for (rank, _), entry in zip(numbered, entries, strict=True)]
    return stall_of_answers(answers, sorted(stopped))


def _said_by_recorders(recorded: Stall | None) -> list[str]:
    """What they say together, else why they say nothing."""
    if recorded is None:
        return []
    if recorded.evidence:
        return [recorded.evidence]
    whys = list(dict.fromkeys(why for _, why in recorded.unasked))
    return [f"unknown: flight recorders: {'; '.join(whys[:MAX_WHYS])}"] if whys else []


def _of_recorders(stall: Stall | None) -> dict[str, Any] | None:
    """None: the ranks go on, or have no numbers."""
    if stall is None:
        return None
    return {
        "words": stall.evidence,
        "missing": stall.missing,
        "collectives": [asdict(one) for one in stall.collectives],
        "different": stall.different,
        "unasked": [{"rank": rank, "why": why} for rank, why in stall.unasked],
    }


def _place(one: RankStacks) -> RankPlace:
    groups = tuple(GroupPlace(group.name, group.purpose, group.members, group.seq) for group in one.groups)
    return RankPlace(one.rank or 0, one.call, one.call_group, groups, one.stack, one.for_s)


def _document(
    shown: list[RankStacks], calls: tuple[StuckCall, ...], spy: str | None, stopped: set[int], *, moving: bool
) -> dict[str, Any]:
    return {
        "schema": 1,
        "moving": moving,
        "stuck": [
            {
                "group": call.group,
                "purpose": call.purpose,
                "seq": call.seq,
                "call": call.call,
                "is_certain": call.is_certain,
                "waiting": call.waiting,
                "missing": call.missing,
                "unknown": call.unknown,
                "for_s": call.for_s,
                "words": in_words(call, stopped),
            }
            for call in calls
        ],
        "ranks": [
            {
                "rank": one.rank,
                "pid": one.pid,
                "state": STATES.get(one.state, one.state),
                "thread": (one.thread_name or str(one.thread)) if one.thread is not None else None,
                "call": one.call,
                "call_group": one.call_group,
                "call_peer": one.call_peer,
                "stack": one.stack,
                "native": one.native or None,
                "why": one.why or None,
            }
            for one in shown
        ],
        "py_spy": spy,
        "unknown": [] if spy else [{"metric": "native frames", "why": NO_SPY}],
    }


def _ras(answer: nccl_ras.RasAnswer | None) -> dict[str, Any] | None:
    """None: no rank of this machine has NCCL loaded."""
    if answer is None:
        return None
    return {
        "moving": answer.moved,
        "behind": [
            {
                "communicator": one.communicator,
                "size": one.size,
                "collective": one.kind,
                "most": one.most,
                "ranks": one.ranks,
            }
            for one in answer.behind
        ],
        "silent": [
            {"communicator": name, "size": size, "ranks": ranks} for name, size, ranks in answer.silent
        ],
        "words": answer.words(),
        "why": answer.why or None,
    }


def _lines(
    shown: list[RankStacks],
    calls: tuple[StuckCall, ...],
    spy: str | None,
    stopped: set[int],
    *,
    moving: bool,
    is_told: bool,
) -> Iterator[str]:
    """is_told: the flight recorders have said it, whose numbers are those of collectives alone."""
    yield from (in_words(call, stopped) for call in calls if not is_told)
    if moving:
        yield "the ranks go on: they entered collectives while they were looked at, so nobody hangs"
    elif not calls and not is_told:
        yield "no collective is seen in which ranks wait for others"
    missing = {rank for call in calls for rank in call.missing}
    for one in sorted(shown, key=lambda one: one.rank not in missing):
        yield ""
        yield f"{_name(one)} (process {one.pid}, {STATES.get(one.state, one.state)}{_thread(one)}), {_where(one)}:"
        yield from (f"    {frame}" for frame in one.native or one.stack)
        if one.why:
            yield f"    unknown: {one.why}"
    if spy is None:
        yield ""
        yield f"frames in C are not shown: {NO_SPY}"


def _thread(one: RankStacks) -> str:
    return f"; thread {one.thread_name or one.thread}" if one.thread is not None else ""


def _where(one: RankStacks) -> str:
    if one.call is None:
        return "not in torch.distributed" if one.was_asked else "not known where"
    group = f" of group {one.call_group}" if one.call_group else ""
    return f"in {one.call}{group}" + (f", rank {one.call_peer}" if one.call_peer is not None else "")


def _name(one: RankStacks) -> str:
    return "rank ?" if one.rank is None else f"rank {one.rank}"
