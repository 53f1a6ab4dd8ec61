"""The package's build compiles the native core for each machine that a compiler is there for, and does without.

The wheel is for every machine (py3-none-any) all the same: a core is no module of ours but bytes that the agent hands
to a rank, whose interpreter and C library are not those of the installation, and it binds to neither. TUIADVISOR_CORES
says which must be in it ("x86_64 aarch64"; one that cannot be compiled fails the build), or "none".
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeCore(BuildHookInterface):
    """Adds a file a machine to a wheel, or puts them among the sources of an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a failure is a line of the build's output, or its end where that core is asked for."""
        wanted = os.environ.get("TUIADVISOR_CORES", "").split()
        if self.target_name != "wheel" or wanted == ["none"]:
            return
        sys.path.insert(0, str(Path(self.root) / "probes" / "native"))
        import core_build

        self.folder = tempfile.TemporaryDirectory()
        for machine in dict.fromkeys((core_build.HERE, *core_build.MACHINES, *wanted)):
            name = core_build.file_name(machine)
            into = core_build.OUTPUT.parent if version == "editable" else Path(self.folder.name)
            why_not = core_build.build(into / name, machine=machine)
            if why_not and machine in wanted:
                self.folder.cleanup()
                raise RuntimeError(f"no native core for {machine}: {why_not}")
            self.app.display_info(f"{name}: {why_not or 'compiled'}")
            if not why_not and version != "editable":
                build_data["force_include"][str(into / name)] = f"tuiadvisor_probes/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel has its copies."""
        folder = getattr(self, "folder", None)
        if folder is not None:
            folder.cleanup()
