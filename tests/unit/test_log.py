"""-v, --log and TUIADVISOR_LOG: who asks gets lines, nobody else does, and no file becomes a way in."""

from __future__ import annotations

import argparse
import ast
import logging
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from tuiadvisor import log, loglimits, loglines
from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError

ROOT = Path(__file__).parents[2]
LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) (\w+)\[(\d+)\] ([\w.]+): (.*)"
)
LIST = ["rules", "list"]


@pytest.fixture(autouse=True)
def _ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(log.VARIABLE, raising=False)
    yield
    log.stop()


def command(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command line of ours as a user's shell runs it."""
    return subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, env={**os.environ, **(env or {})},
    )  # fmt: skip


def messages(text: str) -> list[str]:
    """What each line says; all must be lines of ours."""
    found = [LINE.fullmatch(line) for line in text.splitlines() if not line.startswith(("#", "    "))]
    assert None not in found, text
    return [line[5] for line in found if line]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["-v", *LIST], ["rules", "-v", "list"], [*LIST, "-v"], ["-v", "rules", "list", "-v"]],
    ids=" ".join,
)
def test_v_writes_to_standard_error_wherever_it_stands(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Standard output is the same to the byte."""
    assert 0 == main(LIST)
    plain = capfd.readouterr()
    assert "" == plain.err
    assert 0 == main(arguments)
    logged = capfd.readouterr()
    assert plain.out == logged.out
    assert "ends with code 0" == messages(logged.err)[-1]


@pytest.mark.parametrize("before", [True, False])
def test_a_file_is_for_its_owner_alone_and_is_appended_to(
    before: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """0600 whatever the umask or the file says; nothing on either stream."""
    file = tmp_path / "log"
    given = ["--log", str(file)]
    old = os.umask(0)
    try:
        assert 0 == main([*given, *LIST] if before else [*LIST, *given])
    finally:
        os.umask(old)
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    once = file.read_text()
    assert once.startswith(loglines.HEADER.decode())
    file.chmod(0o644)
    assert 0 == main([*given, *LIST])
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert 2 * len(messages(once)) == len(messages(file.read_text()))
    assert 1 == file.read_text().count("#")
    assert "" == capfd.readouterr().err


@pytest.mark.parametrize(
    ("verbosity", "option", "variable", "level", "name"),
    [
        (0, None, "", None, None),
        (0, None, "of_env", log.INFO, "of_env"),
        (0, None, "debug:of_env", log.DEBUG, "of_env"),
        (0, None, "info:of_env", log.INFO, "of_env"),
        (2, None, "info:of_env", log.DEBUG, "of_env"),
        (1, None, "debug:of_env", log.INFO, "of_env"),
        (0, "given", "debug:of_env", log.INFO, "given"),
        (2, "given", "", log.DEBUG, "given"),
        (3, None, "", log.DEBUG, ""),
    ],
)
def test_options_come_before_the_variable(  # noqa: PLR0917
    verbosity: int, option: str | None, variable: str, level: int | None, name: str | None,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Level and place each; -v writes where the variable says."""
    monkeypatch.chdir(tmp_path)
    assert "" == log.start("test", verbosity, option, environ={log.VARIABLE: variable})
    assert (level is not None) == log.is_on()
    assert (level or log.OFF) == log._held.level
    assert sorted(filter(None, [name])) == sorted(path.name for path in tmp_path.iterdir())


def bad_places(folder: Path) -> dict[str, Path]:
    """What no log may be written to."""
    (folder / "target").touch()
    (folder / "link").symlink_to(folder / "target")
    (folder / "dangling").symlink_to(folder / "new")
    os.mkfifo(folder / "fifo")
    (folder / "keys").write_text("ssh-ed25519 AAAA\n")
    (folder / "folder").mkdir()
    names = ("link", "dangling", "fifo", "keys", "folder", "missing/log")
    return {name: folder / name for name in names} | {"device": Path("/dev/null")}


@pytest.mark.parametrize("way", ["--log", log.VARIABLE])
@pytest.mark.parametrize("name", ["link", "dangling", "fifo", "keys", "folder", "missing/log", "device"])
def test_what_is_no_log_of_ours_is_refused_in_one_line(
    way: str, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code 2, and the command has not begun; the file is as before."""
    place = bad_places(tmp_path)[name]
    if way == log.VARIABLE:
        monkeypatch.setenv(log.VARIABLE, f"debug:{place}")
    assert 2 == main([*LIST, *(["--log", str(place)] if way == "--log" else [])])
    said = capfd.readouterr()
    assert "" == said.out
    assert 1 == said.err.count("\n")
    assert said.err.startswith(f"tuiadvisor rules: {place}: the log cannot be written: ")
    assert "" == (tmp_path / "target").read_text()
    assert "ssh-ed25519 AAAA\n" == (tmp_path / "keys").read_text()
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Even where we could write it."""
    file = tmp_path / "log"
    file.touch(0o666)
    os.chown(file, 65534, 65534)
    with pytest.raises(TuiadvisorError, match="belongs to somebody else"):
        loglines.to_file("test", str(file))
    assert "" == file.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- 2>&-"])
def test_closed_standard_streams(closed: str, tmp_path: Path) -> None:
    """-v fails nothing; a file is written, by a descriptor that no child takes for a stream of its own."""
    to_stderr, to_file = (
        subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "tuiadvisor", *LIST, *given],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )
        for given in (["-v"], ["--log", str(tmp_path / "log")])
    )  # fmt: skip
    assert (0, 0) == (to_stderr.returncode, to_file.returncode)
    assert "ends with code 0" == messages((tmp_path / "log").read_text())[-1]
    low = os.dup(0)
    os.close(0)
    try:
        lines = loglines.to_file("test", str(tmp_path / "low"))
    finally:
        os.dup2(low, 0)
        os.close(low)
    assert lines.descriptor > 2
    lines.close()


def test_a_full_disk_ends_no_command(tmp_path: Path) -> None:
    """A log that takes nothing more is only said to have lost lines."""
    lines = loglines.to_file("test", str(tmp_path / "log"))
    log._begin(log.INFO, lines)
    with Path("/dev/full").open("wb") as full:
        kept = os.dup(lines.descriptor)
        os.dup2(full.fileno(), lines.descriptor)
        log.Logger("tuiadvisor.x").info("lost")
        os.dup2(kept, lines.descriptor)
        os.close(kept)
    log.Logger("tuiadvisor.x").info("kept")
    first, second = messages((tmp_path / "log").read_text())
    assert first.startswith("1 lines left out")
    assert "kept" == second


def test_nobody_waits_for_a_reader_that_has_stopped() -> None:
    """A pipe that is full takes nothing, and says later what it did not get."""
    reading, writing = os.pipe()
    lines = loglines.to_descriptor("test", writing)
    log._begin(log.INFO, lines)
    for _ in range(1000):
        log.Logger("tuiadvisor.x").info("x" * 1000)
    lost = lines._num_lost
    assert lost > 0
    os.read(reading, 1 << 20)
    log.Logger("tuiadvisor.x").info("again")
    assert messages(os.read(reading, 1 << 20).decode())[-2:] == [
        f"{lost} lines left out: too many at once, or nobody took them",
        "again",
    ]
    log.stop()
    os.close(reading)


def test_a_flood_is_a_number(tmp_path: Path) -> None:
    """Two thousand lines at once, then a few a second, whatever is said."""
    log._begin(log.INFO, loglines.to_file("test", str(tmp_path / "log")))
    for number in range(10_000):
        log.Logger("tuiadvisor.x").info("%d", number)
    log.stop()
    said = messages((tmp_path / "log").read_text())
    assert loglimits.BURST_LINES <= len(said) < loglimits.BURST_LINES + 1000
    assert (
        sum(int(line.partition(" ")[0]) for line in said if "left out" in line)
        + len([line for line in said if line.isdigit()])
        == 10_000
    )
    count = loglimits.Count()
    assert [1, 0, 0] == [count.add(), count.add(), count.add(5)]


def test_no_text_of_others_looks_like_a_line_of_ours(tmp_path: Path) -> None:
    """Newlines are indented, controls are "?", what is long is cut, secrets that were named are left out."""
    log._begin(log.INFO, loglines.to_file("test", str(tmp_path / "log")))
    log.hide("s3cret", "")
    hostile = "a\n2026-01-01T00:00:00.000Z INFO agent[1] agent: fake\x1b[2J s3cret " + "x" * 5000
    log.Logger("tuiadvisor.x").info("%s", hostile)
    _, first, second = (tmp_path / "log").read_bytes().splitlines()
    assert first.endswith(b" tuiadvisor.x: a".replace(b"tuiadvisor.", b""))
    assert second.startswith(b"    2026-01-01T00:00:00.000Z INFO agent[1] agent: fake?[2J *** xxx")
    assert loglines.MAX_LINE_BYTES == len(second)


def test_lines_of_an_agent_elsewhere_are_known_by_their_mark(capfd: pytest.CaptureFixture[str]) -> None:
    """Each physical line has it, also behind what srun puts before it; other words have not."""
    log._begin(log.INFO, loglines.back("agent"))
    try:
        int("one\ntwo")
    except ValueError:
        log.Logger("tuiadvisor.agent.x").exception("failed")
    said = capfd.readouterr().err.splitlines()
    heard = [loglimits.heard(f"3: {line}") for line in said]
    assert len(said) > 4
    assert {log.ERROR} == {line[0] for line in heard if line}
    assert re.fullmatch(r"agent@\S+\[\d+\] agent\.x: failed", heard[0][1] if heard[0] else "")
    assert all(line and line[1].startswith("    ") for line in heard[1:])
    assert loglimits.heard("tuiadvisor: no training ranks on this machine") is None


def test_nothing_is_loaded_for_a_log_that_nobody_wants() -> None:
    """Neither by the command line nor by what says something."""
    code = (
        "import sys\nfrom tuiadvisor import log\nlog.Logger('x').info('y')\nlog.Logger('x').exception('y')\n"
    )
    run = "from tuiadvisor.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    for begin in (code, run):
        told = f"{begin}\nimport sys\nprint('loaded', *sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", told], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        modules = set(done.stdout.rpartition("loaded ")[2].split())
        assert "tuiadvisor.log" in modules
        assert set() == modules & {"logging", "tuiadvisor.loglines", "platformdirs"}


SAID_AT = {
    log.DEBUG: ["a detail", "a turn", "a worry", "failed", "of another"],
    log.INFO: ["a turn", "a worry", "failed", "of another"],
    log.WARNING: ["a worry", "failed", "of another"],
    log.ERROR: ["failed"],
    log.OFF: [],
}


@pytest.mark.parametrize("level", SAID_AT)
def test_what_is_said_below_the_level_is_not_written(level: int, tmp_path: Path) -> None:
    """Each word at its own level; what another process said keeps the level that it had there."""
    log._begin(level, loglines.to_file("test", str(tmp_path / "log")))
    say = log.Logger("tuiadvisor.x")
    say.debug("a %s", "detail")
    say.info("a %s", "turn")
    say.warning("a %s", "worry")
    try:
        int("no number")
    except ValueError:
        say.exception("failed")
    say.at(log.WARNING, "of %s", "another")
    text = (tmp_path / "log").read_text()
    assert SAID_AT[level] == messages(text)
    assert ("failed" in SAID_AT[level]) == ("ValueError: invalid literal" in text)
    log.stop()
    say.warning("after the end")
    assert text == (tmp_path / "log").read_text()


def started(*arguments: str, is_remote: bool = False) -> None:
    """A process of ours with these options, started by one that logs or does not."""
    parser = argparse.ArgumentParser()
    log.add_options(parser)
    log.start_beside("agent", parser.parse_args(arguments), is_remote=is_remote)


@pytest.mark.parametrize(("verbosity", "said"), [(1, ["a turn"]), (2, ["a detail", "a turn"])])
def test_a_process_of_ours_writes_to_the_file_that_is_open(
    verbosity: int, said: list[str], tmp_path: Path
) -> None:
    """At its starter's level, without its name: it may run where that cannot be opened."""
    log.start("hub", verbosity, str(tmp_path / "log"), environ={})
    options, (descriptor,) = log.for_child()
    own = os.dup(descriptor)  # as it comes to a child; it lives on when the starter ends
    log.stop()
    started(*options[:-1], options[-1].replace(str(descriptor), str(own)))
    log.Logger("tuiadvisor.x").debug("a detail")
    log.Logger("tuiadvisor.x").info("a turn")
    assert not os.get_inheritable(own)
    text = (tmp_path / "log").read_text()
    assert said == messages(text)
    assert f"agent[{os.getpid()}]" in text


def test_without_a_log_no_process_of_ours_is_told_of_one(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither options nor variables, and what needs a log does nothing."""
    assert ([], (), [], {}) == (*log.for_child(), log.for_remote(), log.for_command())
    log.hide("s3cret")
    log.to_standard_error()
    started()
    started(is_remote=True)
    assert not log.is_on()
    log.Logger("tuiadvisor.x").exception("nobody reads")
    assert ("", "") == capfd.readouterr()


@pytest.mark.parametrize(("asked", "level"), [("-v", "INFO"), ("-vv", "DEBUG")])
def test_an_agent_elsewhere_sends_its_lines_back(
    asked: str, level: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """At the level of its starter, and to no file: that would be one of another machine."""
    log.start("hub", len(asked) - 1, str(tmp_path / "log"), environ={})
    assert [asked] == log.for_remote()
    started(*log.for_remote(), is_remote=True)
    log.Logger("tuiadvisor.x").debug("a detail")
    log.Logger("tuiadvisor.x").info("a turn")
    heard = [loglimits.heard(line) for line in capfd.readouterr().err.splitlines()]
    levels = {"INFO": [log.INFO], "DEBUG": [log.DEBUG, log.INFO]}
    assert levels[level] == [line[0] for line in heard if line]
    assert [] == messages((tmp_path / "log").read_text())


def test_an_agent_that_was_started_by_hand_logs_as_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own option, else by the variable."""
    started("--log", str(tmp_path / "by option"))
    log.Logger("tuiadvisor.x").info("one")
    monkeypatch.setenv(log.VARIABLE, f"debug:{tmp_path / 'by variable'}")
    started()
    log.Logger("tuiadvisor.x").debug("two")
    assert ["one"] == messages((tmp_path / "by option").read_text())
    assert ["two"] == messages((tmp_path / "by variable").read_text())


@pytest.mark.parametrize("name", ["log", "a:b", "debug:log", "with space"])
@pytest.mark.parametrize("verbosity", [1, 2])
def test_another_command_of_ours_writes_to_the_same_file(name: str, verbosity: int, tmp_path: Path) -> None:
    """Whatever the file is called, from whatever folder, at the same level."""
    log.start("hub", verbosity, str(tmp_path / name), environ={})
    environ = log.for_command()
    log.stop()
    assert "" == log.start("scale", 0, None, environ=environ)
    log.Logger("tuiadvisor.x").debug("a detail")
    log.Logger("tuiadvisor.x").info("a turn")
    assert ["a detail", "a turn"][2 - verbosity :] == messages((tmp_path / name).read_text())
    assert [name] == [path.name for path in tmp_path.iterdir()]


def test_a_log_on_standard_error_goes_where_that_goes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A hub in the background changes its own; another command has its own, so nothing is handed to it."""
    log.start("hub", 1, None, environ={})
    assert {} == log.for_command()
    log.Logger("tuiadvisor.x").info("before")
    kept = os.dup(2)
    try:
        with (tmp_path / "stderr").open("wb") as new:
            os.dup2(new.fileno(), 2)
        log.to_standard_error()
        log.Logger("tuiadvisor.x").info("after")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert ["before"] == messages(capfd.readouterr().err)
    assert ["after"] == messages((tmp_path / "stderr").read_text())


def test_while_screens_are_shown_v_writes_to_a_file_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Lines would tear the screen; a file that the user named need not be named to him."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    chosen = log.start("watch", 1, None, environ={}, has_screens=True)
    log.Logger("tuiadvisor.x").info("a turn")
    assert tmp_path / "tuiadvisor" == Path(chosen).parent
    assert ["a turn"] == messages(Path(chosen).read_text())
    assert "" == log.start("watch", 1, str(tmp_path / "own"), environ={}, has_screens=True)
    log.Logger("tuiadvisor.x").info("another")
    assert ["another"] == messages((tmp_path / "own").read_text())
    assert "" == capfd.readouterr().err


BROAD = {"Exception", "BaseException"}


def handlers(path: Path) -> Iterator[ast.ExceptHandler]:
    """Handlers of a file that catch everything."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)) if "except" in source else ():  # parsing takes most of this test
        if isinstance(node, ast.ExceptHandler) and (
            node.type is None or (isinstance(node.type, ast.Name) and node.type.id in BROAD)
        ):
            yield node


@pytest.mark.slow
def test_whoever_catches_everything_raises_it_again_or_logs_its_traceback() -> None:
    """All of ours but the one that runs in a process that others start, where nothing of us is loaded or heard."""
    quiet = {ROOT / "tuiadvisor/inject/arm_site/sitecustomize.py"}
    found, wrong = 0, []
    for path in set((ROOT / "tuiadvisor").rglob("*.py")) - quiet:
        for handler in handlers(path):
            found += 1
            body = [one for statement in handler.body for one in ast.walk(statement)]
            is_raised = any(isinstance(one, ast.Raise) for one in handler.body)
            is_logged = any(
                isinstance(one, ast.Call)
                and isinstance(one.func, ast.Attribute)
                and one.func.attr == "exception"
                for one in body
            )
            if not (is_raised or is_logged):
                wrong.append(f"{path.relative_to(ROOT)}:{handler.lineno}")
    assert found > 10
    assert [] == sorted(wrong)


def test_after_the_last_log_warnings_go_where_they_went_before(tmp_path: Path) -> None:
    """The program that imports us may have loggers of its own: the next log begins before the last one ends."""
    root = logging.getLogger(loglines.ROOT)
    before = (root.propagate, root.level)
    for number in range(2):
        log._begin(log.INFO, loglines.to_file("test", str(tmp_path / str(number))))
        assert not root.propagate
    log.stop()
    assert before == (root.propagate, root.level)
