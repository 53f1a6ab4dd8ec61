"""Anonymize, trim and export on a real training's recording: nothing of this machine is left, verdicts stay."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S
from rank_loops import Document, diagnosis_once, is_late
from training import running

from tuiadvisor.stream.frames import decode
from tuiadvisor.stream.recording import RecordingReader

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def tuiadvisor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    done = subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[int]]:
    """A 4-rank training with a slow backward on rank 1 until that is told, and the ranks' process ids."""
    folder = tmp_path_factory.mktemp("run")
    fault = ("--step-ms", "20", "--fault", "slow-backward", "--fault-rank", "1", "--delay-ms", "60")
    with running(4, *fault) as (training, ranks):

        def is_told(document: Document) -> bool:
            return is_late(document, 1, "backward") and (document["run"]["last_step"] or 0) >= 150

        diagnosis_once([training.pid], folder, is_told)
        return str(folder / "run"), [rank.pid for rank in ranks]


def opened(path: str) -> str:
    """Every frame's source and payload as text, but for packed numbers: in base64 a short host name comes by chance."""
    with RecordingReader(path) as reader:
        frames = [decode(located.data) for located in reader.frames()]
    text = "".join(json.dumps([frame.source, frame.payload]) for frame in frames)
    return re.sub(r'"p": "[A-Za-z0-9+/=]*"', '"p": ""', text)


def places_of_numbers(path: str) -> dict[str, set[int]]:
    """The whole numbers at each place of the payloads, whatever their index in lists."""
    places: dict[str, set[int]] = {}

    def walk(value: object, place: str) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, f"{place}.{name}")
        elif isinstance(value, list):
            for inner in value:
                walk(inner, place)
        elif isinstance(value, int):
            places.setdefault(place, set()).add(value)

    with RecordingReader(path) as reader:
        for located in reader.frames():
            frame = decode(located.data)
            walk(frame.payload, str(frame.kind))
    return places


def test_nothing_of_this_machine_is_left(recording: tuple[str, list[int]], tmp_path: Path) -> None:
    """Host, folders, script, options, process ids are gone from every payload; rank and phase are the same."""
    path, pids = recording
    shared = str(tmp_path / "shared.tuirec")
    tuiadvisor("anonymize", path, "-o", shared)
    before, after = opened(path), opened(shared)
    folders = [part for part in Path(__file__).resolve().parts if len(part) > 3]
    secrets = {socket.gethostname(), "--fault-rank", "train.py", os.uname().release, *folders}
    told = {
        secret for secret in secrets if re.search(rf"\b{re.escape(secret)}(?!\w)", before) or secret in before
    }
    assert {"--fault-rank", "train.py"} <= told
    assert [] == [secret for secret in told if re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", after)]
    # A count or a time may be the number of one rank's process by chance; what holds process ids holds every rank's.
    assert any(set(pids) <= seen for seen in places_of_numbers(path).values())
    assert [] == [place for place, seen in places_of_numbers(shared).items() if set(pids) <= seen]
    texts = re.findall(r'"(?:[^"\\\\]|\\\\.)*"', after)
    assert [] == [
        text for text in texts if any(re.search(rf"(?<![\w.]){pid}(?![\w.])", text) for pid in pids)
    ]
    assert f"/home/{getpass.getuser()}" not in after
    documents = [json.loads(tuiadvisor("diagnose", name, "--json").stdout) for name in (path, shared)]
    facts = [
        (
            one["verdict"]["finding"],
            [(found["id"], found["ranks"], found["phase"]) for found in one["findings"]],
            one["step"],
        )
        for one in documents
    ]
    assert facts[0] == facts[1]
    assert ("straggler", [1]) == (facts[0][0], facts[0][1][0][1])


def test_a_part_names_the_same_rank(recording: tuple[str, list[int]], tmp_path: Path) -> None:
    """Some of the steps cut out: smaller, sound, and the straggler is the same."""
    path, _ = recording
    part = str(tmp_path / "part.tuirec")
    tuiadvisor("trim", path, "--steps", "30:130", "-o", part)
    document = json.loads(tuiadvisor("diagnose", part, "--json").stdout)
    named = [entry["rank"] for entry in document["stragglers"]["ranks"]]
    assert ("straggler", [1]) == (document["verdict"]["finding"], named)
    info = json.loads(tuiadvisor("info", part, "--json").stdout)
    assert (30, 130, 404) == tuple(info["steps"][name] for name in ("first_step", "last_step", "rank_steps"))
    assert 0 == info["losses"]["frames_lost"] + info["damage"]["bad_bytes"]


def test_exports_hold_every_rank_step(recording: tuple[str, list[int]], tmp_path: Path) -> None:
    """As many rank-steps as the recording has, in tables and in the trace; most arrows leave the straggler."""
    parquet = pytest.importorskip("pyarrow.parquet")
    path, _ = recording
    expected = json.loads(tuiadvisor("info", path, "--json").stdout)["steps"]["rank_steps"]
    tuiadvisor("export", path, "--format", "parquet", "-o", str(tmp_path / "tables"))
    steps = parquet.read_table(tmp_path / "tables" / "steps.parquet")
    assert expected == steps.num_rows
    assert {0, 1, 2, 3} == set(steps["rank"].to_pylist())
    assert 0 == steps["begin_time"].null_count
    tuiadvisor("export", path, "--format", "chrome-trace", "-o", str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert expected == sum(event.get("cat") == "step" for event in events)
    arrows = [event["tid"] - 1 for event in events if event["ph"] == "s"]
    assert arrows.count(1) > 0.5 * len(arrows) > 20  # on a busy machine another rank truly is last at times
    assert all(event["ts"] >= 0 for event in events if "ts" in event)
