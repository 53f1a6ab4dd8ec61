"""Everything that can be worked out before the target is stopped: addresses, machine code, proofs.

In: a process id and the code.  Out: a `Plan` in plain values, which the tracer process carries out. The
proofs are bytes the tracer compares in the running process first, so that a wrong address (another file of
the same name, a process that changed its image) ends in a refusal and never in a jump.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tuiadvisor.inject import process
from tuiadvisor.inject.elf import NotElfError
from tuiadvisor.inject.machines import HERE
from tuiadvisor.inject.outcome import InjectError
from tuiadvisor.inject.payload import wrapped
from tuiadvisor.inject.stubs import LIBC_FUNCTIONS, PYTHON_FUNCTIONS, PYTHON_VARIABLES, build_block

if TYPE_CHECKING:
    from tuiadvisor.inject.identity import Identity

_PENDING = "Py_AddPendingCall"
_FREE_THREADED = "_Py_MergeZeroLocalRefcount"  # of builds with --disable-gil only
_CREATE = "pthread_create"
_NUM_PROOF_BYTES = 16
_PYTHON = (*PYTHON_FUNCTIONS, *PYTHON_VARIABLES)
_LIBC = (*LIBC_FUNCTIONS, "getpid")
# UCX and other memory hooks overwrite the start of munmap; their version is as good to call. Variables have no code.
_UNPROVED = {"munmap", *PYTHON_VARIABLES}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the tracer needs, in values that `marshal` can carry."""

    identity: tuple[int, int, int, tuple[str, ...]]
    """Of the process as it was found: the tracer compares it with whoever it has stopped."""
    block: bytes
    thread_entry: int
    pending_entry: int
    start_entry: int
    pthread_create: int
    add_pending_call: int
    munmap: int
    syscall_at: int
    """An instruction of libc that makes a system call, to map memory with."""
    trap_at: int
    """Bytes of libc that are a breakpoint when executed: where the remote call returns to."""
    libc_code: list[tuple[int, int]]
    has_lock: bool
    proofs: list[tuple[int, bytes]]

    def as_dict(self) -> dict[str, object]:
        """The fields by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The mapped object that carries Python."""

    mapping: process.Mapping
    version: tuple[int, int] | None
    has_lock: bool
    """False for a free-threaded build, where a thread of ours would run beside the training's at every line."""
    mappings: list[process.Mapping]
    """All of the process: to read and look through them takes longer than all the rest of a plan."""


def find_interpreter(pid: int) -> Interpreter:
    """The interpreter inside the process. Raises InjectError 'not_python' where there is none."""
    mappings = process.maps(pid)
    for mapping in process.mapped_objects(mappings):
        try:
            with process.open_object(pid, mapping) as elf:
                if elf.any_symbol(PYTHON_FUNCTIONS[1]) is not None:
                    has_lock = elf.any_symbol(_FREE_THREADED) is None
                    return Interpreter(mapping, process.python_version(pid, mapping, elf), has_lock, mappings)
        except NotElfError:
            continue
    raise InjectError(
        pid, "not_python", "no Python interpreter inside", "give the process id of a training rank"
    )


def make_plan(target: Identity, code: str, interpreter: Interpreter | None = None) -> Plan:
    """Addresses, machine code and proofs for one injection; interpreter: where it was found a moment ago."""
    pid = target.pid
    interpreter = interpreter or find_interpreter(pid)
    found = _Resolver(pid, interpreter.mappings)
    found.take_from(interpreter.mapping, _PYTHON)
    for mapping in process.mapped_objects(found.mappings):
        if not found.missing(_LIBC):
            break
        found.take_from(mapping, _LIBC)
    missing = found.missing((*_PYTHON, *_LIBC))
    if missing:
        raise InjectError(
            pid,
            "no_symbols",
            f"its interpreter was stripped of {', '.join(missing)}",
            "start the job armed: tuiadvisor arm -- CMD",
        )
    block = build_block(found.addresses, wrapped(code).encode())
    return Plan(
        identity=(pid, target.start_ticks, target.uid, tuple(target.namespaces)),
        block=block.content,
        thread_entry=block.thread_entry,
        pending_entry=block.pending_entry,
        start_entry=block.start_entry,
        pthread_create=found.addresses[_CREATE],
        add_pending_call=found.addresses[_PENDING],
        munmap=found.addresses["munmap"],
        syscall_at=found.instruction("system call", re.escape(HERE.system_call), near="getpid", within=32),
        trap_at=found.instruction("breakpoint", HERE.trap, near=_CREATE),
        libc_code=found.code_of_libc(),
        has_lock=interpreter.has_lock,
        proofs=list(found.proofs.items()),
    )


class _Resolver:
    """Addresses found so far, with the bytes that prove each of them."""

    def __init__(self, pid: int, mappings: list[process.Mapping]) -> None:
        self._pid = pid
        self.mappings = mappings
        self.addresses: dict[str, int] = {}
        self.proofs: dict[int, bytes] = {}
        self._owner: dict[str, process.Mapping] = {}

    def missing(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if name not in self.addresses]

    def take_from(self, mapping: process.Mapping, names: tuple[str, ...]) -> None:
        try:
            with process.open_object(self._pid, mapping) as elf:
                bias = elf.load_bias(mapping.start, mapping.file_offset)
                for name in self.missing(names):
                    linked = elf.any_symbol(name)
                    if linked is not None:
                        self.addresses[name] = linked + bias
                        self._owner[name] = mapping
                        if name not in _UNPROVED:
                            self.proofs[linked + bias] = elf.read(linked, _NUM_PROOF_BYTES)
        except NotElfError:
            return

    def instruction(self, what: str, pattern: bytes, near: str, within: int | None = None) -> int:
        mapping = self._owner[near]
        with process.open_object(self._pid, mapping) as elf:
            bias = elf.load_bias(mapping.start, mapping.file_offset)
            found = elf.find(pattern, HERE.instruction_bytes, self.addresses[near] - bias, within)
            if found is None and within is None:
                found = elf.find(pattern, HERE.instruction_bytes)
        if found is None:
            raise InjectError(
                self._pid,
                "no_symbols",
                f"no {what} after {near} in {mapping.path}",
                "start the job armed: tuiadvisor arm -- CMD",
            )
        linked, code = found
        self.proofs[linked + bias] = code
        return linked + bias

    def code_of_libc(self) -> list[tuple[int, int]]:
        paths = {self._owner[_CREATE].path, self._owner["munmap"].path}
        return [(m.start, m.end) for m in self.mappings if m.executable and m.path in paths]
