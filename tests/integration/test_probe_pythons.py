"""The probe in every Python found here, torch imitated: it measures, leaves, and the training is as it was."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from test_inject import VERSIONS, _program

from tuiadvisor.agent.payload import attach_code, wants_native, write_bundle, write_native
from tuiadvisor.inject import identify, inject
from tuiadvisor_probes import ring

pytestmark = pytest.mark.slow
IMITATION = Path(__file__).parents[1] / "imitation_torch.py"
NUM_VISITS, NUM_STEPS = 8, 6
PATIENCE_S = 60.0


def wait_until(reader: ring.RingReader, offset: int, least: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while reader.get_u64(offset) < least:
        assert reader.get_u64(ring.OFFSET_STATE) != ring.STATE_FAILED, reader.info()
        assert time.monotonic() < deadline_s, reader.info()
        time.sleep(0.002)


@pytest.mark.parametrize("version", VERSIONS)
def test_visits_leave_the_training_as_it_was(version: str, tmp_path: Path) -> None:
    """With the compiled bundle and, every other time, from source; steps told apart, no error, nothing left."""
    training = subprocess.Popen(
        [_program(version), str(IMITATION), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert training.stdout is not None
    try:
        assert training.stdout.readline() == "ready\n"
        for visit in range(NUM_VISITS):
            folder = tmp_path / str(visit)
            folder.mkdir()
            if visit % 2 == 0:
                assert write_bundle(folder, identify(training.pid))
            assert write_native(folder) == wants_native()
            ring.create_ring_file(str(folder / "ring"))
            reader = ring.RingReader(str(folder / "ring"))
            way = inject(training.pid, attach_code(str(folder / "ring"))).way
            assert way in (
                {"pending_call", "remote_exec"} if version.endswith("t") else {"thread", "remote_exec"}
            )
            wait_until(reader, ring.OFFSET_STATE, ring.STATE_LIVE)
            wait_until(reader, ring.OFFSET_STEP_HEAD, NUM_STEPS)
            info = json.loads(reader.info())
            takes_native = wants_native() and version != "3.10" and not version.endswith("t")
            assert info["core"] == ("native" if takes_native else "python"), info
            assert bool(info.get("core_why")) == (wants_native() and not takes_native), info
            hooks = info["hooks"]
            assert {"ok"} == {hooks[name] for name in ("data_wait", "backward", "optimizer")}, hooks
            reader.put_u64(ring.OFFSET_COMMAND, ring.COMMAND_DETACH)
            wait_until(reader, ring.OFFSET_STATE, ring.STATE_DETACHED)
            assert 0 == reader.get_u64(ring.OFFSET_ERRORS), reader.info()
            assert NUM_STEPS <= len(reader.take_steps())
            reader.close()
        (tmp_path / "stop").touch()
        assert ("as before []\n", "") == training.communicate(timeout=PATIENCE_S)
    finally:
        training.kill()
        training.communicate()
    assert 0 == training.returncode
