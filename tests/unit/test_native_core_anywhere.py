"""The native core is bound to no C library; that a wheel brings it, `make package` looks (release/try_wheel.py)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import native_core
import pytest

core_build = native_core.core_build

# Each C library has them, glibc since 2.17, unversioned or not; compilers may add the latter two.
OF_THE_PROCESS = {"clock_gettime", "syscall", "memcpy", "memset"}


@pytest.mark.parametrize("machine", core_build.MACHINES)
def test_a_core_asks_for_no_library(machine: str, tmp_path: Path) -> None:
    """One that names libc.so.6 loads under glibc alone, and under one as new as what it was linked with."""
    if why_not := core_build.why_no_compiler(machine) or native_core.why_not():
        pytest.skip(f"no native core: {why_not}")
    if not (binutils := shutil.which("readelf")):
        pytest.skip("no readelf (binutils)")
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


def test_without_a_compiler_there_is_no_core_and_one_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that is named but not there was started all the same, and its absence read as a failed build."""
    output = tmp_path / core_build.file_name()
    monkeypatch.setenv("CC", "/no/such/compiler -O1")
    assert [] == core_build.compiler_for(core_build.HERE)
    said = core_build.build(output)
    assert f"no compiler for {core_build.HERE}: /no/such/compiler" == said == core_build.why_no_compiler()
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(core_build.sysconfig, "get_config_var", lambda _name: "clang -pthread")
    assert f"no compiler for {core_build.HERE}: clang or cc" == core_build.build(output)
    (tmp_path / "cc").touch(0o755)  # Python's own is not here, this machine's is
    assert ["cc"] == core_build.compiler_for(core_build.HERE)
    assert "" == core_build.why_no_compiler()
    assert not output.exists()


def build_hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package build's own, on a stand-in for hatchling, which only a build has."""
    interface = ModuleType("interface")
    interface.BuildHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    path = Path(core_build.__file__).with_name("hatch_hook.py")
    spec = spec_from_file_location("hatch_hook", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    hook = module.NativeCore()
    hook.target_name, hook.root = "wheel", str(path.parents[2])
    hook.app = SimpleNamespace(display_info=lambda _text: None)
    return hook


def test_a_wheel_is_for_every_machine_and_brings_each_core_that_can_be_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wheel for `linux_x86_64` no index takes; one that must have a core and cannot is none."""
    if why_not := native_core.why_not():
        pytest.skip(f"no native core: {why_not}")
    monkeypatch.delenv("TUIADVISOR_CORES", raising=False)
    hook, build_data = build_hook(monkeypatch), {"force_include": dict[str, str]()}
    hook.initialize("standard", build_data)
    expected = {
        f"tuiadvisor_probes/{core_build.file_name(one)}"
        for one in core_build.MACHINES
        if core_build.compiler_for(one)
    }
    assert {"force_include"} == set(build_data)  # no tag of a platform
    assert expected == set(build_data["force_include"].values())
    assert all(Path(path).stat().st_size for path in build_data["force_include"])
    hook.finalize("standard", build_data, "")
    monkeypatch.setenv("TUIADVISOR_CORES", "none")
    build_hook(monkeypatch).initialize("standard", nothing := {"force_include": dict[str, str]()})
    assert {"force_include": {}} == nothing
    monkeypatch.setenv("TUIADVISOR_CORES", "no_such_machine")
    with pytest.raises(RuntimeError, match="no native core for no_such_machine: no compiler"):
        build_hook(monkeypatch).initialize("standard", {"force_include": dict[str, str]()})
