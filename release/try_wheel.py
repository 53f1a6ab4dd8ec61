"""`python release/try_wheel.py WHEEL`: the wheel in an environment of its own reads a recording and lists its rules."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def main() -> None:
    """Ends with a traceback where the wheel does not work."""
    (wheel,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        install = ["-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), wheel]
        subprocess.run([python, *install], check=True)
        recording = next((ROOT / "tests" / "recordings").glob("*.tuirec"))
        for words in (["--version"], ["rules", "check"], ["diagnose", str(recording)], ["doctor"]):
            command = [f"{folder}/bin/tuiadvisor", *words]
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    print(f"{wheel}: installed, and its commands run")


if __name__ == "__main__":
    main()
