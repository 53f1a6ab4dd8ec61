"""`python probes/native/core_build.py [OUTPUT] [FLAG ...]`: compile the native core; 1 and a line where it cannot.

Without OUTPUT one core goes beside the probe's modules for each machine that a compiler is here for, where the agent
looks for its own. A core binds to no C library: it asks for four functions at most that the process has anyway, so that
one binary serves CPython 3.11 and later on glibc of any age and on musl. CC names another compiler of this machine's
core; further flags are the compiler's (`make native-check` asks for sanitizers).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("core.c")
PARTS: Final = ("phases.h", "hot.h", "books.h", "clock.h", "gate.h")  # which the source includes
MACHINES: Final = ("x86_64", "aarch64")  # that a package brings a core for
HERE: Final = os.uname().machine
FLAGS: Final = (
    "-Os",
    "-fno-plt",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wl,-z,now",
    "-Wl,-s",
)
# Calls of the C library stay open until the core is loaded, whichever it is then; a sanitizer brings one of its own.
OF_NO_LIBRARY: Final = ("-nostdlib",)
# A limited-API core casts its methods and leaves out the ends of tables, as CPython's own documentation does.
QUIET: Final = ("-Wno-cast-function-type", "-Wno-missing-field-initializers")
COMPILE_TIMEOUT_S: Final = 120.0


def file_name(machine: str = HERE) -> str:
    """Of a machine's core, as `tuiadvisor.agent.payload` asks for it."""
    return f"core.{machine}.elf"


OUTPUT: Final = Path(__file__).parents[1] / "tuiadvisor_probes" / file_name()


def _compilers(machine: str) -> list[list[str]]:
    """The commands that may compile for it, the first choice first, whether or not they are here."""
    if machine != HERE:
        return [[f"{machine}-linux-gnu-gcc"]]
    if chosen := shlex.split(os.environ.get("CC", "")):
        return [chosen]
    # An interpreter that was built elsewhere names the compiler it had there.
    return [words for words in (shlex.split(sysconfig.get_config_var("CC") or ""), ["cc"]) if words]


def compiler_for(machine: str) -> list[str]:
    """The words of a command; empty where no compiler for it is here."""
    return next((words for words in _compilers(machine) if shutil.which(words[0])), [])


def why_no_compiler(machine: str = HERE) -> str:
    """What was looked for; empty where there is one."""
    looked_for = dict.fromkeys(words[0] for words in _compilers(machine))
    return "" if compiler_for(machine) else f"no compiler for {machine}: {' or '.join(looked_for)}"


def build_name() -> str:
    """Of the source: two cores of the same name are the same."""
    return hashlib.sha256(
        b"".join(path.read_bytes() for path in (SOURCE, *map(SOURCE.with_name, PARTS)))
    ).hexdigest()[:16]


def is_current(output: Path = OUTPUT) -> bool:
    """Whether the core there was made from this source."""
    return output.exists() and build_name().encode() in output.read_bytes()


def build(output: Path = OUTPUT, flags: tuple[str, ...] = (), machine: str = HERE) -> str:
    """Compile; why not, empty where it is there. The file is whole or not there."""
    if not sys.platform.startswith("linux"):
        return "the native core is for Linux"
    if why_not := why_no_compiler(machine):
        return why_not
    compiler = compiler_for(machine)
    if not any(flag.startswith("-fsanitize") for flag in flags):
        flags = (*OF_NO_LIBRARY, *flags)
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
    for machine in () if len(sys.argv) > 1 else MACHINES:
        other = OUTPUT.with_name(file_name(machine))
        if machine != HERE and compiler_for(machine):
            print(f"{other}: {build(other, machine=machine) or f'{other.stat().st_size} bytes'}")


if __name__ == "__main__":
    main()
