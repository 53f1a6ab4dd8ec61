"""The driver of a Ray cluster's agents, on a Ray of its own making: who is started, what they hear, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

from tuiadvisor.launch.ray_step import node_class

# Three nodes, one of them dead; an actor is an object here, its calls happen at once.
RAY = """
def init(**options):
    if options["address"] == "other-version":
        raise RuntimeError("Version mismatch: cluster 2.9, here 2.40\\nmore lines")
def nodes():
    return [{"NodeID": name, "Alive": name != "dead"} for name in ("one", "dead", "two")]
class Call:
    def __init__(self, call):
        self.remote = call
class Handle:
    def __init__(self, held):
        self.held = held
    def __getattr__(self, name):
        return Call(getattr(self.held, name))
class Kind:
    def __init__(self, cls):
        self.cls = cls
    def options(self, **options):
        assert options["num_cpus"] == 0
        assert options["scheduling_strategy"] in ("one", "two")
        return self
    def remote(self):
        return Handle(self.cls())
remote = Kind
def get(found, timeout):
    assert timeout > 0
    return found
"""
STRATEGIES = "def NodeAffinitySchedulingStrategy(node, soft):\n    assert not soft\n    return node\n"


@pytest.fixture
def ray(tmp_path: Path) -> Path:
    """A folder with the stand-in."""
    package = tmp_path / "ray"
    (package / "util").mkdir(parents=True)
    (package / "__init__.py").write_text(RAY)
    (package / "util" / "__init__.py").write_text("")
    (package / "util" / "scheduling_strategies.py").write_text(STRATEGIES)
    return tmp_path


def agent(folder: Path, script: str) -> str:
    """The option that names this script as the nodes' Python."""
    path = folder / "python"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return f"--python={path}"


def driven(folder: Path, *arguments: str, said: str = "invitation\n") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tuiadvisor.launch.ray_step", *arguments],
        input=said,
        env={**os.environ, "PYTHONPATH": str(folder), "RAY_JOB": "ours"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_every_living_node_gets_the_invitation_and_each_request(ray: Path) -> None:
    """Its agent looks below the raylet, without what Ray sets for its workers; standard input's end is its end."""
    script = (
        'echo "$1 $2 $3 of $(expr $* : ".*--pid \\([0-9]*\\)") ${RAY_JOB-free}" >&2\n'
        "while read -r line; do echo heard $line >&2; done\nexit 7\n"
    )
    done = driven(ray, "auto", agent(ray, script), said="invitation\nrequest one\nrequest two\n")
    assert 7 == done.returncode
    lines = done.stderr.splitlines()
    assert 2 == len([line for line in lines if line.startswith("-P -m tuiadvisor.agent of ")])
    assert all(line.endswith(" free") for line in lines if " of " in line)
    for heard in ("heard invitation", "heard request one", "heard request two"):
        assert 2 == lines.count(heard)
    assert lines.index("heard invitation") < lines.index("heard request one")


def surveyed(*ports: tuple[int, int], pid: int = 100) -> str:
    """What one worker of a node is connected to: (own port, the other's), all on this machine."""
    ends = [["0A000005", own, "0A000005", other] for own, other in ports]
    return json.dumps({"workers": {str(pid): ends}, "raylet": [], "labels": {str(pid): "ray::TrainWorker"}})


def two_nodes(folder: Path, first: str, second: str) -> str:
    """A Python whose surveys say the one, then the other; its agents say that they run."""
    (folder / "first.json").write_text(first)
    (folder / "second.json").write_text(second)
    taken = folder / "surveyed"
    return agent(
        folder,
        f'case "$3" in *ray_survey) if mkdir {taken} 2>/dev/null; then cat {folder}/first.json; '
        f"else cat {folder}/second.json; fi; exit 0;; esac\nread -r line\necho runs >&2\nexit 0\n",
    )


OWN = ((4000, 29500), (29500, 4000))  # a first rank is connected to its own store


def test_trainings_on_different_nodes_are_refused_before_any_agent_runs(ray: Path) -> None:
    """Each of them holds a rendezvous of its own, and nothing joins them: said, with what means each."""
    done = driven(
        ray, "auto", two_nodes(ray, surveyed(*OWN), surveyed((4001, 29501), (29501, 4001), pid=200))
    )
    assert 2 == done.returncode
    (line,) = done.stderr.splitlines()
    assert line.startswith("tuiadvisor: 2 trainings run on this cluster: ray::TrainWorker, 1 rank on ")
    assert "(--pid 100)" in line
    assert "(--pid 200)" in line


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(surveyed((4002, 29500), pid=200), id="connected elsewhere"),
        pytest.param('{"workers": [], "raylet": 3}', id="no survey"),
        pytest.param(
            '{"workers": {"200": [["a", 1, "b", 99999]]}, "raylet": [], "labels": {}}', id="no port"
        ),
    ],
)
def test_a_node_that_may_belong_to_the_same_training_is_watched(ray: Path, second: str) -> None:
    """Without a rendezvous of its own it is another's or unknown."""
    done = driven(ray, "auto", two_nodes(ray, surveyed(*OWN, (29500, 4002)), second))
    assert (0, ["runs", "runs"]) == (done.returncode, done.stderr.splitlines())


def test_agents_that_end_by_themselves_end_it_with_the_least_code(ray: Path) -> None:
    """One node without ranks is no failure of the other."""
    taken = ray / "taken"
    script = 'case "$3" in *ray_survey) exit 1;; esac\nread -r line\n'
    script += f"if mkdir {taken} 2>/dev/null; then exit 3; fi\nexit 0\n"
    assert 0 == driven(ray, "auto", agent(ray, script)).returncode
    assert taken.exists()


def test_an_agent_that_ended_is_told_nothing_more(ray: Path) -> None:
    """A request to a closed pipe harms nobody."""
    done = driven(ray, "auto", agent(ray, "exit 2\n"), said="invitation\n" + "request\n" * 50)
    assert (2, "") == (done.returncode, done.stderr)


def test_the_last_words_of_an_agent_are_passed_on_with_its_end(ray: Path) -> None:
    """They say why it ended: whoever hears of the end has heard them."""
    path = agent(ray, "read -r line\necho why >&2\nexit 1\n").partition("=")[2]
    for _ in range(20):
        node = node_class()()
        node.start([], b"invitation\n", path)
        node.process.wait()
        assert (1, ["why"]) == node.look()
        node.write(b"")
        node.process.stderr.close()


def test_a_cluster_that_cannot_be_joined_is_one_line(ray: Path) -> None:
    done = driven(ray, "other-version")
    assert 1 == done.returncode
    assert "tuiadvisor: ray other-version: Version mismatch: cluster 2.9, here 2.40\n" == done.stderr
