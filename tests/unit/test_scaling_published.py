"""Published tables: fitted on all rows but the last, the last must lie in the interval and near the prediction."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from scaling_tables import CHECKED, FURTHER, MEGASCALE, ZERO_3, Published, csv_of, report_of

from tuiadvisor.scaling.choose import choose
from tuiadvisor.scaling.predict import predict

SHARED = Path(os.environ.get("TUIADVISOR_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data")


def plain_prediction(published: Published) -> float:
    """T = a + b/N by least squares of the relative error, what any spreadsheet would do."""
    sizes, times = np.array(published.devices[:-1], float), np.array(published.values[:-1], float)
    design = np.stack([np.ones_like(sizes), 1 / sizes], axis=1) / times[:, None]
    a, b = np.linalg.lstsq(design, np.ones_like(times), rcond=None)[0]
    return float(a + b / published.devices[-1])


@pytest.mark.parametrize("published", [*CHECKED, *FURTHER], ids=lambda one: one.name)
def test_interval_contains_the_truth(published: Published, tmp_path: Path) -> None:
    """The measured last row lies between low and high, and the interval is no excuse: under half the value."""
    time = report_of(tmp_path, csv_of(published, -1), published.devices[-1]).predictions[0].time
    assert time.low <= published.values[-1] <= time.high
    assert 0.6 * time.expected > time.high - time.low


def test_point_beats_the_plain_fit(tmp_path: Path) -> None:
    """Nearer to the truth than a + b/N in the mean of seven series, and on none further by one percent of the truth."""
    ours, plain = [], []
    for one in (*CHECKED, *FURTHER):
        time = report_of(tmp_path, csv_of(one, -1), one.devices[-1]).predictions[0].time
        ours.append(abs(time.expected / one.values[-1] - 1))
        plain.append(abs(plain_prediction(one) / one.values[-1] - 1))
    assert sum(ours) < sum(plain)
    assert max(mine - other for mine, other in zip(ours, plain, strict=True)) < 0.01


def test_plain_fit_errs_as_published() -> None:
    """The baseline above is the one the figures were published for: +0.1, +1.3, -2.2, -10.8 %."""
    errors = [100 * (plain_prediction(one) / one.values[-1] - 1) for one in CHECKED]
    assert [0.1, 1.3, -2.2, -10.8] == pytest.approx(errors, abs=0.06)


def test_zero_3_is_a_stop(tmp_path: Path) -> None:
    """Doubling 768 to 1536 devices bought nothing: stop at 768, whatever the objective finds cheaper."""
    decision = report_of(tmp_path, csv_of(ZERO_3)).decision
    assert ("stop", 768) == (decision.decision, decision.devices)
    assert "no faster" in decision.because


def test_megascale_rows(tmp_path: Path) -> None:
    """Efficiency and Karp-Flatt by hand: 256·32/(1024·8.9) and (1/S - 1/4)/(3/4) with S = 32/8.9."""
    last = report_of(tmp_path, csv_of(MEGASCALE)).rows[-1]
    assert 256 * 32 / (1024 * 8.9) == pytest.approx(last.efficiency)
    assert (8.9 / 32 - 0.25) / 0.75 == pytest.approx(last.karp_flatt)


def test_no_flag_on_published_tables(tmp_path: Path) -> None:
    """What papers measured with care is no anomaly."""
    assert [] == [(one.name, flag) for one in CHECKED for flag in report_of(tmp_path, csv_of(one)).flags]


@pytest.mark.skipif(
    not (SHARED / "scaling").is_dir(),
    reason="no public data sets (set TUIADVISOR_SHARED_DATA to their folder)",
)
def test_llm_foundry_series() -> None:
    """Every llm-foundry series of three sizes in one setting: its last row lies in the interval of the others."""
    series: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    with (SHARED / "scaling" / "llm_foundry_h100_seq2048.csv").open() as file:
        for row in csv.DictReader(file):
            key = (
                row["section"],
                row["model"],
                row["micro_bs"],
                row["grad_accum"],
                row["sharding"],
                row["precision"],
            )
            series.setdefault(key, []).append(
                (float(row["gpus"]), float(row["gpus"]) / float(row["tokens_s"]))
            )
    long = [np.array(sorted(rows)) for rows in series.values() if len(rows) >= 3]
    missed = []
    for rows in long:
        devices, device_time = rows[:, 0], rows[:, 1]
        found = predict(choose("weak", devices[:-1], device_time[:-1]), (int(devices[-1]),))[0]
        if not found.low <= device_time[-1] <= found.high:
            missed.append(rows)
    assert 6 <= len(long)
    assert [] == missed


@pytest.mark.skipif(
    not (SHARED / "scaling").is_dir(),
    reason="no public data sets (set TUIADVISOR_SHARED_DATA to their folder)",
)
@pytest.mark.parametrize("name", ["llm_foundry_h100_seq2048.csv", "mlperf_v4.0.csv"])
def test_real_tables_are_read(name: str, tmp_path: Path) -> None:
    """Published tables with their own headers give a report for the label with the most sizes."""
    report = report_of(tmp_path, (SHARED / "scaling" / name).read_text())
    assert report.label
    assert report.main.choice is not None
