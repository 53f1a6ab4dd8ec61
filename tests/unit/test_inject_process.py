from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tuiadvisor.inject import idle_thread, process
from tuiadvisor.inject.machines import AARCH64, X86_64, Machine

MAPS = """\
00400000-00600000 r-xp 00000000 fe:00 1234 /usr/bin/python3.11
7f0000000000-7f0000020000 rw-p 00000000 00:00 0
7f0000100000-7f0000200000 r--p 00000000 fe:00 77 /opt/a b/libfoo.so.1 (deleted)
7f0000200000-7f0000300000 r-xp 00100000 fe:00 77 /opt/a b/libfoo.so.1 (deleted)
7f0000400000-7f0000500000 r-xp 00000000 fe:00 99 /lib/libc.so.6
7ffd00000000-7ffd00020000 rw-p 00000000 00:00 0                          [stack]
"""

STATUS = """\
Name:	a: strange) name
State:	S (sleeping)
Pid:	4242
TracerPid:	7
Uid:	1000	1001	1000	1000
NSpid:	4242	17
x86_Thread_features:	shstk wrss
"""

LIBC = [(0x7F0000400000, 0x7F0000500000)]


def test_maps_are_parsed_with_blanks_and_deleted_files() -> None:
    """A path may hold blanks; a replaced file says so."""
    mappings = process.parse_maps(MAPS)
    assert len(mappings) == 6
    assert (mappings[2].path, mappings[2].deleted) == ("/opt/a b/libfoo.so.1 (deleted)", True)
    assert (
        mappings[3].start,
        mappings[3].file_offset,
        mappings[3].executable,
    ) == (0x7F0000200000, 0x100000, True)
    assert mappings[1].path == ""


def test_python_and_libc_are_looked_at_first() -> None:
    """One entry a file, only files with code, the likely ones in front."""
    paths = [m.path for m in process.mapped_objects(process.parse_maps(MAPS))]
    assert paths == ["/usr/bin/python3.11", "/lib/libc.so.6", "/opt/a b/libfoo.so.1 (deleted)"]


def test_status_is_parsed() -> None:
    """Tracer, effective user, the innermost pid and the shadow stack."""
    expected = process.Status(state="S", tracer_pid=7, uid=1001, inner_pid=17, shadow_stack=True)
    assert expected == process.parse_status(STATUS)


def test_own_facts() -> None:
    """Of ourselves we know them."""
    status = process.status(os.getpid())
    assert (os.geteuid(), 0) == (status.uid, status.tracer_pid)
    assert process.same_root(os.getpid())
    assert os.environ["PATH"] == process.environ(os.getpid())["PATH"]


def test_vanished_process_is_a_lookup_error() -> None:
    """Callers have one exception to expect."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(ProcessLookupError):
        process.status(ended.pid)


def test_sleep_is_read_from_the_system_call_file() -> None:
    """Number, first operation, stack pointer and instruction; nothing for a running thread."""
    line = "202 0x7f1 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd1000 0x7f0000410000\n"
    assert idle_thread.Sleep(202, 0x189, 0x7FFD1000, 0x7F0000410000) == idle_thread.parse_sleep(line)
    assert idle_thread.parse_sleep("running\n") is None
    assert idle_thread.parse_sleep("-1 0x7ffd1000 0x7f0000410000\n") is None


@pytest.mark.parametrize(
    ("machine", "system_call", "operation", "instruction", "rank"),
    [
        (X86_64, 202, 0x189, 0x7F0000410000, 0),  # condition variable or semaphore
        (X86_64, 202, 0x80, 0x7F0000410000, None),  # a lock of libc, perhaps the allocator's
        (X86_64, 202, 0x80, 0x1000, 1),  # a parked OpenMP worker
        (X86_64, 7, 0, 0x7F0000410000, 2),  # poll
        (X86_64, 35, 0, 0x7F0000410000, 2),  # nanosleep: the kernel keeps what is left of it
        (X86_64, 232, 0, 0x7F0000410000, None),  # epoll_wait would return EINTR
        (X86_64, 0, 0, 0x7F0000410000, None),  # read
        (AARCH64, 98, 0x189, 0x7F0000410000, 0),
        (AARCH64, 98, 0x80, 0x7F0000410000, None),
        (AARCH64, 98, 0x80, 0x1000, 1),
        (AARCH64, 73, 0, 0x7F0000410000, 2),  # ppoll
        (AARCH64, 115, 1, 0x7F0000410000, 2),  # clock_nanosleep until a moment, as time.sleep does
        (AARCH64, 115, 0, 0x7F0000410000, None),  # for a span: it would begin anew
        (AARCH64, 101, 0, 0x7F0000410000, None),  # nanosleep
        (AARCH64, 22, 0, 0x7F0000410000, None),  # epoll_pwait
        (AARCH64, 202, 0x189, 0x7F0000410000, None),  # accept there, and no futex
    ],
)
def test_only_harmless_sleepers_are_borrowed(
    machine: Machine, system_call: int, operation: int, instruction: int, rank: int | None
) -> None:
    """The best sleeper waits for a condition; a thread that waits for a lock is left alone."""
    sleep = idle_thread.Sleep(system_call, operation, 0x7FFD1000, instruction)
    assert rank == idle_thread.rank_of(sleep, main=False, libc_code=LIBC, machine=machine)


def test_a_futex_with_a_span_begins_anew_on_aarch64_only() -> None:
    """There the kernel forgets what is left of it when its thread is made to call something."""
    span = idle_thread.parse_sleep("98 0x7f1 0x80 0x0 0x7ffd2000 0x0 0x0 0x7ffd1000 0x1000\n")
    assert span is not None
    assert span.time_out
    assert idle_thread.rank_of(span, main=False, libc_code=LIBC, machine=AARCH64) is None
    on_x86 = span._replace(system_call=202)
    assert 1 == idle_thread.rank_of(on_x86, main=False, libc_code=LIBC, machine=X86_64)


def test_main_thread_is_borrowed_last() -> None:
    """Any other sleeper comes before the main thread."""
    sleep = idle_thread.Sleep(202, 0x189, 0x7FFD1000, 0x7F0000410000)
    assert idle_thread.rank_of(sleep, main=True, libc_code=LIBC, machine=X86_64) == 3
    for waits_for_event in (232, 0):  # where no pending call would run
        sleep = idle_thread.Sleep(waits_for_event, 0, 0x7FFD1000, 0x7F0000410000)
        assert idle_thread.rank_of(sleep, main=True, libc_code=LIBC, machine=X86_64) == 9
