"""The metrics that rules may name, as the causes declare them: `python -m tuiadvisor.causes.names` writes the table.

In: each cause's lines.  Out: rules/tuiadvisor_rules/metrics.txt; the rules package imports nothing of ours. A test says
when it has to be written anew.
"""

from __future__ import annotations

from pathlib import Path

import tuiadvisor_rules
from tuiadvisor.causes.registry import CAUSES


def table() -> str:
    """One line a metric: scope, name, unit, meaning."""
    return "\n".join(line for cause in CAUSES for line in cause.metrics.strip().splitlines()) + "\n"


def main() -> None:
    """Write it beside the rules' code."""
    path = Path(str(tuiadvisor_rules.__file__)).with_name("metrics.txt")
    path.write_text(table(), encoding="utf-8")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
