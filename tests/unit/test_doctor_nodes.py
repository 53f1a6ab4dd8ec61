"""`doctor --hosts`: answers of nodes are believed as far as they have the form of one; nodes that agree share lines."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuiadvisor import __version__
from tuiadvisor.agent import payload
from tuiadvisor.cli import doctor
from tuiadvisor.cli.commands import run as command
from tuiadvisor.cli.doctor_nodes import MAX_CHECKS, Node, ask, lines, parsed
from tuiadvisor.cli.node_checks import Check, look_at_nccl, look_at_shared_file, look_at_way_back


def answer(**changed: Any) -> bytes:
    check = {"name": "rings", "state": "ok", "found": "shm, 900 MiB free", "remedy": ""}
    document = {"schema": 1, "tuiadvisor": __version__, "checks": [check], "wall_s": 1000.0}
    return json.dumps(document | changed).encode()


def checks(node: Node) -> dict[str, Check]:
    assert node.error == ""
    return {check.name: check for check in node.checks}


def test_a_clock_is_judged_by_what_the_two_looks_at_ours_tell() -> None:
    def clock(begin_s: float, end_s: float) -> Check:
        return checks(parsed("n", answer(), begin_s, end_s))["clock"]

    assert clock(999.0, 1001.0).state == "ok"
    assert clock(1000.5, 1001.0).found == "behind ours by 0.5 s or more"
    assert clock(990.0, 997.0).found == "ahead of ours by 3.0 s or more"


def test_another_version_is_said() -> None:
    found = checks(parsed("n", answer(tuiadvisor="0.0.9"), 999.0, 1001.0))["version"]
    assert (found.state, found.found) == ("limited", f"tuiadvisor 0.0.9, here {__version__}")


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"[" * 100_000,
        answer(wall_s="now"),
        answer(checks=[{"name": "rings"}]),
        answer(checks=[{"name": "a", "state": "splendid", "found": "", "remedy": ""}]),
        answer() + b" " * (1 << 20) + b"x",
    ],
)
def test_what_is_no_answer_is_one_line(said: bytes) -> None:
    node = parsed("n", said, 0.0, 1.0)
    assert node.checks == () or said.startswith(answer())
    assert node.error.count("\n") == 0


def test_an_answer_obeys_nobody_and_is_bounded() -> None:
    hostile = {"name": "a", "state": "ok", "found": "\x1b[2J" + "x" * 9999, "remedy": "\u202e"}
    node = parsed("n", answer(checks=[hostile] * 60), 0.0, 2000.0)
    assert len(node.checks) == MAX_CHECKS + 2
    text = "\n".join(lines([node]))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert max(map(len, text.splitlines())) < 500


def test_nodes_that_agree_share_a_line_and_the_odd_one_is_named() -> None:
    def node(name: str, driver: str, free: int) -> Node:
        room = Check("rings", "ok", f"shm, {free} MiB free", "")
        return Node(name, (room, Check("gpu", "ok", f"8 x H100, driver {driver}", "")))

    nodes = [*(node(f"n{number}", "550.54", number) for number in range(6)), node("n6", "535.10", 9)]
    told = list(lines([*nodes, Node("n7", error="no answer in 90 s")]))
    assert told[0].split() == ["missing", "node", "n7:", "no", "answer", "in", "90", "s"]
    assert [line.rpartition("[")[2] for line in told[1:]] == [
        "all 7 that answered]",
        "n0, n1, n2, n3 and 2 more]",
        "n6]",
    ]


def test_a_command_that_is_not_there_or_fails_is_the_nodes_line() -> None:
    assert ask("n", ["/no/such/ssh"]).error == "/no/such/ssh: No such file or directory"
    assert ask("n", ["/bin/sh", "-c", "echo whatever >&2; exit 3"]).error == "whatever"
    nothing = 'echo "Allocated port 40001 for remote forward to 127.0.0.1:9" >&2; exit 3'
    assert ask("n", ["/bin/sh", "-c", nothing]).error == "exit code 3"
    missing = 'echo "/usr/bin/python: No module named tuiadvisor" >&2; exit 1'
    assert "--remote-python" in ask("n", ["/bin/sh", "-c", missing]).error


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("Allocated port 40001 for remote forward to 127.0.0.1:9", "ok"),
        ("Warning: remote port forwarding failed for listen port 0", "missing"),
        ("a banner", None),
    ],
)
def test_a_sshd_that_forwards_nothing_is_said_before_somebody_watches(said: str, state: str | None) -> None:
    """All was ok, and `watch --hosts` was refused: its agents speak through a port that sshd forwards."""
    script = f"echo '{said}' >&2; printf '%s' '{answer().decode()}'"
    ports = [one for one in ask("n", ["/bin/sh", "-c", script]).checks if one.name == "ports"]
    assert [one.state for one in ports] == ([] if state is None else [state])
    assert all("--hub-address" in one.remedy for one in ports if one.state == "missing")


def test_a_file_that_is_shared_is_read_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "seen"
    file.write_text("token")
    assert look_at_shared_file(str(file), "token").state == "ok"
    assert look_at_shared_file(str(file), "other").state == "limited"
    os.mkfifo(tmp_path / "pipe")
    assert look_at_shared_file(str(tmp_path / "pipe"), "token").state == "limited"
    (tmp_path / "link").symlink_to(file)
    assert look_at_shared_file(str(tmp_path / "link"), "token").state == "limited"


def test_the_way_back_is_tried() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        assert look_at_way_back(address).state == "ok"
    refused = look_at_way_back(address)
    assert (refused.state, "--hub-address" in refused.remedy) == ("missing", True)
    assert look_at_way_back("nonsense").state == "missing"


def test_switches_that_cost_bandwidth_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if "NCCL_" in name]:
        monkeypatch.delenv(name)
    assert look_at_nccl().state == "ok"
    monkeypatch.setenv("NCCL_IB_DISABLE", "0")
    assert look_at_nccl().state == "ok"
    monkeypatch.setenv("NCCL_IB_DISABLE", "1")
    assert (look_at_nccl().state, "InfiniBand" in look_at_nccl().remedy) == ("limited", True)


def test_the_devices_of_a_machine_are_seen_with_their_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were not: a sampler that nobody had started was asked."""

    class Reader:
        def sample(self) -> list[dict[str, str]]:
            return [{"name": "NVIDIA H100"}] * 2

        def driver(self) -> str:
            return "550.54.15"

    monkeypatch.setattr(doctor, "find_reader", lambda: (Reader(), ""))
    assert doctor.look_at_gpus() == Check("gpu", "ok", "2 x NVIDIA H100, driver 550.54.15", "")


@pytest.mark.parametrize(
    ("machine", "wanted", "state", "says"),
    [
        (
            "x86_64",
            "",
            "limited",
            "Python hooks; no native core was built here: four to six times the cost a step",
        ),
        ("x86_64", "0", "ok", "Python hooks; no native core was built here"),
        ("aarch64", "", "ok", "Python hooks; no native core was built here"),
        ("aarch64", "1", "limited", "four to six times the cost a step"),
    ],
)
def test_a_core_that_is_lacking_is_said_where_it_would_be_sent(
    monkeypatch: pytest.MonkeyPatch, machine: str, wanted: str, state: str, says: str
) -> None:
    """It read as well: "ok", beside a remedy."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", wanted)
    monkeypatch.setattr(payload, "CORE_FILE", "core.that_is_not_here.elf")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))
    found = doctor.look_at_core()
    assert state == found.state
    assert says in found.found
    assert ("a C compiler" in found.remedy) == (state == "limited")


def test_what_does_not_go_together_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["doctor", "--hosts", "a", "--slurm", "1"]) == 2
    assert command(["doctor", "--hosts", "a", "--measure"]) == 2
    assert command(["doctor", "--hosts=-oProxyCommand=x"]) == 2
    # Of a network for documents (RFC 5737), and a name that nobody may have (RFC 6761): no address of this machine.
    for address in ("192.0.2.1", "nothing.invalid", "a b"):
        assert command(["doctor", "--hosts", "a", f"--hub-address={address}"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 6
    assert said.count("--hub-address") == 3
