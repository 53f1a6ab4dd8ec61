"""Six questions in plain words, answered from a run's own numbers; what one run cannot show is said.

In: Facts of the run and of other runs, ceilings of the machine.  Out: Why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor import phases
from tuiadvisor.session.answer import Why
from tuiadvisor.session.ceilings import link, storage
from tuiadvisor.session.evidence import (
    fixed_and_growing,
    gain_of_twice,
    largest_parts,
    late_parts,
    measured_parts,
    part_words,
    parts_sum_s,
    share_of_step,
)
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.session.machine import Machine

LEAST_SAID: Final = 0.005  # a smaller share is 0 % in words
NAMES: Final = ("idle", "allreduce", "link", "storage", "batch", "devices")


def why(name: str, run: Facts, others: tuple[Facts, ...], machine: Machine) -> Why:
    """One of NAMES."""
    if name == "link":
        return link(run, machine)
    if name == "storage":
        return storage(run, machine)
    if name == "idle":
        return _idle(run)
    if name == "allreduce":
        return _allreduce(run)
    if name == "batch":
        return _batch(run, others)
    return _devices(run, others)


def _percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.0f} %"


def _idle(run: Facts) -> Why:
    question = "Why is this device idle?"
    waits = [
        part
        for part in largest_parts(run)
        if part[0] in phases.of_kind("input", "copy", "sync", "pause", "idle")
    ]
    if run.device_compute is not None:
        return Why("idle", question, _by_trace(run), f"{_inside_a_phase(run)}.")
    if run.step_s is None:
        return Why("idle", question, "Unknown: no steady step was seen.", "Record longer: --for 60s.")
    if not waits:
        return Why(
            "idle", question, "No waiting was seen in its steps.",
            f"{_inside_a_phase(run)}.",
        )  # fmt: skip
    total = sum(spent for _, spent, _ in waits)
    answer = (
        f"Of the parts of a step, {seconds(parts_sum_s(run) or run.step_s)}, it does not compute for {seconds(total)} "
        f"({_percent(share_of_step(run, total))}), mean over the ranks: "
        f"{', '.join(part_words(part) for part in waits[:4])}."
    )
    if run.skew_s and run.transfer_s is not None and run.comm_exposed_s:
        answer += (
            f" Of the exposed communication {seconds(run.skew_s)} is waiting for the rank that arrives last "
            f"and {seconds(run.transfer_s)} the communication itself."
        )
    answer += "".join(f" {finding.message}" for finding in run.findings[:1])
    return Why("idle", question, answer, f"{_inside_a_phase(run)}.")


def _by_trace(run: Facts) -> str:
    """As a trace has its devices: what they waited for within phases too."""
    told = f"By the trace it computes {_percent(run.device_compute)} of its time, mean over the ranks that were traced"
    parts = "; ".join(
        f"{_percent(share)} {words}" for words, share in run.device_parts[:4] if share >= LEAST_SAID
    )
    return f"{told}; the rest: {parts}." if parts else f"{told}."


def _inside_a_phase(run: Facts) -> str:
    """What no phase's time tells, and the command that does."""
    unseen = "Operators within a phase" if run.has_gpu is False else "Gaps between kernels within a phase"
    if run.has_kernels:
        return f"{unseen}: the trace has them; key K on the screens, and Z for its timeline"
    when = "when it runs again" if run.has_ended else "with the job running"
    return f"{unseen} are not seen here; {when}: tuiadvisor capture RANK --steps 3"


def _allreduce(run: Facts) -> Why:
    question = "Where is the all-reduce paid for?"
    if run.num_ranks == 1:
        return Why("allreduce", question, "Nowhere: the job has one rank.", "")
    if run.comm_exposed_s is None or run.step_s is None:
        return Why(
            "allreduce", question, "Unknown: exposed communication was not observed.",
            "Record the ranks in the middle of training: tuiadvisor record --for 60s -o run.tuirec.",
        )  # fmt: skip
    answer = (
        f"In the part that nothing hides: {seconds(run.comm_exposed_s)} of each step "
        f"({_percent(share_of_step(run, run.comm_exposed_s))}), at the end of backward."
    )
    if run.transfer_s is not None and run.skew_s is not None:
        answer += (
            f" {seconds(run.transfer_s)} remain once all ranks have arrived: the communication itself; "
            f"{seconds(run.skew_s)} are waiting for the last rank and would be paid without any data to send."
        )
    if run.overlap is not None and run.comm_total_s is not None:
        answer += (
            f" In the steps seen in detail, of {seconds(run.comm_total_s)} of communication {_percent(run.overlap)} is "
            "hidden under compute."
        )
        return Why("allreduce", question, answer, "")
    return Why(
        "allreduce", question, answer,
        "The hidden part was not observed: it needs steps sampled in detail, or a trace of the PyTorch profiler.",
    )  # fmt: skip


def _batch(run: Facts, others: tuple[Facts, ...]) -> Why:
    question = "Why does batch size change throughput?"
    recorded, parts = measured_parts(run, others), fixed_and_growing(run)
    late = late_parts(run) if recorded is None else ()
    if (recorded is None and parts is None and not late) or run.step_s is None:
        return Why("batch", question, "Unknown: the step was not seen in parts.", "Record ranks with hooks.")
    if recorded is not None:
        answer = (
            f"{seconds(recorded[0])} of a step cost the same at any batch, {seconds(recorded[1])} grow with it, by the "
            "batches recorded. Twice the batch pays the fixed part once for twice the samples: that brings "
            f"{gain_of_twice(recorded):.2f}x the samples a second."
        )
    elif parts is not None:
        answer = (
            f"{seconds(parts[0])} of a step (gradient communication and optimizer) cost the same at any batch. Twice "
            "the batch would pay that once for twice the samples: "
            f"{gain_of_twice(parts):.2f}x the samples a second if the {seconds(parts[1])} of compute and input grow in "
            "proportion, more where they do not."
        )
    else:
        answer = (
            f"Unknown: {late[0].message} Whether that grows with the batch decides what twice the batch brings, and "
            "one batch does not tell."
        )
    measured = [
        (entry.samples_per_step, entry.samples_per_step / entry.step_s)
        for entry in (run, *others)
        if entry.num_devices == run.num_devices and entry.samples_per_step and entry.step_s
    ]
    if len({batch for batch, _ in measured}) > 1:
        listed = ", ".join(f"{batch:.0f} samples a step: {rate:.0f}/s" for batch, rate in sorted(measured))
        return Why("batch", question, f"{answer} Measured: {listed}.", "")
    unknown = (
        "One batch size was recorded, and one does not tell what grows with it: record the same training at twice the "
        "batch and give both files."
    )
    return Why("batch", question, answer, unknown)


def _devices(run: Facts, others: tuple[Facts, ...]) -> Why:
    question = "Why do more devices lose efficiency and yet raise throughput?"
    rows = sorted(
        (row for entry in (run, *others) if (row := _row(entry)) is not None), key=lambda row: row[:2]
    )
    if len({row[0] for row in rows}) > 1:
        return Why("devices", question, _two_sizes(rows[0], rows[-1]), "")
    share = share_of_step(run, run.comm_exposed_s)
    answer = "Cannot be told from recordings of one size."
    if share is not None and run.num_sharing is None and run.num_devices and run.num_devices > 1:
        answer += (
            f" In this one, with {run.num_devices} devices, {_percent(share)} of the step is exposed communication: a "
            "single device would not have it, so each works that much below its best while together they do more."
        )
    unknown = "Record the same training at another number of devices: tuiadvisor advise LARGE SMALL."
    return Why("devices", question, answer, unknown)


# devices, samples a second, share of the step in exposed communication, dominant finding if there is one
Row = tuple[int, float, float | None, str]


def _two_sizes(small: Row, large: Row) -> str:
    (few, slow, small_share, _), (many, fast, large_share, fault) = small, large
    efficiency = fast / slow * few / many
    answer = f"From {few} to {many} devices samples a second went from {slow:.0f} to {fast:.0f} ({fast / slow:.2f}x)"
    answer += (
        ": more hands do more work. "
        if fast > slow
        else ": here more devices did not even raise throughput. "
    )
    if efficiency >= 1:
        return answer + f"Each does as much as before ({_percent(efficiency)}): no efficiency was lost."
    answer += f"Each does {_percent(efficiency)} of what it did"
    if large_share is None or small_share is None or large_share <= small_share:
        return (
            answer
            + "; exposed communication does not explain it, so compare the other parts: tuiadvisor compare."
        )
    answer += (
        f": exposed communication takes {_percent(large_share)} of the step instead of {_percent(small_share)}, "
        "and that part does not shrink when the work is divided further."
    )
    return (
        f"{answer} But the larger run has a fault of its own, which is no matter of size: {fault}"
        if fault
        else answer
    )


def _row(run: Facts) -> Row | None:
    if not (run.num_devices and run.samples_per_step and run.step_s):
        return None
    fault = next((finding.message for finding in run.findings if finding.phase != "comm_exposed"), "")
    return (
        run.num_devices, run.samples_per_step / run.step_s, share_of_step(run, run.comm_exposed_s), fault
    )  # fmt: skip
