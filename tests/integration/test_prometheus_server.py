"""A real Prometheus server reads the metrics page, keeps its figures, and its rules see the straggler."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, wait_until
from ports import free_port

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.outlets.page import MetricsServer, registry_of
from tuiadvisor.views.run_view import RunView

PROMETHEUS = shutil.which("prometheus") or ""
ALERTS = Path(__file__).parents[2] / "docs" / "prometheus" / "alerts.yml"
pytestmark = pytest.mark.skipif(not PROMETHEUS, reason="no Prometheus server (package prometheus)")


@pytest.fixture(scope="module")
def view() -> RunView:
    """A run with a straggler."""
    return final_view(Job(num_ranks=4).with_faults(Fault("backward", (2,), 8 * MS)))


@contextmanager
def server_of(folder: Path, page: str, token: str) -> Iterator[str]:
    """A server that reads this page and our rules every 200 ms; its address."""
    (folder / "token").write_text(token)
    target = urllib.parse.urlsplit(page).netloc
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {
                "job_name": "training",
                "honor_labels": True,
                "authorization": {"credentials_file": str(folder / "token")},
                "static_configs": [{"targets": [target]}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    command = [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: process.poll() is not None or _is_ready(url), "the server is ready", 0.1)
        assert process.poll() is None, (folder / "log").read_text()
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def asked(url: str, path: str, **words: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(words)}", timeout=30) as answer:
        return json.load(answer)["data"]


def values(url: str, query: str) -> dict[tuple[tuple[str, str], ...], float]:
    rows = asked(url, "query", query=query)["result"]
    return {tuple(sorted(row["metric"].items())): float(row["value"][1]) for row in rows}


def test_a_server_keeps_the_figures_and_its_rules_see_the_straggler(view: RunView, tmp_path: Path) -> None:
    word = "a-long-enough-word"
    page = MetricsServer(registry_of(lambda: view, "1.2"), "127.0.0.1", 0, token=word)
    try:
        with server_of(tmp_path, page.url, word) as url:
            wait_until(lambda: values(url, "tuiadvisor_step_median_seconds"), "the first figures", 0.1)
            ((labels, median),) = values(url, "tuiadvisor_step_median_seconds").items()
            assert dict(labels)["job"] == "train.py"
            assert median == view.step.median_s
            late = values(url, "topk(1, tuiadvisor_straggler_loss_seconds)")
            assert [dict(key)["rank"] for key in late] == ["2"]
            assert values(url, "tuiadvisor_mfu_ratio") == {}  # unknown is absent
            (target,) = asked(url, "targets")["activeTargets"]
            assert (target["health"], target["lastError"]) == ("up", "")
            rules = [rule for group in asked(url, "rules")["groups"] for rule in group["rules"]]
            assert rules
            wait_until(lambda: asked(url, "alerts")["alerts"], "a rule that sees it", 0.1)
            rules = [rule for group in asked(url, "rules")["groups"] for rule in group["rules"]]
            assert {rule["health"] for rule in rules} == {"ok"}
            assert "TrainingStragglerCostsTenth" in {
                one["labels"]["alertname"] for one in asked(url, "alerts")["alerts"]
            }
    finally:
        page.close()
