"""Options about what the probe may cost and what a step of the job works on."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from tuiadvisor.cli.options.peaks import measured_peaks
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import MAX_FLOPS, MAX_WORK_PER_STEP, GivenWork

if TYPE_CHECKING:
    import argparse


def add_budget(parser: argparse.ArgumentParser) -> None:
    """--budget, of step time."""
    parser.add_argument(
        "--budget", dest="budget_ppm", type=share_ppm, metavar="0.25%",
        help="share of the step time that the probes may take; they sample less to stay within it, down to "
        "the one record a step that is always written (default 0.25%%)",
    )  # fmt: skip


def add_work(parser: argparse.ArgumentParser) -> None:
    """--samples-per-step and --tokens-per-step: they win over what the batches say."""
    for what in ("samples", "tokens"):
        parser.add_argument(
            f"--{what}-per-step", type=_work, metavar="N",
            help=f"{what} that one optimizer step of the whole job works on, where the batches do not tell",
        )  # fmt: skip

    parser.add_argument(
        "--flops-per-step", type=_flops, metavar="F",
        help="FLOPs of one optimizer step of the whole job, forward and backward, for MFU where the parameters do not "
        "tell (convolutions, several models), e.g. 3.2e15",
    )  # fmt: skip
    parser.add_argument(
        "--peak-flops", type=_flops, metavar="F",
        help="dense peak of one device in the precision used, FLOP/s, where the table does not have it, e.g. 989e12",
    )  # fmt: skip


def check_of_one(options: argparse.Namespace) -> None:
    """TuiadvisorError where work is stated beside several runs: of which it would be nobody says."""
    stated = GivenWork(
        options.samples_per_step, options.tokens_per_step, options.flops_per_step, options.peak_flops
    ).document()
    if stated:
        name = next(iter(stated)).replace("_", "-")
        raise TuiadvisorError(f"--{name}: it is stated of one run; give it with one recording alone")


def work_of(options: argparse.Namespace) -> GivenWork:
    """What the command line says of a step's work."""
    return GivenWork(
        options.samples_per_step,
        options.tokens_per_step,
        options.flops_per_step,
        options.peak_flops,
        measured_peaks(),
    )


def share_ppm(text: str) -> int:
    """Millionths of a share like 0.25% or 0.0025; an argparse type, so a bad one is a usage error."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 0.5:
        raise ArgumentTypeError(f"{text!r} is not a share of the step time; write 0% to 50%, e.g. 0.25%")
    return round(share * 1_000_000)


def _flops(text: str) -> int:
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        number = -1.0
    if not 1 <= number <= MAX_FLOPS:
        raise ArgumentTypeError(f"{text!r} is not a count of FLOPs; write e.g. 3.2e15")
    return int(number)


def _work(text: str) -> int:
    number = int(text.replace("_", "")) if text.isascii() and text.replace("_", "").isdigit() else 0
    if not 0 < number <= MAX_WORK_PER_STEP:
        raise ArgumentTypeError(f"{text!r} is not a count; write a whole number above 0")
    return number
