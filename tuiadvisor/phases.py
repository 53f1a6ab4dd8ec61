"""The phases of a step, one row each: names, letters, kinds, and what the probe's clock asks are derived from here.

Elsewhere stands the hook that books it. A new row stands directly before `other`: the others keep the numbers that
hooks and older recordings have of them. It is a new column of the ring, of frames and of recordings, which older ones
have not.

`python -m tuiadvisor.phases` writes the probe's constants (`tuiadvisor_probes/phases.py` and `native/phases.h`), which
cannot import this module; a test holds them equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# input: waits for its next batch.  compute: in every training.  sync: waits for other ranks, or moves data to them.
# idle: has no work in a pipeline.  pause: now and then, and no work of a step.  rest: logging, Python, anything without
# a hook.
Kind = Literal["input", "copy", "compute", "sync", "pause", "idle", "rest"]


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of a step; the parts sum to it."""

    name: str  # in columns, JSON and rules
    kind: Kind
    label: str  # in a sentence
    short: str  # nine cells at most: three legend items fit beside each other on 80 columns
    tiny: str  # three to five cells, over the columns of a narrow heat map
    letter: str  # doubles its colour
    colour: str  # on white; hues after Okabe and Ito (2008): told apart with every common colour blindness
    ink: str  # of the letter on that colour, in a terminal
    quiet_ink: (
        str  # of the letter in the bars of a table: there for whoever needs it, quiet for everybody else
    )
    ansi: str  # the whole style where a terminal has 16 colours
    where: str  # completes "rank 3 is late, ..."
    meaning: str  # of its column
    why_unknown: str
    is_dark: bool = False  # text on its colour is light
    grows_with_batch: bool = False
    is_hooked: bool = False  # every training has it, so without its hook its time hides in "other"
    is_after_barrier: bool = False  # runs after the barrier of its record, so it delays the next arrival
    begins_iteration: bool = False  # after an optimizer step it is the first of the next one
    absorbs: bool = False  # what happens inside is part of it: its loads, its barrier


NO_HOOK: Final = "no hook has fired; its time is in other"
TABLE: Final = (
    Phase(
        *("data_wait", "input", "data wait", "data wait", "data", "D", "#e69f00"),
        *("#3a2700", "#a06f00", "black on yellow"),
        *("waiting for its next batch", "waiting for the next batch"),
        "no DataLoader hook has fired; its time is in other",
        grows_with_batch=True,
        is_hooked=True,
        begins_iteration=True,
    ),
    Phase(
        *("h2d", "copy", "copy to device", "copy", "copy", "H", "#e8dc4a"),
        *("#3b3700", "#a39a2c", "black on bright_yellow"),
        *("copying to the device", "copying to the device"),
        "copies to the device are not timed; their time is in other",
        grows_with_batch=True,
    ),
    Phase(
        *("forward", "compute", "forward", "forward", "fwd", "F", "#56b4e9"),
        *("#0b3148", "#3a86b4", "black on cyan"),
        *("in forward", "forward", NO_HOOK),
        grows_with_batch=True,
        is_hooked=True,
        begins_iteration=True,
    ),
    Phase(
        *("backward", "compute", "backward", "backward", "bwd", "B", "#1f6fae"),
        *("#d6e8f7", "#4e97cf", "white on blue"),
        *("in backward", "backward without waiting for communication", NO_HOOK),
        is_dark=True,
        grows_with_batch=True,
        is_hooked=True,
        begins_iteration=True,
    ),
    Phase(
        *("comm_exposed", "sync", "exposed comm", "exp. comm", "comm", "C", "#cc79a7"),
        *("#3d1a30", "#985575", "black on magenta"),
        *("in exposed communication", "communication that nothing hides"),
        "no gradient barrier or collective was observed; its time is in backward or other",
    ),
    Phase(
        *("optimizer", "compute", "optimizer", "optimizer", "opt", "O", "#1fa37c"),
        *("#00261b", "#147257", "black on green"),
        *("in the optimizer", "optimizer", NO_HOOK),
        is_dark=True,
        is_hooked=True,
        is_after_barrier=True,
    ),
    Phase(
        *("checkpoint", "pause", "checkpoint", "checkpt", "ckpt", "K", "#d9682b"),
        *("#2e1200", "#96461a", "black on red"),
        *("writing a checkpoint", "writing a checkpoint"),
        "no checkpoint was seen; one that a library writes by itself is in other",
        is_dark=True,
        is_after_barrier=True,
        absorbs=True,
    ),
    Phase(
        *("eval", "pause", "forward only", "fw only", "eval", "E", "#a08fe8"),
        *("#1d1740", "#7263b8", "black on bright_magenta"),
        *(
            "in forward without backward",
            "forward without backward: evaluation, validation, a rollout, generation",
        ),
        "no forward without backward was seen; one without the model's own forward is in other",
        begins_iteration=True,
        absorbs=True,
    ),
    Phase(
        *("pipeline_idle", "idle", "pipeline idle", "pipe idle", "idle", "I", "#7d6542"),
        *("#f0e4d2", "#a58b62", "black on bright_red"),
        *("idle in the pipeline", "waiting for a neighbour stage", "no pipeline stages"),
        is_dark=True,
        begins_iteration=True,
    ),
    Phase(
        *("other", "rest", "other", "other", "rest", "r", "#8f98a5"),
        *("#c3cad6", "#79828f", "black on white"),
        *("in code without a hook", "rest of the step: logging, Python, phases without a hook", NO_HOOK),
        is_after_barrier=True,
    ),
)
PHASES: Final = tuple(phase.name for phase in TABLE)
BY_NAME: Final = {phase.name: phase for phase in TABLE}


def of_kind(*kinds: Kind) -> tuple[str, ...]:
    """Names of the phases of these kinds, in their order within a step."""
    return tuple(phase.name for phase in TABLE if phase.kind in kinds)


COMPUTE: Final = of_kind("compute")
WORK: Final = of_kind(
    "input", "copy", "compute", "pause", "rest"
)  # a rank's own: it waits for no other rank in them
PAUSES: Final = of_kind("pause")
COMPUTE_AND_REST: Final = of_kind("compute", "rest")  # what one processor or device does
EVERY_STEP: Final = of_kind(
    "input", "copy", "compute", "sync", "rest"
)  # that every training has in every step
CHAIN: Final = of_kind("input", "copy", "compute", "sync")
HOOKED: Final = tuple(phase.name for phase in TABLE if phase.is_hooked)
GROWING: Final = tuple(phase.name for phase in TABLE if phase.grows_with_batch)
AFTER_BARRIER: Final = tuple(phase.name for phase in TABLE if phase.is_after_barrier)


def computing(parts: Mapping[str, float | None]) -> float | None:
    """What forward, backward and optimizer take of these; None where one was not seen, as its time is in another part.

    Where gradients are made by a function (torch.func) no hook sees a forward: the rest of the step is no overhead.
    """
    known = [value for name in COMPUTE if (value := parts.get(name)) is not None]
    return sum(known) if len(known) == len(COMPUTE) else None


def probe_constants() -> str:
    """The module of the probe."""
    return constants_of(TABLE)


def constants_of(table: tuple[Phase, ...]) -> str:
    """A number a phase, and what the probe's clock asks of each."""
    numbers = "\n".join(f"{phase.name.upper()} = {number}" for number, phase in enumerate(table))
    begins = ", ".join(str(phase.begins_iteration) for phase in table)
    absorbs = ", ".join(str(phase.absorbs) for phase in table)
    return (
        '"""Numbers of the phases; written by `python -m tuiadvisor.phases`, never by hand."""\n\n'
        "from __future__ import annotations\n\n"
        f"{numbers}\nNUM_PHASES = {len(table)}\n"
        f"BEGINS_ITERATION = ({begins})\n"
        "# What happens inside a checkpoint or an evaluation is part of it: its loads, its barrier.\n"
        f"ABSORBS = ({absorbs})\n"
    )


def header_of(table: tuple[Phase, ...]) -> str:
    """The same for the probe's core in C."""
    numbers = ", ".join(f"{phase.name.upper()} = {number}" for number, phase in enumerate(table))

    def bits(is_meant: Callable[[Phase], bool]) -> str:
        return " | ".join(f"1 << {phase.name.upper()}" for phase in table if is_meant(phase))

    return (
        "/* Numbers of the phases; written by `python -m tuiadvisor.phases`, never by hand. */\n"
        f"enum {{ {numbers} }};\n"
        f"enum {{ NUM_PHASES = {len(table)} }};\n"
        f"#define BEGINS_ITERATION ({bits(lambda phase: phase.begins_iteration)})\n"
        f"#define ABSORBING ({bits(lambda phase: phase.absorbs)})\n"
    )


def main() -> None:
    """Write both beside the probe's other sources."""
    from pathlib import Path  # noqa: PLC0415 - whoever imports the names needs no files

    import tuiadvisor_probes  # noqa: PLC0415

    module = Path(str(tuiadvisor_probes.__file__)).with_name("phases.py")
    for path, text in (
        (module, probe_constants()),
        (module.parents[1] / "native" / "phases.h", header_of(TABLE)),
    ):
        path.write_text(text, encoding="utf-8")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
