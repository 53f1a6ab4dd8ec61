"""`python release/project_urls.py`, in the workflow that makes a release: the addresses that the package index shows.

They are those of the repository that builds it, as GitHub Actions says them. The sources name none: a copy elsewhere
would lead to somebody else.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"
SERVER: Final = re.compile(r"https://[A-Za-z0-9.-]+")
REPOSITORY: Final = re.compile(r"([A-Za-z0-9-]+)/([A-Za-z0-9._-]+)")


def add_urls(project: Path, variables: Mapping[str, str]) -> None:
    """Append the table `project.urls`. SystemExit with one line where it is there, or the repository is not known."""
    server, repository = (variables.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY"))
    found = REPOSITORY.fullmatch(repository)
    if found is None or not SERVER.fullmatch(server):
        raise SystemExit("GITHUB_SERVER_URL and GITHUB_REPOSITORY say no repository: run it in its workflow")
    text = project.read_text()
    if "urls" in tomllib.loads(text)["project"]:
        raise SystemExit(f"{project.name}: has its addresses already")
    source = f"{server}/{repository}"
    urls = {
        "Documentation": f"https://{found[1]}.github.io/{found[2]}/",  # where docs.yml puts the site
        "Source": source,
        "Issues": f"{source}/issues",
        "Changelog": f"{source}/blob/HEAD/CHANGELOG.md",
    }
    rows = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    project.write_text(f"{text}\n[project.urls]\n{rows}")


if __name__ == "__main__":
    add_urls(PROJECT, os.environ)
