"""The disk that a recording is written to fills up: the recording ends in order, the rest is the training's.

`record` in a mount namespace of its own, with a small file system for the recording.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S
from training import running

from tuiadvisor.app.survey import surveyed
from tuiadvisor.stream.scan import read_summary

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

OWN_MOUNTS = ("unshare", "--mount")
SIZE_KIB, LEFT_KIB = 8192, 8192 // 20
HOLDS_STEPS = """import sys
from tuiadvisor.app.survey import surveyed
sys.exit(not surveyed(sys.argv[1]).view.last_step)"""
# Once there are steps in the recording, a checkpoint of somebody else takes all but some pages of what is left.
SCRIPT = """
mount -t tmpfs -o size={size}k tuiadvisor-test "$1" || exit 99
"$2" -P -m tuiadvisor record --pid "$3" -o "$1/run.tuirec" & recorder=$!
while kill -0 $recorder && ! "$2" -P -c '{holds_steps}' "$1/run.tuirec"; do sleep 0.2; done 2>/dev/null
free=$(($(stat -f -c '%a * %S' "$1") / 1024))
fallocate -l $((free - {left} + 64))k "$1/checkpoint" || exit 98
wait $recorder
code=$?
stat -f -c '%a %S' "$1"
cp "$1/run.tuirec" "$4"
exit $code
"""


@pytest.mark.skipif(
    os.geteuid() != 0
    or subprocess.run([*OWN_MOUNTS, "true"], capture_output=True, check=False).returncode != 0,
    reason="no file system of its own (be root)",
)
def test_a_disk_that_fills_up_ends_the_recording_and_not_the_training(tmp_path: Path) -> None:
    """One sentence and exit code 1; what was recorded is whole and read like any other; the ranks go on."""
    place, copy = tmp_path / "place", tmp_path / "copy.tuirec"
    place.mkdir()
    script = SCRIPT.format(size=SIZE_KIB, left=LEFT_KIB, holds_steps=HOLDS_STEPS)
    with running(2, "--seconds", "9000") as (training, ranks):
        command = [*OWN_MOUNTS, "sh", "-c", script, "sh", place, sys.executable, str(training.pid), copy]
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
        assert all(Path(f"/proc/{rank.pid}").exists() for rank in ranks)
        assert training.poll() is None
    assert done.returncode == 1, done
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert "are left to the training; the recording ends here and is whole" in lines[0]
    assert str(place / "run.tuirec") in lines[0]
    blocks, size = done.stdout.split()[-2:]
    assert int(blocks) * int(size) > (LEFT_KIB - 200) << 10
    assert read_summary(copy).notes == ()
    view = surveyed(str(copy)).view
    assert view is not None
    assert {row.rank for row in view.ranks} == {0, 1}
    assert (view.last_step or 0) > 0
