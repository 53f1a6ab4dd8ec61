"""`python release/try_wheel.py WHEEL`: the wheel in an environment of its own reads a recording and lists its rules.

Before that: it is for every machine, and brings a native core for each that TUIADVISOR_CORES names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CORES: Final = "tuiadvisor_probes/core."  # and its machine


def main() -> None:
    """Ends with a traceback or a line where the wheel does not work."""
    (wheel,) = sys.argv[1:]
    if not wheel.endswith("-py3-none-any.whl"):
        sys.exit(f"{wheel}: not for every machine")
    names = zipfile.ZipFile(wheel).namelist()
    brought = {name.split(".")[-2] for name in names if name.startswith(CORES) and name.endswith(".elf")}
    if missing := set(os.environ.get("TUIADVISOR_CORES", "").split()) - {"none"} - brought:
        sys.exit(f"{wheel}: no native core for {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        install = ["-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), wheel]
        subprocess.run([python, *install], check=True)
        recording = next((ROOT / "tests" / "recordings").glob("*.tuirec"))
        for words in (["--version"], ["rules", "check"], ["diagnose", str(recording)], ["doctor", "--json"]):
            command = [f"{folder}/bin/tuiadvisor", *words]
            told = subprocess.run(command, check=True, cwd=folder, stdout=subprocess.PIPE, text=True).stdout
        (core,) = [one["found"] for one in json.loads(told)["checks"] if one["name"] == "core"]
        if os.uname().machine in brought and not core.startswith("native"):
            sys.exit(f"{wheel}: installed, but the probe's core is {core}")
    print(f"{wheel}: installed, and its commands run; native cores: {', '.join(sorted(brought)) or 'none'}")


if __name__ == "__main__":
    main()
