"""What a RUN frame says of the recording: who made it, of what, and what the user stated of a step's work.

In: RUN payloads.  Out: RunHeader, as far as they can be believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.device_work import device_work
from tuiadvisor.advisor.cluster.payload_fields import MAX_RANKS, integer, number, text
from tuiadvisor.events import MAX_FLOPS, MAX_WORK_PER_STEP, NOTHING_GIVEN, GivenWork
from tuiadvisor.views.efficiency import Arithmetic
from tuiadvisor.views.run_view import Imported, Traced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.advisor.cluster.payload_fields import Payload

MAX_TOLD: Final = 11  # sentences of an import or a trace


class RunHeader:
    """Mutable: feed it payloads; a later one replaces what it says anew."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # "tuiadvisor" (its version), "label", "command", "hub_host"
        self.created_wall_ns: int | None = None
        self.given = NOTHING_GIVEN
        self.imported: Imported | None = None
        self.traced: Traced | None = None

    def take(self, payload: Payload) -> Iterator[str]:
        """Yields the sentences to be told with the run: where it is from, and what was lost on the way."""
        self.created_wall_ns = integer(payload, "created_wall_ns")
        self.given = GivenWork(
            _work(payload, "samples_per_step"),
            _work(payload, "tokens_per_step"),
            _work(payload, "flops_per_step", MAX_FLOPS),
            _work(payload, "peak_flops", MAX_FLOPS),
        )
        for name in ("tuiadvisor", "label", "command", "hub_host"):
            value = text(payload, name)
            if value:
                self.names[name] = value
        imported, traced = payload.get("imported"), payload.get("traced")
        if isinstance(imported, dict):
            self.imported = _imported(imported)
            yield f"not live: imported from {self.imported.words or 'another tool'}"
            yield from _told(imported)
        if isinstance(traced, dict):
            self.traced = _traced(traced)
            yield from _told(traced)


def _imported(told: Payload) -> Imported:
    """What traces tell of themselves."""
    late, uncompared = told.get("late_ranks"), told.get("uncompared")
    cause_ranks = told.get("cause_ranks")
    return Imported(
        kind=text(told, "kind") or "unknown",
        source=text(told, "source") or "",
        words=text(told, "words") or "",
        because=text(told, "because") or "",
        late_ranks=_integers(late) if isinstance(late, list) else None,
        device=device_work(told.get("device")),
        arithmetic=_arithmetic(told.get("arithmetic")),
        says=text(told, "says") or "",
        uncompared=_integers(uncompared) if isinstance(uncompared, list) else (),
        steps_tell=told.get("steps_tell") is True,
        waits_share=number(told, "waits_share"),
        cause_ranks=_integers(cause_ranks) if isinstance(cause_ranks, list) else (),
    )


def _arithmetic(told: object) -> Arithmetic | None:
    """None where it says no FLOPs, or more than there can be."""
    if not isinstance(told, dict):
        return None
    flops, peak = number(told, "flops_per_step"), number(told, "peak_flops")
    if not flops or flops > MAX_FLOPS:
        return None
    bound = text(told, "bound")
    return Arithmetic(
        flops,
        peak if peak and peak <= MAX_FLOPS else None,
        text(told, "peak_source"),
        text(told, "dtype"),
        number(told, "intensity_flop_byte"),
        bound if bound in {"memory", "compute"} else None,
    )


def _traced(told: Payload) -> Traced:
    """What a trace beside the recording tells of itself, and of what it covers."""
    of, steps = _imported(told), _integers(told.get("steps"))
    first, last = steps if len(steps) == 2 else (None, None)
    ranks = _integers(told.get("ranks"))
    of_traces = (of.kind, of.source, of.words, of.because, of.late_ranks, of.device, of.arithmetic, of.says)
    return Traced(*of_traces, ranks=ranks, first_step=first, last_step=last)


def _told(told: Payload) -> Iterator[str]:
    notes = told.get("notes")
    for sentence in notes[:MAX_TOLD] if isinstance(notes, list) else ():
        yield str(sentence)


def _work(payload: Payload, name: str, most: int = MAX_WORK_PER_STEP) -> int | None:
    value = integer(payload, name)
    return value if value is not None and 0 < value <= most else None


def _integers(value: object) -> tuple[int, ...]:
    """Those of a list that are numbers from 0 on, so many as there may be ranks."""
    items = value[:MAX_RANKS] if isinstance(value, list) else []
    return tuple(item for item in items if type(item) is int and 0 <= item < 1 << 62)
