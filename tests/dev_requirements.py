"""Print a dependency group of pyproject.toml (default: dev) in words: pip before 25.1 cannot read groups."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(groups: dict[str, list[object]], name: str) -> list[str]:
    """The requirements of a group, included groups resolved."""
    found: list[str] = []
    for entry in groups[name]:
        if isinstance(entry, dict):
            found += requirements(groups, entry["include-group"])
        else:
            found.append(str(entry))
    return found


if __name__ == "__main__":
    document = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    print(" ".join(requirements(document["dependency-groups"], *(sys.argv[1:] or ["dev"]))))
