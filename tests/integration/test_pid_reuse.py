"""A process id that is used again between finding and attaching: the process that has it now is none of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from patience import PATIENCE_S

# A target says who is in it when it is asked to; it holds an idle thread, which is the easiest to enter.
TARGET = """
import os, sys, threading
os.setuid(int(sys.argv[1]))
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
print(sorted(name for name in sys.modules if "tuiadvisor" in name or name == "intruder"))
"""
# Process 1 of a PID namespace of its own, where the next id can be chosen.
HARNESS = """
import os, subprocess, sys, tempfile, time
from pathlib import Path
subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/shm"], check=True)  # the others' rings are none of this test's
from tuiadvisor.agent.attach import REAL_INJECTOR, attach
from tuiadvisor.agent.discovery import RankFinder
from tuiadvisor.agent.stacks import stacks_of
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.inject import InjectError, inject

def start(user, env=None):
    target = subprocess.Popen(
        [sys.executable, "-c", sys.argv[1], str(user)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | (env or {}))
    assert target.stdout.readline() == "ready\\n"
    return target

def start_as(pid, user, env=None):
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        target = start(user, env)
        if target.pid == pid:
            return target
        target.communicate("")
    raise AssertionError("the id did not come again")

def refused(act):
    try:
        return f"was let in: {act()}"
    except TuiadvisorError as error:
        return f"{error.reason}: {error.what}" if isinstance(error, InjectError) else repr(error)

def places():
    return [str(path) for folder in ("/dev/shm", tempfile.gettempdir()) for path in Path(folder).glob("tuiadvisor-*")]
"""
REUSED = """
first = start(65534)
(found,) = RankFinder((first.pid,)).first()
first.kill()
first.communicate()
second = start_as(found.pid, 0, {"TUIADVISOR_ARM": "1"})
print(refused(lambda: attach(found, REAL_INJECTOR)))
for way in (None, "thread", "pending_call", "armed"):
    print(refused(lambda: inject(found.identity, "import sys; sys.modules['intruder'] = sys", way=way)))
print([one.why for one in stacks_of([found], None)])
print(places())
print(*second.communicate("\\n"), second.returncode)
"""


def _in_namespace(script: str, folder: Path) -> list[str]:
    """What the harness and this script print as process 1 of a new PID namespace."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("choosing a process id needs root and unshare")
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c"]
    done = subprocess.run(
        [*command, HARNESS + textwrap.dedent(script), TARGET],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_next_process_with_the_id_is_left_alone(tmp_path: Path) -> None:
    """Found as another user's rank, ended; who has the id now is entered by no way and finds nothing new around it."""
    gone = "gone: it has ended, and another process has its id now"
    assert _in_namespace(REUSED, tmp_path) == [*[gone] * 5, "['it has ended']", "[]", "[]", " None 0"]


CHANGED = """
first = subprocess.Popen(
    [sys.executable, "-c", "import os, sys, threading; print('ready', flush=True); sys.stdin.readline()\\n"
     "os.setuid(65534); print('ready', flush=True)\\n" + sys.argv[1].replace("os.setuid", "str"), "0"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert first.stdout.readline() == "ready\\n"
(found,) = RankFinder((first.pid,)).first()
first.stdin.write("\\n")
first.stdin.flush()
assert [first.stdout.readline() for _ in range(2)] == ["ready\\n"] * 2
print(refused(lambda: attach(found, REAL_INJECTOR)))
print(first.communicate("\\n")[0], first.returncode)
"""


def test_a_process_that_became_another_users_is_left_alone(tmp_path: Path) -> None:
    """The same process, but what it may do is no longer what was found: files of ours would go to the wrong user."""
    lines = _in_namespace(CHANGED, tmp_path)
    assert lines == ["changed: it was found as user 0's and is user 65534's now", "[]", " 0"]


# Both are alive; the thread that is stopped is one of the second process, as if its number had gone over.
STRANGER = """
import signal, time
from tuiadvisor.inject import idle_thread, identify, tracer
from tuiadvisor.inject.plan import make_plan
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
first, second = start(0), start(0)
plan = make_plan(identify(first.pid), "import sys; sys.modules['intruder'] = sys")
real = idle_thread.candidates
idle_thread.candidates = lambda pid, code: real(second.pid, code)
read = lambda name: Path(f"/proc/{second.pid}/{name}").read_bytes()
while not read("syscall").startswith(b"0 "):  # until it waits for its input
    time.sleep(0.01)
before = read("maps"), read("syscall")
print(tracer.run(plan.as_dict() | {"way": "thread", "timeout_s": 5.0})["reason"])
deadline = time.monotonic() + 20
while read("syscall") != before[1] and time.monotonic() < deadline:  # let go, it has to come back to its system call
    time.sleep(0.01)
print((read("maps"), read("syscall")) == before)
for one in (second, first):
    print(one.communicate("\\n")[0], one.returncode)
"""


def test_a_thread_that_is_not_of_the_process_is_let_go_unwritten(tmp_path: Path) -> None:
    """Seen when it stands still, before anything is written: its memory map and its system call are as before.

    The process that was found is alive all the while, so what is said is that it has no thread to borrow.
    """
    assert _in_namespace(STRANGER, tmp_path) == ["busy", "True", "[]", " 0", "[]", " 0"]
