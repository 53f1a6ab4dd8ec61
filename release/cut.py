"""`python release/cut.py 1.2.3`: a release as one commit and one tag, made of what lies in changes/.

The version goes into tuiadvisor/__init__.py, the news into CHANGELOG.md (towncrier), both into one commit with the tag
v1.2.3. Nothing is pushed: the tag's workflow builds and publishes once somebody pushes it.

Errors: SystemExit with one line, and nothing is changed, where the version is none or is not above the present one, the
work tree is not clean, the tag is there already, or no change is recorded.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
VERSION: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
PLAIN: Final = re.compile(r"\d+\.\d+\.\d+")


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    command = [shutil.which("git") or "git", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def numbers(version: str) -> tuple[int, ...]:
    """1.2.3 -> (1, 2, 3)."""
    return tuple(int(number) for number in version.split("."))


def objection(folder: Path, version: str, present: str) -> str:
    """Why this release cannot be cut here; "" if it can."""
    if not PLAIN.fullmatch(version):
        return f"{version!r} is no version: three numbers with dots, 1.2.3"
    if numbers(version) <= numbers(present):
        return f"{version} is not above {present}, which the sources have"
    if git(folder, "tag", "--list", f"v{version}"):
        return f"the tag v{version} is there already"
    if git(folder, "status", "--porcelain"):
        return "the work tree has changes that are not committed: commit or stash them first"
    if not list((folder / "changes").glob("*.*.md")):
        return "changes/ holds no news: a release says what it changes (changes/README.md)"
    return ""


def cut(folder: Path, version: str) -> None:
    """Make the commit and the tag. folder: a checkout."""
    source = folder / "tuiadvisor" / "__init__.py"
    text = source.read_text(encoding="utf-8")
    found = VERSION.search(text)
    why = objection(folder, version, found[1]) if found else f"{source.name} has no line __version__ = ..."
    if why:
        sys.exit(f"cut.py: {why}")
    source.write_text(VERSION.sub(f'__version__ = "{version}"', text), encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--yes", "--version", version],
        cwd=folder,  # it asks git there, whatever its option --dir says
        check=True,
        capture_output=True,
    )
    git(folder, "add", "--all", "tuiadvisor/__init__.py", "CHANGELOG.md", "changes")
    git(folder, "commit", "--quiet", "--message", f"Release {version}")
    git(folder, "tag", "--annotate", f"v{version}", "--message", f"tuiadvisor {version}")


def main() -> None:
    """Cut it, and say what is left to do."""
    parser = argparse.ArgumentParser(description="a release: version, news, commit, tag")
    parser.add_argument("version", help="such as 0.3.0")
    version = parser.parse_args().version
    cut(ROOT, version)
    print(f"v{version} is cut; look at it (git show v{version}), then: git push --follow-tags")


if __name__ == "__main__":
    main()
