"""A recording made by an enemy: every text in it is an attack, and every command that reads it shows plain letters.

Escape sequences for the terminal, markup for the screens and for HTML, letters that turn the line around, names that
lead out of the folder.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from snapshot import views
from synthetic_run import Fault, Job, encoded, frames

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.cli import main
from tuiadvisor.stream.frames import Frame, FrameKind, encode
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.stream.source import FileSource
from tuiadvisor.tui.control.app import Screens

EVIL = (
    "\x1b[2J\x1b]0;owned\x07\x1bP+q\x1b\\\x9b31m\x85\u202eeludom\u2066\u200b\r\n\x00\x7f"
    "<script>alert(1)</script>'\"><img src=x onerror=y>[@click=app.quit]x[/][bold red]|`](javascript:1)"
)
WAY_OUT = "../../../../tmp/tuiadvisor-evil\x1b[2J"
JOB = Job(num_ranks=2, ranks_per_host=1, num_steps=80, faults=(Fault("backward", (1,), 0.015, onset=20),))
HOSTS = {"node0": EVIL, "node1": WAY_OUT}
ALLOWED_CONTROL = "\n"


def poisoned(value: object, name: str = "") -> object:
    """The payload with every text replaced, the host's too; what a state is has to stay one of our words."""
    if isinstance(value, dict):
        return {key: poisoned(entry, key) for key, entry in value.items()}
    if isinstance(value, list):
        return [poisoned(entry, name) for entry in value]
    if isinstance(value, str) and name == "host":
        return HOSTS[value]
    return EVIL if isinstance(value, str) and name not in {"state", "p"} else value


def hostile_frames() -> list[bytes]:
    """A real-shaped run with a straggler, and everything else an agent or a hub may say."""
    run = encode(
        FrameKind.RUN, "hub", 0, 0,
        {"schema": 1, "label": EVIL, "command": EVIL, "hub_host": WAY_OUT, "tuiadvisor": EVIL},
    )  # fmt: skip
    result = [run]
    for frame in frames(JOB):
        payload = poisoned(frame.payload) if frame.kind is FrameKind.HELLO else frame.payload
        if frame.kind is FrameKind.HELLO:
            assert isinstance(payload, dict)
            payload |= {"boot_id": EVIL, "python": EVIL, "platform": EVIL, "driver": EVIL, "gpus": [EVIL]}
            for entry in payload["ranks"]:
                texts = (
                    "python",
                    "cuda",
                    "nccl",
                    "git_commit",
                    "device_uuid",
                    "schedule",
                    "attach_way",
                    "core",
                    "core_why",
                )
                entry.update(dict.fromkeys(texts, EVIL))
                entry["device"] = "cpu"  # on a device whose clock was not seen there is nothing to say
                entry.update({"parallel": {EVIL: 2, "dp": 2}, "pipeline": {EVIL: 1}, "hooks": {EVIL: EVIL}})
        assert isinstance(payload, dict)
        result.append(encoded(Frame(frame.kind, frame.source, frame.seq, frame.time_ns, payload)))
    seq, time_ns = 900, 10**10
    gpu = {"name": EVIL, "uuid": EVIL, "reasons": [EVIL], "throttle": [EVIL], "index": 0, "sm_mhz": 1e9}
    status = [
        {"rank": 0, "state": EVIL, "detail": EVIL, "phase": EVIL, "thread": EVIL},
        {"rank": 1, "state": "killed", "detail": EVIL, "step": 79},
        {"rank": 7, "state": "refused", "detail": EVIL},
    ]
    more: list[tuple[FrameKind, dict[str, object]]] = [
        (FrameKind.HOST, {"host": EVIL, "mono_ns": time_ns, "cpu": 0.5, "gpus": [gpu, gpu]}),
        (FrameKind.STATUS, {"host": EVIL, "mono_ns": time_ns, "ranks": status}),
        (FrameKind.BYE, {"reason": EVIL}),
    ]
    for kind, payload in more:
        seq += 1
        result.append(encode(kind, "node0/1/1", seq, time_ns, payload))
    for number, what in enumerate((EVIL, "agent silent", "bad frames", "peers refused", "not recorded"), 1):
        gap: dict[str, object] = {"what": what, "source": EVIL, "why": EVIL, "num_frames": 3}
        result.append(encode(FrameKind.GAP, "hub", number, time_ns, gap))
    return result


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "run.tuirec"
    first, *rest = hostile_frames()
    writer = RecordingWriter(path, first)
    for data in rest:
        writer.append(data)
    writer.close()
    return path


def odd_letters(text: str) -> set[str]:
    """What a terminal might obey."""
    return {letter for letter in text if not letter.isprintable() and letter not in ALLOWED_CONTROL}


READERS = (
    ["info", "{run}"],
    ["info", "{run}", "--json"],
    ["diagnose", "{run}"],
    ["diagnose", "{run}", "--json"],
    ["replay", "{run}"],
    ["compare", "{run}", "{run}"],
    ["compare", "{run}", "{run}", "--json"],
    ["advise", "{run}"],
    ["advise", "{run}", "--json"],
    ["advise", "{run}", "--why", "idle"],
    ["advise", "{run}", "-o", "{new}/session.md"],
    ["scale", "{run}"],
    ["runs", "{folder}"],
    ["report", "{run}", "-o", "{new}/report.html"],
    ["report", "{run}", "-o", "{new}/report.md"],
    ["export", "{run}", "--format", "chrome-trace", "-o", "{new}/trace.json"],
    ["export", "{run}", "--format", "parquet", "-o", "{new}/parquet"],
    ["trim", "{run}", "--steps", "10:70", "-o", "{new}/part.tuirec"],
    ["anonymize", "{run}", "-o", "{new}/nobody.tuirec"],
)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", READERS, ids=lambda arguments: "-".join(arguments[::2])[:40])
def test_no_command_says_to_a_terminal_what_a_stranger_wrote(
    recording: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    """Letters only, on both streams and in every text that is written, and nothing outside of the folder asked for."""
    if "parquet" in arguments:
        pytest.importorskip("pyarrow")
    if "scale" in arguments:
        pytest.importorskip("scipy")
    new = tmp_path / "new"
    new.mkdir()
    monkeypatch.chdir(tmp_path)
    places = {"run": str(recording), "folder": str(recording.parent), "new": str(new)}
    before = {*Path("/tmp").glob("tuiadvisor-evil*"), *recording.parent.iterdir()}  # noqa: S108
    try:
        code = main([argument.format(**places) for argument in arguments])
    except SystemExit as error:
        code = int(error.code or 0)
    said = capfd.readouterr()
    assert code in (0, 1), said.err
    assert set() == odd_letters(said.out) | odd_letters(said.err)
    if "--json" in arguments:
        json.loads(said.out)
    after = {*Path("/tmp").glob("tuiadvisor-evil*"), *recording.parent.iterdir()}  # noqa: S108
    assert before == after
    assert [] == [path for path in tmp_path.iterdir() if path != new]
    for path in new.rglob("*"):
        assert set() == odd_letters(path.name)
        if path.suffix in {".html", ".md", ".json"}:
            check_document(path)


def check_document(path: Path) -> None:
    """No letter that turns a line around, no markup of a stranger's, no line that begins where he says."""
    text = path.read_text()
    assert set() == odd_letters(text)
    if path.suffix == ".html":
        assert "<script" not in text.lower()
        assert "<img" not in text.lower()
    elif path.suffix == ".md":
        assert [] == [line for line in text.splitlines() if line.lstrip().startswith(("<script", "<img"))]
    else:
        json.loads(text)


@pytest.mark.slow
async def test_screens_draw_what_a_stranger_wrote_as_letters(recording: Path) -> None:
    """Every screen, with a rank, a finding and the log open: printable cells, and none with an action of his."""
    advisor, source = Advisor(), FileSource(recording)
    while batch := source.read(0):
        for data in batch:
            advisor.feed(data)
    source.close()
    app = Screens(views.FakeFeed(views.live(advisor.view())), theme="dark", ascii_only=False)
    num_shown = 0
    async with app.run_test(size=(160, 45)) as pilot:
        for keys in (
            ["1"],
            ["enter"],
            ["escape", "2"],
            ["enter"],
            ["escape", "3"],
            ["4"],
            ["L"],
            ["escape", "x"],
        ):
            await pilot.press(*keys)
            for row in range(app.size.height):
                for segment in app.canvas.render_line(row):
                    assert set() == odd_letters(segment.text)
                    assert "\n" not in segment.text
                    assert segment.style is None or not (segment.style.link or segment.style.meta)
                    num_shown += "owned" in segment.text
    assert num_shown


def test_a_files_own_name_is_not_obeyed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Files of others lie in shared folders: their names reach the terminal as letters, in lists and in errors."""
    odd = tmp_path / "run\x1b[2J\u202e.tuirec"
    first, *rest = hostile_frames()
    writer = RecordingWriter(odd, first)
    for data in rest:
        writer.append(data)
    writer.close()
    (tmp_path / "no\x1b]0;owned\x07run.tuirec").write_bytes(os.urandom(100))
    for arguments in (
        ["runs", str(tmp_path)],
        ["info", str(odd)],
        ["diagnose", str(odd)],
        ["info", str(tmp_path / "no\x1b]0;owned\x07run.tuirec")],
        ["diagnose", str(tmp_path / "\x1b[2Jmissing")],
    ):
        assert main(arguments) in (0, 1, 2)
        said = capfd.readouterr()
        assert said.out or said.err
        assert set() == odd_letters(said.out) | odd_letters(said.err), arguments
