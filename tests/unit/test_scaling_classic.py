"""Laws of the textbook and of batches: found again where they hold, unknown where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scaling_tables import report_of, write

from tuiadvisor.scaling.analysis import analyse
from tuiadvisor.scaling.batch import batch_words
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.document import document
from tuiadvisor.scaling.table import read_table
from tuiadvisor.scaling.text import text

if TYPE_CHECKING:
    from pathlib import Path

BATCHES = "devices,step_s,global_batch\n8,0.5,64\n8,0.8,128\n8,1.4,256\n8,2.6,512\n"


def test_a_line_in_the_batch_is_found_again(tmp_path: Path) -> None:
    """0.2 s + 0.3/64 s a sample; 95 % of the best throughput at 19 x 0.2 x 64 / 0.3."""
    (law,) = report_of(tmp_path, BATCHES).batch_laws
    assert (8, 0.2, 0.3 / 64) == (law.devices, pytest.approx(law.fixed_s), pytest.approx(law.per_sample_s))
    assert 19 * 0.2 * 64 / 0.3 == pytest.approx(law.plateau)


def test_rows_of_batches_are_answered_not_refused(tmp_path: Path) -> None:
    """The decision tells the law, no row of it is called unused, and the document has it."""
    table = read_table(write(tmp_path, BATCHES))
    reports = analyse(table, [], Aim())
    shown = text(table, reports, Aim())
    assert "step = 0.2 s + 0.004687 s x batch" in reports[0].decision.because
    assert "row not used" not in shown
    found = document(table, reports, Aim())["batch_law"]
    assert {"fixed_s": 0.2, "per_sample_s": 0.0046875, "plateau": 810.667} == {
        key: found[key] for key in ("fixed_s", "per_sample_s", "plateau")
    }


def test_several_batches_stand_in_the_heading_and_beside_a_fit(tmp_path: Path) -> None:
    """Strong scaling at global batch 512 was the heading of four batches at one size, of which nothing scales."""
    table = read_table(write(tmp_path, BATCHES))
    shown = text(table, analyse(table, [], Aim()), Aim())
    assert "one size: batches of 64, 128, 256 and 512 at 8 devices\n" in shown
    assert "strong scaling" not in shown
    table = read_table(write(tmp_path, BATCHES + "16,0.7,128\n32,0.65,128\n"))
    shown = text(table, analyse(table, [], Aim()), Aim())
    assert "strong scaling, global batch 128; other batches beside it, at 8 devices\n" in shown


def test_a_batch_beyond_the_plateau_says_stop(tmp_path: Path) -> None:
    """At 2048 of 811 three quarters of the batch bring next to nothing."""
    (law,) = report_of(tmp_path, BATCHES + "8,9.8,2048\n").batch_laws
    assert "stop growing; at least 810.7 is enough" in batch_words(law)


def test_a_knee_is_no_line(tmp_path: Path) -> None:
    """Twice the batch, four times the step: nothing is promised."""
    (law,) = report_of(tmp_path, "devices,step_s,global_batch\n8,1,64\n8,2,128\n8,8,256\n").batch_laws
    assert (None, None, None) == (law.fixed_s, law.per_sample_s, law.plateau)
    assert "not linear" in law.why


def test_samples_a_second_tell_steps_and_tokens_do_not(tmp_path: Path) -> None:
    """A batch over samples a second is a step; over tokens a second it is not."""
    rows = "8,128,64\n8,160,128\n"
    for column in (
        "samples_s",
        "throughput",
    ):  # a throughput of which nothing is said counts samples everywhere
        (law,) = report_of(tmp_path, f"devices,{column},global_batch\n{rows}").batch_laws
        assert (0.2, 0.3 / 64) == (pytest.approx(law.fixed_s), pytest.approx(law.per_sample_s))
    assert () == report_of(tmp_path, f"devices,tokens_s,global_batch\n{rows}").batch_laws


def test_amdahl_and_gustafson_by_hand(tmp_path: Path) -> None:
    """T = 100·(0.05 + 0.95/N): at most 20 x; at 64 the serial share is 64·0.05/(0.95 + 64·0.05)."""
    rows = "".join(f"{n},{100 * (0.05 + 0.95 / n):.6f},64\n" for n in (1, 4, 16, 64))
    found = report_of(tmp_path, f"devices,step_s,global_batch\n{rows}").classic
    share = 3.2 / (0.95 + 3.2)
    assert (0.05, 20.0) == (pytest.approx(found.serial_fraction), pytest.approx(found.max_speedup))
    assert 64 - share * 63 == pytest.approx(found.scaled_speedup, rel=1e-4)
    assert 1 / (1 - share / 2) == pytest.approx(found.halved_serial, rel=1e-4)
    assert found.doubled_devices is not None
    assert 1 < found.doubled_devices < 1.2


def test_the_smallest_size_that_beats_one_device(tmp_path: Path) -> None:
    """Two devices are slower than one, four faster; without a row on one device nothing is said."""
    rows = "2,2.2,64\n4,1.2,64\n8,0.75,64\n"
    assert 4 == report_of(tmp_path, f"devices,step_s,global_batch\n1,2.0,64\n{rows}").classic.beats_one_device
    without = report_of(tmp_path, f"devices,step_s,global_batch\n{rows}").classic
    assert (None, False) == (without.beats_one_device, without.one_device_measured)


def test_one_device_of_another_layout_counts(tmp_path: Path) -> None:
    """What one well-used device does is the measure, not the parallel program on one device."""
    table = "devices,total_h,layout\n1,10,plain\n1,20,zero3\n2,11,zero3\n4,6,zero3\n"
    assert 4 == report_of(tmp_path, table).classic.beats_one_device


@pytest.mark.parametrize(
    "rows",
    [
        "3072,29.02,6144\n6144,14.78,6144\n8192,12.24,6144\n",  # Megatron-LM in MegaScale's table 2
        "256,32.0,768\n512,16.5,768\n768,11.5,768\n",
    ],
)
def test_twice_the_devices_is_what_the_table_predicts_for_them(rows: str, tmp_path: Path) -> None:
    """It stood as 1.69 x below a row that made it 1.73 x: from a fitted value instead of the measured one."""
    devices, step_s, _ = (float(cell) for cell in rows.rsplit(maxsplit=1)[-1].split(","))
    report = report_of(tmp_path, f"devices,step_s,global_batch\n{rows}", 2 * int(devices))
    assert report.classic.doubled_devices == pytest.approx(
        step_s / report.predictions[0].time.expected, rel=1e-6
    )
