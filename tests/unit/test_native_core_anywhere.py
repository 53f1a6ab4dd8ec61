"""The native core is bound to no C library; that a wheel brings it, `make package` looks (release/try_wheel.py)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import native_core
import pytest

core_build = native_core.core_build

# Each C library has them, glibc since 2.17, unversioned or not; compilers may add the latter two.
OF_THE_PROCESS = {"clock_gettime", "syscall", "memcpy", "memset"}


@pytest.mark.parametrize("machine", core_build.MACHINES)
def test_a_core_asks_for_no_library(machine: str, tmp_path: Path) -> None:
    """One that names libc.so.6 loads under glibc alone, and under one as new as what it was linked with."""
    if not core_build.compiler_for(machine) or not (binutils := shutil.which("readelf")):
        pytest.skip(f"no compiler for {machine}: {machine}-linux-gnu-gcc")
    output = tmp_path / core_build.file_name(machine)
    assert core_build.build(output, machine=machine) == ""
    said = subprocess.run(
        [binutils, "--dynamic", "--dyn-syms", "--wide", output], capture_output=True, text=True, check=True
    ).stdout
    assert "(NEEDED)" not in said
    assert "GLIBC" not in said
    undefined = {line.split()[7] for line in said.splitlines() if " UND " in line and len(line.split()) > 7}
    assert {name for name in undefined if not name.startswith(("Py", "_Py"))} <= OF_THE_PROCESS
    assert "PyInit__tuiadvisor_core" in said
