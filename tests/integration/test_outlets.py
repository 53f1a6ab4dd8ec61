"""`record --metrics --on-finding` beside a real training: the page and the command hear of its fault."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import PATIENCE_S
from training import running

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def test_a_late_rank_is_on_the_page_and_told_once(tmp_path: Path) -> None:
    heard = tmp_path / "heard.jsonl"
    tell = tmp_path / "tell.py"
    tell.write_text("import sys\nopen(sys.argv[1], 'a').write(sys.stdin.read())\n")
    fault = ("--fault", "slow-data", "--fault-rank", "1", "--delay-ms", "40")
    with running(2, "--step-ms", "20", "--seconds", "3000", *fault) as (training, _):
        command = [sys.executable, "-m", "tuiadvisor", "record", "-o", str(tmp_path / "run.tuirec")]
        command += ["--pid", str(training.pid), "--metrics", "127.0.0.1:0"]
        command += ["--on-finding", f"{sys.executable} {tell} {heard}"]
        recording = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            assert recording.stderr is not None
            line = recording.stderr.readline()
            (url,) = re.findall(r"http://\S+", line)
            page = _until(lambda: _page(url), 'tuiadvisor_straggler_loss_seconds{cause="data_wait"')
            assert 'tuiadvisor_verdict{decision="tune"' in page
            _until(lambda: heard.read_text() if heard.exists() else "", '"straggler"')
        finally:
            recording.send_signal(signal.SIGINT)
            recording.communicate(timeout=PATIENCE_S)
    told = [json.loads(text) for text in heard.read_text().splitlines()]
    # Of a crowded machine more is told, and before it.
    told = [one for one in told if one["finding"]["id"] == "straggler"]
    assert [("opened", [1])] == [(one["event"], one["finding"]["ranks"]) for one in told[:1]]
    opened = [tuple(one["finding"]["ranks"]) for one in told if one["event"] == "opened"]
    assert len(opened) == len(set(opened)) or any(one["event"] == "closed" for one in told)


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def _until(look: Callable[[], str], what: str) -> str:
    deadline_s = time.monotonic() + PATIENCE_S
    while what not in (found := look()):
        assert time.monotonic() < deadline_s, found[-2000:]
        time.sleep(0.2)
    return found
