"""A release is cut in a checkout of its own: version, news and tag in one commit, or one line and nothing changed."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "release"))
from cut import cut, git

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a release touches, with one change recorded."""
    folder = tmp_path / "checkout"
    (folder / "tuiadvisor").mkdir(parents=True)
    (folder / "changes").mkdir()
    for name in ("pyproject.toml", "changes/README.md"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "tuiadvisor" / "__init__.py").write_text('"""Words."""\n\n__version__ = "0.1.0"\n')
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n<!-- news -->\n\n## 0.1.0\n\n- Older.\n")
    (folder / "changes" / "+slow-disk.fixed.md").write_text("A slow disk is named.\n")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "config", "user.name", "somebody")
    git(folder, "config", "user.email", "somebody@example.org")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    return folder


def test_a_release_is_one_commit_with_its_news_and_a_tag(checkout: Path) -> None:
    cut(checkout, "0.2.0")
    assert '__version__ = "0.2.0"' in (checkout / "tuiadvisor" / "__init__.py").read_text()
    news = (checkout / "CHANGELOG.md").read_text()
    assert re.search(
        r"## 0\.2\.0 \(\d{4}-\d\d-\d\d\)\n\n### Fixed\n\n- A slow disk is named\.\n+## 0\.1\.0", news
    )
    assert [path.name for path in (checkout / "changes").iterdir()] == ["README.md"]
    assert git(checkout, "describe", "--exact-match") == "v0.2.0"
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "rev-list", "--count", "HEAD") == "2"


@pytest.mark.parametrize(
    ("version", "spoil", "words"),
    [
        ("0.1.0", "", "not above"),
        ("0.0.9", "", "not above"),
        ("next", "", "no version"),
        ("0.2.0", "dirty", "not committed"),
        ("0.2.0", "quiet", "no news"),
        ("0.2.0", "tagged", "there already"),
    ],
)
def test_what_cannot_be_released_is_one_line(checkout: Path, version: str, spoil: str, words: str) -> None:
    if spoil == "dirty":
        (checkout / "CHANGELOG.md").write_text("other\n")
    if spoil == "quiet":
        git(checkout, "rm", "--quiet", "changes/+slow-disk.fixed.md")
        git(checkout, "commit", "--quiet", "--message", "none")
    if spoil == "tagged":
        git(checkout, "tag", "v0.2.0")
    head = git(checkout, "rev-parse", "HEAD")
    before = git(checkout, "status", "--porcelain")
    with pytest.raises(SystemExit, match=words):
        cut(checkout, version)
    assert git(checkout, "rev-parse", "HEAD") == head
    assert git(checkout, "status", "--porcelain") == before
