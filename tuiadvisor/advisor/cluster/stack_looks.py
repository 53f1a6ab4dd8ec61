"""The stacks that were sampled on request, the last few requests' answers.

In: the `stacks` of STATUS frames, from strangers.  Out: looks, each with the samples of its ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tuiadvisor.advisor.cluster.payload_fields import Payload, integer, objects, text
from tuiadvisor.metrics.sampling.code_line import CodeFrame
from tuiadvisor.metrics.sampling.sampled import Sampled

MAX_LOOKS: Final = 6
MAX_THREADS: Final = 80  # of one look: 16 ranks with a few workers each
MAX_FRAMES: Final = 4000
MAX_STACKS: Final = 400
MAX_DEPTH: Final = 60
MAX_SAMPLES: Final = 2000
MAX_NATIVE: Final = 60
MAX_NAME_CHARS: Final = 120
MAX_LINE: Final = 1 << 31
PROBE_FOLDER: Final = (
    "tuiadvisor_probes/"  # recordings of older agents hold the probe's frames as the training's own
)


@dataclass(slots=True)
class Look:
    """What one request brought. of: the rank in question."""

    number: int
    subject: str
    of: int
    stood_since_ns: int | None = None  # since when it stood where it was looked at, on its host's clock
    told_ns: int | None = None  # when that rank's samples were told, on its host's clock
    threads: list[Sampled] = field(default_factory=list)

    def thread(self, rank: int) -> Sampled | None:
        """The training thread of a rank."""
        return next((one for one in self.threads if one.rank == rank and not one.is_worker), None)

    def workers(self, rank: int) -> list[Sampled]:
        """The workers of a rank's loader."""
        return [one for one in self.threads if one.rank == rank and one.is_worker]


class StackLooks:
    """Mutable: feed it entries."""

    def __init__(self) -> None:
        self._looks: dict[int, Look] = {}

    def take(self, entry: Payload, stood_since_ns: int | None = None, told_ns: int | None = None) -> None:
        """One thread's samples; whose rank it is has been checked.

        stood_since_ns: since when that rank has not moved. told_ns: now, on its host's clock.
        """
        number, rank, of = integer(entry, "look"), integer(entry, "rank"), integer(entry, "of")
        if number is None or rank is None or of is None:
            return
        look = self._looks.get(number)
        if look is None:
            look = self._looks[number] = Look(number, text(entry, "subject") or "straggler", of)
            while len(self._looks) > MAX_LOOKS:
                del self._looks[next(iter(self._looks))]
        if rank == of:
            look.stood_since_ns, look.told_ns = stood_since_ns, told_ns
        if len(look.threads) < MAX_THREADS:
            look.threads.append(_sampled(entry, rank))

    def newest_first(self) -> list[Look]:
        """The looks that are kept."""
        return list(reversed(self._looks.values()))


def _sampled(entry: Payload, rank: int) -> Sampled:
    stacks = _stacks(entry)
    steps, elapsed_ms = integer(entry, "num_steps"), integer(entry, "steps_ms")
    samples = entry.get("samples")
    return Sampled(
        rank=rank,
        pid=integer(entry, "pid") or 0,
        is_worker=bool(integer(entry, "worker")),
        way=text(entry, "way") or "",
        stacks=stacks,
        samples=tuple(
            index
            for index in (samples[:MAX_SAMPLES] if isinstance(samples, list) else ())
            if type(index) is int and 0 <= index < len(stacks)
        ),
        native=_texts(entry.get("native")),
        num_steps=steps,
        elapsed_s=elapsed_ms / 1000 if elapsed_ms else None,
        why=text(entry, "why") or "",
    )


def _stacks(entry: Payload) -> tuple[tuple[CodeFrame, ...], ...]:
    frames = [_frame(one) for one in objects(entry, "frames")[:MAX_FRAMES]]
    told = entry.get("stacks")
    return tuple(
        tuple(
            frames[index]
            for index in (stack[:MAX_DEPTH] if isinstance(stack, list) else ())
            if type(index) is int
            and 0 <= index < len(frames)
            and not frames[index].file.startswith(PROBE_FOLDER)
        )
        for stack in (told[:MAX_STACKS] if isinstance(told, list) else ())
    )


def _frame(told: Payload) -> CodeFrame:
    name, file = text(told, "name") or "?", text(told, "file") or "?"
    line = integer(told, "line") or 0
    return CodeFrame(
        name[:MAX_NAME_CHARS],
        file[:MAX_NAME_CHARS],
        line if line < MAX_LINE else 0,
        bool(integer(told, "own")),
    )


def _texts(value: object) -> tuple[str, ...]:
    items = value[:MAX_NATIVE] if isinstance(value, list) else []
    return tuple(said for item in items if (said := text({"": item}, "")))
