"""deploy/: manifests hold to Kubernetes' schemas, and what they and the scripts call is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuiadvisor.cli.commands import build_parser

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
SCRIPTS = sorted((DEPLOY / "slurm").glob("*.sh"))


def resources(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def pods(path: Path) -> list[dict[str, Any]]:
    """Specs of pods."""
    found = []
    for one in resources(path):
        if one["kind"] == "Pod":
            found.append(one["spec"])
        elif one["kind"] == "DaemonSet":
            found.append(one["spec"]["template"]["spec"])
    return found


def test_there_are_manifests_and_scripts() -> None:
    assert [path.stem for path in MANIFESTS] == ["daemonset", "hub", "sidecar"]
    assert [path.stem for path in SCRIPTS] == ["epilog", "prolog"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_hold_to_the_schemas(path: Path) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for resource in resources(path):
        validator.validate(resource, validator.latest_version(), strict=True)
        broken = {**resource, "metadata": {**resource["metadata"], "labls": {}}}
        with pytest.raises(validator.ValidationError):
            validator.validate(broken, validator.latest_version(), strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_mount_what_they_have_and_ask_for_no_more_than_tracing(path: Path) -> None:
    for pod in pods(path):
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
            security = container.get("securityContext", {})
            assert not security.get("privileged")
            assert set(security.get("capabilities", {}).get("add", ())) <= {"SYS_PTRACE"}


def test_the_hub_may_run_where_pods_are_restricted() -> None:
    """It traces nobody: Kubernetes' profile `restricted`, which a namespace may enforce, lets it in."""
    (pod,) = pods(DEPLOY / "kubernetes" / "hub.yaml")
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert all({"emptyDir", "secret"} & set(volume) for volume in pod["volumes"])
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def commands() -> list[str]:
    """What manifests start of ours."""
    texts = []
    for path in MANIFESTS:
        for pod in pods(path):
            for container in pod["containers"]:
                words = " ".join([*container.get("command", ()), *container.get("args", ())])
                texts += re.findall(r"tuiadvisor record .*|tuiadvisor\.agent .*", words.replace("\\\n", ""))
    return texts


def test_what_manifests_call_parses() -> None:
    assert len(commands()) == 3
    for command in commands():
        words = [word.strip('"') for word in re.sub(r"\$\([^)]*\)", "0", command).split()]
        if words[0] == "tuiadvisor":
            assert build_parser(words[1]).parse_args(words[1:]).command == "record"
        else:
            assert words[1::2] == ["--invitation", "--wait"]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_are_sound_and_do_nothing_outside_a_job(path: Path, tmp_path: Path) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    assert subprocess.run([shell, "-n", path], check=False).returncode == 0
    done = subprocess.run(
        [path], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_ends_between_two_tries_is_recorded_no_more(tmp_path: Path) -> None:
    """The epilog finds no recording to end then; another one, begun later, nobody would end."""
    programs = {
        "tuiadvisor": f'echo begun >> "{tmp_path}/begun"\nexit 1',
        "sleep": f'SLURM_JOB_ID=7 TUIADVISOR_RECORDING= sh "{DEPLOY}/slurm/epilog.sh"',
        "seq": "echo 1 2 3 4 5 6 7 8",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    reads, writes = os.pipe()  # the loop behind the script holds it, as long as it runs
    words = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "TUIADVISOR_FOLDER": str(tmp_path)}
    subprocess.run([DEPLOY / "slurm" / "prolog.sh"], env=words, pass_fds=[writes], check=True)
    os.close(writes)
    assert os.read(reads, 1) == b""
    os.close(reads)
    assert (tmp_path / "begun").read_text() == "begun\n"
    assert not list(tmp_path.glob("*.pid"))


def test_the_container_file_installs_extras_that_exist() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    ((extras),) = re.findall(r"/source\[([\w,]+)\]", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv"} <= set(ignored)
