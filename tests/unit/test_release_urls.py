"""The index shows where the project is: the repository that builds the release, and none that was made up."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

sys.path.append(str(Path(__file__).parents[2] / "release"))
from project_urls import add_urls

ROOT = Path(__file__).parents[2]
HERE = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "somebody/tuiadvisor"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path / "pyproject.toml"


def test_a_release_names_the_repository_that_builds_it(project: Path) -> None:
    before = tomllib.loads(project.read_text())
    add_urls(project, HERE)
    after = tomllib.loads(project.read_text())
    urls = after["project"].pop("urls")
    assert after == before
    assert urls == {
        "Documentation": "https://somebody.github.io/tuiadvisor/",
        "Source": "https://github.com/somebody/tuiadvisor",
        "Issues": "https://github.com/somebody/tuiadvisor/issues",
        "Changelog": "https://github.com/somebody/tuiadvisor/blob/HEAD/CHANGELOG.md",
    }


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {**HERE, "GITHUB_REPOSITORY": ""},
        {**HERE, "GITHUB_REPOSITORY": 'a/b"\n[tool.x]'},
        {**HERE, "GITHUB_SERVER_URL": "file:///etc"},
    ],
)
def test_elsewhere_nothing_is_made_up(project: Path, variables: dict[str, str]) -> None:
    before = project.read_text()
    with pytest.raises(SystemExit, match="GITHUB_"):
        add_urls(project, variables)
    assert project.read_text() == before


def test_they_are_named_once(project: Path) -> None:
    add_urls(project, HERE)
    with pytest.raises(SystemExit, match="already"):
        add_urls(project, HERE)


def test_the_release_names_them_before_it_builds() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    runs = [step.get("run", "") for step in workflow["jobs"]["build"]["steps"]]
    (names,) = [index for index, run in enumerate(runs) if run == "python release/project_urls.py"]
    (builds,) = [index for index, run in enumerate(runs) if "package" in run]
    assert names < builds
