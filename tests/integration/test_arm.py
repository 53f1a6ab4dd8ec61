"""`tuiadvisor arm`: the command is itself, and a watcher gets in where ptrace is forbidden."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S
from training import running

from tuiadvisor.inject.armed import is_armed, waiting_processes

ROOT = Path(__file__).parents[2]
TUIADVISOR = [sys.executable, "-m", "tuiadvisor"]
FORBIDDEN = [sys.executable, str(Path(__file__).parents[1] / "without_ptrace.py")]
NO_SECCOMP = 77


def armed(*command: str) -> subprocess.Popen[str]:
    """Start a command armed."""
    return subprocess.Popen(
        [*TUIADVISOR, "arm", "--", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def forbidden(*command: str) -> subprocess.CompletedProcess[str]:
    """Run tuiadvisor where ptrace is forbidden."""
    done = subprocess.run(
        [*FORBIDDEN, *TUIADVISOR, *command], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    if done.returncode == NO_SECCOMP:
        pytest.skip("no seccomp filters (another kernel)")
    return done


def test_the_command_is_the_process_that_was_started() -> None:
    """Process id, output and exit code are the command's own; its Python processes listen while they live."""
    source = "import os, sys, glob; print(os.getpid(), glob.glob(f'/tmp/*/{os.getpid()}.sock')); sys.exit(7)"
    process = armed(sys.executable, "-c", source)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert 7 == process.returncode
    assert output.startswith(f"{process.pid} [")
    assert f"tuiadvisor-arm-{os.getuid()}/{process.pid}.sock" in output
    assert process.pid not in waiting_processes()


def test_a_signal_ends_the_command_as_without_us() -> None:
    """Nobody stands in between, and a pipe that breaks ends it as in any shell."""
    process = armed("sh", "-c", "echo ready; exec sleep 60")
    assert process.stdout is not None
    assert "ready\n" == process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert -signal.SIGTERM == process.returncode
    broken = armed("sh", "-c", "kill -PIPE $$; exit 3")
    broken.communicate(timeout=PATIENCE_S)
    assert -signal.SIGPIPE == broken.returncode


def test_a_killed_process_leaves_no_socket_for_long() -> None:
    """The next armed command clears what the killed one could not."""
    process = armed(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    process.communicate(timeout=PATIENCE_S)
    left = Path("/tmp", f"tuiadvisor-arm-{os.getuid()}", f"{process.pid}.sock")  # noqa: S108  the listener's place
    assert left.exists()
    armed("true").communicate(timeout=PATIENCE_S)
    assert not left.exists()


@pytest.mark.parametrize(
    ("command", "says"), [((), "nothing to run"), (("/nowhere/train",), "/nowhere/train: No such file")]
)
def test_what_cannot_run_is_one_line(command: tuple[str, ...], says: str) -> None:
    """A mistake of the user: exit code 2."""
    process = armed(*command)
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert 2 == process.returncode
    assert says in complaint
    assert 1 == len(complaint.splitlines())


def test_the_variables_for_a_job_script_arm_it_too(tmp_path: Path) -> None:
    """What --env prints does in a shell what the command does."""
    variables = subprocess.run(
        [*TUIADVISOR, "arm", "--env"], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout
    script = tmp_path / "job.sh"
    look = "import os; print(os.path.exists(f'/tmp/tuiadvisor-arm-{os.getuid()}/{os.getpid()}.sock'))"
    script.write_text(f'{variables}\n"{sys.executable}" -c "{look}"\n')
    done = subprocess.run(
        ["/bin/sh", str(script)], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert "True\n" == done.stdout


# A /tmp of its own in which another user has made the folder of our listeners.
TAKEN = """
work=$1; shift
case $work in /tmp/*)  # a checkout there is wanted in the other /tmp as well
    mkdir -p /run/tuiadvisor-test && mount -t tmpfs tuiadvisor-test /run/tuiadvisor-test || exit 77
    mkdir /run/tuiadvisor-test/work && mount --bind "$work" /run/tuiadvisor-test/work || exit 77 ;;
esac
mount -t tmpfs tuiadvisor-test /tmp && mkdir "/tmp/tuiadvisor-arm-$(id -u)" || exit 77
case $work in /tmp/*) mkdir -p "$work" && mount --bind /run/tuiadvisor-test/work "$work" || exit 77 ;; esac
chown 54322 "/tmp/tuiadvisor-arm-$(id -u)" && exec "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a /tmp of its own needs root")
def test_a_folder_made_by_somebody_else_disarms_nobody() -> None:
    """Its name is known and /tmp is everybody's: the listener goes elsewhere, is found there, and doctor says why."""
    source = "import sys; print('ready', flush=True); sys.stdin.readline()"
    command = [*TUIADVISOR, "arm", "--", sys.executable, "-c", source]
    with subprocess.Popen(
        [str(shutil.which("unshare")), "--mount", "sh", "-c", TAKEN, "sh", str(ROOT), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        assert is_armed(process.pid)
        inside = [str(shutil.which("nsenter")), f"--target={process.pid}", "--mount"]
        look = [*inside, *TUIADVISOR, "doctor", "--json"]
        doctor = subprocess.run(look, capture_output=True, text=True, check=False, timeout=60)
        checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
        assert "limited" == checks["armed"]["state"]
        taken = Path("/tmp", f"tuiadvisor-arm-{os.getuid()}")  # noqa: S108  the listener's place
        assert f"1 process waits for a watcher; {taken} is of uid 54322" == checks["armed"]["found"]
        own = Path(f"/proc/{process.pid}/root/tmp")
        names = {path.name for path in own.iterdir()} - set(ROOT.parts)
        assert (2, True) == (len(names), taken.name in names)
        with_tmp = os.open(own, os.O_RDONLY)  # what is left can be looked at when the namespace has gone
        process.communicate("\n")
    assert {taken.name} == set(os.listdir(with_tmp)) - set(ROOT.parts)  # noqa: PTH208  of a descriptor
    os.close(with_tmp)


def test_doctor_names_the_remedy_where_ptrace_is_forbidden() -> None:
    """Found out by a trial, since a seccomp filter does not announce itself."""
    checks = {check["name"]: check for check in json.loads(forbidden("doctor", "--json").stdout)["checks"]}
    assert "limited" == checks["ptrace"]["state"]
    assert "tuiadvisor arm -- CMD" in checks["ptrace"]["remedy"]


def test_a_process_that_is_not_armed_is_refused_with_the_remedy() -> None:
    """One sentence, and the process has not noticed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as target:
        source = f"from tuiadvisor.inject import inject; inject({target.pid}, 'pass')"
        done = subprocess.run(
            [*FORBIDDEN, sys.executable, "-c", source],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        if done.returncode == NO_SECCOMP:
            pytest.skip("no seccomp filters (another kernel)")
        assert "forbids tracing it" in done.stderr
        assert "tuiadvisor arm -- CMD" in done.stderr
        target.communicate("\n")
    assert 0 == target.returncode


@pytest.mark.slow
def test_a_watcher_gets_into_an_armed_training_without_ptrace(tmp_path: Path) -> None:
    """Ranks below torchrun are attached and captured by their sockets, and train on."""
    pytest.importorskip("torch")
    with running(2, "--step-ms", "10", prefix=(*TUIADVISOR, "arm", "--"), is_whole=True) as (training, ranks):
        assert {rank.pid for rank in ranks} <= set(waiting_processes())
        done = forbidden(
            "capture", "all", "--pid", str(training.pid), "-o", str(tmp_path / "traces"), "--json"
        )
        assert done.returncode == 0, done.stderr
        assert [0, 1] == [entry["rank"] for entry in json.loads(done.stdout)["capture"]["ranks"]]
        assert training.poll() is None
