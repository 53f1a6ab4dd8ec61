"""`python release/manpage.py -o tuiadvisor.1`: the man page, made from the parser."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tuiadvisor import __version__

USAGE: Final = re.compile(r"(\nusage: .*\n(?: .*\n)*)")  # laid out already: not to be filled and justified
TEXT: Final = "watch running PyTorch training, find the straggler, decide: tune, rescale or stop"


def main() -> None:
    """Write it."""
    parser = argparse.ArgumentParser(description="the man page")
    parser.add_argument("-o", "--output", default="dist/tuiadvisor.1")
    options = parser.parse_args()
    words = {
        "module": "tuiadvisor.cli.commands", "function": "build_parser", "project-name": "tuiadvisor",
        "prog": "tuiadvisor", "version": __version__, "description": TEXT, "manual-title": "tuiadvisor",
        "format": "single-commands-section", "output": options.output,
    }  # fmt: skip
    make = "import sys; from argparse_manpage.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", make, *(f"--{name}={value}" for name, value in words.items())]
    subprocess.run(command, check=True)
    page = Path(options.output)
    page.write_text(USAGE.sub(r"\n.nf\1.fi\n", page.read_text()))


if __name__ == "__main__":
    main()
