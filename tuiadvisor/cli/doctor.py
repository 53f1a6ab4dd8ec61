"""`tuiadvisor doctor`: what works on this machine, and the remedy for what does not."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import sys
import time
from collections import Counter
from dataclasses import asdict

from tuiadvisor import __version__
from tuiadvisor.agent.cgroup import memory_limits
from tuiadvisor.agent.gpu import find_reader
from tuiadvisor.agent.payload import NATIVE_VARIABLE, TRIED_MACHINES, has_core, wants_native
from tuiadvisor.agent.room import ATTACH_BYTES, LEFT_TO_OTHERS_BYTES, MIB
from tuiadvisor.agent.session import RING_BYTES, places, room_for_ring
from tuiadvisor.agent.stacks import find_spy
from tuiadvisor.cli.document import print_document
from tuiadvisor.cli.measuring import measure_peak, measured_lines
from tuiadvisor.cli.node_checks import Check, look_at_nccl, look_at_shared_file, look_at_way_back
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.inject.armed import taken_folder, waiting_processes
from tuiadvisor.inject.machines import MACHINES
from tuiadvisor.inject.permission import tracing_forbidden, yama_scope
from tuiadvisor.inject.refusals import has_ptrace_capability
from tuiadvisor.session.machine import FILE_NAME, save_ceiling
from tuiadvisor.views.devices import WHY_NONE


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument(
        "--measure", action="store_true",
        help="measure what this machine's processor gives a matrix product, some seconds, and keep it for MFU "
        f"in {FILE_NAME}",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=_threads, metavar="N",
        help="with --measure: as many as a rank has (torch.get_num_threads(); default: the cores this process may use)",
    )  # fmt: skip
    parser.add_argument("--hosts", metavar="A,B", help="look at these machines, over ssh without a password")
    parser.add_argument("--slurm", metavar="JOBID", help="look at the nodes of this running Slurm job")
    parser.add_argument(
        "--remote-python", default="", metavar="PATH", help="python with tuiadvisor on those machines"
    )
    parser.add_argument("--ssh-config", default="", metavar="FILE", help="with --hosts: ssh's own -F")
    parser.add_argument(
        "--hub-address",
        default="",
        metavar="ADDRESS",
        help="an address of this machine that they can reach",
    )
    # What one doctor asks another one.
    parser.add_argument("--seen", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--reach", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Look and print; 1 if injection cannot work at all."""
    if options.hosts or options.slurm:
        if options.measure:
            raise TuiadvisorError("--measure is of one machine: run it there")
        from tuiadvisor.cli.doctor_nodes import look_at_nodes  # noqa: PLC0415 - ssh, Slurm and keys

        return look_at_nodes(options)
    if options.measure:
        return _measure(options)
    if options.threads is not None:
        raise TuiadvisorError("--threads belongs to --measure")
    checks = [
        look_at_machine(),
        look_at_ptrace(),
        look_at_armed(),
        look_at_rings(),
        look_at_memory(),
        look_at_core(),
        look_at_gpus(),
        look_at_nccl(),
        look_at_spy(),
        *look_at_terminal(),
    ]
    if options.seen:
        checks.append(look_at_shared_file(*options.seen))
    if options.reach:
        checks.append(look_at_way_back(options.reach))
    if options.json:
        document = {
            "schema": 1,
            "tuiadvisor": __version__,
            "checks": [asdict(check) for check in checks],
            "wall_s": time.time(),
        }
        print_document(document)
    else:
        for check in checks:
            print(f"{check.state:8} {check.name:10} {check.found}")
            if check.remedy:
                print(f"{'':19} -> {check.remedy}")
    return int(any(check.state == "missing" for check in checks))


def _threads(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0
    if not 1 <= number <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 to 1024 threads")
    return number


def _measure(options: argparse.Namespace) -> int:
    document = measure_peak(options.threads or len(os.sched_getaffinity(0)))
    save_ceiling(document)
    if options.json:
        print_document(document)
    else:
        print("\n".join([*measured_lines(document), f"kept in {FILE_NAME}"]))
    return 0


def look_at_machine() -> Check:
    """Linux, whether running processes of this kind of machine can be entered, and the Python we run on."""
    found = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if platform.system() != "Linux":
        return Check("machine", "missing", found, "watching needs Linux; replay and diagnose work anywhere")
    if platform.machine() in MACHINES:
        return Check("machine", "ok", found, "")
    remedy = "start the job armed (tuiadvisor arm -- CMD), or with Python 3.14: others cannot be entered here"
    return Check("machine", "limited", found, remedy)


def look_at_ptrace() -> Check:
    """Whether the kernel lets us into processes of the same user."""
    forbidden = tracing_forbidden()
    if forbidden is not None:
        what, remedy = forbidden
        return Check("ptrace", "limited", what, f"{remedy}; a running job that is not armed stays closed")
    held = "held" if has_ptrace_capability() else "not held"
    return Check("ptrace", "ok", f"yama ptrace_scope {yama_scope() or 'absent'}, CAP_SYS_PTRACE {held}", "")


def look_at_armed() -> Check:
    """Processes that were started armed: they let a watcher in without ptrace."""
    num = len(waiting_processes())
    found = f"{num} process{'es wait' if num != 1 else ' waits'} for a watcher"
    taken = taken_folder()
    if taken:
        return Check(
            "armed",
            "limited",
            f"{found}; {taken}",
            "listeners wait in folders of their own; have root remove it",
        )
    return Check("armed", "ok", found if num else "none waiting; needed only where ptrace is forbidden", "")


def look_at_rings() -> Check:
    """Where rings will lie: memory, not disk, if possible."""
    failed = []
    for place in places():
        try:
            free = room_for_ring(place)
        except OSError as error:
            failed.append(f"{place}: {error.strerror}")
            continue
        left = "free" if free is None else f"{free // MIB} MiB free"
        if not failed:
            return Check("rings", "ok", f"{place}, {left}", "")
        found = f"{place}, {left} ({'; '.join(failed)})"
        return Check(
            "rings", "limited", found, f"free space in {places()[0]}: a disk may hold up the training"
        )
    return Check("rings", "missing", "; ".join(failed), "free space in one of them: no rank can be watched")


def look_at_memory() -> Check:
    """Memory that the control groups of this shell leave; ranks that run in others are looked at when attached to."""
    limit = min(memory_limits(os.getpid()), key=lambda limit: limit.free, default=None)
    if limit is None:
        return Check("memory", "ok", "no control group limits it for this shell", "")
    found = f"{limit.free // MIB:,} MiB left of {limit.limit // MIB:,} in {limit.folder}"
    if limit.free < LEFT_TO_OTHERS_BYTES + ATTACH_BYTES + RING_BYTES:
        remedy = "ranks in this group are refused: raise its limit, or watch from outside of the group"
        return Check("memory", "limited", found, remedy)
    return Check("memory", "ok", found, "")


def look_at_core() -> Check:
    """What the probe's hooks run on in ranks of this machine."""
    if wants_native() and has_core():
        return Check("core", "ok", "native where a rank takes it: CPython 3.11 or later, with the GIL", "")
    if has_core():
        there = "not wanted" if os.environ.get(NATIVE_VARIABLE) else f"not tried on {os.uname().machine}"
        return Check("core", "ok", f"Python hooks; the native core is there, but {there}", "")
    found = "Python hooks; no native core was built here"
    # Where none is there, none is wanted by default, so the machine is asked: it would have been sent there.
    if os.environ.get(NATIVE_VARIABLE) == "0" or not (wants_native() or os.uname().machine in TRIED_MACHINES):
        return Check("core", "ok", found, "")
    remedy = "a C compiler and Python's headers, then install tuiadvisor again"
    return Check("core", "limited", f"{found}: four to six times the cost a step", remedy)


def look_at_gpus() -> Check:
    """Devices through NVML or AMD SMI."""
    reader, reason = find_reader()
    seen = reader.sample() if reader is not None else []
    counted = Counter(str(gpu["name"] or "?") for gpu in seen)
    if counted and reader is not None:
        found = ", ".join(f"{num} x {name}" if num > 1 else name for name, num in counted.items())
        found = f"{found}, driver {reader.driver() or 'unknown'}"
        num_parted = sum(gpu.get("parts") is not None for gpu in seen)
        if not num_parted:
            return Check("gpu", "ok", found, "")
        remedy = "nothing to do: a MIG part's use is unknown, clock and power are those of its whole device"
        return Check("gpu", "limited", f"{found}; {num_parted} of {len(seen)} in MIG mode", remedy)
    if reason in WHY_NONE:
        what, remedy = WHY_NONE[reason]
        return Check(
            "gpu", "limited", f"no device: {what}", f"{remedy}; device metrics are unknown on this machine"
        )
    return Check(
        "gpu",
        "limited",
        "no device through NVML or AMD SMI",
        "device metrics will be unknown on this machine",
    )


def look_at_spy() -> Check:
    """The optional part of `stacks`."""
    spy = find_spy()
    if spy is not None:
        return Check("py-spy", "ok", spy, "")
    remedy = "pip install 'tuiadvisor[stacks]': frames in C of ranks that hang, and of ranks blocked there"
    return Check("py-spy", "limited", "not installed here", remedy)


def look_at_terminal() -> list[Check]:
    """Colours, letters, and the optional parts."""
    colours = os.environ.get("COLORTERM") or os.environ.get("TERM") or "no TERM"
    encoding = (sys.stdout.encoding or "").lower()
    utf8 = encoding.replace("-", "") == "utf8"
    remedy = "" if utf8 else "screens fall back to ASCII; set LC_ALL=C.UTF-8 for fine bars"
    checks = [
        Check("terminal", "ok" if utf8 else "limited", f"{colours}, {encoding or 'no encoding'}", remedy)
    ]
    if "SSH_CONNECTION" in os.environ:
        checks.append(
            Check("ssh", "ok", "a remote session", "ssh -C makes screens 9 to 17 times smaller on the wire")
        )
    has_torch = importlib.util.find_spec("torch") is not None
    found = "installed here" if has_torch else "not installed here"
    remedy = "" if has_torch else "not needed to watch; `pip install 'tuiadvisor[demo]'` for the demo"
    return [*checks, Check("torch", "ok" if has_torch else "limited", found, remedy)]
