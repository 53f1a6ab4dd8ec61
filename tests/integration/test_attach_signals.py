"""Signals that reach a training while a probe comes and goes: each has the effect that it would have had without us."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from patience import INJECT_S, PATIENCE_S, wait_until
from test_inject import VERSIONS, _program, _resources

from tuiadvisor.agent.payload import attach_code, detach_code, write_bundle
from tuiadvisor.inject import identify, inject
from tuiadvisor_probes import ring

NUM_VISITS = 8
BEYOND_ADDRESSES = 1 << 47  # of a thread's stack: none can be started
# One signal at a time, in its own frames, again and again: what the handler raises has to arrive there.
HOST = """
import json, os, random, signal, sys, threading, time

class TimeLimitError(Exception):
    pass

effect, number = sys.argv[1], getattr(signal, sys.argv[2])
counts = dict.fromkeys(("sent", "handled", "arrived", "lost"), 0)

def handler(*_):
    counts["handled"] += 1
    if effect == "raises":
        if counts["handled"] % 2:
            signal.signal(number, signal.SIG_IGN)  # as a limit does that is for one call
        raise TimeLimitError
    if effect == "exits":
        raise SystemExit(3)

def send_when_asked():
    while os.read(asked, 1):
        this_one = counts["sent"]
        time.sleep(offset_s)
        os.kill(os.getpid(), number)
        latest[0] = this_one

if effect != "default":
    signal.signal(number, handler)
if number != signal.SIGALRM:
    latest = [0]
    asked, ask = os.pipe()  # a lock of Python's would not bear an exception in its own lines
    threading.Thread(target=send_when_asked, daemon=True).start()

def send_soon():
    if effect == "raises":
        signal.signal(number, handler)
    if number == signal.SIGALRM:
        signal.setitimer(signal.ITIMER_REAL, offset_s)
    else:
        os.write(ask, b"x")

def is_sent():
    return not signal.getitimer(signal.ITIMER_REAL)[0] if number == signal.SIGALRM else latest[0] == counts["sent"]

def train(handled):
    # Until the exception comes; where none comes, long after it should have.
    since, x = None, 0.0
    while since is None or time.monotonic() < since + 2:
        for _ in range(200):
            x = x * 0.5 + 1.0
        if since is None and is_sent():
            since = time.monotonic()
        if effect == "counts" and counts["handled"] > handled:
            counts["arrived"] += 1
            return
    counts["lost"] += 1

print("ready", flush=True)
parent = os.getppid()  # no signal ends it: a test that is killed must not leave it behind
while not os.path.exists("stop") and os.getppid() == parent:
    offset_s = random.uniform(0.0001, 0.004)
    counts["sent"] += 1
    handled = counts["handled"]
    try:
        send_soon()
        train(handled)
    except (TimeLimitError, SystemExit, KeyboardInterrupt):
        counts["arrived"] += 1
print(json.dumps(counts))
"""
SIGNALS = [("raises", "SIGALRM"), ("counts", "SIGALRM"), ("default", "SIGINT"), ("exits", "SIGTERM")]


@contextmanager
def training(
    folder: Path, version: str, *arguments: str, stack_bytes: int = 0
) -> Iterator[subprocess.Popen[str]]:
    """A host under signals. Told to end by the file `stop`, it says what became of them."""
    limit = ["prlimit", f"--stack={stack_bytes}:"] if stack_bytes else []
    host = subprocess.Popen(
        [*limit, _program(version), "-c", HOST, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert host.stdout is not None
    try:
        assert host.stdout.readline() == "ready\n"
        yield host
    finally:
        host.kill()
        host.communicate()


def visit(pid: int, folder: Path, way: str) -> int:
    """Put a probe in and take it out; the state that its ring was left in."""
    folder.mkdir()
    assert write_bundle(folder, identify(pid))
    ring.create_ring_file(str(folder / "ring"))
    reader = ring.RingReader(str(folder / "ring"))
    state = partial(reader.get_u64, ring.OFFSET_STATE)
    inject(pid, attach_code(str(folder / "ring")), way=way, timeout_s=INJECT_S)
    wait_until(lambda: state() in {ring.STATE_LIVE, ring.STATE_FAILED}, seen=reader.info)
    inject(pid, detach_code(), way=way, timeout_s=INJECT_S)
    wait_until(lambda: state() in {ring.STATE_DETACHED, ring.STATE_FAILED}, seen=reader.info)
    left_in = state()
    reader.close()
    return left_in


def ended(folder: Path, host: subprocess.Popen[str]) -> Any:
    """What it counted; it has to end well and silently."""
    (folder / "stop").touch()
    output, complaint = host.communicate(timeout=PATIENCE_S)
    assert ("", 0) == (complaint, host.returncode)
    return json.loads(output)


def assert_none_lost(counts: dict[str, int], effect: str) -> None:
    assert counts["sent"] > NUM_VISITS
    assert (0, counts["sent"]) == (counts["lost"], counts["arrived"]), counts
    assert effect == "default" or counts["sent"] == counts["handled"], counts


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("effect", "number"), SIGNALS, ids=["-".join(each) for each in SIGNALS])
def test_no_signal_is_lost_while_a_probe_comes_and_goes(
    version: str, effect: str, number: str, tmp_path: Path
) -> None:
    """By a pending call in the training's own thread: its handler runs once, what it raises reaches its own frames."""
    with training(tmp_path, version, effect, number) as host:
        states = [visit(host.pid, tmp_path / str(each), "pending_call") for each in range(NUM_VISITS)]
        counts = ended(tmp_path, host)
    assert_none_lost(counts, effect)
    assert [ring.STATE_DETACHED] * NUM_VISITS == states


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("effect", ["raises", "counts", "exits"])
def test_no_signal_is_lost_where_the_main_thread_takes_the_code(
    version: str, effect: str, tmp_path: Path
) -> None:
    """No thread can be started: what a handler raises breaks the visit off, whole, and is the training's."""
    seen = set()
    with training(tmp_path, version, effect, "SIGALRM", stack_bytes=BEYOND_ADDRESSES) as host:
        for each in range(NUM_VISITS):
            folder = tmp_path / str(each)
            folder.mkdir()
            assert write_bundle(folder, identify(host.pid))
            ring.create_ring_file(str(folder / "ring"))
            reader = ring.RingReader(str(folder / "ring"))
            for code in (attach_code(str(folder / "ring")), detach_code()):
                inject(host.pid, code, way="pending_call", timeout_s=INJECT_S)
                wait_until(lambda: not _resources(host.pid)["code bytes"])
            seen.add(reader.get_u64(ring.OFFSET_STATE))
            reader.close()
        counts = ended(tmp_path, host)
    assert_none_lost(counts, effect)
    assert effect != "counts" or seen == {ring.STATE_DETACHED}
    assert ring.STATE_INSTALLING not in seen
