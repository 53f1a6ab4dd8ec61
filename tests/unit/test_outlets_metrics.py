"""The metrics' page: the screens' figures by Prometheus' conventions, without unknowns, for who may read it."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from patience import PATIENCE_S, wait_until
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.cli.options.outlets import add_outlets, outlets_of
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.outlets import outlets, page
from tuiadvisor.outlets.metrics import (
    DEVICE_FIELDS,
    MAX_LABEL,
    MAX_RANKS,
    TAKEN,
    _of_findings,
    _of_job,
    _of_ranks,
    families,
)
from tuiadvisor.outlets.outlets import Outlets, Wishes
from tuiadvisor.outlets.page import MetricsServer, is_loopback, registry_of, write_file
from tuiadvisor.views.devices import RankDevice
from tuiadvisor.views.run_view import RunView

PROMTOOL = shutil.which("promtool") or ""
DOCS = Path(__file__).parents[2] / "docs"
LATE = Job(num_ranks=4).with_faults(Fault("backward", (2,), 8 * MS))


@pytest.fixture(scope="module")
def view() -> RunView:
    """A run with a straggler."""
    return final_view(LATE)


def samples(view: RunView) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """By name and labels, as a server that reads the page has them."""
    text = generate_latest(registry_of(lambda: view, "1.2")).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_figures_are_those_of_the_screens(view: RunView) -> None:
    found = samples(view)
    job = ("job", "train.py")
    assert found["tuiadvisor_step_median_seconds", (job,)] == view.step.median_s
    (late,) = view.stragglers
    key = (("cause", late.cause), job, ("rank", "2"))
    assert found["tuiadvisor_straggler_loss_seconds", key] == late.loss_s_per_step
    assert found["tuiadvisor_verdict", (("decision", "tune"), job)] == 1
    assert sum(value for (name, _), value in found.items() if name == "tuiadvisor_verdict") == 1


def test_what_is_unknown_is_absent_and_what_is_nothing_is_zero(view: RunView) -> None:
    found = samples(view)
    names = {name for name, _ in found}
    assert view.efficiency is None or view.efficiency.mfu is None
    assert "tuiadvisor_mfu_ratio" not in names
    assert found["tuiadvisor_frames_lost_total", (("job", "train.py"),)] == 0
    unknown = {phase for phase, value in view.step.seconds.items() if value is None}
    shown = {dict(labels)["phase"] for name, labels in found if name == "tuiadvisor_phase_seconds"}
    assert unknown
    assert shown == set(view.step.seconds) - unknown


def test_a_large_job_has_series_of_those_that_stand_out_alone() -> None:
    late = final_view(Job(num_ranks=96, num_steps=60).with_faults(Fault("backward", (70,), 8 * MS)))
    assert len(late.ranks) > MAX_RANKS
    ranks = {dict(labels)["rank"] for name, labels in samples(late) if name == "tuiadvisor_rank_step_seconds"}
    assert "70" in ranks
    assert len(ranks) <= MAX_RANKS
    everybody = tuple(replace(row, is_outlier=True) for row in late.ranks)
    family = next(
        one
        for one in families(replace(late, ranks=everybody), "1")
        if one.name == "tuiadvisor_rank_step_seconds"
    )
    assert len(family.samples) == MAX_RANKS
    assert family.samples[0].labels["rank"] == "70"


def test_devices_are_named_as_dcgm_names_them_and_unknown_ones_are_absent(view: RunView) -> None:
    known = RankDevice(1, sm_active=0.75, clock_mhz=1410.0, utilization=1.0)
    found = samples(replace(view, rank_devices=(RankDevice(0, why="no device"), known, RankDevice(99, 0.5))))
    labels = (("host", view.ranks[1].host), ("job", "train.py"), ("rank", "1"))
    told = {name: value for (name, key), value in found.items() if "_device_" in name and key == labels}
    assert told == {
        "tuiadvisor_device_gpu_utilization_ratio": 1.0,
        "tuiadvisor_device_sm_active_ratio": 0.75,
        "tuiadvisor_device_sm_clock_hertz": 1.41e9,
    }
    assert len(told) == sum("_device_" in name for name, _ in found)  # of no other rank
    fields = {field.name for field in dataclasses.fields(RankDevice)}
    assert {attribute for _, _, attribute, _ in DEVICE_FIELDS} <= fields


def test_labels_from_outside_are_one_line_of_bounded_length(view: RunView) -> None:
    hostile = replace(view, run=replace(view.run, label='a"b\n# HELP x y\n\x1b[2J' + "z" * 9999))
    for _, labels in samples(hostile):
        job = dict(labels)["job"]
        assert job.startswith('a"b?# HELP')
        assert len(job) == MAX_LABEL


def documented() -> set[str]:
    """Names in the table of the page about them."""
    text = (DOCS / "prometheus.md").read_text()
    return {f"tuiadvisor_{name}" for name in re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)}


def test_the_documents_name_what_there_is_and_no_other(view: RunView) -> None:
    """The table all of it; dashboard and alerts nothing else."""
    shown = {name for name, _ in samples(view)}
    assert shown <= documented()
    from tuiadvisor.outlets import metrics

    specs = (*metrics._of_job(view), *metrics._of_ranks(view), *metrics._of_findings(view))
    assert {f"tuiadvisor_{spec[0]}" for spec in specs} <= documented()
    for file in ("alerts.yml", "grafana.json"):
        used = set(re.findall(r"\btuiadvisor_\w+", (DOCS / "prometheus" / file).read_text()))
        assert used
        assert used <= documented()
    json.loads((DOCS / "prometheus" / "grafana.json").read_text())


@pytest.mark.skipif(not PROMTOOL, reason="promtool (package prometheus) is not installed")
def test_promtool_finds_nothing_to_complain_of(view: RunView) -> None:
    page = generate_latest(registry_of(lambda: view, "1.2"))
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    rules = DOCS / "prometheus" / "alerts.yml"
    checked = subprocess.run([PROMTOOL, "check", "rules", rules], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr.decode()


def series(name: str, value: float, **labels: str) -> dict[str, str]:
    """One that a server has read for an hour, a minute apart."""
    told = ",".join(f'{key}="{one}"' for key, one in {"job": "train.py", **labels}.items())
    return {"series": f"tuiadvisor_{name}{{{told}}}", "values": f"{value}x60"}


def alarm(name: str, *raised: dict[str, str]) -> dict[str, object]:
    """What promtool has to find of a rule after an hour."""
    rules = (DOCS / "prometheus" / "alerts.yml").read_text().split("- alert: ")
    severity = next(re.findall(r"severity: (\w+)", rule)[0] for rule in rules if rule.startswith(f"{name}\n"))
    told = [{"exp_labels": {"job": "train.py", "severity": severity, **labels}} for labels in raised]
    return {"eval_time": "1h", "alertname": name, "exp_alerts": told}


@pytest.mark.skipif(not PROMTOOL, reason="promtool (package prometheus) is not installed")
@pytest.mark.parametrize("ended", [0, 1])
@pytest.mark.parametrize(
    ("here", "other"),
    [
        ({"instance": "a:9409"}, {"instance": "b:9409"}),
        # Files of one machine, `--label run=`, come with the instance of its node_exporter.
        ({"instance": "a:9100", "run": "1"}, {"instance": "a:9100", "run": "2"}),
    ],
    ids=["pages", "files"],
)
def test_two_trainings_of_one_script_are_told_apart_and_what_has_ended_alerts_nobody(
    tmp_path: Path, ended: int, here: dict[str, str], other: dict[str, str]
) -> None:
    """Both are `train.py`; the other one has nothing, and is under way or, where this one is not, has ended."""
    late = {"finding": "straggler", "severity": "critical", "ranks": "1", "pattern": "P1"}
    given = [
        series("straggler_loss_seconds", 0.02, rank="1", cause="data_wait", **here),
        *(series("step_mean_seconds", 0.1, **one) for one in (here, other)),
        series("goodput_ratio", 0.3, of="end_to_end", **here),
        *(series("finding", 1, **{**late, **here, "finding": id_}) for id_ in ("straggler", "hang")),
        series("ranks", 1, state="killed", **here),
        series("ended", ended, **here),
        series("ended", 1 - ended, **other),
    ]
    raised = [] if ended else [here]
    named = [{**one, "finding": "straggler", "ranks": "1"} for one in raised]
    low = [{**one, "of": "end_to_end"} for one in raised]
    tests = [
        alarm("TrainingStandsStill", *raised),
        alarm("TrainingCriticalFinding", *named),
        alarm("TrainingStragglerCostsTenth", *raised),
        alarm("TrainingGoodputLow", *low),
        alarm("TrainingLostRanks", here),
    ]
    asked = {"interval": "1m", "input_series": given, "alert_rule_test": tests}
    rules = (DOCS / "prometheus" / "alerts.yml").read_text()
    (tmp_path / "alerts.yml").write_text(re.sub(r"\n +annotations:\n +summary: .*", "", rules))
    document = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": [asked]}
    (tmp_path / "test.json").write_text(json.dumps(document))  # JSON is YAML
    words = [PROMTOOL, "test", "rules", str(tmp_path / "test.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not PROMTOOL, reason="promtool (package prometheus) is not installed")
def test_the_servers_configuration_of_the_page_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "prometheus.md").read_text(), re.DOTALL)
    assert "honor_labels: true" in block
    path = tmp_path / "prometheus.yml"
    path.write_text(block)
    words = [PROMTOOL, "check", "config", "--syntax-only", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_label_of_ones_own_is_on_each_figure(view: RunView, tmp_path: Path) -> None:
    """Two trainings of one script may write files on one machine: no sample is there twice."""
    parser = argparse.ArgumentParser()
    add_outlets(parser)
    kept = []
    for run in ("a", "b"):
        path = tmp_path / f"{run}.prom"
        options = parser.parse_args(["--metrics-file", str(path), "--label", f"run={run}"])
        with outlets_of(options) as told:
            told._latest = view
            write_file(told._registry, path)
            families = list(text_string_to_metric_families(path.read_text()))
        kept.append([(one.name, *sorted(one.labels.items())) for each in families for one in each.samples])
    assert kept[0]
    assert not set(kept[0]) & set(kept[1])
    assert [("run", "a")] * len(kept[0]) == [pair for one in kept[0] for pair in one[1:] if pair[0] == "run"]


@pytest.mark.parametrize(
    "words",
    [["run"], ["run="], ["__run=a"], ["1=a"], ["job=a"], ["rank=a"], ["le=1"], ["run=a", "run=b"]],
    ids=str,
)
def test_a_label_that_is_none_is_a_line(words: list[str], tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_outlets(parser)
    given = [each for word in words for each in ("--label", word)]
    options = parser.parse_args(["--metrics-file", str(tmp_path / "a.prom"), *given])
    with pytest.raises(TuiadvisorError, match="--label"), outlets_of(options):
        pass


def test_no_label_of_ours_is_free_for_others(view: RunView) -> None:
    used = {name for _, labels in samples(view) for name, _ in labels}
    assert used <= TAKEN
    assert {
        name for spec in (*_of_job(view), *_of_ranks(view), *_of_findings(view)) for name in spec[2]
    } <= TAKEN


def test_each_panel_shows_the_jobs_and_instances_that_were_chosen() -> None:
    board = json.loads((DOCS / "prometheus" / "grafana.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    chosen = [one["name"] for one in board["templating"]["list"] if one["type"] == "query"]
    assert chosen == ["job", "instance"]
    assert all(f'{name}=~"${name}"' in one for one in expressions for name in chosen)


def test_the_rate_of_a_run_that_has_ended_is_none(view: RunView) -> None:
    """Its median step is still that of the run; steps a second are of now."""
    names = {name for name, _ in samples(view)}
    over = {name for name, _ in samples(replace(view, ended="it has ended"))}
    assert names - over == {name for name in names if name.endswith("_per_second")}
    assert "tuiadvisor_steps_per_second" in names


def fetched(url: str, *, is_head: bool = False, **headers: str) -> tuple[int, str]:
    """(status, body)."""
    asked = urllib.request.Request(
        url,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        method="HEAD" if is_head else "GET",
    )
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.slow
def test_the_page_is_served_to_this_machine(view: RunView) -> None:
    server = MetricsServer(registry_of(lambda: view, "1.2"), "127.0.0.1", 0)
    try:
        status, body = fetched(server.url)
        assert (status, "tuiadvisor_step_median_seconds" in body) == (200, True)
        assert fetched(server.url, Accept="application/openmetrics-text; version=1.0.0")[1].endswith(
            "# EOF\n"
        )
        assert fetched(server.url, is_head=True) == (200, "")
        assert fetched(server.url.removesuffix("/metrics"))[0] == 404
        assert fetched(server.url, Host="pages.example.com")[0] == 403
    finally:
        server.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(server.url, timeout=5)


@pytest.mark.slow
def test_with_a_token_only_its_holders_read_it(view: RunView) -> None:
    server = MetricsServer(registry_of(lambda: view, "1.2"), "127.0.0.1", 0, token="a-long-enough-word")
    try:
        assert fetched(server.url)[0] == 401
        assert fetched(server.url, is_head=True) == (401, "")
        assert fetched(server.url, Authorization="Bearer a-long-enough-wort")[0] == 401
        assert fetched(server.url, Authorization="Bearer \u00e9")[0] == 401
        assert fetched(server.url, Authorization="Bearer a-long-enough-word")[0] == 200
    finally:
        server.close()


def test_other_machines_are_let_in_by_token_alone(view: RunView) -> None:
    with pytest.raises(TuiadvisorError, match="--metrics-token"):
        MetricsServer(registry_of(lambda: view, "1.2"), "0.0.0.0", 0)  # noqa: S104
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("127.0.0.1.example.com")


@pytest.mark.slow
def test_a_port_that_is_taken_is_a_line(view: RunView) -> None:
    server = MetricsServer(registry_of(lambda: view, "1.2"), "127.0.0.1", 0)
    try:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(TuiadvisorError, match=f"{port}: Address already in use"):
            MetricsServer(registry_of(lambda: view, "1.2"), "127.0.0.1", port)
    finally:
        server.close()


def test_the_file_is_whole_and_goes_with_the_session(view: RunView, tmp_path: Path) -> None:
    path = tmp_path / "run.prom"
    with Outlets(Wishes(file=path)):
        assert path.exists()
        write_file(registry_of(lambda: view, "1.2"), path)
        assert path.stat().st_mode & 0o777 == 0o644
        assert [entry.name for entry in tmp_path.iterdir()] == ["run.prom"]
    assert not path.exists()


@pytest.mark.slow
def test_a_file_that_cannot_be_renewed_goes(
    view: RunView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up: figures of the past would be read as those of now, for as long as the session lasts."""
    path, is_full = tmp_path / "run.prom", True
    monkeypatch.setattr(outlets, "FILE_S", 0.01)

    def written(registry: CollectorRegistry, to: Path) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_file(registry, to)

    with Outlets(Wishes(file=path)) as told:
        monkeypatch.setattr(outlets, "write_file", written)
        assert path.exists()
        told.follow(lambda: view)
        wait_until(lambda: not path.exists(), "a file that goes")
        is_full = False
        wait_until(path.exists, "a file that is back")
    assert told.said == [f"--metrics-file {path}: No space left on device"]


def test_a_file_of_the_users_is_never_overwritten(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    with pytest.raises(TuiadvisorError, match="holds something else"):
        Outlets(Wishes(file=script))
    assert script.read_text() == "print(1)\n"
    with pytest.raises(TuiadvisorError, match="No such file"):
        Outlets(Wishes(file=tmp_path / "no" / "run.prom"))


@pytest.mark.slow
def test_who_sends_a_byte_now_and_then_holds_no_place_for_long(
    view: RunView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else sixteen of them shut out the server that collects the metrics for as long as they like."""
    monkeypatch.setattr(page, "WHOLE_S", 1.0)
    server = MetricsServer(registry_of(lambda: view, "1.2"), "127.0.0.1", 0)
    address = ("127.0.0.1", urlsplit(server.url).port)
    try:
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(socket.create_connection(address)) for _ in range(page.MAX_READERS)]
            deadline_s = time.monotonic() + PATIENCE_S
            while not _answers(server.url):
                assert time.monotonic() < deadline_s
                for each in slow:
                    with contextlib.suppress(OSError):  # it was hung up on
                        each.sendall(b"G")
                time.sleep(0.2)
    finally:
        server.close()


def _answers(url: str) -> bool:
    try:
        return fetched(url)[0] == 200
    except OSError:
        return False


@pytest.mark.slow
def test_an_accept_header_that_is_none_gets_the_plain_page(view: RunView) -> None:
    server = MetricsServer(registry_of(lambda: view, "1.2"), "127.0.0.1", 0)
    try:
        status, body = fetched(server.url, Accept="application/openmetrics-text; version=zz;q=abc,,;;=")
        assert (status, "tuiadvisor_step_median_seconds" in body) == (200, True)
    finally:
        server.close()
