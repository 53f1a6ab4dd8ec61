"""A phase is one row: the probe's constants, the columns and what tells phases apart follow from the table."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

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
    assert {(absorbing[0], absorbing[-1])} == {(low, high) for _, low, high in found}
    assert list(range(absorbing[0], absorbing[-1] + 1)) == absorbing
    begun = re.findall(r"thin\.phase = (\d+)", (PROBES / "data_hook.py").read_text())
    assert {str(of_probe.DATA_WAIT)} == set(begun)


def test_a_step_s_record_is_as_long_as_its_columns() -> None:
    """Its size is written out in the ring's writer."""
    assert len(STEP_COLUMNS) == ring.NUM_STEP_SLOTS
    sizes = [
        node.right.value
        for node in ast.walk(ast.parse((PROBES / "ring.py").read_text()))
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and isinstance(node.right, ast.Constant)
    ]
    assert ring.STEP_STRUCT.size in sizes


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


def test_the_core_in_c_knows_as_many_and_has_room_for_their_numbers() -> None:
    """It counts phases by an array, and a number shares a word with a time: four bits."""
    source = (PROBES.parent / "native" / "core.c").read_text()
    assert [str(len(TABLE))] == re.findall(r"\bNUM_PHASES = (\d+)", source)
    assert len(TABLE) <= 1 << 4


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
