"""What is caught so that something else goes on has its traceback in the log; the screens have no line of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import PATIENCE_S, wait_until
from test_cli_footprint import on_terminal
from test_log import LINE, messages

from tuiadvisor import log, loglines
from tuiadvisor.agent.agent import Agent
from tuiadvisor.agent.crew import Crew
from tuiadvisor.app.desk import Desk
from tuiadvisor.app.feed import Feed
from tuiadvisor.app.row_reader import RowReader
from tuiadvisor.cli import main, rules
from tuiadvisor.events import RankState
from tuiadvisor.launch.agents import Launched
from tuiadvisor.stream.keys import make_session_keys
from tuiadvisor.tui.contract.desk import ListRuns


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """A log at its loudest; the function reads it."""
    log._begin(log.DEBUG, loglines.to_file("test", str(tmp_path / "log")))
    yield (tmp_path / "log").read_text
    log.stop()


def fail(*_: object) -> None:
    raise ZeroDivisionError("here it broke")


def holds_traceback(text: str, said: str) -> bool:
    """The sentence, then a traceback that names this file's line and the error."""
    return any(said in line for line in messages(text)) and all(
        f"    {part}" in text for part in ("Traceback (most", '  File "', "ZeroDivisionError: here it broke")
    )


def test_a_command_of_the_desk(
    logged: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screens show one sentence, the log shows where."""
    desk = Desk(None, tmp_path)
    monkeypatch.setattr(desk, "_list", fail)
    desk.command(ListRuns())
    desk._commands.put(None)
    monkeypatch.setattr(desk._stopped, "is_set", desk._commands.empty)
    desk._obey_all()
    assert holds_traceback(logged(), "the command list runs failed")


def test_a_row_of_the_list(logged: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that breaks the reader."""
    reader = RowReader(tuple, lambda *_: None)
    monkeypatch.setattr(reader, "_view", fail)
    reader._read("run.tuirec")
    assert holds_traceback(logged(), "run.tuirec broke the reader of rows")


def test_a_feed(logged: Callable[[], str]) -> None:
    """The thread between a source and the screens."""

    class Broken(Feed):
        _cycle = fail

        def _phase(self) -> tuple[str, None]:
            return "failed", None

    feed = Broken(SimpleNamespace())
    feed._run()
    assert isinstance(feed.failure, ZeroDivisionError)
    assert holds_traceback(logged(), "the feed ends by a failure")


def test_a_rank_that_the_agent_fails_on(logged: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on; its line in the log has number and process, and its change of state."""
    agent = Agent.__new__(Agent)
    rank = SimpleNamespace(
        rank=3,
        claim=None,
        contest=str,
        state=RankState.FOUND,
        detail="",
        is_over=False,
        process=SimpleNamespace(pid=7),
    )
    agent.links = [rank]  # type: ignore[list-item]
    monkeypatch.setattr(agent, "_advance_one", fail)
    assert agent._advance(0)
    text = logged()
    assert holds_traceback(text, "rank 3 (process 7): the agent failed on it")
    assert (
        "rank 3 (process 7): FOUND -> REFUSED: the agent failed on it: ZeroDivisionError"
        in messages(text)[-1]
    )


def test_a_thread_of_the_crew(logged: Callable[[], str]) -> None:
    """Whether anybody asks for the result or not."""
    crew = Crew()
    assert isinstance(crew.submit(fail).exception(PATIENCE_S), ZeroDivisionError)
    crew.finish()
    assert holds_traceback(logged(), "a thread of the crew failed")


def test_a_bug_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes out as itself, as without a log."""
    monkeypatch.setattr(rules, "run", fail)
    with pytest.raises(ZeroDivisionError):
        main(["rules", "list", "--log", str(tmp_path / "log")])
    assert holds_traceback((tmp_path / "log").read_text(), "ends by a bug")


BACKGROUND = """
import sys
from tuiadvisor import log
from tuiadvisor.app.background import run_in_background
def work(announce):
    announce("at work")
    raise ZeroDivisionError("here it broke")
log.start("record", 1, sys.argv[2] or None, environ={})
run_in_background(work, sys.argv[1])
"""


@pytest.mark.parametrize("has_file", [True, False])
def test_the_background_process(has_file: bool, tmp_path: Path) -> None:
    """Its lines leave the terminal with it: into the log, or beside its other words."""
    words, file = tmp_path / "words", tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", BACKGROUND, str(words), str(file) if has_file else ""],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert "" == done.stderr

    def said() -> str:
        return file.read_text() if has_file else words.read_text().partition("\nTraceback")[0]

    # It let go of the terminal before it fails, so that the terminal's end is not its own.
    wait_until(lambda: holds_traceback(said(), "the background process ends by a bug"), "its traceback")


@pytest.mark.slow
@pytest.mark.parametrize("verbose", ["-v", "-vv"])
def test_screens_show_no_line_and_the_file_is_named_when_they_are_gone(
    verbose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording that cannot be opened: its line and the log's name stand below the screens, in the log is why."""
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    (tmp_path / "run.tuirec").write_bytes(b"TUIREC and no recording")
    ended, shown = on_terminal(
        [sys.executable, "-m", "tuiadvisor", "replay", str(tmp_path / "run.tuirec"), verbose]
    )
    assert 2 == ended
    (file,) = (state / "tuiadvisor").iterdir()
    assert file.name.startswith("replay-")
    text = file.read_text()
    assert "the screens could not be opened" in messages(text)
    assert "    Traceback (most" in text
    left, _, after = shown.decode().rpartition("\x1b[?1049l")
    assert f"the log is in {file}" in " ".join(after.split())  # its name may have a row of its own
    assert LINE.search(shown.decode()) is None
    assert "Traceback" not in left


def test_lines_of_an_agent_elsewhere_come_back_and_are_no_reason(logged: Callable[[], str]) -> None:
    """What it says of its end is still its last word; a flood of its host is cut."""
    script = (
        "echo 'tuiadvisor: no ranks there' >&2; "
        "seq -f '0: tuiadvisor-log: INFO agent@node1[5] agent.agent: line %.0f' 5000 >&2; exit 2"
    )
    agent = Launched("node1", ["sh", "-c", script], lambda *_: None)
    agent.process.wait(PATIENCE_S)
    assert "no ranks there" == agent.failure()
    agent._listener.join(PATIENCE_S)
    agent.close(0.0)
    said = messages(logged())
    assert "node1: agent@node1[5] agent.agent: line 1" in said
    assert 900 < len(said) < 1900
    assert any("node1: 1 lines left out" in line for line in said)


def test_no_key_is_in_a_line(logged: Callable[[], str]) -> None:
    """Not even of a bug that would log them."""
    keys = make_session_keys(2)
    log.Logger("tuiadvisor.x").info("%s %s", keys.hub.document(), [key.document() for key in keys.agents])
    log.Logger("tuiadvisor.x").info("%s", keys.viewer.document())
    secret = [keys.hub.secret, keys.viewer.secret, *(key.secret for key in keys.agents)]
    assert 9 < logged().count("***")
    assert [] == [key for key in secret if key in logged()]
