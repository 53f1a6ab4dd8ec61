"""An attach that hangs for ever holds up neither other jobs nor the agent's end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE_S, wait_until

from tuiadvisor.agent import attach as attach_module
from tuiadvisor.agent import rank_link
from tuiadvisor.agent.attach import Attached
from tuiadvisor.agent.crew import Crew
from tuiadvisor.agent.rank_link import RankLink
from tuiadvisor.agent.session import create_session
from tuiadvisor_probes import ring as ring_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.agent.discovery import RankProcess

RANK = "import time\nwhile True: time.sleep(0.05)"
# An agent whose attach waits for a FIFO that nobody writes, in the place of a file system that does not answer.
AGENT = """
import os, sys
from tuiadvisor.agent import agent
from tuiadvisor.agent.agent import AgentConfig, run_agent
from tuiadvisor.agent.attach import Injector

agent.LEAVE_S = agent.PUSH_OUT_S = 0.1  # how long it waits before it gives up is not what this is about

def hang(target, code):
    open(sys.argv[3] + ".begun", "w").close()
    with open(sys.argv[3]) as never:
        never.read()

injector = Injector(hang, lambda path, folder: "", lambda: "", lambda pid: True)
sys.exit(run_agent(AgentConfig(sys.argv[1], (int(sys.argv[2]),), wait_for_ranks_s=30.0), injector))
"""


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    """A process that passes for a rank."""
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    process = subprocess.Popen([sys.executable, "-c", RANK], env=environment)
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow
def test_an_agent_ends_although_an_attach_hangs_for_ever(
    rank: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """It says why it ends, and leaves the rank alone."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-P", "-c", AGENT, f"ipc://{tmp_path}/hub", str(rank.pid), str(fifo)]
    agent = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        wait_until((tmp_path / "fifo.begun").exists)
        agent.send_signal(signal.SIGTERM)
        _, complaint = agent.communicate(timeout=PATIENCE_S)
    finally:
        agent.kill()
        agent.wait()
    assert (agent.returncode, complaint) == (0, b"")
    assert rank.poll() is None
    assert "TracerPid:\t0\n" in Path(f"/proc/{rank.pid}/status").read_text()


def test_an_interpreter_ends_with_a_job_that_hangs() -> None:
    """Nothing joins the thread when Python itself ends."""
    code = (
        "import threading; from tuiadvisor.agent.crew import Crew\n"
        "crew = Crew(); crew.submit(threading.Event().wait); crew.finish(0.1); print('ended')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == b"ended\n"


def test_jobs_are_done_in_order_by_so_many_threads() -> None:
    """As an executor does them, errors included."""
    crew, order, free = Crew(1), list[int](), threading.Event()
    first = crew.submit(free.wait, PATIENCE_S)
    others = [crew.submit(order.append, number) for number in range(20)]
    broken = crew.submit(int, "no number")
    assert not any(job.done() for job in (first, *others))
    free.set()
    with pytest.raises(ValueError, match="no number"):
        broken.result(PATIENCE_S)
    assert order == list(range(20))
    crew.finish(PATIENCE_S)


def test_what_has_not_begun_does_not_begin_any_more() -> None:
    """What has begun is waited for, as long as is said."""
    crew, free, done = Crew(1), threading.Event(), list[int]()
    begun = crew.submit(lambda: (free.wait(PATIENCE_S), done.append(1)))
    wait_until(begun.running)
    queued = crew.submit(done.append, 2)
    threading.Timer(0.1, free.set).start()
    crew.finish(PATIENCE_S)
    assert (done, queued.cancelled()) == ([1], True)


def test_many_jobs_at_once_are_done_side_by_side() -> None:
    """Sixteen that wait for each other."""
    crew, together = Crew(16), threading.Barrier(16)
    jobs = [crew.submit(together.wait, PATIENCE_S) for _ in range(16)]
    assert sorted(job.result(PATIENCE_S) for job in jobs) == list(range(16))
    crew.finish(PATIENCE_S)


def test_an_attach_that_comes_late_is_undone(
    rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link was let go while it hung: the probe that it put in is told to leave, and its folder goes."""
    session, begun, free = create_session(os.getpid(), os.geteuid()), threading.Event(), threading.Event()
    writer = ring_file.RingWriter(session.ring_path)

    def late(*_: object) -> Attached:
        begun.set()
        free.wait(PATIENCE_S)
        return Attached(session, ring_file.RingReader(session.ring_path), None)

    monkeypatch.setattr(rank_link, "attach", late)
    crew, link = Crew(), _link(rank.pid)
    link.advance(1, crew)
    assert begun.wait(PATIENCE_S)
    link.ask_to_leave()
    crew.finish(0.05)
    link.release()
    assert Path(session.directory).exists()
    free.set()
    wait_until(lambda: not Path(session.directory).exists())
    assert writer.get_u64(ring_file.OFFSET_COMMAND) == ring_file.COMMAND_DETACH
    writer.close()


def test_a_link_asked_to_leave_injects_no_more(rank: subprocess.Popen[bytes]) -> None:
    """An attach that prepares the rank's files meanwhile takes them back."""
    injected: list[str] = []
    link = _link(rank.pid, injected)
    crew, free = Crew(1), threading.Event()
    crew.submit(free.wait, PATIENCE_S)
    link.advance(1, crew)
    link.ask_to_leave()
    free.set()
    wait_until(lambda: not link.is_busy)
    link.advance(2, crew)
    crew.finish(PATIENCE_S)
    assert (injected, link.session, link.reader) == ([], None, None)


def _link(pid: int, injected: list[str] | None = None) -> RankLink:
    def inject(_target: object, code: str) -> object:
        (injected if injected is not None else []).append(code)
        raise AssertionError("nobody asked for it")

    injector = attach_module.Injector(inject, lambda path, _: path, lambda: "", lambda _: True)  # type: ignore[arg-type]
    return RankLink(_process(pid), injector)


def _process(pid: int) -> RankProcess:
    from test_agent_attach import rank_process  # beside this file

    return rank_process(pid)
