"""The interpreters of this machine that a rank may run, by version."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def found_pythons() -> dict[str, str]:
    """Version to program: ours, those installed beside ours, those of the PATH, the system's."""
    places = [
        Path(sys.executable),
        *Path(sys.base_prefix).parent.glob("3.*/bin/python3"),
        *(
            Path(found)
            for minor in range(10, 16)
            for build in ("", "t")  # t: free-threaded
            if (found := shutil.which(f"python3.{minor}{build}"))
        ),
        Path("/usr/bin/python3"),
    ]
    named: dict[str, str] = {}
    for program in places:
        if program.is_file():
            asked = subprocess.run(
                [program, "-c", "import sys; print('%d.%d%s' % (*sys.version_info[:2], sys.abiflags))"],
                capture_output=True,
                text=True,
                check=False,
            )
            version = asked.stdout.strip()
            if version.startswith("3.") and int(version[2:].rstrip("dmtu")) >= 10:
                name = f"system-{version}" if program.parent == Path("/usr/bin") else version
                named.setdefault(name, str(program))
    return named


PYTHONS = found_pythons()
