"""A process in which something has replaced the clock that steps are measured by."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tuiadvisor.agent.attach import attach_unless_importing
from tuiadvisor.agent.payload import PRIVATE_NAME
from tuiadvisor_probes import ring


def test_a_process_whose_clock_is_replaced_is_refused_by_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As freezegun does: "memoryview: invalid value for format 'q'" was all that was said."""
    path = str(tmp_path / "ring")
    ring.create_ring_file(path)
    reader = ring.RingReader(path)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1.5)
    exec(attach_unless_importing(path, None), {})  # noqa: S102 - the very code an injection runs
    assert reader.get_u64(ring.OFFSET_STATE) == ring.STATE_FAILED
    assert "time.monotonic_ns is replaced in this process" in json.loads(reader.info())["error"]
    assert not [name for name in sys.modules if name.startswith(PRIVATE_NAME)]
    reader.close()
