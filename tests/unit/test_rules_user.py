"""Rules of the user extend the shipped ones or override them by id, and no file of theirs is a crash."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiadvisor.advisor.judge.findings import catalog
from tuiadvisor.cli import main
from tuiadvisor_rules.condition import RuleError
from tuiadvisor_rules.evaluate import check, judge
from tuiadvisor_rules.loader import catalog_dir, load_catalog, read_document, rule_of
from tuiadvisor_rules.user import load_rules, overlay, user_dir

INPUT_BOUND = (catalog_dir() / "input_bound.toml").read_text()
WAITING = {
    "cpu_limited": 0,
    "host_crowded": 0,
    "data_wait_share": 0.3,
    "data_wait_share_low": 0.28,
    "data_wait_loss_s": 0.01,
}


def write(folder: Path, name: str, text: str) -> None:
    """One rule file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def by_id(folder: Path) -> dict[str, object]:
    """All rules as the folder changes them."""
    return {rule.id: rule for rule in load_rules(folder)}


def test_without_a_folder_the_shipped_rules_hold(tmp_path: Path) -> None:
    """The folder is the user's choice."""
    assert [rule.id for rule in load_catalog()] == [rule.id for rule in load_rules(tmp_path / "none")]
    assert [] == check()


def test_a_file_with_the_id_of_a_shipped_rule_says_only_what_differs(tmp_path: Path) -> None:
    """One threshold of one's own; everything else stays as shipped."""
    write(
        tmp_path,
        "mine.toml",
        'id = "input_bound"\n[thresholds]\nhigh = { value = 0.5, source = "our storage: half is usual" }\n',
    )
    changed = next(rule for rule in load_rules(tmp_path) if rule.id == "input_bound")
    shipped = next(rule for rule in load_catalog() if rule.id == "input_bound")
    assert "critical" == judge(shipped, WAITING).level
    assert "warning" == judge(changed, WAITING).level
    assert shipped.message == changed.message
    assert shipped.thresholds["moderate"] == changed.thresholds["moderate"]
    assert str(tmp_path / "mine.toml") == changed.path
    assert len(load_catalog()) == len(load_rules(tmp_path))


def test_a_shipped_case_that_an_override_breaks_is_reported(tmp_path: Path) -> None:
    """Whoever changes a threshold says with cases of their own what is right now."""
    override = 'id = "input_bound"\n[thresholds]\nhigh = { value = 0.9, source = "test" }\n'
    write(tmp_path, "mine.toml", override)
    assert any("expects critical, the rule says warning" in problem for problem in check(tmp_path))
    cases = (
        '[[cases]]\nname = "a"\nexpect = "silent"\nmetrics = { data_wait_share = 0.01 }\n'
        '[[cases]]\nname = "b"\nexpect = "info"\nmetrics = { data_wait_share = 0.06 }\n'
    )
    write(tmp_path, "mine.toml", override + cases)
    assert [] == check(tmp_path)


def test_a_new_id_is_a_rule_of_its_own(tmp_path: Path) -> None:
    """It stands beside the shipped ones."""
    write(tmp_path, "mine.toml", INPUT_BOUND.replace('id = "input_bound"', 'id = "our_input"'))
    assert set(by_id(tmp_path)) == {rule.id for rule in load_catalog()} | {"our_input"}


def test_a_rule_can_be_switched_off_by_its_id_alone(tmp_path: Path) -> None:
    """And an id that does not exist is a mistake, with the nearest that does."""
    write(tmp_path, "off.toml", 'id = "warmup"\ndisabled = true\n')
    assert {rule.id for rule in load_catalog()} - {"warmup"} == set(by_id(tmp_path))
    write(tmp_path, "off.toml", 'id = "warmups"\ndisabled = true\n')
    with pytest.raises(RuleError, match=r"off\.toml: no shipped rule 'warmups' .*did you mean 'warmup'"):
        load_rules(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('id = "input_bound"\ncondition = "data_wait_sharee > 0.1"\n',
         r"mine\.toml:2: no metric 'data_wait_sharee'; did you mean 'data_wait_share'"),
        ('id = "input_bund"\ncondition = "data_wait_share > 0.1"\n', r"no shipped rule 'input_bund'; did you mean"),
        ('id = "input_bound"\nthresholds = 3\n', r"'thresholds' must be a table"),
        ('id = "Input Bound"\n', r"'id' is 'Input Bound'; write lower-case"),
        ('condition = "1 > 0"\n', r"'id' must be a text"),
        ('id = "input_bound"\nmessage = "\\u001b]0;owned\\u0007"\n', r"'message' must be one printable line"),
        ('id = "input_bound"\nthresholds = { high = { value = nan, source = "x" } }\n', r"'high' is not between"),
        (f'id = "input_bound"\nthresholds = {{ high = {{ value = {"9" * 400}, source = "x" }} }}\n',
         r"'high' is not between"),
        ('id = "input_bound"\ndisabled = 1\n', r"'disabled' is true or absent"),
        ("x = " + "[" * 5000, r"not TOML"),
        ("x = " + "9" * 5000, r"not TOML"),
        ("x = \x1b[31m", r"not TOML"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_line_with_file_line_and_the_nearest_name(
    tmp_path: Path, text: str, says: str
) -> None:
    """Reading on with fewer rules would hide findings: it is said, and nothing is judged."""
    write(tmp_path, "mine.toml", text)
    with pytest.raises(RuleError, match=says) as caught:
        load_rules(tmp_path)
    assert str(caught.value).isprintable()


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """A pipe would be read for ever, a folder is no rule; names with control characters are harmless."""
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "\x1b[31m\n.toml").write_text("id = 1")
    problems = overlay(tmp_path).problems
    assert 4 == len(problems)
    assert all(problem.isprintable() for problem in problems)
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "a.toml").write_bytes(b"#" * (1 << 20))
    assert ["exceeds 65536 bytes"] == [one.rpartition(": ")[2] for one in overlay(tmp_path / "big").problems]


def test_the_folder_is_where_the_convention_puts_it() -> None:
    """XDG_CONFIG_HOME first, then the home; without either there are no rules of the user."""
    assert Path("/c/tuiadvisor/rules") == user_dir({"XDG_CONFIG_HOME": "/c", "HOME": "/h"})
    assert Path("/h/.config/tuiadvisor/rules") == user_dir({"XDG_CONFIG_HOME": "relative", "HOME": "/h"})
    assert user_dir({}) is None


@pytest.mark.slow
def test_the_commands_use_the_folder_and_name_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rules list`, `show` and `check`: a wrong file is exit code 2 and one line."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "tuiadvisor" / "rules"
    write(folder, "mine.toml", 'id = "warmup"\ntitle = "Our warm-up"\n')
    assert 0 == main(["rules", "list"])
    assert f"Our warm-up  [{folder / 'mine.toml'}]" in capsys.readouterr().out
    write(folder, "off.toml", 'id = "straggler"\ndisabled = true\n')
    assert 0 == main(["rules", "list"])
    assert re.search(rf"straggler +--  switched off  \[{folder}\]", capsys.readouterr().out)
    assert 0 == main(["rules", "show", "warmup"])
    assert f"warmup: Our warm-up  [{folder / 'mine.toml'}]" in capsys.readouterr().out
    assert 0 == main(["rules", "check"])
    write(folder, "mine.toml", 'id = "warmup"\ntitel = "Our warm-up"\n')
    capsys.readouterr()
    assert 2 == main(["rules", "check"])
    assert f"{folder / 'mine.toml'}:2: unknown key 'titel'; did you mean 'title'?" in capsys.readouterr().err
    assert 2 == main(["rules", "list"])
    assert 1 == len(capsys.readouterr().err.splitlines())


@pytest.mark.parametrize("command", [["watch"], ["run", "--", "true"], ["demo", "--headless"]])
def test_a_wrong_rule_is_said_before_a_training_is_touched(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    """Nothing is started and nothing attached that would then be left alone."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    write(tmp_path / "tuiadvisor" / "rules", "mine.toml", "id = 7")
    catalog.cache_clear()
    try:
        assert 2 == main(command)
    finally:
        catalog.cache_clear()
    assert "mine.toml: 'id' must be a text" in capsys.readouterr().err


KEYS = sorted(read_document(catalog_dir() / "input_bound.toml")[0])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["data_wait_share > 1", "thresholds.high", "{ranks}", "P1", "low", "{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), VALUES, max_size=4), st.booleans())
def test_no_table_is_more_than_a_rule_error(changes: dict[str, object], whole: bool) -> None:
    """Whatever stands in a file: a rule whose cases can be judged, or one line."""
    document = read_document(catalog_dir() / "input_bound.toml")[0] if whole else {}
    try:
        cases = (rule := rule_of(document | changes, "", "mine.toml")).cases
    except RuleError:
        return
    for case in cases:
        assert judge(rule, case.metrics).level in {"info", "warning", "critical", "silent", "unknown"}
