"""Putting a probe into a process, or sharing the one that is there, and taking it out again where nobody waits for it.

In: the process and the ways to inject.  Out: the ring that its probe writes. Runs in a thread of its own: the process
may be busy for seconds.
"""

from __future__ import annotations

import time
from binascii import crc32
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from tuiadvisor.agent import procfs
from tuiadvisor.agent.descriptors import refuse_without_room
from tuiadvisor.agent.ownfolder import new_session, present_session
from tuiadvisor.agent.payload import PRIVATE_NAME, attach_code, detach_code, write_bundle, write_native
from tuiadvisor.agent.session import LEASE_NS, RingSession, mapped_rings
from tuiadvisor.agent.timespace import OUR_CLOCK, RankClock, clock_of
from tuiadvisor.inject import Identity, InjectError, Injection, inject
from tuiadvisor.inject.turns import COMPUTING
from tuiadvisor_probes import ring as ring_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from tuiadvisor.agent.discovery import RankProcess

WAKES_UP_S: Final = 2.0  # a probe that was let in begins within milliseconds; a busy machine takes longer
LOOK_S: Final = 0.02
IMPORTING: Final = "torch is still being imported"
_UNLESS_IMPORTING: Final = """
import sys
def tell(words):
    with open({ring!r}, "r+b", buffering=0) as ring:
        for offset, value in words:
            ring.seek(offset)
            ring.write(value)
torch = sys.modules.get("torch")
if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):
    tell({importing!r})
else:
    try:
        exec({code!r})
    except BaseException as error:  # of a signal's handler, in the main thread: it goes on to the training
        if {private!r} not in sys.modules:
            try:
                tell({broken_off!r})
            except OSError:
                pass
        raise error
"""


@dataclass(frozen=True, slots=True)
class Injector:
    """The ways into a process; tests put their own here."""

    inject: Callable[[Identity, str], Injection]
    attach_code: Callable[[str, str | None], str]
    detach_code: Callable[[], str]
    has_torch: Callable[[int], bool]


def attach_unless_importing(ring_path: str, folder: str | None) -> str:
    """Code that attaches, except while torch is half imported: the ring then says so, and we come again.

    So it says, and we do, where the attach was broken off.
    """
    return _UNLESS_IMPORTING.format(
        ring=ring_path,
        importing=_failing(IMPORTING),
        broken_off=_failing(ring_file.BROKEN_OFF),
        code=attach_code(ring_path, folder),
        private=PRIVATE_NAME,
    )


def _failing(why: str) -> list[tuple[int, bytes]]:
    """What a ring holds, and where, that says so."""
    info = orjson.dumps({"error": why})
    return [
        (ring_file.INFO_OFFSET, info),
        (ring_file.OFFSET_INFO_SUM, crc32(info).to_bytes(8, "little")),
        (ring_file.OFFSET_INFO_LEN, len(info).to_bytes(8, "little")),
        (ring_file.OFFSET_STATE, ring_file.STATE_FAILED.to_bytes(8, "little")),
    ]


REAL_INJECTOR: Final = Injector(
    inject=inject,
    attach_code=attach_unless_importing,
    detach_code=detach_code,
    has_torch=lambda pid: procfs.maps_file(pid, b"/libtorch_python.so"),
)


@dataclass(frozen=True, slots=True)
class Attached:
    """A ring that a probe writes or soon will; injection is None where it was there already, or nobody can say how."""

    session: RingSession
    reader: ring_file.RingReader
    injection: Injection | None
    clock: RankClock = OUR_CLOCK


def attach(process: RankProcess, injector: Injector) -> Attached:
    """Share the probe that is there, or put one in. Raises InjectError, TuiadvisorError or OSError."""
    with COMPUTING.turn():
        refuse_without_room(process.pid)
        clock = clock_of(process.pid)
        session = present_session(process)
        if session is not None:
            return replace(share(session, _lease(clock)), clock=clock)
        # A probe whose file is gone still holds the process: it has to leave before ours can come.
        make_room = injector.detach_code() if mapped_rings(process.pid) else ""
        session = new_session(process)
    reader = None
    try:
        with COMPUTING.turn():
            reader = ring_file.RingReader(session.ring_path)
            # Compiling runs the process's own interpreter with our rights: never a stranger's or a container's.
            if session.probe_folder is None:
                write_bundle(Path(session.ring_path).parent, process.identity)
            write_native(Path(session.ring_path).parent, process.identity.uid)
            code = make_room + injector.attach_code(session.inner_ring_path, session.probe_folder)
        reader.put_u64(ring_file.OFFSET_LEASE, _lease(clock))
        return Attached(session, reader, _injected(process, injector, code, reader), clock)
    except BaseException:
        if reader is not None:
            reader.close()
        session.remove()
        raise


def _lease(clock: RankClock) -> int:
    """Until when the probe may stay, counted from now: not from when the attach was asked for.

    Behind many ranks, or compiled on a busy machine, it would come up with a lease that is over, leave after one step
    and be put in again, counting its steps anew.
    """
    return clock.to_rank(time.monotonic_ns() + LEASE_NS)


def _injected(
    process: RankProcess, injector: Injector, code: str, reader: ring_file.RingReader
) -> Injection | None:
    """How the code came in; None where that is not known, but the ring shows that it did."""
    try:
        return injector.inject(process.identity, code)
    except InjectError as error:
        if error.reason != "tracer_killed" or not _wakes_up(reader):
            raise
        return None


def _wakes_up(reader: ring_file.RingReader) -> bool:
    deadline_s = time.monotonic() + WAKES_UP_S
    while reader.get_u64(ring_file.OFFSET_STATE) == ring_file.STATE_EMPTY:
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(LOOK_S)
    return True


def undo(attempt: Future[Attached]) -> None:
    """Take out what an attach put in that nobody waits for any more."""
    if attempt.cancelled() or attempt.exception() is not None:
        return
    attached = attempt.result()
    if attached.session.has_other_watchers():
        attached.session.close()
    else:
        if attached.session.is_whole(attached.reader.num_bytes):
            attached.reader.put_u64(ring_file.OFFSET_COMMAND, ring_file.COMMAND_DETACH)
        attached.session.remove()
    attached.reader.close()


def share(session: RingSession, lease_until_ns: int) -> Attached:
    """Read the ring of a probe that is there, from now on; where it cannot be, OSError or RingError, session closed."""
    try:
        reader = ring_file.RingReader(session.ring_path)
    except (OSError, ring_file.RingError):
        session.close()
        raise
    reader.put_u64(ring_file.OFFSET_LEASE, lease_until_ns)
    # What is in the ring was counted by the watcher before us.
    reader.next_step = reader.get_u64(ring_file.OFFSET_STEP_HEAD)
    reader.next_event = reader.get_u64(ring_file.OFFSET_EVENT_HEAD)
    return Attached(session, reader, None)
