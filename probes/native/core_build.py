"""`python probes/native/core_build.py [OUTPUT] [FLAG ...]`: compile the native core; 1 and a line where it cannot.

Without OUTPUT it goes beside the probe's modules, where the agent looks for it. One binary for CPython 3.11 and later
on this kind of machine. CC names another compiler; further flags are the compiler's (`make native-check` asks for
sanitizers).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("core.c")
PHASES: Final = Path(__file__).with_name("phases.h")  # which the source includes
OUTPUT: Final = Path(__file__).parents[1] / "tuiadvisor_probes" / "core.abi3.so"
FLAGS: Final = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wl,-z,now", "-Wl,-s")
# A limited-API core casts its methods and leaves out the ends of tables, as CPython's own documentation does.
QUIET: Final = ("-Wno-cast-function-type", "-Wno-missing-field-initializers")
COMPILE_TIMEOUT_S: Final = 120.0


def build_name() -> str:
    """Of the source: two cores of the same name are the same."""
    return hashlib.sha256(SOURCE.read_bytes() + PHASES.read_bytes()).hexdigest()[:16]


def is_current(output: Path = OUTPUT) -> bool:
    """Whether the core there was made from this source."""
    return output.exists() and build_name().encode() in output.read_bytes()


def build(output: Path = OUTPUT, flags: tuple[str, ...] = ()) -> str:
    """Compile; why not, empty where it is there. The file is whole or not there."""
    if not sys.platform.startswith("linux"):
        return "the native core is for Linux"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    part = output.with_suffix(f".{os.getpid()}.part")
    include = sysconfig.get_paths()["include"]
    name = f'-DCORE_BUILD="{build_name()}"'
    command = [*compiler, *FLAGS, *QUIET, *flags, name, f"-I{include}", "-o", str(part), str(SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if done.returncode or not part.exists():
            lines = done.stderr.strip().splitlines() or [f"{compiler[0]} ended with {done.returncode}"]
            return next((line for line in lines if "error" in line), lines[-1])
        part.replace(output)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{compiler[0]}: {error}"
    finally:
        part.unlink(missing_ok=True)
    return ""


def main() -> None:
    """Compile and say what came of it."""
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    why_not = build(output, tuple(sys.argv[2:]))
    if why_not:
        sys.exit(f"no native core, the probe's hooks stay Python: {why_not}")
    print(f"{output}: {output.stat().st_size} bytes, build {build_name()}")


if __name__ == "__main__":
    main()
