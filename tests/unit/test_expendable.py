"""Where memory runs out our processes go first; not who holds a rank, what stands for the training or is the user's.

Each in a process of its own, found at 200 of the kernel's 1000: anybody may raise its own value and go back there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

FOUND = "200"
FIRST = "1000"
SCORE = """
from pathlib import Path
def score(pid="self"):
    return Path(f"/proc/{pid}/oom_score_adj").read_text().strip()
"""
pytestmark = pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="another system")


def printed(*command: str) -> list[str]:
    """What a command prints that is found at FOUND."""
    raised = f'echo {FOUND} > /proc/self/oom_score_adj; exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", raised, "sh", *command],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.stdout.split()


def python(code: str) -> list[str]:
    """Of a Python with a function that reads scores."""
    return printed(sys.executable, "-c", SCORE + code)


def test_commands_and_agents_say_so_first_thing() -> None:
    """Before a command or ranks are looked for; what tracers are forked from stays as it was found."""
    command = """
import tuiadvisor.cli.commands as commands
from tuiadvisor import cli
commands.run = lambda _: print(score())
cli.main()
"""
    agent = """
import tuiadvisor.agent.__main__ as agent
from tuiadvisor.inject import tracer_process
agent.run_agent = lambda _: print(score(), score(tracer_process._PLACE.get().pid))
agent.main(["--endpoint", "ipc:///nowhere", "--pid", "1"])
"""
    assert [FIRST] == python(command)
    assert [FIRST, FOUND] == python(agent)


@pytest.mark.parametrize("command", ["run", "arm"])
def test_what_starts_a_training_and_the_training_are_as_they_were_found(command: str) -> None:
    """Who waits for us waits for the training: a container whose first process we are ends with us."""
    words = [sys.executable, "-m", "tuiadvisor", command, "--", "/bin/sh", "-c"]
    own, parents = printed(*words, "cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj")[:2]
    assert own == FOUND
    if command == "run":
        assert parents == FOUND


def test_a_users_command_and_the_keeper_of_output_do_not_inherit_it(tmp_path: Path) -> None:
    """The one is not ours, the other is what a training prints into; we ourselves go first again afterwards."""
    code = f"""
from tuiadvisor import expendable
from tuiadvisor.app.kept_output import KeptOutput
from tuiadvisor.outlets.delivery import CommandReceiver
from tuiadvisor.outlets.notices import Notice
from types import SimpleNamespace
expendable.go_first()
finding = SimpleNamespace(id="x", severity="info")
notice = SimpleNamespace(event="found", finding=finding, document=dict)
CommandReceiver("/bin/sh -c 'cat /proc/self/oom_score_adj > {tmp_path}/score'").deliver(notice)
kept = KeptOutput(None)
print(Path("{tmp_path}/score").read_text().strip(), score(kept._keeper.pid), score())
kept.close()
kept._keeper.wait()
"""
    assert [FOUND, FOUND, FIRST] == python(code)


def test_who_holds_a_rank_is_no_more_expendable_than_the_rank() -> None:
    """Taken in the middle of a call within it, the tracer would take the rank with it."""
    code = """
import os, subprocess
from tuiadvisor.inject import identify, tracer
held = subprocess.Popen(["sleep", "100"])
Path("/proc/self/oom_score_adj").write_text("700")
tracer._by_either_way = lambda *_: {"score": score()}
plan = {"identity": tuple(identify(held.pid)), "proofs": [], "timeout_s": 5.0, "way": None}
print(tracer.run(plan)["score"])
held.kill()
held.wait()
"""
    assert [FOUND] == python(code)


def test_what_was_said_is_taken_back_and_said_once() -> None:
    """Also by whoever is the most expendable already, and where nobody hears it."""
    code = """
from tuiadvisor import expendable
for call in (expendable.no_longer, expendable.go_first, expendable.go_first, expendable.no_longer):
    call()
    print(score())
with expendable.as_found():
    print(score())
Path("/proc/self/oom_score_adj").write_text("1000")
expendable.go_first()
expendable.no_longer()
print(score())
expendable._OWN = Path("/nowhere/oom_score_adj")
expendable.go_first()
expendable.no_sooner_than(1)
"""
    assert [FOUND, FIRST, FIRST, FOUND, FOUND, FIRST] == python(code)
