"""Whether two runs did the same work, in which terms they can be compared, and what else was different.

A wrong comparison is worse than none: what differs or is unknown is said, and the terms fall back from the time of
a step to throughput in samples, or to no comparison at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.views.comparison import Basis, Difference

if TYPE_CHECKING:
    from tuiadvisor.views.comparison import MachineLoad, WorkUnit
    from tuiadvisor.views.run_view import RunView

SAMPLES: Final = "samples a step"
PASSES: Final = "backward passes a step"
SAME_SAMPLES: Final = 0.001  # two global batches this near each other are one
# Mean lengths this near each other are one: batches padded to their longest differ so from run to run. As much as two
# runs of the same code may differ by (NOISE_FLOOR), so no change is called one for it.
SAME_LENGTHS: Final = 0.02
FULL_MACHINE: Final = 0.8  # of the cores busy: from here on others' work delays ours
MORE_LOAD: Final = 0.1  # of the cores: a difference of load that counts
MORE_WAIT: Final = 0.02  # of the time: a difference in waiting for a core that counts


@dataclass(frozen=True, slots=True)
class Terms:
    """basis None: not comparable, reasons say why. Step seconds times scale are the seconds of a unit of work."""

    basis: Basis | None
    scale_before: float
    scale_after: float
    reasons: tuple[str, ...]
    cautions: tuple[str, ...] = ()
    is_other_model: bool = False  # then nothing of the one has improved in the other


def terms(before: WorkUnit, after: WorkUnit, *, same_work: bool) -> Terms:
    """The terms in which these two units of work compare. same_work: the user vouches for what is unknown."""
    model = _differ("gradient bytes a rank", before.gradient_bytes, after.gradient_bytes)
    parameters = before.num_parameters, after.num_parameters
    if None not in parameters:
        # As many parameters with other bytes of gradients: another precision, and that is what is to be compared.
        is_other = parameters[0] != parameters[1]
        other = f"{parameters[0]:,} parameters before, {parameters[1]:,} after" if is_other else ""
    else:
        other = model
    if other and not same_work:
        why = f"{other}: not the same model, so neither a step nor a sample is the same work"
        return Terms(None, 1.0, 1.0, (why,), is_other_model=True)
    sample = _of_a_sample(before, after)
    if sample and not same_work:
        why = f"{sample}: neither a step nor a sample is the same work"
        return Terms(None, 1.0, 1.0, (why,))
    unknown = [
        name
        for name, old, new in (
            ("world size", before.world_size, after.world_size),
            (SAMPLES, before.samples_per_step, after.samples_per_step),
            ("size of the model", _size(before), _size(after)),
            ("collectives a step", before.num_collectives, after.num_collectives),
        )
        if old is None or new is None
    ]
    differing = [
        text
        for text in (
            model,
            _differ(SAMPLES, before.samples_per_step, after.samples_per_step),
            sample,
            _differ("collectives a step", before.num_collectives, after.num_collectives),
            _differ(PASSES, before.micro_steps, after.micro_steps),
            _differ("ranks", before.world_size, after.world_size),
        )
        if text
    ]
    if not differing and not unknown:
        return Terms("step", 1.0, 1.0, ())
    if before.samples_per_step and after.samples_per_step:
        return _in_samples(before, after, [*differing, *(f"{name} unknown" for name in unknown)])
    return _without_samples(before, after, differing, unknown, same_work=same_work)


def _without_samples(
    before: WorkUnit, after: WorkUnit, differing: list[str], unknown: list[str], *, same_work: bool
) -> Terms:
    """By the time of a step, where nothing differs that tells of its work."""
    tokens = _differ("tokens a step", before.tokens_per_step, after.tokens_per_step, SAME_LENGTHS)
    shapes = before.input_shape, after.input_shape
    is_shaped = unknown == [SAMPLES] and all(shapes)
    differing = [text for text in (*differing, tokens, _other_input(*shapes)) if text]
    if is_shaped and None in (before.micro_steps, after.micro_steps):
        unknown = [*unknown, PASSES]
    if same_work and not differing:
        return Terms("step", 1.0, 1.0, (), (f"unknown, vouched for by you: {', '.join(unknown)}",))
    if is_shaped and unknown == [SAMPLES] and not differing:
        # A loop that makes its batches itself has no loader that would tell one; what the model is given tells as much.
        called = f"the model is called with {shapes[0]} in both, taken to be as often"
        return Terms("step", 1.0, 1.0, (), (f"{SAMPLES} are unknown; {called}",))
    reasons = [*differing]
    if unknown:
        reasons.append(f"unknown: {', '.join(unknown)}; {_answer(differing)}")
    return Terms(None, 1.0, 1.0, tuple(reasons))


def _answer(differing: list[str]) -> str:
    """What makes a comparison of it: nobody can vouch for what surely differs."""
    if differing:
        return "where each is recorded with --samples-per-step they are compared by samples"
    return "if a step does the same work in both, say so with --same-work"


def _of_a_sample(before: WorkUnit, after: WorkUnit) -> str:
    """How a sample differs where samples are counted in both; "": not, as far as is known.

    Tokens tell before the model's input does, of which one call was seen: lengths vary from batch to batch.
    """
    units = before, after
    if not all(unit.samples_per_step for unit in units):
        return ""
    if all(unit.tokens_per_step for unit in units):
        old, new = ((unit.tokens_per_step or 0.0) / (unit.samples_per_step or 1.0) for unit in units)
        return _differ("tokens a sample", old, new, SAME_LENGTHS)
    # The first size is the batch of a call, which other ranks and passes change.
    sizes = [unit.input_shape.partition("x")[2] for unit in units]
    return _other_input(before.input_shape, after.input_shape) if sizes[0] != sizes[1] else ""


def _other_input(before: str, after: str) -> str:
    return f"the model's input {before} before, {after} after" if before and after and before != after else ""


def _size(unit: WorkUnit) -> int | None:
    return unit.gradient_bytes if unit.num_parameters is None else unit.num_parameters


def _in_samples(before: WorkUnit, after: WorkUnit, why: list[str]) -> Terms:
    samples = before.samples_per_step or 1.0, after.samples_per_step or 1.0
    said = (f"compared by throughput, because {'; '.join(why)}",)
    if before.world_size and after.world_size and before.world_size != after.world_size:
        return Terms(
            "samples_per_device",
            before.world_size / samples[0],
            after.world_size / samples[1],
            (),
            said,
        )
    return Terms("samples", 1 / samples[0], 1 / samples[1], (), said)


def _differ(name: str, before: float | None, after: float | None, same: float = SAME_SAMPLES) -> str:
    if before is None or after is None or abs(after - before) <= same * max(before, after):
        return ""
    return f"{name} {_counted(before)} before, {_counted(after)} after"


def _counted(value: float) -> str:
    """A count to the last digit; the mean of counts that vary with four."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"


def busier(
    before: MachineLoad | None, after: MachineLoad | None, *, is_after: bool, as_many_ranks: bool = True
) -> str | None:
    """That one side shared its machine with more; None when it did not, or when cores were left.

    is_after: the side that is asked about: only the slower run may be the one on the busier machine.
    as_many_ranks: otherwise a longer wait for a core may be the job's own doing.

    Only a full machine delays anybody.
    """
    if before is None or after is None:
        return None
    busy, calm = (after, before) if is_after else (before, after)
    shared = MORE_LOAD * busy.num_cpus
    if busy.busy < FULL_MACHINE or busy.other_cores < shared:
        return None
    waits = busy.wait_for_core, calm.wait_for_core
    waited_more = (
        as_many_ranks and waits[0] is not None and waits[1] is not None and waits[0] - waits[1] >= MORE_WAIT
    )
    others_more = busy.other_cores - calm.other_cores >= shared
    if not waited_more and not others_more:
        return None
    when = ("after", "before") if is_after else ("before", "after")
    # What decided alone: the other quantity may well be larger on the calmer side.
    told = []
    if others_more:
        cores = [f"{load.other_cores:.1f} of {load.num_cpus:.0f} cores" for load in (busy, calm)]
        told.append((f"other processes used {cores[0]}", cores[1]))
    if waited_more:
        shares = [f"{100 * (share or 0.0):.0f} % of the time" for share in waits]
        told.append((f"ranks waited for a core {shares[0]}", shares[1]))
    here, there = (", ".join(texts) for texts in zip(*told, strict=True))
    return f"the machine was busier {when[0]}: {here}; {when[1]} {there}"


def environment(before: RunView, after: RunView) -> tuple[Difference, ...]:
    """What of hosts, versions, devices and command line is not the same."""
    old, new = before.run, after.run
    rows = [
        ("world size", old.world_size, new.world_size),
        ("hosts", ", ".join(old.hosts), ", ".join(new.hosts)),
        ("torch", old.torch, new.torch),
        ("python", old.python, new.python),
        ("backend", old.backend, new.backend),
        ("device", old.device, new.device),
        ("layout", _counts(old.parallel), _counts(new.parallel)),
        ("command", old.command, new.command),
    ]
    names = sorted(set(old.software) | set(new.software))
    rows += [(name, old.software.get(name), new.software.get(name)) for name in names]
    return tuple(
        Difference(what, _text(first), _text(second)) for what, first, second in rows if first != second
    )


def _counts(parallel: dict[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in sorted(parallel.items()))


def _text(value: object) -> str:
    return "unknown" if value is None or value == "" else str(value)


def longer(view: RunView) -> str:
    """How to come by more steps of such a run."""
    if view.imported is None:
        return "record longer"
    return f"{view.imported.source} has no more: trace or log more of them"
