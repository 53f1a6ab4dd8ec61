"""`--hosts` over a real sshd: two nodes with host names and processes of their own, a training across both."""

from __future__ import annotations

import getpass
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from nodes import (
    PYTHONPATH,
    Node,
    can_make_nodes,
    start_node,
    torchrun,
    wait_for_training,
    wait_until_no_agents,
)
from patience import PATIENCE_S, RECORD_FOR, complaints
from ports import free_port
from rank_loops import is_late, recorded_until
from traps import Traps

from tuiadvisor.app import live_session as session_module
from tuiadvisor.launch.ssh import SshLauncher, SshOptions
from tuiadvisor.stream.frames import Frame, FrameKind, decode
from tuiadvisor.stream.keys import SessionKeys, make_session_keys

pytest.importorskip("torch")
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        SSHD is None or shutil.which("ssh") is None,
        reason="no sshd (apt-get install openssh-server openssh-client)",
    ),
    pytest.mark.skipif(not can_make_nodes(), reason="no namespaces (be root)"),
]
NAMES = ("node1", "node2")
# Rank 3 is on node2.
FAULT = ["--step-ms", "20", "--fault", "slow-backward", "--fault-rank", "3", "--delay-ms", "200"]


@dataclass
class Cluster:
    """The nodes and the configuration with which ssh reaches them."""

    nodes: list[Node]
    ssh_config: Path
    folder: Path

    def command(self, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """Our command line on these hosts; options: of Python."""
        remote = ["--hosts", ",".join(NAMES), "--ssh-config", str(self.ssh_config)]
        return [sys.executable, *options, "-m", "tuiadvisor", *arguments, *remote]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )


def _keygen(path: Path) -> None:
    subprocess.run(
        [shutil.which("ssh-keygen") or "", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True
    )


def _sshd_config(folder: Path, port: int) -> Path:
    path = folder / f"sshd_{port}"
    path.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/user_key.pub\nStrictModes no\nPasswordAuthentication no\n"
        f"PermitRootLogin prohibit-password\nSetEnv PYTHONPATH={PYTHONPATH}\nMaxStartups 100\n"
    )
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("ssh")
    _keygen(folder / "host_key")
    _keygen(folder / "user_key")
    host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    ports = [free_port() for _ in NAMES]
    known = "".join(f"[127.0.0.1]:{port} {host_key}\n" for port in ports)
    (folder / "known_hosts").write_text(known)
    (folder / "ssh_config").write_text("".join(
        f"Host {name}\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n IdentitiesOnly yes\n"
        f" IdentityFile {folder}/user_key\n UserKnownHostsFile {folder}/known_hosts\n StrictHostKeyChecking yes\n"
        for name, port in zip(NAMES, ports, strict=True)
    ))  # fmt: skip
    meet, nodes = free_port(), []
    try:
        for index, (name, port) in enumerate(zip(NAMES, ports, strict=True)):
            both = '"$1" -D -e -f "$2" & shift 2; "$@" & wait'
            programs = ["sh", "-c", both, "sh", str(SSHD), str(_sshd_config(folder, port))]
            training = torchrun(index, len(NAMES), 2, meet, FAULT)
            nodes.append(start_node(name, [*programs, *training], folder / f"{name}.log"))
        wait_for_training(nodes, 2)
        yield Cluster(nodes, folder / "ssh_config", folder)
    finally:
        for node in nodes:
            node.end()


def listening(nodes: list[Node]) -> set[int]:
    """Loopback ports that these nodes' sshd listen on."""
    pids = {process.pid for node in nodes for process in node.family() if process.name() == "sshd"}
    return {
        connection.laddr.port
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.pid in pids
    }


@pytest.mark.parametrize("way", ["tunnel", pytest.param("direct", marks=pytest.mark.extended)])
def test_ranks_of_both_hosts_are_watched_and_the_slow_one_is_named(
    cluster: Cluster, tmp_path: Path, way: str
) -> None:
    """Four ranks on two hosts, rank 3 on node2 slow in backward: found; no agent and no port is left behind.

    Agents begin in a home that holds modules with the names of those they import, and so do we.
    """
    output, before, traps = cluster.folder / f"{way}.tuirec", listening(cluster.nodes), Traps(tmp_path)
    direct = ["--hub-address", "127.0.0.1"] if way == "direct" else []
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncd {traps.folder} && exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    remote = ["--remote-python", str(python), *direct]
    log = ["--log", str(tmp_path / "log")]
    command = cluster.command("record", "-o", str(output), *remote, *log, options=("-P",))
    document, complaint = recorded_until(
        command, output, lambda document: is_late(document, 3, "backward"), cwd=traps.folder
    )
    assert ("", []) == (complaints(complaint), traps.sprung())
    logged = (tmp_path / "log").read_text()
    for node in NAMES:  # what its agent logs comes back through ssh
        found = re.findall(
            rf" record\[\d+\] launch\.agents: {node}: agent@{node}\[\d+\] agent\.rank_link: .* attached after",
            logged,
        )
        assert 2 == len(found), logged
    assert (4, ["node1", "node2"]) == (document["run"]["world_size"], sorted(document["run"]["hosts"]))
    assert ["node1", "node1", "node2", "node2"] == [row["host"] for row in document["per_rank"]]
    assert 0 == document["losses"]["frames_lost"]
    assert [] == wait_until_no_agents(cluster.nodes)
    assert before == listening(cluster.nodes)


def test_a_killed_command_leaves_nothing_behind(cluster: Cluster) -> None:
    """Kill -9 of the recording: the leash of every agent breaks, probes come out, agents and tunnels go."""
    before = listening(cluster.nodes)
    command = cluster.command("record", "-o", str(cluster.folder / "killed.tuirec"))
    recording = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not all(node.agents() for node in cluster.nodes):
            assert time.monotonic() < deadline_s
            assert recording.poll() is None
            time.sleep(0.1)
        assert len(before) + 2 == len(listening(cluster.nodes))
    finally:
        recording.send_signal(signal.SIGKILL)
        recording.wait()
    assert [] == wait_until_no_agents(cluster.nodes)
    deadline_s = time.monotonic() + PATIENCE_S
    while before != listening(cluster.nodes):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_no_process_shows_a_key(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While both agents speak: no secret in any command line or environment, here or on the nodes, nor on disk."""
    made: list[SessionKeys] = []

    def make(num_agents: int, num_viewers: int) -> SessionKeys:
        made.append(make_session_keys(num_agents, num_viewers))
        return made[0]

    monkeypatch.setattr(session_module, "make_session_keys", make)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    launcher = SshLauncher(SshOptions(NAMES, str(cluster.ssh_config)))
    with session_module.Session((), None, "", "", launcher=launcher) as session:
        source = session.source()
        hosts: set[object] = set()
        deadline_s = time.monotonic() + PATIENCE_S
        while hosts != set(NAMES):
            assert time.monotonic() < deadline_s, session.agent_error()
            hosts |= {frame.payload["host"] for frame in map(decode, source.read(0.5)) if _is_hello(frame)}
        secrets = [one.secret.encode() for one in (made[0].hub, *made[0].agents, made[0].viewer)]
        assert 2 + len(NAMES) == len(set(secrets))  # a key of its own for each host
        agents = {agent.pid for node in cluster.nodes for agent in node.agents()}
        shown = {pid: _shown(pid) for pid in psutil.pids()}
        assert agents <= set(shown)
        assert [] == [pid for pid, text in shown.items() if any(secret in text for secret in secrets)]
        files = [path.read_bytes() for path in session.folder.iterdir() if path.is_file()]
        assert [] == [data for data in files if any(secret in data for secret in secrets)]
        assert 0o700 == session.folder.stat().st_mode & 0o777
        source.close()
    assert [] == wait_until_no_agents(cluster.nodes)


def _is_hello(frame: Frame) -> bool:
    return frame.kind is FrameKind.HELLO


def _shown(pid: int) -> bytes:
    text = b""
    for name in ("cmdline", "environ"):
        try:
            text += Path(f"/proc/{pid}/{name}").read_bytes()
        except OSError:
            continue
    return text


def test_doctor_asks_every_host(cluster: Cluster) -> None:
    """Each by ssh: the checks of all, the shared file system, the clocks; one that is not there is named."""
    done = cluster.run("doctor", "--json", "--hub-address", "127.0.0.1")
    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, ""), document
    assert NAMES == tuple(node["name"] for node in document["nodes"])
    for node in document["nodes"]:
        states = {check["name"]: check["state"] for check in node["checks"]}
        assert {"ok"} == {states[name] for name in ("version", "machine", "rings", "files", "ports", "clock")}
    told = subprocess.run(
        [*cluster.command("doctor"), "--hosts", "node1,nowhere.invalid"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert told.returncode == 1
    assert re.search(
        r"^missing +node +nowhere\.invalid: .*(resolve|Name or service)", told.stdout, re.MULTILINE
    )
    assert re.search(r"^ok +files .*\[node1\]$", told.stdout, re.MULTILINE)
    assert re.search(r"^ok +ports +its sshd forwards a port .*\[node1\]$", told.stdout, re.MULTILINE)


def test_what_fails_on_a_host_is_said_with_its_name(cluster: Cluster, tmp_path: Path) -> None:
    """A host that ssh does not know, a python without tuiadvisor or too old, a word that is no host: one line each."""
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\nprintf 'Unknown option: -P\\nusage: ...\\n' >&2\nexit 2\n")
    old.chmod(0o755)
    for arguments, words in [
        (["--remote-python", "/usr/bin/nonsense"], r"^tuiadvisor record: node[12]: .*--remote-python"),
        (["--remote-python", str(old)], r"^tuiadvisor record: node[12]: .*older than 3.11.*--remote-python"),
        (["--hosts", "node1,-oProxyCommand=x"], r"not a host"),
        (["--hosts", "nowhere.invalid"], r"nowhere.invalid: .*(resolve|Name or service)"),
    ]:
        command = cluster.command("record", "-o", str(cluster.folder / "failed.tuirec"), "--for", RECORD_FOR)
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode in (1, 2)
        assert 1 == done.stderr.count("\n"), done.stderr
        assert re.search(words, done.stderr), done.stderr
        (cluster.folder / "failed.tuirec").unlink(missing_ok=True)
