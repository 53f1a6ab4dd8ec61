"""A training under `coverage run` that was watched: its report has its own lines, and no file of ours."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from interpreters import PYTHONS
from patience import PATIENCE_S, wait_until

from tuiadvisor.agent.payload import attach_code, write_bundle, write_native
from tuiadvisor.inject import identify, inject
from tuiadvisor_probes import ring

coverage = pytest.importorskip("coverage")
IMITATION = Path(__file__).parents[1] / "imitation_torch.py"
VERSIONS = [one for one in sorted(PYTHONS) if one in {"3.11", "3.12", "3.13", "3.14"}]


def visit(pid: int, folder: Path) -> None:
    """Attach, see some steps, leave."""
    assert write_bundle(folder, identify(pid))
    write_native(folder)
    ring.create_ring_file(str(folder / "ring"))
    reader = ring.RingReader(str(folder / "ring"))
    inject(pid, attach_code(str(folder / "ring")), timeout_s=PATIENCE_S)
    wait_until(lambda: reader.get_u64(ring.OFFSET_STEP_HEAD) >= 20, "no steps were seen")
    reader.put_u64(ring.OFFSET_COMMAND, ring.COMMAND_DETACH)
    wait_until(lambda: reader.get_u64(ring.OFFSET_STATE) == ring.STATE_DETACHED, "the probe did not leave")
    assert reader.get_u64(ring.OFFSET_ERRORS) == 0, reader.info()
    reader.close()


def report(program: str, folder: Path, *, watched: bool) -> dict[str, Any]:
    """What coverage tells of each file. Its Python files alone serve every interpreter."""
    (folder / "only").mkdir(parents=True)
    (folder / "only" / "coverage").symlink_to(Path(coverage.__file__).parent)
    # Without a file of settings it measures all that runs, but what is installed beside it.
    command = [program, "-m", "coverage", "run", "--rcfile=", str(IMITATION), str(folder)]
    surroundings = {**os.environ, "PYTHONPATH": str(folder / "only")}
    if "3.11" not in program:
        surroundings["COVERAGE_CORE"] = "sysmon"
    training = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=surroundings)
    try:
        assert training.stdout is not None
        assert training.stdout.readline() == "ready\n"
        if watched:
            visit(training.pid, folder)
        else:
            time.sleep(0.1)
        (folder / "stop").touch()
        assert training.communicate(timeout=PATIENCE_S)[0] == "as before []\n"
    finally:
        training.kill()
        training.communicate()
    said = subprocess.run(
        [program, "-m", "coverage", "json", "--rcfile=", "-o", "told.json"],
        cwd=folder, env=surroundings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout
    files: dict[str, Any] = json.loads((folder / "told.json").read_text())["files"]
    return files


@pytest.mark.parametrize("version", VERSIONS)
def test_coverage_of_a_training_that_was_watched_is_its_own(version: str, tmp_path: Path) -> None:
    """25 files of the probe stood in it, in the total too, and where the training does not see them it failed."""
    alone = report(PYTHONS[version], tmp_path / "alone", watched=False)
    watched = report(PYTHONS[version], tmp_path / "watched", watched=True)
    assert list(alone) == list(watched) == [str(IMITATION)]
    for name in ("main", "Module.forward", "backward", "_BaseDataLoaderIter.__next__", "Optimizer.step"):
        of = [found[str(IMITATION)]["functions"][name]["executed_lines"] for found in (alone, watched)]
        assert of[0] == of[1] != [], name
