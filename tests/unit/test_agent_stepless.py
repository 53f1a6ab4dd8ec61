"""Why there is no step: from a ring and from real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import wait_until

from tuiadvisor.agent import procfs
from tuiadvisor.agent.info import ProbeInfo
from tuiadvisor.agent.stepless import AFTER_NS, LOOK_EVERY_NS, Stepless
from tuiadvisor.phases import PHASES
from tuiadvisor_probes import ring
from tuiadvisor_probes.step_clock import NOW

S = 10**9
NOTHING = ProbeInfo()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ring.RingWriter, ring.RingReader]]:
    """Both ends of a ring."""
    path = str(tmp_path / "ring")
    ring.create_ring_file(path, 16, 16)
    writer, reader = ring.RingWriter(path), ring.RingReader(path)
    yield writer, reader
    writer.close()
    reader.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing once it has said so."""
    code = "import time; print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def why(
    pair: tuple[ring.RingWriter, ring.RingReader], pid: int, *told: str, info: ProbeInfo = NOTHING
) -> str:
    """After so many seconds, each with the thread in the phase that is told."""
    writer, reader = pair
    stepless = Stepless(pid)
    for second, phase in enumerate(told, 1):
        if phase:
            writer.words[NOW] = second * S << 4 | PHASES.index(phase)
        stepless.look(reader, info, second * S, second * S)
    return stepless.why


LONG_ENOUGH = AFTER_NS // S + 2


@pytest.mark.parametrize("name", ["optimizer", "backward"])
def test_a_hook_that_is_off_is_why(
    pair: tuple[ring.RingWriter, ring.RingReader], sleeper: subprocess.Popen[bytes], name: str
) -> None:
    """Of a training with Adam that "no optimizer of torch.optim steps" was said while our own hook had failed."""
    hooks = {"optimizer": "ok", "backward": "ok", name: "RuntimeError: no sequence numbers"}
    told = why(pair, sleeper.pid, *["forward", "backward"] * LONG_ENOUGH, info=ProbeInfo(hooks=hooks))
    assert f"the probe's hook on {name}" in told
    assert "(RuntimeError: no sequence numbers)" in told
    fine = ProbeInfo(hooks={"optimizer": "ok", "backward": "ok"})
    assert "no optimizer of torch.optim" in why(pair, sleeper.pid, *["backward"] * LONG_ENOUGH, info=fine)


def test_nothing_is_said_before_its_time(
    pair: tuple[ring.RingWriter, ring.RingReader], sleeper: subprocess.Popen[bytes]
) -> None:
    """An attach and a first step take a moment."""
    assert "" == why(pair, sleeper.pid, *[""] * (LONG_ENOUGH - 3))
    assert LOOK_EVERY_NS <= S


@pytest.mark.parametrize(
    ("phases", "sentence"),
    [
        (["forward", "other"], "its model runs forward and no backward follows"),
        (["eval", "other"], "it evaluates or serves"),
        (["forward", "backward"], "backward runs, but no optimizer of torch.optim steps"),
        (["backward", "optimizer", "other"], "its first step since the attach is not over"),
        (["other"], "none of its threads is doing anything"),
    ],
)
def test_the_phases_that_were_seen_tell(
    pair: tuple[ring.RingWriter, ring.RingReader],
    sleeper: subprocess.Popen[bytes],
    phases: list[str],
    sentence: str,
) -> None:
    """Of a thread that goes on from phase to phase."""
    told = [phases[second % len(phases)] for second in range(LONG_ENOUGH)]
    assert sentence in why(pair, sleeper.pid, *told)


@pytest.mark.parametrize("seen", [["forward", "backward"], ["forward", "other"], ["backward", "other"]])
def test_closures_of_a_step_that_began_before_the_attach_are_its_own(
    pair: tuple[ring.RingWriter, ring.RingReader], sleeper: subprocess.Popen[bytes], seen: list[str]
) -> None:
    """LBFGS calls the model many times within one step, which may last minutes; its loop does step."""
    told = [seen[second % len(seen)] for second in range(LONG_ENOUGH)]
    assert "its first step since the attach is not over" == why(
        pair, sleeper.pid, *told, info=ProbeInfo(stepping="LBFGS")
    )


@pytest.mark.parametrize("last", ["forward", "eval"])
def test_a_forward_after_which_nothing_is_seen_is_no_evaluation(
    pair: tuple[ring.RingWriter, ring.RingReader], sleeper: subprocess.Popen[bytes], last: str
) -> None:
    """A rank that waits for another one in a barrier after its forward was told to evaluate or serve."""
    told = why(pair, sleeper.pid, last, "other", *[""] * LONG_ENOUGH)
    assert (
        "its model ran forward, and for over 5 s neither a backward nor another forward has followed" in told
    )
    assert f"stacks --pid {sleeper.pid}" in told


def test_a_phase_that_does_not_end_is_named(
    pair: tuple[ring.RingWriter, ring.RingReader], sleeper: subprocess.Popen[bytes]
) -> None:
    """With its length."""
    assert "it has been in one backward for over 5 s" in why(
        pair, sleeper.pid, "backward", *[""] * (LONG_ENOUGH - 1)
    )


def test_a_stopped_process_is_said_to_be(
    pair: tuple[ring.RingWriter, ring.RingReader], sleeper: subprocess.Popen[bytes]
) -> None:
    """And how it goes on."""
    os.kill(sleeper.pid, signal.SIGSTOP)
    wait_until(lambda: (found := procfs.stat(sleeper.pid)) and found.state == "T", "it is stopped")
    assert f"it is stopped (SIGSTOP, or a debugger); kill -CONT {sleeper.pid}" in why(
        pair, sleeper.pid, *["other"] * LONG_ENOUGH
    )


@pytest.mark.slow
def test_a_busy_process_without_any_sign(pair: tuple[ring.RingWriter, ring.RingReader]) -> None:
    """This one is at work and trains nothing."""
    writer, reader = pair
    stepless = Stepless(os.getpid())
    stepless.look(reader, NOTHING, S, S)
    found = procfs.stat(os.getpid())
    assert found is not None
    begin = found.cpu_ticks

    def has_worked() -> bool:
        now = procfs.stat(os.getpid())
        return now is not None and now.cpu_ticks - begin > 0.3 * procfs.TICKS_PER_S

    wait_until(has_worked, "a third of a second of processor time", 0)
    stepless.look(reader, NOTHING, LONG_ENOUGH * S, LONG_ENOUGH * S)
    assert "no backward and no optimizer step of PyTorch was seen in any of its threads" in stepless.why
    assert writer.num_steps == 0


RPC = """
import os, torch.distributed.rpc as rpc
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0")
rpc.init_rpc("alone", rank=0, world_size=1)
print(flush=True)
while True: pass
"""


@pytest.mark.slow
def test_a_busy_worker_of_remote_calls_is_told_that_their_steps_are_not_measured(
    pair: tuple[ring.RingWriter, ring.RingReader],
) -> None:
    """Distributed autograd: the hybrid of RPC and DDP was told that it prepares, evaluates or serves."""
    with subprocess.Popen([sys.executable, "-c", RPC], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            stepless = Stepless(process.pid)
            stepless.look(pair[1], NOTHING, S, S)
            found = procfs.stat(process.pid)
            assert found is not None
            begin = found.cpu_ticks

            def has_worked() -> bool:
                now = procfs.stat(process.pid)
                return now is not None and now.cpu_ticks - begin > 0.3 * procfs.TICKS_PER_S

            wait_until(has_worked, "a third of a second of processor time", 0)
            stepless.look(pair[1], NOTHING, LONG_ENOUGH * S, LONG_ENOUGH * S)
        finally:
            process.kill()
    assert "it takes part in torch.distributed.rpc" in stepless.why
    assert "their steps are not measured" in stepless.why
    assert "prepares, evaluates or serves" not in stepless.why


def test_what_the_probe_says_comes_first_and_a_step_ends_it(
    pair: tuple[ring.RingWriter, ring.RingReader], sleeper: subprocess.Popen[bytes]
) -> None:
    """Two loops are told at once, and also after steps; a thread without an optimizer by its name."""
    writer = pair[0]
    assert "two loops" == why(pair, sleeper.pid, "", info=ProbeInfo(unmeasured="two loops"))
    loop = ProbeInfo(unstepped="loop")
    assert "backward runs in its thread loop" in why(pair, sleeper.pid, *["other"] * LONG_ENOUGH, info=loop)
    writer.put_step((0,) * ring.NUM_STEP_SLOTS)
    assert "" == why(pair, sleeper.pid, *["other"] * LONG_ENOUGH)
    assert "two loops" == why(pair, sleeper.pid, "", info=ProbeInfo(unmeasured="two loops"))


def test_steps_of_a_process_without_a_rank_are_of_no_rank(
    pair: tuple[ring.RingWriter, ring.RingReader],
) -> None:
    """As of Hogwild's processes, several of which are watched together: no number will ever come."""
    writer, reader = pair
    stepless = Stepless(4711)
    writer.put_step((0,) * ring.NUM_STEP_SLOTS)
    for second in range(1, LONG_ENOUGH - 1):
        stepless.look(reader, NOTHING, second * S, second * S)
    assert "" == stepless.of_rank(None)  # a number may still come
    stepless.look(reader, NOTHING, (LONG_ENOUGH + 1) * S, (LONG_ENOUGH + 1) * S)
    assert "in no process group" in stepless.of_rank(None)
    assert "--pid 4711" in stepless.of_rank(None)
    assert "" == stepless.of_rank(0)


def test_a_process_that_waits_for_those_it_started_points_to_them(
    pair: tuple[ring.RingWriter, ring.RingReader], tmp_path: Path
) -> None:
    """Those with torch: a helper beside them is none."""
    library = tmp_path / "libtorch_python.so"
    library.write_bytes(bytes(4096))
    mapping = (
        "import mmap, sys; file = open(sys.argv[1], 'rb');"
        " kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)"
    )
    waits = "print(flush=True); sys.stdin.read()"
    parent = (
        "import subprocess, sys; kept = [subprocess.Popen([sys.executable, '-c', code, sys.argv[1]],"
        " stdout=subprocess.PIPE) for code in sys.argv[2:]];"
        " [one.stdout.readline() for one in kept]; print(*(one.pid for one in kept), flush=True); sys.stdin.read()"
    )
    codes = (f"{mapping}; {waits}", f"import sys; {waits}")
    with subprocess.Popen(
        [sys.executable, "-c", parent, str(library), *codes], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        trains, helps = process.stdout.readline().split()
        told = why(pair, process.pid, *["other"] * LONG_ENOUGH)
        process.stdin.close()  # which all of them wait for
    assert f"have loaded torch: watch them, or one of them (--pid {trains.decode()})" in told
    assert helps.decode() not in told.split()
