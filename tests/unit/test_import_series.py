"""Readers of metrics by rank and of step logs, and what is found in them."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from shared_data import SHARED, needs_data

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.rank_metrics import read_rank_metric
from tuiadvisor.importers.step_logs import read_step_log
from tuiadvisor.metrics.traces.readiness import starving
from tuiadvisor.metrics.traces.slow_steps import slow_steps

if TYPE_CHECKING:
    from pathlib import Path


def ready(*rows: list[tuple[float, int]]) -> np.ndarray:
    return np.array([[value for value, count in row for _ in range(count)] for row in rows])


def test_a_rank_whose_data_is_late_against_its_peers_is_an_episode() -> None:
    """Row 1 starves at 10..39, with two ready samples in between that do not end it."""
    values = ready([(1, 60)], [(1, 10), (0, 15), (1, 2), (0.1, 13), (1, 20)], [(1, 60)])
    (episode,) = starving(values)
    assert (1, 10, 39, 28) == (episode.row, episode.first, episode.last, episode.num_samples)


def test_while_all_starve_together_nobody_is_the_straggler() -> None:
    """A restart or a slow file system is nobody's fault alone."""
    assert () == starving(ready([(1, 10), (0, 40)], [(1, 10), (0, 40)], [(1, 10), (0, 40)]))


def test_unobserved_samples_are_neither_ready_nor_late() -> None:
    """NaN does not make a rank starve."""
    assert () == starving(ready([(1, 60)], [(float("nan"), 60)], [(1, 60)]))


def test_one_rank_alone_has_no_peers() -> None:
    """Low readiness of a single rank is no straggler."""
    assert () == starving(ready([(0, 60)]))


def test_slow_steps_stand_out_from_the_median() -> None:
    """Nine steps of 10 s, one of 20 s: 10 s lost; one of 10.4 s is not lost."""
    steps = np.array([10.0] * 9 + [20.0, 10.4])
    found = slow_steps(steps)
    assert found is not None
    assert ((9, 20.0),) == found.slow
    assert pytest.approx(10.0) == found.lost_s
    assert slow_steps(steps[:5]) is None


def test_metrics_are_read_with_gaps_as_unknown(tmp_path: Path) -> None:
    """Numbers may be text, empty text and null are unknown; ranks are sorted as numbers."""
    path = tmp_path / "ready.json"
    path.write_text(json.dumps({"event_time": ["1", "2"], "10": ["0.5", ""], "9": [1, None], "note": 3}))
    metric = read_rank_metric(path)
    assert (9, 10) == metric.ranks
    assert np.array_equal([[1, np.nan], [0.5, np.nan]], metric.values, equal_nan=True)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"event_time": 3},
        {"event_time": ["1"], "0": ["1", "2"]},
        {"event_time": ["1"], "0": ["fast"]},
        {"event_time": ["1"], "0": [True]},
        {"event_time": ["1"], "0": ["inf"]},
        {"event_time": ["1"]},
    ],
)
def test_metrics_that_are_none_are_one_line(tmp_path: Path, content: dict[str, Any]) -> None:
    """Checked before anything is computed."""
    path = tmp_path / "ready.json"
    path.write_text(json.dumps(content))
    with pytest.raises(TuiadvisorError):
        read_rank_metric(path)


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "step_time_s\nfast\n", "step_time_s\n-1\n", "step_time_s,step\n1\n"]
)
def test_logs_that_are_none_are_one_line(tmp_path: Path, text: str) -> None:
    """A missing column, a cell that is no time, a row that is cut."""
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(TuiadvisorError):
        read_step_log(path)


@needs_data
def test_the_real_metric_shows_rank_4_first_and_rank_0_later() -> None:
    """Data readiness of eight ranks over three hours: two long episodes, in this order."""
    metric = read_rank_metric(SHARED / "rank_metrics" / "straggler_data_readiness.json")
    episodes = starving(metric.values)
    assert [4, 0] == [metric.ranks[episode.row] for episode in episodes]
    assert all(episode.readiness < 0.2 for episode in episodes)


@needs_data
def test_real_step_logs_give_the_published_summary() -> None:
    """Median, p95, longest, variation, lost seconds and the slow steps of six real runs."""
    lines = (SHARED / "answers" / "step_logs.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines]
    assert 6 == len(answers)
    for answer in answers:
        _, _, system, _, run = answer["file"].split("/")
        log = read_step_log(SHARED / "step_logs" / f"{system}__{run.removesuffix('.txt')}.csv.gz")
        found = slow_steps(log.step_s)
        assert found is not None
        assert answer["n"] == found.num_steps
        assert answer["median"] == pytest.approx(found.median_s, abs=1e-4)
        assert answer["p95"] == pytest.approx(found.p95_s, abs=1e-4)
        assert answer["max"] == pytest.approx(found.max_s, abs=1e-4)
        assert answer["cv"] == pytest.approx(found.variation, abs=1e-4)
        assert answer["lost_s"] == pytest.approx(found.lost_s, abs=0.06)
        slow = [[log.label[index], round(seconds, 3)] for index, seconds in found.slow]
        assert answer["slow_gt_1.25_median"] == slow
