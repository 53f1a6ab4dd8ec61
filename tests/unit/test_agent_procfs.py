"""Reading /proc, with a real process (this one) and lines that are hard to read."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from patience import wait_until

from tuiadvisor.agent import procfs

FIELDS = b"S 7 0 0 0 -1 4194304 0 0 0 0 11 22 0 0 20 0 5 0 4242 1000 3"
UNUSED_PID = 1 << 22  # beyond the kernel's largest


def test_stat_with_parentheses_and_blanks_in_the_name() -> None:
    """A thread may call itself anything; the fields after the last parenthesis count."""
    found = procfs.parse_stat(b"123 (evil) R 1 (x y)) " + FIELDS)

    assert (found.pid, found.ppid, found.comm) == (123, 7, "evil) R 1 (x y)")
    assert (
        found.state,
        found.start_ticks,
        found.cpu_ticks,
        found.num_threads,
        found.rss_bytes,
    ) == ("S", 4242, 33, 5, 3 * procfs.PAGE_BYTES)


@pytest.mark.parametrize("raw", [b"", b"1 (python) S 1", b"no parenthesis", b"1 (x) " + b"S " * 30])
def test_cut_stat_is_an_error_and_not_a_process(raw: bytes) -> None:
    """A line that is no stat never becomes zeros."""
    with pytest.raises(ValueError, match=r"."):
        procfs.parse_stat(raw)


@pytest.mark.parametrize(("state", "num_bytes", "is_at_end"), [("R", 1000, 0), ("R", 0, 1), ("Z", 0, 1)])
def test_a_process_within_its_exit_has_given_its_memory_back(
    monkeypatch: pytest.MonkeyPatch, state: str, num_bytes: int, is_at_end: int
) -> None:
    """As the kernel shows it between the last instruction and the zombie."""
    line = b"1 (python) " + FIELDS.replace(b"S 7", state.encode() + b" 7").replace(
        b"1000 3", b"%d 0" % num_bytes
    )
    monkeypatch.setattr(procfs, "_read_once", lambda _: line)
    assert procfs.is_at_its_end(1) == bool(is_at_end)


def test_a_process_that_is_gone_is_none() -> None:
    """Every read of a vanished process answers with nothing."""
    assert procfs.stat(UNUSED_PID) is None
    assert procfs.is_at_its_end(UNUSED_PID)
    assert procfs.read(UNUSED_PID, "environ") is None
    assert procfs.environment(UNUSED_PID, frozenset({"RANK"})) is None
    assert procfs.owner(UNUSED_PID) is None
    assert procfs.arguments(UNUSED_PID) == []
    assert procfs.thread_names(UNUSED_PID) == []
    assert procfs.python_version(UNUSED_PID) is None
    assert not procfs.maps_file(UNUSED_PID, b"libc")


def test_own_process_is_read_whole() -> None:
    """Maps come in many pieces; the last mapping has to be in what was read."""
    raw = procfs.read(os.getpid(), "maps")

    assert raw is not None
    assert len(raw) > 4096
    assert b"[stack]" in raw
    assert f"{sys.version_info.major}." in (procfs.python_version(os.getpid()) or "")


def test_environment_of_a_process_is_limited_to_the_names_asked() -> None:
    """A value with an equals sign and one that is no UTF-8 are both read."""
    variables = {"RANK": "3", "ODD": "a=b", "SECRET": "x"}
    raw = {os.fsencode(name): os.fsencode(value) for name, value in variables.items()} | {b"BAD": b"\xff"}
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=raw)
    try:
        _wait_for_exec(child.pid)
        found = procfs.environment(child.pid, frozenset({"RANK", "ODD", "BAD", "MISSING"}))
    finally:
        child.communicate(b"\n")

    assert found == {"RANK": "3", "ODD": "a=b", "BAD": "\ufffd"}


def test_snapshot_holds_this_process_and_no_kernel_thread() -> None:
    """The parent in the table is the real one."""
    table = procfs.snapshot()

    assert os.getppid() == table[os.getpid()].ppid
    assert not any(one.is_kernel for one in table.values())


def test_start_wall_clock_is_in_the_past() -> None:
    """Boot time plus start ticks gives a time before now, by less than this process can be old."""
    found = procfs.stat(os.getpid())
    assert found is not None

    start_ns = procfs.start_wall_ns(found.start_ticks)

    assert start_ns is not None
    assert 0 < time.time_ns() - start_ns < 3600 * 10**9


def _wait_for_exec(pid: int) -> None:
    wait_until(lambda: procfs.environment(pid, frozenset({"RANK"})), every_s=0.005)
