"""What is said to ssh, to srun and to the user: no option slips in as a host, no key on a command line."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from patience import PATIENCE_S

from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.launch.address import address_towards, listening_endpoint, reachable_url
from tuiadvisor.launch.agents import Agents, Launched
from tuiadvisor.launch.ray import RayLauncher
from tuiadvisor.launch.slurm import find_job
from tuiadvisor.launch.ssh import SshLauncher, SshOptions, parse_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a,b", ("a", "b")),
        (" node-1.example , me@10.0.0.1,", ("node-1.example", "me@10.0.0.1")),
        ("a,a,[fe80::1%eth0]", ("a", "[fe80::1%eth0]")),
    ],
)
def test_hosts_are_split_each_once(text: str, hosts: tuple[str, ...]) -> None:
    """Blanks, a last comma and repeats do not matter."""
    assert hosts == parse_hosts(text)


@pytest.mark.parametrize(
    "text", ["", ",", "-oProxyCommand=reboot", "a,-v", "a b", "a;b", "a$(b)", "me@-oX", "a\nb"]
)
def test_what_ssh_or_a_shell_would_take_otherwise_is_refused(text: str) -> None:
    """Options, blanks and shell characters are no hosts."""
    with pytest.raises(TuiadvisorError, match="--hosts"):
        parse_hosts(text)


def test_ssh_is_told_to_ask_nothing_and_to_forward_loopback_only() -> None:
    """Batch mode, one reverse tunnel between the two loopbacks, the host after --, the remote words quoted."""
    launcher = SshLauncher(SshOptions(("node1",), "/etc/my config", "/opt/my env/bin/python"))
    command = launcher.command("node1", 4711)
    assert "BatchMode=yes" in command
    assert ["-R", "127.0.0.1:0:127.0.0.1:4711", "--", "node1"] == list(command[-5:-1])
    assert "exec '/opt/my env/bin/python' -P -m tuiadvisor.agent --from-stdin" == command[-1]
    assert ["-F", "/etc/my config"] == list(command[command.index("-F") :][:2])


def test_with_an_address_of_ours_nothing_is_forwarded() -> None:
    """Agents then connect straight to that address."""
    launcher = SshLauncher(SshOptions(("node1",), hub_address="127.0.0.1"))
    assert "-R" not in launcher.command("node1", 4711)


def test_addresses_are_this_machines_own_and_complete() -> None:
    """A name becomes the number to listen on; IPv6 gets its brackets; towards loopback we are loopback."""
    assert "tcp://127.0.0.1:*" == listening_endpoint("127.0.0.1")
    assert "tcp://[::1]:5" == reachable_url("::1", 5)
    assert "tcp://node1:5" == reachable_url("node1", 5)
    assert "127.0.0.1" == address_towards("127.0.0.1")


@pytest.mark.parametrize("address", ["", "-x", "a b", "a:b:z", "tcp://x"])
def test_other_words_are_no_addresses(address: str) -> None:
    """One line; nothing is looked up."""
    with pytest.raises(TuiadvisorError, match="not an address"):
        listening_endpoint(address)


def test_an_unknown_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that does not resolve."""

    def fail(*_: object, **__: object) -> object:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(TuiadvisorError, match="unknown here"):
        listening_endpoint("nowhere")


@pytest.mark.parametrize("job", ["", "abc", "1;reboot", "--help", "1 2", "-1"])
def test_a_job_is_a_number(job: str) -> None:
    """Nothing else reaches Slurm's commands."""
    with pytest.raises(TuiadvisorError, match="not a job's number"):
        find_job(job)


def test_without_slurm_the_login_node_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without squeue."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TuiadvisorError, match="login node"):
        find_job("7")


def ended(script: str, label: str = "node1") -> Agents:
    """An agent that says and does this."""
    agent = Launched(label, ["sh", "-c", script], lambda *_: None)
    agent.process.wait(PATIENCE_S)
    return Agents([agent])


@pytest.mark.parametrize(
    ("script", "label", "words"),
    [
        ("echo '0: tuiadvisor: no ranks' >&2; echo 'srun: error: exited' >&2; exit 2", "job 7", "job 7: no ranks"),
        ("echo 'ssh: connect: Connection refused' >&2; exit 255", "node1", "node1: ssh: connect: Connection refused"),
        ("echo 'tuiadvisor: no ranks' >&2; exit 2", "", "no ranks"),
        ("printf 'a\\033[2Jb\\n' >&2; exit 1", "node1", "node1: a[2Jb"),
        ("exit 3", "node1", "node1: the agent ended with exit code 3"),
        ("echo 'some warning' >&2", "node1", None),
    ],
)  # fmt: skip
def test_the_agents_own_reason_is_the_one_that_is_told(script: str, label: str, words: str | None) -> None:
    """Before what srun or ssh add to it, with the host, without what would steer a terminal."""
    agents = ended(script, label)
    assert words == agents.error()
    assert agents.ended()
    agents.close()


@pytest.mark.slow
def test_an_agent_that_hears_nothing_is_ended_nevertheless() -> None:
    """One that ignores the end of its input and SIGTERM is killed after the deadline."""
    deaf = threading.Event()
    script = "trap '' TERM; echo deaf >&2; while :; do sleep 0.05; done"
    agent = Launched("node1", ["sh", "-c", script], lambda *_: deaf.set())
    assert deaf.wait(PATIENCE_S)
    agent.close(time.monotonic())
    assert -9 == agent.process.returncode


@pytest.mark.parametrize(
    "address", ["", "head", "-x:1", "a b:1", "head:port", "head:1;reboot", "tcp://head:1"]
)
def test_what_is_no_cluster_is_refused(address: str) -> None:
    """Ray's own forms only."""
    with pytest.raises(TuiadvisorError, match="not an address; write HOST:PORT of its head, or auto"):
        RayLauncher(address)


def test_a_cluster_is_joined_by_a_helper_that_is_told_no_key() -> None:
    """The address of its head and the nodes' Python; agents come back the way the head is reached."""
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        launcher = RayLauncher(address, "/opt/python")
    module, *given = launcher.command()[3:]
    assert ("tuiadvisor.launch.ray_step", [address, "--python=/opt/python"]) == (module, given)
    assert "tcp://127.0.0.1:*" == launcher.agents_endpoint(Path())
    with pytest.raises(FailureError, match=f"--ray {address}: nothing answers there"):
        RayLauncher(address)  # it has gone meanwhile


def test_ray_is_asked_for_where_it_is_missing() -> None:
    """In one line, as the session's own reason."""
    code = "import sys; sys.modules['ray'] = None; from tuiadvisor.launch.ray_step import main; exit(main(['auto']))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"{}\n", capture_output=True, check=False, timeout=PATIENCE_S
    )
    assert (1, True) == (
        done.returncode,
        b"tuiadvisor: Ray is not installed beside tuiadvisor" in done.stderr,
    )
