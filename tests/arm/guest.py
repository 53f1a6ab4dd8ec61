"""Run as the first process of an emulated aarch64 machine by `make arm-check`: each way into a process, tried.

Prints one line a trial, "ok WHAT" or "failed WHAT: WHY", and "all ok" at the end, then powers the machine off. The
standard library alone; tuiadvisor lies in /work.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = ["/work", "/work/probes"]

PATIENCE_S = 120.0
ARCHITECTURE_DEPENDENT = "/work/vectors.so"
NATIVE_CORE = "/work/core.abi3.so"
NUM_INTERRUPTIONS = 8
NUM_SEEDS = 20

# A thread that waits for an event, and a main thread at work in Python.
AT_WORK = """
import threading, time
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
total = 0.0
for number in range(1, 10**12):
    total += 1.0 / number
    if number % 1000 == 0 and STOP.exists():
        break
print(number, sum(1.0 / n for n in range(1, number + 1)) == total, flush=True)
"""
# Vector registers hold numbers while the main thread is stopped again and again: they must come back.
IN_VECTORS = """
import ctypes
library = ctypes.CDLL(LIBRARY)
stop = ctypes.c_int.in_dll(library, "stop")
import threading, time
def look():
    while not STOP.exists():
        time.sleep(0.05)
    stop.value = 1
threading.Thread(target=look, daemon=True).start()
print("ready", flush=True)
print(library.NAME(), flush=True)
"""
ASLEEP = """
import time
print("ready", flush=True)
begin = time.monotonic()
time.sleep(SECONDS)
print(time.monotonic() - begin, flush=True)
"""
ASLEEP_FOR_A_SPAN = """
import ctypes
libc = ctypes.CDLL(None)
print("ready", flush=True)
print(libc.sleep(SECONDS), flush=True)
"""


def main() -> None:
    """All trials."""
    for name, kind in (("proc", "proc"), ("sys", "sysfs"), ("dev", "devtmpfs"), ("tmp", "tmpfs")):
        ctypes.CDLL(None).mount(b"none", f"/{name}".encode(), kind.encode(), 0, None)
    Path("/proc/sys/debug/exception-trace").write_text("1")  # the kernel says what a process died of
    print(os.uname().machine, sys.version.split()[0], "page", os.sysconf("SC_PAGE_SIZE"), flush=True)
    trials: list[Callable[[], str]] = [
        native_core_writes_the_same, by_thread, by_pending_call, armed, asleep_main_thread, asleep_for_a_span,
        neon_comes_back, sve_comes_back,
    ]  # fmt: skip
    failed = 0
    for trial in trials:
        try:
            print(f"ok {trial.__name__}: {trial()}", flush=True)
        except BaseException:  # noqa: BLE001 - each trial is told
            failed += 1
            print(f"failed {trial.__name__}: {traceback.format_exc()}", flush=True)
    print("all ok" if not failed else f"{failed} failed", flush=True)


class Program:
    """A Python process that has said that it is ready."""

    def __init__(self, code: str, environment: dict[str, str] | None = None) -> None:
        self.stop = Path(f"/tmp/stop-{time.monotonic_ns()}")  # noqa: S108 - a machine of our own
        head = f"from pathlib import Path\nSTOP = Path({str(self.stop)!r})\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", head + code],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert self.process.stdout is not None
        self._said = self.process.stdout
        assert self._said.readline() == "ready\n"

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> str:
        """Have it end by itself; what it said last."""
        self.stop.touch()
        said = self._said.read().strip()
        assert self.process.wait(PATIENCE_S) == 0, self.process.returncode
        return said


def injected(program: Program, way: str | None) -> str:
    """Code of ours ran in the process: which way, and how long it stood still."""
    from tuiadvisor.inject import inject

    marker = Path(f"/tmp/marker-{time.monotonic_ns()}")  # noqa: S108
    code = f"import os; open({str(marker)!r}, 'w').write(str(os.getpid()))"
    try:
        done = inject(program.pid, code, timeout_s=60.0, way=way)
    except BaseException:
        time.sleep(1)
        print("its end:", program.process.poll(), flush=True)
        raise
    end_s = time.monotonic() + PATIENCE_S
    while not marker.exists() or not marker.read_text():
        assert time.monotonic() < end_s, "it never ran"
        time.sleep(0.01)
    assert str(program.pid) == marker.read_text()
    return f"{done.way}, stopped {done.stopped_ns / 1e6:.1f} ms"


def by_thread() -> str:
    """Twice, and the training's arithmetic is right afterwards."""
    program = Program(AT_WORK)
    told = [injected(program, "thread") for _ in range(2)]
    assert program.end().endswith("True")
    assert_nothing_left(program)
    return "; ".join(told)


def by_pending_call() -> str:
    program = Program(AT_WORK)
    told = [injected(program, "pending_call") for _ in range(2)]
    assert program.end().endswith("True")
    return "; ".join(told)


def armed() -> str:
    from tuiadvisor.inject.armed import arm_environment

    environment = arm_environment(dict(os.environ))
    program = Program(AT_WORK, environment)
    told = injected(program, None)
    assert told.startswith("armed")
    assert program.end().endswith("True")
    return told


def asleep_main_thread() -> str:
    """The only thread, borrowed from its sleep, which ends when it would have ended."""
    program = Program(ASLEEP.replace("SECONDS", "20"))
    time.sleep(1)
    told = injected(program, "thread")
    slept_s = float(program.end())
    assert 20 <= slept_s < 30, slept_s
    return f"{told}; slept {slept_s:.1f} of 20 s"


def asleep_for_a_span() -> str:
    """Its rest would be lost: it is left alone, and ends when it would have ended."""
    from tuiadvisor.inject import InjectError, inject

    program = Program(ASLEEP_FOR_A_SPAN.replace("SECONDS", "60"))
    begin_s = time.monotonic()
    time.sleep(2)
    reasons = []
    for way in ("thread", "pending_call"):
        try:
            inject(program.pid, "pass", timeout_s=5.0, way=way)
        except InjectError as error:
            reasons.append(error.reason)
    assert program.end() == "0"
    slept_s = time.monotonic() - begin_s
    assert reasons == ["busy", "busy_in_c"], reasons
    assert slept_s < 90, slept_s
    return f"{reasons}; slept {slept_s:.1f} of 60 s"


def native_core_writes_the_same() -> str:
    """As Python's books, byte for byte, into rings with sums and without; a reader takes all of it."""
    from importlib.machinery import ExtensionFileLoader
    from importlib.util import module_from_spec, spec_from_loader

    from native_notes import noted, told

    from tuiadvisor_probes import books, ring, step_record

    spec = spec_from_loader("_tuiadvisor_core", ExtensionFileLoader("_tuiadvisor_core", NATIVE_CORE))
    assert spec is not None
    assert spec.loader is not None
    core = module_from_spec(spec)
    spec.loader.exec_module(core)
    num_rows = 0
    for seed in range(NUM_SEEDS):
        notes, written = list(noted(seed)), []
        for kept in (books.Books(1_000), core.Books(1_000)):
            path = f"/tmp/ring-{time.monotonic_ns()}"  # noqa: S108
            ring.create_ring_file(path, 8, 8, summed=seed % 2 == 1)
            writer, cost = ring.RingWriter(path), step_record.OwnCost()
            told(kept, notes)
            if isinstance(kept, books.Books):
                step_record.write(writer, kept.kept, cost, 99)
            else:
                kept.write(writer, cost, writer.map, writer.step_capacity, writer.num_steps, 99)
            writer.close()
            reader = ring.RingReader(path)
            num_rows += len(reader.take_steps())
            reader.close()
            written.append(Path(path).read_bytes())
        assert written[0] == written[1], seed
    return f"{NUM_SEEDS} sets of notes, {num_rows} rows read; this machine's rings have sums: {ring.needs_sums()}"


def neon_comes_back() -> str:
    return interrupted_in("hold_neon")


def sve_comes_back() -> str:
    if " sve" not in Path("/proc/cpuinfo").read_text():
        return "no SVE on this processor"
    return interrupted_in("hold_sve")


def interrupted_in(name: str) -> str:
    """Stopped while numbers are in its registers; the function says how often one of them was another."""
    program = Program(IN_VECTORS.replace("LIBRARY", repr(ARCHITECTURE_DEPENDENT)).replace("NAME", name))
    from tuiadvisor.inject import inject

    done = [inject(program.pid, "pass", timeout_s=60.0, way="pending_call") for _ in range(NUM_INTERRUPTIONS)]
    assert program.end() == "0"
    longest_ms = max(injection.stopped_ns for injection in done) / 1e6
    return f"{len(done)} times, stopped {longest_ms:.1f} ms at most, no register changed"


def assert_nothing_left(program: Program) -> None:
    assert program.process.returncode == 0


if __name__ == "__main__":
    try:
        main()
    finally:
        os.sync()
        ctypes.CDLL(None).reboot(0x4321FEDC)
