"""A folder of many jobs: what is kept of its recordings, what may be a job, who may hold it."""

from __future__ import annotations

import argparse
import os
from argparse import ArgumentTypeError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiadvisor.app.fleet import Limits, check_job, held, own_folder, prune
from tuiadvisor.cli.commands import run
from tuiadvisor.cli.fleet import MAX_VIEWERS, _with_viewers, add_options, num_bytes
from tuiadvisor.cli.options.outlets import add_outlets, words_of
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.keys import make_session_keys

NOW = 1_000_000.0


def recording(path: Path, size: int, age_s: float) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (NOW - age_s, NOW - age_s))
    return path


def test_what_is_too_old_goes_and_nothing_else(tmp_path: Path) -> None:
    old = recording(tmp_path / "a" / "old.tuirec", 10, 500)
    young = recording(tmp_path / "b" / "young.tuirec", 10, 50)
    other = recording(tmp_path / "a" / "notes.txt", 10, 500)
    assert prune(tmp_path, Limits(age_s=100), set(), NOW) == [old]
    assert (old.exists(), young.exists(), other.exists()) == (False, True, True)


def test_beyond_the_bytes_the_oldest_of_all_jobs_go(tmp_path: Path) -> None:
    files = [
        recording(tmp_path / job / f"{age}.tuirec", 10, age) for job, age in (("a", 3), ("b", 2), ("a", 1))
    ]
    assert prune(tmp_path, Limits(num_bytes=20), set(), NOW) == files[:1]
    assert prune(tmp_path, Limits(num_bytes=20), set(), NOW) == []
    assert prune(tmp_path, Limits(), set(), NOW) == []


def test_what_is_being_written_stays_and_counts(tmp_path: Path) -> None:
    """Else the hub would write on into a file that nobody can find."""
    live = recording(tmp_path / "a" / "live.tuirec", 100, 500)
    older = recording(tmp_path / "a" / "older.tuirec", 10, 400)
    assert prune(tmp_path, Limits(age_s=1, num_bytes=1), {live}, NOW) == [older]
    assert live.exists()


def test_nothing_outside_the_folder_is_removed(tmp_path: Path) -> None:
    """A link is no recording of the fleet, nor is what lies behind the link to a folder."""
    inside, outside = tmp_path / "fleet", recording(tmp_path / "elsewhere" / "mine.tuirec", 10, 500)
    (inside / "a").mkdir(parents=True)
    (inside / "a" / "link.tuirec").symlink_to(outside)
    (inside / "b").symlink_to(outside.parent)
    assert prune(inside, Limits(age_s=1), set(), NOW) == []
    assert outside.exists()


@given(
    files=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1000)), max_size=8),
    age_s=st.none() | st.integers(0, 1000),
    most=st.none() | st.integers(1, 500),
)
def test_what_is_left_is_within_the_limits(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[tuple[int, int]],
    age_s: int | None,
    most: int | None,
) -> None:
    """And no more went than had to: the next older one would have been too much."""
    folder = tmp_path_factory.mktemp("fleet")
    paths = [recording(folder / "a" / f"{number}.tuirec", *file) for number, file in enumerate(files)]
    gone = prune(folder, Limits(age_s, most), set(), NOW)
    left = [path for path in paths if path.exists()]
    assert sorted([*gone, *left]) == sorted(paths)
    total = sum(path.stat().st_size for path in left)
    assert most is None or total <= most
    assert age_s is None or all(NOW - path.stat().st_mtime <= age_s for path in left)
    sizes = dict(zip(paths, files, strict=True))
    young = [path for path in gone if age_s is None or sizes[path][1] <= age_s]
    if young:
        assert most is not None
        assert total + sizes[young[-1]][0] > most


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "-o", ".hidden", "a\n", "x" * 65, "ü"])
def test_a_name_that_is_no_folder_below_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(TuiadvisorError, match="not a name of a job"):
        check_job(name)
    assert run(["fleet", str(tmp_path / "fleet"), f"--job={name}"]) == 2
    assert not (tmp_path / "fleet").exists()


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    """The keys in it would be theirs."""
    made = own_folder(tmp_path / "mine")
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o750)
    with pytest.raises(TuiadvisorError, match="others may look into it"):
        own_folder(made)
    made.chmod(0o700)
    (tmp_path / "link").symlink_to(made)
    with pytest.raises(TuiadvisorError, match="others may look into it or it is not yours"):
        own_folder(tmp_path / "link")


def test_two_do_not_hold_one_folder(tmp_path: Path) -> None:
    with held(tmp_path / "fleet"), pytest.raises(TuiadvisorError, match="already"), held(tmp_path / "fleet"):
        pass
    with held(tmp_path / "fleet"):
        pass


def test_bytes_as_people_type_them() -> None:
    assert [num_bytes(text) for text in ("1", "500M", "50G", "2TB", "3k")] == [
        1,
        5 * 10**8,
        5 * 10**10,
        2 * 10**12,
        3000,
    ]
    for bad in ("", "0", "-1", "1.5G", "50X", "G", "٣"):
        with pytest.raises(ArgumentTypeError):
            num_bytes(bad)


def test_limits_without_a_job_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is removed by a command that only looks."""
    assert run(["fleet", str(tmp_path), "--once", "--keep", "1s"]) == 2
    assert "--job" in capsys.readouterr().err


def options_of(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return parser.parse_args(["folder", *words])


def test_each_job_tells_others_with_its_name_and_by_a_port_of_its_own(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-long-enough-word-for-all\n")
    token.chmod(0o600)
    given = ["--metrics=0.0.0.0:9500", f"--metrics-token={token}", "--label=team=vision"]
    given += ["--on-finding=true -v", "--webhook=https://hooks.example.com/a", "--webhook-format=slack"]
    told = words_of(options_of(*given), ["a", "b"])
    assert list(told) == ["a", "b"]
    for number, (job, words) in enumerate(told.items()):
        parser = argparse.ArgumentParser()
        add_outlets(parser)
        read = parser.parse_args(list(words))
        assert read.metrics == ("0.0.0.0", 9500 + number)  # noqa: S104
        assert (read.label, read.on_finding) == (["team=vision", f"fleet_job={job}"], "true -v")
        assert (read.webhook, read.webhook_format) == ("https://hooks.example.com/a", "slack")
        assert read.metrics_token == str(token)
    assert words_of(options_of(), ["a"]) == {"a": ()}
    assert words_of(options_of("--metrics=[::1]:9500"), ["a"])["a"][-1] == "--metrics=[::1]:9500"


@pytest.mark.parametrize(
    "words",
    [
        ["--metrics=0.0.0.0:9409"],
        ["--metrics=0"],
        ["--metrics=65535"],
        ["--on-finding=no-such-program-at-all"],
        ["--webhook=ftp://x"],
        ["--label=run=a"],
        ["--metrics", "--label=fleet_job=a"],
    ],
    ids=" ".join,
)
def test_what_no_hub_could_do_is_refused_before_one_starts(words: list[str]) -> None:
    with pytest.raises(TuiadvisorError, match=r"^--"):
        words_of(options_of(*words), ["a", "b"])


def test_a_list_tells_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", str(tmp_path), "--once", "--metrics"]) == 2
    assert "--job" in capsys.readouterr().err


def test_each_viewer_has_a_key_of_a_job_that_is_there() -> None:
    given = ["a:anna", "b:ben", "a:ben", "a:anna"]
    assert _with_viewers(["a", "b", "c"], given) == {"a": ("anna", "ben"), "b": ("ben",), "c": ()}
    keys = make_session_keys(num_viewers=3)
    assert 3 == len({key.secret for key in keys.viewers})
    assert keys.hub.viewers == tuple(key.public for key in keys.viewers)
    assert not set(keys.hub.viewers) & set(keys.hub.agents)


@pytest.mark.parametrize(
    "given", ["anna", "c:anna", "a:", "a:../anna", "a:anna/b", "a:-x", ":anna", "a:a\nb"]
)
def test_a_viewer_of_no_job_or_without_a_name_is_refused(given: str) -> None:
    with pytest.raises(TuiadvisorError, match="--viewer"):
        _with_viewers(["a"], [given])


def test_viewers_beyond_reason_are_refused() -> None:
    with pytest.raises(TuiadvisorError, match="at most"):
        _with_viewers(["a"], [f"a:{number}" for number in range(MAX_VIEWERS + 1)])
