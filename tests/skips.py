"""What a test run left out, in one line: `python tests/skips.py FILE` prints it, after the last of several runs.

Every run of pytest with SKIPS_FILE set appends its reasons there (see conftest). A reason reads `what is missing (how
to have it)`, so the line says both without a list of its own.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

NOT_IMPORTED = re.compile(r"could not import '([\w.]+)'.*", re.DOTALL)
COMPLETE = "skipped: none"


def plain(reason: str) -> str:
    """A reason as the line says it: pytest's own words for a missing import name the package to install."""
    said = reason.removeprefix("Skipped: ").strip()
    if missing := NOT_IMPORTED.fullmatch(said):
        package = missing[1].partition(".")[0]
        return f"no {package} (pip install {package})"
    return " ".join(said.split())


def append(file: Path, reasons: list[str]) -> None:
    """Note the reasons of one run."""
    with file.open("a") as out:
        out.writelines(json.dumps(plain(reason)) + "\n" for reason in reasons)


def line(reasons: list[str]) -> str:
    """How many were skipped and why, the most frequent reason first."""
    if not reasons:
        return COMPLETE
    counted = Counter(reasons).most_common()
    return f"skipped: {len(reasons)} — " + ", ".join(f"{number} {reason}" for reason, number in counted)


def main() -> None:
    """Read what the runs noted."""
    file = Path(sys.argv[1])
    noted = file.read_text().splitlines() if file.exists() else []
    print(line([json.loads(one) for one in noted]))


if __name__ == "__main__":
    main()
