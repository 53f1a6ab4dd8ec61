"""An attach does not bring the host's next full garbage collection forward, nor touch what the collector is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import PATIENCE_S

from tuiadvisor.agent import payload
from tuiadvisor.inject import identify
from tuiadvisor_probes import ring, uncounted

# A process whose objects are some twice the probe's, so that the probe's alone are a quarter of them; what the attach
# and its likes import is there already, as in a training. `survive` has the collector look at young objects until it
# would look at all, as a training does in the long run.
HOST = """
import atexit, gc, importlib.util, json, marshal, platform, sys, threading, time, types, weakref
sys.path.insert(0, {tests!r})
full = []
gc.set_threshold(20)  # few young objects of the test's own are counted
def survive():
    for _ in range(13 * 13):
        _ = [[] for _ in range(22)]
gc.callbacks.append(lambda phase, told: full.append(1) if phase == "stop" and told["generation"] == 2 else None)
class Cycle:
    def __init__(self):
        self.itself = self
{before}
gc.collect()
survive()
full.clear()
{young}
exec({attach!r}, {{**globals()}})
{after}
"""


def run(
    tmp_path: Path,
    *,
    before: str = "",
    young: str = "",
    after: str,
    bundled: bool = True,
    attach: str | None = None,
    interpreter: str = sys.executable,
) -> str:
    """What such a process prints."""
    path = tmp_path / "ring"
    ring.create_ring_file(str(path))
    code = payload.attach_code(str(path)) if attach is None else attach
    program = HOST.format(
        before=before, young=young, after=after, attach=code, tests=str(Path(__file__).parents[1])
    )
    process = subprocess.Popen(
        [interpreter, "-c", "import sys; exec(sys.stdin.read())"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if bundled:
        assert payload.write_bundle(tmp_path, identify(process.pid))
    said, _ = process.communicate(program, timeout=PATIENCE_S)
    assert not process.returncode
    return said.strip()


counts_a_quarter = pytest.mark.skipif(
    (3, 14) <= sys.version_info < (3, 14, 5) or "t" in sys.abiflags,
    reason="no full collections by themselves",
)
# Objects beside the interpreter's: a quarter of all is then less than the probe brings, more than the test's own.
SOME = "ballast = [[] for _ in range(1500)]"


COMES_UNSEEN = "survive(); print(len(full), 'tuiadvisor_probe.install' in str(list(sys.modules)))"


def others_that_count() -> list[str]:
    """Interpreters of other versions that have full collections by themselves, if any."""
    root = Path(sys.base_prefix).parent
    found = (str(path) for path in root.glob("3.1[0-3]*/bin/python3"))
    return sorted(path for path in found if not path.startswith(sys.base_prefix))


@counts_a_quarter
@pytest.mark.parametrize("bundled", [True, False])
def test_no_full_collection_for_the_probe(*, bundled: bool, tmp_path: Path) -> None:
    """The probe's objects survive the looks at young ones; a fourth of all, they would have all looked at."""
    assert run(tmp_path, before=SOME, after=COMES_UNSEEN, bundled=bundled) == "0 True"


@pytest.mark.skipif(not others_that_count(), reason="no other interpreter here")
@pytest.mark.parametrize("interpreter", others_that_count())
def test_nor_in_other_interpreters(interpreter: str, tmp_path: Path) -> None:
    """From 3.12 on the collector sets objects of its own aside, as if a host had frozen them."""
    assert run(tmp_path, before=SOME, after=COMES_UNSEEN, interpreter=interpreter) == "0 True"


@counts_a_quarter
def test_as_many_objects_of_others_have_one(tmp_path: Path) -> None:
    """There was something to see: half as many as the probe's, kept by anybody, and all are looked at."""
    kept = "sys.kept = [[] for _ in range(2800)]"
    assert run(tmp_path, before=SOME, after="survive(); print(len(full))", attach=kept) == "1"


@counts_a_quarter
def test_garbage_of_the_host_is_still_found(tmp_path: Path) -> None:
    """Young garbage does not pass to the oldest generation unseen, where it would hold what it holds for long."""
    young = "gc.set_threshold(700); lost = Cycle(); seen = weakref.ref(lost); del lost"
    assert run(tmp_path, young=young, after="print(seen(), len(full))") == "None 0"


def test_what_others_made_meanwhile_stays_young(tmp_path: Path) -> None:
    """Where another thread had the interpreter while a piece was loaded, nobody knows whose the young objects are."""
    piece = (
        "from tuiadvisor_probes import uncounted\nuncounted.begin()\nsys.made = [[]]\n{wait}\nuncounted.end()"
    )
    after = "print(any(one is sys.made for one in gc.get_objects(generation=2)))"
    assert run(tmp_path, attach=piece.format(wait="time.sleep(0.01)"), after=after) == "False"


@pytest.mark.parametrize(
    ("version", "abiflags", "is_so"),
    [
        ((3, 10, 13), "", True),
        ((3, 13, 0), "", True),
        ((3, 13, 5), "t", False),
        ((3, 14, 0), "", False),
        ((3, 14, 4), "", False),
        ((3, 14, 5), "", True),
        ((3, 15, 2), "", True),
        ((3, 16, 0), "", False),
    ],
)
def test_collectors_that_count_are_told_from_the_others(
    version: tuple[int, int, int], abiflags: str, is_so: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An incremental one came with 3.14.0 and went with 3.14.5."""
    other = SimpleNamespace(implementation=sys.implementation, version_info=version, abiflags=abiflags)
    monkeypatch.setattr(uncounted, "sys", other)
    monkeypatch.setattr(uncounted, "_MOST_LEFT", 1 << 20)  # of other tests' probes
    assert is_so == uncounted._is_of_use()


def test_what_the_host_froze_stays_frozen(tmp_path: Path) -> None:
    """Before, or while the probe comes: only the host thaws it."""
    before = "gc.freeze(); frozen = gc.get_freeze_count()"
    assert run(tmp_path, before=before, after="print(gc.get_freeze_count() == frozen > 0)") == "True"


@pytest.mark.parametrize(
    ("told", "meanwhile"),
    [("", "gc.freeze()"), ("gc.callbacks.append(lambda phase, told: phase == 'stop' and gc.freeze())", "")],
)
def test_what_the_host_freezes_meanwhile_stays_frozen(told: str, meanwhile: str, tmp_path: Path) -> None:
    """In a thread of its own, or whenever the collector has looked, as it does because of us."""
    piece = (
        "from tuiadvisor_probes import uncounted\n"
        "uncounted._ALONE_NS = 1 << 62\n"  # however busy this machine is
        f"{told}\nuncounted.begin()\n{meanwhile}\nuncounted.end()\n"
    )
    assert run(tmp_path, attach=piece, after="print(gc.get_freeze_count() > 4000)") == "True"


def test_a_class_of_the_host_that_has_no_name(tmp_path: Path) -> None:
    """Those that have left are counted without asking the host's classes anything: whatever it does, that runs not."""
    host = (
        "class Nameless(type):\n"
        "    def __getattribute__(cls, name):\n"
        "        raise RuntimeError(name)\n"
        "sys.nameless = Nameless('nameless', (types.SimpleNamespace,), {})\n"
    )
    after = "print('tuiadvisor_probe.install' in str(list(sys.modules)))"
    assert run(tmp_path, before=host, after=after) == "True"


def test_nothing_stays_frozen_whatever_is_raised(tmp_path: Path) -> None:
    """A handler of a signal may raise at any line of ours."""
    piece = (
        "from tuiadvisor_probes import uncounted\n"
        "def raising(left):\n"
        "    def look(frame, event, _):\n"
        "        left[0] -= event == 'line' and frame.f_code.co_name == 'end'\n"
        "        if left[0] < 0:\n"
        "            sys.settrace(None)\n"
        "            raise KeyboardInterrupt\n"
        "        return look\n"
        "    return look\n"
        "sys.raised = 0\n"
        "for number in range(12):\n"
        "    uncounted.begin()\n"
        "    sys.settrace(raising([number]))\n"
        "    try:\n"
        "        uncounted.end()\n"
        "    except KeyboardInterrupt:\n"
        "        sys.raised += 1\n"
        "    sys.settrace(None)\n"
    )
    assert run(tmp_path, attach=piece, after="print(sys.raised > 5, gc.get_freeze_count())") == "True 0"


@pytest.mark.parametrize(
    ("told", "num_young"),
    [
        ("gc.disable()", 30_000),
        ("gc.set_threshold(0)", 30_000),
        ("gc.set_threshold(100_000, 50, 100)", 30_000),
        ("gc.set_threshold(20_000); gc.set_debug(gc.DEBUG_STATS)", 1_000),
    ],
)
def test_a_collector_told_otherwise_is_left_alone(told: str, num_young: int, tmp_path: Path) -> None:
    """No look at a generation where the host wants none, has each printed, or would have to look at a great many."""
    many = f"many = [[] for _ in range({num_young})]; looks = []; gc.callbacks.append(lambda *_: looks.append(1))"
    state = "gc.isenabled(), gc.get_threshold()"
    young = f"{told}; {many}; then = {state}"
    after = f"gc.set_debug(0); print(len(looks), then == ({state}))"
    assert run(tmp_path, young=young, after=after) == "0 True"


def test_garbage_of_many_probes_is_a_reason_to_collect(tmp_path: Path) -> None:
    """Of probes that have left, 1 MiB each, a few may wait; from then on their likes are counted."""
    path = tmp_path / "ring"
    cycle = (
        "for _ in range(26):\n"
        f"    exec({payload.attach_code(str(path))!r}, {{}})\n"
        f"    exec({payload.detach_code()!r}, {{}})\n"
    )
    assert run(tmp_path, before=SOME, after="survive(); print(len(full) > 0)", attach=cycle) == "True"
