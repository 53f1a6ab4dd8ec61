"""The package's build compiles the native core where a compiler is there; without one the package is whole without it.

The wheel is then for this kind of machine (cp311-abi3), else for all (py3-none-any); TUIADVISOR_PURE=1 asks for that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeCore(BuildHookInterface):
    """Adds one file to a wheel, or puts it among the sources of an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a failure is a line of the build's output."""
        if self.target_name != "wheel" or os.environ.get("TUIADVISOR_PURE") == "1":
            return
        program = Path(self.root) / "probes" / "native" / "core_build.py"
        if version == "editable":
            self._run(program)
            return
        self.folder = tempfile.TemporaryDirectory()
        core = Path(self.folder.name) / "core.abi3.so"
        if self._run(program, str(core)):
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["force_include"][str(core)] = "tuiadvisor_probes/core.abi3.so"
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel has its copy."""
        folder = getattr(self, "folder", None)
        if folder is not None:
            folder.cleanup()

    def _run(self, program: Path, *output: str) -> bool:
        done = subprocess.run(
            [sys.executable, str(program), *output], capture_output=True, text=True, check=False
        )
        self.app.display_info((done.stdout or done.stderr).strip())
        return done.returncode == 0
