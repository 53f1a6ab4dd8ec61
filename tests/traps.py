"""A folder in which a module lies under the name of every one that we might import: each tells when it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOREIGN = (
    "aiohttp", "nvidia", "numpy", "orjson", "platformdirs", "psutil", "pyarrow", "pynvml", "rich", "scipy",
    "sitecustomize", "textual", "textual_serve", "torch", "tuiadvisor_probes", "tuiadvisor_rules", "usercustomize",
    "zmq", "zstandard",
)  # fmt: skip
PROGRAMS = ("git", "ldconfig", "nvidia-smi", "py-spy", "scontrol", "squeue", "srun", "ssh", "uname")


class Traps:
    """The folder, and what fell into it."""

    def __init__(self, parent: Path) -> None:
        self.folder = parent / "traps"
        self._told = parent / "told"
        self.folder.mkdir()
        self._told.mkdir(mode=0o777)
        self.names = sorted({*FOREIGN, *(name for name in sys.stdlib_module_names if name[0] != "_")})
        for name in self.names:
            told = str(self._told / name)
            self._lay(f"{name}.py", f"open({told!r}, 'w').close()\nraise ImportError('a trap: {name}')\n")
        for name in PROGRAMS:
            self._lay(name, f"#!/bin/sh\n: > '{self._told}/{name}'\nexit 1\n")

    def _lay(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    def leave_to_python(self) -> None:
        """Take away what every `python -c` imports itself, before any of us: linecache, from 3.13 on."""
        command = [sys.executable, "-c", "pass"]
        while subprocess.run(command, cwd=self.folder, capture_output=True, check=False).returncode:
            for name in self.sprung():
                (self.folder / f"{name}.py").unlink()

    def sprung(self) -> list[str]:
        """The names of those that ran since we looked last."""
        found = sorted(self._told.iterdir())
        for path in found:
            path.unlink()
        return [path.name for path in found]
