"""The phases of a step, one row each: names, letters, kinds, and what the probe's clock asks are derived from here.

Elsewhere stand its styles in the terminal's themes (`tui/draw/colours.py`) and the hook that books it. A new row is a
new column of the ring, of frames and of recordings, which older ones have not.

`python -m tuiadvisor.phases` writes the constants of the probe (`tuiadvisor_probes/phases.py`), which cannot import
this module; a test holds them equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# input: waits for its next batch.  sync: waits for other ranks, or moves data to them.  idle: has no work in a
# pipeline.  pause: now and then, and no work of a step.  rest: logging, Python, anything without a hook.
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
        *("waiting for its next batch", "waiting for the next batch"),
        "no DataLoader hook has fired; its time is in other",
        grows_with_batch=True,
        is_hooked=True,
        begins_iteration=True,
    ),
    Phase(
        *("h2d", "copy", "copy to device", "copy", "copy", "H", "#e8dc4a"),
        *("copying to the device", "copying to the device"),
        "copies to the device are not timed; their time is in other",
        grows_with_batch=True,
    ),
    Phase(
        *("forward", "compute", "forward", "forward", "fwd", "F", "#56b4e9"),
        *("in forward", "forward", NO_HOOK),
        grows_with_batch=True,
        is_hooked=True,
        begins_iteration=True,
    ),
    Phase(
        *("backward", "compute", "backward", "backward", "bwd", "B", "#1f6fae"),
        *("in backward", "backward without waiting for communication", NO_HOOK),
        is_dark=True,
        grows_with_batch=True,
        is_hooked=True,
        begins_iteration=True,
    ),
    Phase(
        *("comm_exposed", "sync", "exposed comm", "exp. comm", "comm", "C", "#cc79a7"),
        *("in exposed communication", "communication that nothing hides"),
        "no gradient barrier or collective was observed; its time is in backward or other",
    ),
    Phase(
        *("optimizer", "compute", "optimizer", "optimizer", "opt", "O", "#1fa37c"),
        *("in the optimizer", "optimizer", NO_HOOK),
        is_dark=True,
        is_hooked=True,
        is_after_barrier=True,
    ),
    Phase(
        *("checkpoint", "pause", "checkpoint", "checkpt", "ckpt", "K", "#d9682b"),
        *("writing a checkpoint", "writing a checkpoint"),
        "no checkpoint was seen; one that a library writes by itself is in other",
        is_dark=True,
        is_after_barrier=True,
        absorbs=True,
    ),
    Phase(
        *("eval", "pause", "forward only", "fw only", "eval", "E", "#a08fe8"),
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
        *("idle in the pipeline", "waiting for a neighbour stage", "no pipeline stages"),
        is_dark=True,
        begins_iteration=True,
    ),
    Phase(
        *("other", "rest", "other", "other", "rest", "r", "#8f98a5"),
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


def main() -> None:
    """Write it beside the probe's other modules."""
    from pathlib import Path  # noqa: PLC0415 - whoever imports the names needs no files

    import tuiadvisor_probes  # noqa: PLC0415

    path = Path(str(tuiadvisor_probes.__file__)).with_name("phases.py")
    path.write_text(probe_constants(), encoding="utf-8")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
