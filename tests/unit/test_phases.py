"""A phase is one row: the probe's constants, the columns and what tells phases apart follow from the table."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import native_core

from tuiadvisor import phases
from tuiadvisor.causes.pauses import KIND_WORDS
from tuiadvisor.events import STEP_COLUMNS
from tuiadvisor.exporters.slices import in_order
from tuiadvisor.phases import PHASES, TABLE
from tuiadvisor.views.names import LIMIT_NAMES
from tuiadvisor_probes import phases as of_probe
from tuiadvisor_probes import ring

PROBES = Path(ring.__file__).parent
RANGE_OF_ABSORBING = re.compile(r"(\d+) < outer < (\d+)")


def test_the_probe_has_the_table_s_constants() -> None:
    """It cannot import the table: `python -m tuiadvisor.phases` writes them."""
    assert phases.probe_constants() == (PROBES / "phases.py").read_text()
    assert tuple(range(len(TABLE))) == tuple(getattr(of_probe, name.upper()) for name in PHASES)


def test_numbers_that_hooks_write_out_are_the_table_s() -> None:
    """On the hot path a name would be looked up in every step; the numbers stand there, and here is who keeps them."""
    absorbing = [number for number, phase in enumerate(TABLE) if phase.absorbs]
    found = [
        (path.name, int(low) + 1, int(high) - 1)
        for path in PROBES.glob("*.py")
        for low, high in RANGE_OF_ABSORBING.findall(path.read_text())
    ]
    assert {"data_hook.py", "guard.py", "optimizer_hook.py"} == {name for name, _, _ in found}
    put = "phases.py: put the new row directly before other, so that the others keep their numbers"
    assert {(absorbing[0], absorbing[-1])} == {(low, high) for _, low, high in found}, put
    assert list(range(absorbing[0], absorbing[-1] + 1)) == absorbing
    for hook, number in (("data_hook.py", of_probe.DATA_WAIT), ("optimizer_hook.py", of_probe.OPTIMIZER)):
        begun = re.findall(r"thin\.phase = (\d+)", (PROBES / hook).read_text())
        assert {str(number)} == set(begun), put


def test_a_step_s_record_is_as_long_as_its_columns() -> None:
    """Ten phases made version 2; rings of another number are of another version."""
    assert len(STEP_COLUMNS) == ring.NUM_STEP_SLOTS
    assert ring.VERSION == (ring.LAYOUT if len(TABLE) == 10 else ring.LAYOUT | (len(TABLE) - 10) << 16)


def test_every_row_can_be_told_apart_wherever_it_is_drawn() -> None:
    """By name, letter, colour and legend, within the cells there are."""
    for of in ("name", "letter", "colour", "label", "short"):
        assert len(TABLE) == len({getattr(phase, of) for phase in TABLE})
    assert all(
        len(phase.short) <= 9 and 3 <= len(phase.tiny) <= 5 and len(phase.letter) == 1 for phase in TABLE
    )


def test_the_probe_s_constants_follow_from_a_new_row() -> None:
    """Its number, and what the clock asks of it."""
    table = with_new_row()
    text = phases.constants_of(table)
    known: dict[str, object] = {}
    exec(text, known)  # noqa: S102 - what the probe would run
    number = len(TABLE) - 1
    assert (number, number + 1, number + 2) == (known["BRAND_NEW"], known["OTHER"], known["NUM_PHASES"])
    assert len(table) == len(known["BEGINS_ITERATION"]) == len(known["ABSORBS"])  # type: ignore[arg-type]
    assert known["BEGINS_ITERATION"][number] is True  # type: ignore[index]


def test_a_new_row_has_its_place_in_a_trace() -> None:
    """A list of names of its own would leave its time out of every step."""
    before, after = in_order(with_new_row())
    assert "brand_new" in before
    assert "brand_new" not in after


def test_the_core_in_c_has_the_table_s_constants() -> None:
    """The same command writes them."""
    assert phases.header_of(TABLE) == (PROBES.parent / "native" / "phases.h").read_text()
    assert len(TABLE) <= 1 << 4  # a number shares a word with a time


NEW_ROW = """
    Phase(
        *("brand_new", "compute", "brand new", "brand new", "new", "A", "#123456"),
        *("#ffffff", "#eeeeee", "white on black"),
        *("in something new", "something new", NO_HOOK),
        begins_iteration=True,
    ),
"""
WHAT_FOLLOWS = """
import sys
from pathlib import Path
import tuiadvisor
from tuiadvisor.events import STEP_COLUMNS
from tuiadvisor.phases import PHASES
from tuiadvisor.tui.draw import colours
from tuiadvisor_probes import device_times, native, ring

folder = Path(sys.argv[1])
assert Path(tuiadvisor.__file__).is_relative_to(folder), tuiadvisor.__file__
assert "brand_new_ns" in STEP_COLUMNS
inks = [colours.style(theme, "phase:brand_new").color.name for theme in ("dark", "terminal")]
assert inks == ["#ffffff", "white"], inks
of_devices = {name: len(getattr(device_times, name)) for name in ("_BEGINS", "_ENDS", "_HOLDS")}
assert set(of_devices.values()) == {len(PHASES)}, of_devices
assert ring.VERSION != int(sys.argv[2])
path = str(folder / "ring")
ring.create_ring_file(path, 4, 4)
writer, reader = ring.RingWriter(path), ring.RingReader(path)
row = tuple(range(len(STEP_COLUMNS)))
writer.put_step(row)
assert reader.take_steps() == [row]
if len(sys.argv) > 3:
    books = native.load(Path(sys.argv[3]).read_bytes()).Books(0)
    new, rest = PHASES.index("brand_new"), PHASES.index("other")
    books.extend((new, 10))  # from 10 ns on
    books.extend((rest, 25))
    booked = {number: total for number, total in enumerate(books.totals) if total}
    assert len(books.totals) == len(PHASES) and booked == {new: 15, rest: 10}, books.totals
print("all of it follows")
"""


def test_a_new_row_needs_no_other_file_but_its_hook(tmp_path: Path) -> None:
    """Columns, styles, the ring and both cores of the probe follow from the row and the command that it asks for."""
    root = PROBES.parents[1]
    for package in ("tuiadvisor", "probes/tuiadvisor_probes", "probes/native"):
        shutil.copytree(
            root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    table = tmp_path / "tuiadvisor" / "phases.py"
    text = table.read_text()
    before = text.index('    Phase(\n        *("other"')
    table.write_text(text[:before] + NEW_ROW.strip("\n") + "\n" + text[before:])
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{tmp_path}/probes", "PYTHONDONTWRITEBYTECODE": "1"}
    run = partial(subprocess.run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    written = run([sys.executable, "-m", "tuiadvisor.phases"])
    assert (0, "") == (written.returncode, written.stderr)
    core = []
    if not native_core.why_not():
        core = [str(tmp_path / "core.abi3.so")]
        built = run([sys.executable, "probes/native/core_build.py", *core])
        assert built.returncode == 0, built.stderr
    told = run([sys.executable, "-c", WHAT_FOLLOWS, str(tmp_path), str(ring.VERSION), *core])
    assert ("all of it follows\n", "") == (told.stdout, told.stderr)


def with_new_row() -> tuple[phases.Phase, ...]:
    """The table with a phase nobody has heard of."""
    added = replace(TABLE[2], name="brand_new", letter="A", begins_iteration=True, absorbs=False)
    return (*TABLE[:-1], added, TABLE[-1])


def test_a_forward_that_no_backward_follows_is_not_said_to_lack_gradients() -> None:
    """A model in eval mode may record them all the same, as a validation in each step without `no_grad` does."""
    (row,) = [phase for phase in TABLE if phase.name == "eval"]
    said = (
        row.label,
        row.short,
        row.where,
        row.meaning,
        row.why_unknown,
        LIMIT_NAMES["eval"],
        KIND_WORDS["eval"],
    )
    assert [] == [words for words in said if "grad" in words]
