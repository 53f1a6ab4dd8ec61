"""Injection into real processes: every Python found here, at work and asleep, a hundred times over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from interpreters import PYTHONS
from patience import INJECT_S, PATIENCE_S

from tuiadvisor.inject import InjectError
from tuiadvisor.inject import inject as inject_within
from tuiadvisor.inject.armed import arm_environment, is_armed
from tuiadvisor.inject.process import maps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]


inject = partial(inject_within, timeout_s=INJECT_S)
VERSIONS = sorted({"3.10", "3.11", "3.12", "3.13", *PYTHONS})


def inject_by(way: str, pid: int, code: str) -> None:
    """By this way and no other: a thread that was borrowed just now may not be back asleep where cores are busy."""

    def is_done() -> bool:
        try:
            inject(pid, code, way=way)
        except InjectError as error:
            if error.reason != "busy":
                raise
            return False
        return True

    _until(is_done)


def _program(version: str) -> str:
    if version not in PYTHONS:
        pytest.skip(f"no Python {version} (pyenv install {version})")
    return PYTHONS[version]


def _until(condition: Callable[[], Any]) -> Any:
    """The first true answer; a failure when there is none for a very long time."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.002)
    pytest.fail("nothing happened")


@contextmanager
def _running(
    folder: Path, source: str, *, program: str = sys.executable, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A target that has said "ready". Told to end by the file `stop`, it must end well and silently."""
    head = f"import os, sys, time\nos.chdir({str(folder)!r})\nstop = lambda: os.path.exists('stop')\n"
    target = subprocess.Popen(
        [program, "-c", head + textwrap.dedent(source)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert target.stdout is not None
    try:
        assert target.stdout.readline() == "ready\n"
        yield target
    finally:
        if target.poll() is None:
            target.kill()
        target.communicate()


def _end(folder: Path, target: subprocess.Popen[str]) -> str:
    """What the target printed; it ends with 0 and without a word of complaint."""
    (folder / "stop").touch()
    output, complaint = target.communicate(timeout=PATIENCE_S)
    assert (complaint, target.returncode) == ("", 0)
    return output


def _writing(path: Path, expression: str = "'here'") -> str:
    """Code that writes the value of an expression in one go."""
    return (
        "import os, sys\n"
        f"with open({str(path) + '~'!r}, 'w') as file:\n    file.write(str({expression}))\n"
        f"os.rename({str(path) + '~'!r}, {str(path)!r})\n"
    )


IDLE_THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
COMPUTING = """
print("ready", flush=True)
x = 0.0
while not stop():
    for _ in range(2000):
        x = x * 0.5 + 1.0
"""
SLEEPING = """
print("ready", flush=True)
while not stop():
    time.sleep(0.3)
"""


# As in a server whose training runs in the only other thread, which never sleeps.
WAITING = """
import select, threading
own = f"/proc/self/task/{os.getpid()}/syscall"
def compute():
    while not open(own).read().startswith("232 "):
        pass
    print("ready", flush=True)
    x = 0.0
    while not stop():
        for _ in range(2000):
            x = x * 0.5 + 1.0
    os.write(put, b"x")
get, put = os.pipe()
poller = select.epoll()
poller.register(get, select.EPOLLIN)
threading.Thread(target=compute).start()
assert [(get, select.EPOLLIN)] == poller.poll()
"""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("source", "ways"),
    [
        (COMPUTING, {"pending_call", "remote_exec"}),
        (IDLE_THREAD + COMPUTING, {"thread", "remote_exec"}),
        (SLEEPING, {"thread", "remote_exec"}),  # awake for a moment in each 0.3 s
        (IDLE_THREAD + SLEEPING, {"thread", "remote_exec"}),
        (WAITING, {"thread"}),
    ],
    ids=["computing", "computing-idle-thread", "sleeping", "sleeping-idle-thread", "waiting"],
)
def test_code_runs_inside(version: str, source: str, ways: set[str], tmp_path: Path) -> None:
    """In every version, at work or asleep, with an idle thread or alone; the target ends as it would have."""
    with _running(tmp_path, source, program=_program(version)) as target:
        injection = inject(
            target.pid, _writing(tmp_path / "marker", "'%d.%d%s' % (*sys.version_info[:2], sys.abiflags)")
        )
        _until((tmp_path / "marker").exists)
        if version.endswith(
            "t"
        ):  # without a lock of the interpreter, only between two lines of the main thread
            ways = {"pending_call", "remote_exec"}
        assert (target.pid, True) == (injection.pid, injection.way in ways)
        assert injection.total_ns > injection.stopped_ns >= 0
        assert version.removeprefix("system-") == (tmp_path / "marker").read_text()
        assert _end(tmp_path, target) == ""


@pytest.mark.parametrize("version", VERSIONS)
def test_namespace_and_threads_of_the_host_are_untouched(version: str, tmp_path: Path) -> None:
    """Failing code says nothing and leaves no name, no module, no thread object behind."""
    source = """
    import threading
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    def seen():
        return sorted(vars(sys.modules["__main__"])), sorted(sys.modules), threading.enumerate(), sys.path[:]
    before = seen(), seen()
    before = seen()
    print("ready", flush=True)
    while not stop():
        sum(range(1000))
    print(seen() == before)
    """
    failing = ["raise ValueError", "raise SystemExit(3)", "no Python", "__name__ = x = 1", "1/0"]
    with _running(tmp_path, source, program=_program(version)) as target:
        for way in ("thread", "pending_call"):
            for code in failing:
                inject_by(way, target.pid, code)
        for way in ("thread", "pending_call"):
            inject_by(way, target.pid, _writing(tmp_path / way))
            _until((tmp_path / way).exists)
        assert _end(tmp_path, target) == "True\n"


ARITHMETIC = """
import array, hashlib, math, struct, threading
wanted = int(os.environ.get("NUM_ROUNDS", "0"))
threading.Thread(target=threading.Event().wait, daemon=True).start()
digest, state, rounds = hashlib.sha256(), 0.5, 0
print("ready", flush=True)
while rounds < wanted if wanted else not stop():
    values = array.array("d", [0.0]) * 256
    for i in range(256):
        state = 3.9999 * state * (1.0 - state)
        values[i] = math.sin(state * i) * math.sqrt(state + i) + state**1.5
    digest.update(struct.pack("<256f", *values) + values.tobytes())
    rounds += 1
print(rounds, digest.hexdigest())
"""

TRAINING = """
import hashlib, threading, torch
torch.manual_seed(7)
torch.set_num_threads(2)
wanted = int(os.environ.get("NUM_ROUNDS", "0"))
threading.Thread(target=threading.Event().wait, daemon=True).start()
model = torch.nn.Sequential(torch.nn.Linear(96, 160), torch.nn.GELU(), torch.nn.Linear(160, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rounds = 0
print("ready", flush=True)
while rounds < wanted if wanted else not stop():
    batch = torch.randn(128, 96)
    loss = (model(batch) - batch[:, :4].sin()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rounds += 1
weights = hashlib.sha256()
for parameter in model.parameters():
    weights.update(parameter.detach().numpy().tobytes())
print(rounds, weights.hexdigest())
"""


def _resources(pid: int) -> dict[str, int]:
    process = Path(f"/proc/{pid}")
    ours = [m for m in maps(pid) if m.executable and not m.inode and not m.path]
    return {
        "threads": len(list((process / "task").iterdir())),
        "descriptors": len(list((process / "fd").iterdir())),
        "code bytes": sum(mapping.end - mapping.start for mapping in ours),
    }


def _resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def _disturb(folder: Path, pid: int, num_injections: int) -> None:
    for number in range(num_injections):
        marker = folder / f"marker{number}"
        inject_by(("thread", "pending_call")[number % 2], pid, _writing(marker))
        _until(marker.exists)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "num_injections"),
    [
        pytest.param(ARITHMETIC, 100, id="arithmetic", marks=pytest.mark.extended),
        pytest.param(TRAINING, 20, id="training"),
    ],
)
def test_results_are_bit_identical(source: str, num_injections: int, tmp_path: Path) -> None:
    """The extended state is put back: as many rounds undisturbed give the same bits. Nothing grows."""
    if "torch" in source:
        pytest.importorskip("torch")
    env = os.environ | {"NUM_ROUNDS": "0"}
    with _running(tmp_path, source, env=env) as target:
        _disturb(tmp_path, target.pid, 6)
        for marker in tmp_path.glob("marker*"):
            marker.unlink()
        before, before_kib = _resources(target.pid), _resident_kib(target.pid)
        _disturb(tmp_path, target.pid, num_injections)
        _until(lambda: _resources(target.pid) == before)
        assert _resident_kib(target.pid) < before_kib + 2048
        rounds, disturbed = _end(tmp_path, target).split()
    (tmp_path / "stop").unlink()
    with _running(tmp_path, source, env=os.environ | {"NUM_ROUNDS": rounds}) as reference:
        output, _ = reference.communicate(timeout=PATIENCE_S)
    assert output.split() == [rounds, disturbed]


SUMMING = """
import hashlib
wanted = int(os.environ.get("NUM_ROUNDS", "0"))
values = [1.0 / n for n in range(1, 20_000)]
digest, rounds = hashlib.sha256(), 0
print("ready", flush=True)
while rounds < wanted if wanted else not stop():
    digest.update(sum(values, rounds * 0.1).hex().encode())
    rounds += 1
print(rounds, digest.hexdigest())
"""

CLOBBERING = """
import signal, sys, time
sys.path.insert(0, sys.argv[2])
from tuiadvisor.inject import identify, plan, process, remote_call
pid = int(sys.argv[1])
trap_at = plan.make_plan(identify(pid), "").trap_at
libc = next(m for m in process.mapped_objects(process.maps(pid)) if "/libc" in m.path)
with process.open_object(pid, libc) as elf:
    drand48 = elf.symbol("drand48") + elf.load_bias(libc.start, libc.file_offset)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
    for _ in range(300):
        with remote_call.held(pid, memory.fileno(), time.monotonic() + 60) as thread:
            thread.call(drand48, (), trap_at)
        time.sleep(0.0005)
"""


def test_vector_registers_are_put_back(tmp_path: Path) -> None:
    """A call that certainly overwrites vector registers, in the middle of sums kept in them."""
    with _running(tmp_path, SUMMING, env=os.environ | {"NUM_ROUNDS": "0"}) as target:
        subprocess.run([sys.executable, "-c", CLOBBERING, str(target.pid), str(ROOT)], check=True)
        rounds, disturbed = _end(tmp_path, target).split()
    with _running(tmp_path, SUMMING, env=os.environ | {"NUM_ROUNDS": rounds}) as reference:
        output, _ = reference.communicate(timeout=PATIENCE_S)
    assert output.split() == [rounds, disturbed]


def test_system_calls_sleep_on(tmp_path: Path) -> None:
    """A thread stopped in a system call goes back into it: nothing ends early, nothing returns EINTR."""
    source = """
    import _thread, json, queue, select, socket, threading
    left, right = socket.socketpair()
    sleeps = {
        "sleep": lambda: time.sleep(0.3),
        "select": lambda: select.select([left], [], [], 0.3),
        "poll": lambda: (lambda p: (p.register(left, 1), p.poll(300)))(select.poll()),
        "lock": lambda: held.acquire(timeout=0.3),
        "event": lambda: threading.Event().wait(0.3),
        "read": lambda: (_thread.start_new_thread(lambda: (time.sleep(0.3), right.send(b"x")), ()), left.recv(1)),
    }
    held = threading.Lock()
    held.acquire()
    print("ready", flush=True)
    short = {}
    while not stop():
        for name, sleep in sleeps.items():
            start = time.monotonic()
            sleep()
            short[name] = min(short.get(name, 9), time.monotonic() - start)
    print(json.dumps(short))
    """
    with _running(tmp_path, source) as target:
        for number in range(40):
            inject(target.pid, _writing(tmp_path / "marker"), way=("pending_call", None)[number % 2])
        _until((tmp_path / "marker").exists)
        shortest = json.loads(_end(tmp_path, target))
    assert [name for name, duration_s in shortest.items() if duration_s < 0.299] == []


def test_deleted_interpreter(tmp_path: Path) -> None:
    """An upgrade under a running job: the files are gone, their content is still mapped."""
    program = Path("/usr/bin/python3").resolve()
    if not program.is_file():
        pytest.skip("no Python of the system (apt-get install python3)")
    copied = tmp_path / "python3-copy"
    shutil.copy(program, copied)
    with _running(tmp_path, COMPUTING, program=str(copied)) as target:
        copied.unlink()
        injection = inject(target.pid, _writing(tmp_path / "marker"))
        _until((tmp_path / "marker").exists)
        assert target.pid == injection.pid
        _end(tmp_path, target)


def test_embedded_shared_library(tmp_path: Path) -> None:
    """A program that is no python, with the interpreter in a shared library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    library = sysconfig.get_config_var("LDLIBRARY") or ""
    include = Path(sysconfig.get_path("include"))
    if compiler is None or ".so" not in library or not (include / "Python.h").exists():
        pytest.skip(
            "no compiler with a shared Python (apt-get install gcc, and a Python built with --enable-shared)"
        )
    source = tmp_path / "host.c"
    source.write_text(
        "#include <Python.h>\n"
        "int main(void) { Py_InitializeEx(0);\n"
        "  PyRun_SimpleString(\"import os, time\\nprint('ready', flush=True)\\n\"\n"
        "    \"while not os.path.exists('stop'): sum(range(1000))\\n\"); return Py_FinalizeEx(); }\n"
    )
    folder = sysconfig.get_config_var("LIBDIR")
    name = library.removeprefix("lib").partition(".so")[0]
    host = tmp_path / "host"
    subprocess.run(
        [compiler, "-o", host, source, f"-I{include}", f"-L{folder}", f"-Wl,-rpath,{folder}", f"-l{name}"],
        check=True,
    )
    env = os.environ | {"PYTHONHOME": sys.base_prefix}
    with subprocess.Popen([host], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as target:
        try:
            assert target.stdout is not None
            assert target.stdout.readline() == "ready\n"
            inject(target.pid, _writing(tmp_path / "marker"))
            _until((tmp_path / "marker").exists)
            (tmp_path / "stop").touch()
            assert target.wait(PATIENCE_S) == 0
        finally:
            target.kill()


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_watcher_that_dies_in_the_middle_harms_nobody(signal_number: int, tmp_path: Path) -> None:
    """Whatever the moment: the target works on and can be injected into again."""
    watcher_source = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tuiadvisor.inject import inject
print("go", flush=True)
while True:
    inject(int(sys.argv[1]), "pass", way=sys.argv[2])
"""
    with _running(tmp_path, IDLE_THREAD + COMPUTING) as target:
        for number in range(8):
            way = ("thread", "pending_call")[number % 2]
            watcher = subprocess.Popen(
                [sys.executable, "-c", watcher_source, str(target.pid), way],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert watcher.stdout is not None
            try:
                watcher.stdout.readline()
                time.sleep(0.013 * number)  # another moment of the injection each time
                watcher.send_signal(signal_number)
                watcher.communicate(timeout=PATIENCE_S)
            finally:
                watcher.kill()
                watcher.communicate()
        inject(target.pid, _writing(tmp_path / "marker"))
        _until((tmp_path / "marker").exists)
        _end(tmp_path, target)


def test_many_threads_inject_at_once(tmp_path: Path) -> None:
    """From threads, into the same process: each waits for the other's moment."""
    num_threads = threading.active_count()
    with _running(tmp_path, IDLE_THREAD + COMPUTING) as target, ThreadPoolExecutor(4) as pool:
        markers = [tmp_path / f"marker{number}" for number in range(12)]
        injections = list(pool.map(lambda marker: inject(target.pid, _writing(marker)), markers))
        for marker in markers:
            _until(marker.exists)
        assert {target.pid} == {injection.pid for injection in injections}
        _end(tmp_path, target)
    assert threading.active_count() <= num_threads


def test_process_under_a_debugger_is_refused(tmp_path: Path) -> None:
    """Somebody else traces it: reason and the tracer's pid, and the target works on."""
    tracer_source = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tuiadvisor.inject import ptrace
ptrace.seize(int(sys.argv[1]))
print("seized", flush=True)
sys.stdin.read()
"""
    with _running(tmp_path, COMPUTING) as target:
        tracer = subprocess.Popen(
            [sys.executable, "-c", tracer_source, str(target.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert tracer.stdout is not None
        assert tracer.stdout.readline() == b"seized\n"
        with pytest.raises(InjectError) as caught:
            inject(target.pid, "pass")
        tracer.communicate(b"")
        assert caught.value.reason == "being_debugged"
        assert str(tracer.pid) in str(caught.value)
        _end(tmp_path, target)


def test_stopped_process_is_left_stopped_and_usable_later(tmp_path: Path) -> None:
    """State T is refused; after SIGCONT the same call works."""
    with _running(tmp_path, COMPUTING) as target:
        target.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(InjectError) as caught:
            inject(target.pid, "pass")
        assert caught.value.reason == "stopped"
        target.send_signal(signal.SIGCONT)
        inject(target.pid, _writing(tmp_path / "marker"))
        _until((tmp_path / "marker").exists)
        _end(tmp_path, target)


def test_stopping_the_process_meanwhile_loses_no_stop(tmp_path: Path) -> None:
    """Job control in the middle of injections: a stopped process stays stopped until it is continued."""
    with _running(tmp_path, IDLE_THREAD + COMPUTING) as target:
        done = threading.Event()

        def disturb() -> None:
            while not done.is_set():
                target.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, target.pid, os.WSTOPPED)
                target.send_signal(signal.SIGCONT)
                os.waitid(os.P_PID, target.pid, os.WCONTINUED)
                time.sleep(0.003)

        disturber = threading.Thread(target=disturb)
        disturber.start()
        reasons = set()
        for way in ("thread", "pending_call") * 8:
            try:
                inject(target.pid, "pass", way=way)
            except InjectError as error:
                reasons.add(error.reason)
        done.set()
        disturber.join()
        assert reasons <= {"stopped", "busy", "being_debugged"}
        inject(target.pid, _writing(tmp_path / "marker"))
        _until((tmp_path / "marker").exists)
        _end(tmp_path, target)


def test_armed_process_takes_code_by_its_socket(tmp_path: Path) -> None:
    """No ptrace; the user's own sitecustomize runs, sys.path shows nothing of us, a fork isn't armed."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.own_customization = 7\n")
    source = """
    import threading, warnings
    warnings.simplefilter("ignore")  # from 3.12 on a fork beside another thread warns; torch has threads anyway
    child = os.fork()
    if not child:
        time.sleep(600)
    print("ready", flush=True)
    while not stop():
        sum(range(1000))
    os.kill(child, 9)
    os.waitpid(child, 0)
    arms = [p for p in sys.path if "arm_site" in p]
    print(sys.own_customization, arms, len(threading.enumerate()), sys.modules["sitecustomize"].__file__, child)
    """
    env = arm_environment(os.environ | {"PYTHONPATH": str(own)})
    with _running(tmp_path, source, env=env) as target:
        _until(lambda: is_armed(target.pid))
        path = _socket_of(target.pid)
        injection = inject(target.pid, _writing(tmp_path / "marker"))
        _until((tmp_path / "marker").exists)
        assert (injection.way, injection.stopped_ns) == ("armed", 0)
        for code in ("raise SystemExit(3)", "no Python"):
            inject(target.pid, code, way="armed")
        inject(target.pid, _writing(tmp_path / "marker2"), way="armed")
        _until((tmp_path / "marker2").exists)
        (forked,) = Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split()
        assert not is_armed(int(forked))
        customization, arms, num_threads, file, _ = _end(tmp_path, target).split()
        assert (customization, arms, num_threads) == ("7", "[]", "1")
        assert file == str(own / "sitecustomize.py")
        assert not path.exists()


def _socket_of(pid: int) -> Path:
    return Path("/tmp", f"tuiadvisor-arm-{os.getuid()}", f"{pid}.sock")  # noqa: S108  the listener's place


def test_unarmed_process_has_no_listener(tmp_path: Path) -> None:
    """Nothing starts unless the variable says so; asking for it is refused with the remedy."""
    env = arm_environment(dict(os.environ)) | {"TUIADVISOR_ARM": "0"}
    with _running(tmp_path, SLEEPING, env=env) as target:
        with pytest.raises(InjectError) as caught:
            inject(target.pid, "pass", way="armed")
        assert caught.value.reason == "not_armed"
        assert "tuiadvisor arm --" in caught.value.remedy
        _end(tmp_path, target)


def test_socket_held_by_another_process_gets_no_code(tmp_path: Path) -> None:
    """Whoever listens under the target's name must be the target."""
    with _running(tmp_path, SLEEPING, env=arm_environment(dict(os.environ))) as target:
        _until(lambda: is_armed(target.pid))
        path = _socket_of(target.pid)
        path.unlink()
        with socket.socket(socket.AF_UNIX) as impostor:
            impostor.bind(str(path))
            impostor.listen()
            with pytest.raises(InjectError) as caught:
                inject(target.pid, "pass")
        assert caught.value.reason == "not_armed"
        _end(tmp_path, target)
