"""Workflows and issue templates: what they call is there, with few rights, and no text of strangers meets a shell."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuiadvisor.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
# Of an action that is not GitHub's own no hash could be read from its repository yet.
BY_NAME = {"pypa/gh-action-pypi-publish@release/v1", "docker://rhysd/actionlint:1.7.7"}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def steps(path: Path) -> list[dict[str, Any]]:
    document = yaml.safe_load(path.read_text())
    return [step for job in document["jobs"].values() for step in job["steps"]]


def test_there_is_one_for_each_purpose() -> None:
    assert [path.stem for path in WORKFLOWS] == ["docs", "lint", "release", "test"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_that_exist_with_few_rights(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    assert document["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in document["jobs"].values())
    runs = [step["run"] for step in steps(path) if "run" in step]
    called = {word for run in runs for line in re.findall(r"\bmake ([a-z -]+)", run) for word in line.split()}
    assert called <= TARGETS
    assert not [run for run in runs if "${{" in run]  # a branch's name is a stranger's: by environment alone
    for step in steps(path):
        assert ("uses" in step) != ("run" in step)
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_those_of_one_commit_and_dependabot_renews_them(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text())
    assert used
    for action, comment in used:
        if action not in BY_NAME:  # a tag can be moved to other code, a hash cannot
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action)
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment)
    renewed = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())
    assert "github-actions" in [each["package-ecosystem"] for each in renewed["updates"]]


def test_the_version_that_a_release_is_checked_against_is_that_of_the_package() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert document["project"]["dynamic"] == ["version"]
    assert document["tool"]["hatch"]["version"] == {"path": "tuiadvisor/__init__.py"}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates_ask_for_commands_that_exist(path: Path) -> None:
    text = path.read_text()
    document = yaml.safe_load(text)
    assert set(re.findall(r"tuiadvisor ([a-z]+)", text)) <= set(COMMANDS)
    if path.stem != "config":
        assert {"name", "description", "body"} <= set(document)
        assert len({part["id"] for part in document["body"]}) == len(document["body"])
