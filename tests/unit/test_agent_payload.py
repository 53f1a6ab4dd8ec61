"""The bundle: the probe compiled for the rank's own interpreter, in an order in which its modules can be executed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from patience import PATIENCE_S
from thinned import crossed

from tuiadvisor.agent import payload
from tuiadvisor.inject import identify
from tuiadvisor_probes import ring

# Standalone ones are run by the rank itself or in a rank that hangs; late ones come when they are asked for.
NOT_BUNDLED = {*payload.STANDALONE_MODULES, *payload.LATE_MODULES, "host"}  # the last one holds types alone


def test_bundle_holds_every_module_after_those_it_imports() -> None:
    """A module that is missing or comes too early would make the attach fall back to slow source."""
    folder = payload.probe_folder()
    assert {path.stem for path in folder.glob("*.py")} - NOT_BUNDLED == set(payload.MODULE_ORDER)
    for number, stem in enumerate(payload.MODULE_ORDER):
        for node in ast.parse((folder / f"{stem}.py").read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                needed = {node.module} if node.module else {alias.name for alias in node.names}
                assert needed <= set(payload.MODULE_ORDER[:number]), stem


def other_interpreters() -> list[str]:
    """Pythons of other versions beside ours, if any."""
    root = Path(sys.base_prefix).parent
    return sorted(
        str(path) for path in root.glob("3.1[0-4]*/bin/python3") if path.parents[1] != Path(sys.base_prefix)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bundled", "interpreter"), crossed([True, False], [sys.executable, *other_interpreters()])
)
def test_attach_code_installs_and_removes(interpreter: str, bundled: bool, tmp_path: Path) -> None:
    """In a process without torch the probe comes up with its hooks absent, and leaves no module behind."""
    path = tmp_path / "ring"
    ring.create_ring_file(str(path))
    (tmp_path / "attach.py").write_text(payload.attach_code(str(path)))
    (tmp_path / "detach.py").write_text(payload.detach_code())
    program = (
        "import sys; sys.stdin.readline(); before = set(sys.modules) | {'json', 'platform', 'atexit', 'weakref'}\n"
        "exec(open('attach.py').read(), {}); print(len([m for m in sys.modules if 'tuiadvisor' in m]), flush=True)\n"
        "exec(open('detach.py').read(), {}); print([m for m in sys.modules if 'tuiadvisor' in m], flush=True)\n"
    )
    process = subprocess.Popen(
        [interpreter, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, text=True
    )
    if bundled:
        assert payload.write_bundle(tmp_path, identify(process.pid))
    output, _ = process.communicate("\n", timeout=PATIENCE_S)
    assert process.returncode == 0
    assert output.splitlines() == [str(len(payload.MODULE_ORDER)), "[]"]
    reader = ring.RingReader(str(path))
    assert reader.get_u64(ring.OFFSET_STATE) == ring.STATE_DETACHED
    reader.close()


@pytest.mark.parametrize("bundled", [True, False])
def test_an_attach_that_was_interrupted_can_be_made_again(*, bundled: bool, tmp_path: Path) -> None:
    """A handler of the host's may raise while modules are loaded; what is there of them does not bar the next one."""
    path = tmp_path / "ring"
    ring.create_ring_file(str(path))
    attach = payload.attach_code(str(path))
    program = f"""
import sys; sys.stdin.readline()
def interrupt(frame, event, _):
    if frame.f_code.co_name == "<module>" and "step_clock.py" in frame.f_code.co_filename:
        raise KeyboardInterrupt
sys.settrace(interrupt)
try:
    exec({attach!r}, {{}})
except KeyboardInterrupt:
    print([name for name in sys.modules if "tuiadvisor" in name])
sys.settrace(None)
exec({attach!r}, {{}})
print(len([name for name in sys.modules if "tuiadvisor" in name]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    if bundled:
        assert payload.write_bundle(tmp_path, identify(process.pid))
    output, _ = process.communicate("\n", timeout=PATIENCE_S)
    assert output.splitlines() == ["[]", str(len(payload.MODULE_ORDER))]


def test_damaged_bundle_falls_back_to_source(tmp_path: Path) -> None:
    """Whatever lies in the bundle's place, the probe still comes up."""
    path = tmp_path / "ring"
    ring.create_ring_file(str(path))
    (tmp_path / payload.BUNDLE_NAME).write_bytes(b"not marshal at all")
    program = f"exec({payload.attach_code(str(path))!r}, {{}})"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)
    reader = ring.RingReader(str(path))
    assert reader.get_u64(ring.OFFSET_STATE) == ring.STATE_DETACHED  # by its exit hook
    reader.close()


def test_ranks_of_one_interpreter_share_one_compilation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All ranks of a node are attached at once: none compiles what another already compiles, whoever fails first."""
    compiled: list[str] = []
    barrier = threading.Barrier(4)
    plain = payload._compiled

    def counted(stem: str) -> bytes:
        compiled.append(stem)
        time.sleep(0.01)
        return plain(stem)

    def write(number: int) -> bool:
        folder = tmp_path / str(number)
        folder.mkdir()
        barrier.wait(PATIENCE_S)
        return payload.write_bundle(folder, identify(os.getpid()), ("phases", "ring"))

    monkeypatch.setattr(payload, "_compiled", counted)
    monkeypatch.setattr(payload, "_BUNDLES", payload._Bundles())
    with ThreadPoolExecutor(4) as pool:
        assert [True] * 4 == list(pool.map(write, range(4)))
    assert ["phases", "ring"] == compiled
    assert len({(tmp_path / str(number) / payload.BUNDLE_NAME).read_bytes() for number in range(4)}) == 1


def test_a_compilation_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine may have had no process left for it, or no time."""
    monkeypatch.setattr(payload, "_BUNDLES", payload._Bundles())
    with monkeypatch.context() as broken:
        broken.setattr(payload, "_bundle", Mock(side_effect=OSError))
        assert not payload.write_bundle(tmp_path, identify(os.getpid()), ("phases",))
    assert payload.write_bundle(tmp_path, identify(os.getpid()), ("phases",))
