"""One file for machines without a network: `python release/bundle.py` writes dist/tuiadvisor.pyz.

It runs on every CPython of PYTHONS with nothing installed. Compiled modules carry their Python's version in their name,
so the wheels of several versions lie beside each other in one folder, and what they share is there once. shiv makes the
file; it unpacks itself into ~/.shiv (SHIV_ROOT) when it is started for the first time.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
GLIBCS: Final = ("2_28", "2_27", "2_17", "2_12", "2_5")  # of manylinux, the newest first; 2.28 is RHEL 8's
MAX_BYTES: Final = 60_000_000
MARK: Final = "tuiadvisor-bundle"  # tuiadvisor/ownpython.py looks for it
# Nothing of ours imports these: half of what all weighs.
LEFT_OUT: Final = (
    "bin",
    "numpy/f2py",
    "numpy/distutils",
    "numpy/_core/include",
    "numpy/_core/lib",
    "numpy/random/lib",
)
LEFT_OUT_NAMES: Final = ("*.pyi", "*.a", "_cffi.*.so", "*.pxd")
LEFT_OUT_FOLDERS: Final = frozenset({"tests", "__pycache__"})


def wheels_of(python: str, wheel: Path, folder: Path) -> None:
    """Our wheel and what it needs for one version of Python, unpacked."""
    machine = platform.machine()
    platforms = [f"manylinux_{glibc}_{machine}" for glibc in GLIBCS] + [f"manylinux2014_{machine}"]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:"),
            *("--target", str(folder), "--python-version", python, "--implementation", "cp"),
            *(word for name in platforms for word in ("--platform", name)),
            *("--constraint", str(ROOT / "constraints.txt"), str(wheel)),
        ],
        check=True,
    )


def is_left_out(path: Path) -> bool:
    """Whether nobody misses a file, by its place in the folder of packages."""
    return (
        any(path.is_relative_to(folder) for folder in LEFT_OUT)
        or any(path.match(name) for name in LEFT_OUT_NAMES)
        or not LEFT_OUT_FOLDERS.isdisjoint(path.parts)
    )


def merge(folder: Path, into: Path) -> None:
    """Put one version's packages beside the others'. SystemExit where two versions want different code in one file."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_dir() or is_left_out(relative):
            continue
        target = into / relative
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
        elif target.read_bytes() != path.read_bytes() and not (
            relative.parts[0].endswith(".dist-info") or relative.name == "__config__.py"
        ):
            raise SystemExit(
                f"{relative} differs between two versions of Python: the bundle cannot hold both"
            )


def build(output: Path, pythons: list[str]) -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(work), str(ROOT)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = work.glob("tuiadvisor-*-none-any.whl")
        packages = work / "packages"
        for python in pythons:
            wheels_of(python, wheel, work / python)
            merge(work / python, packages)
        (packages / MARK).write_text("\n".join(pythons) + "\n")
        preamble = work / "preamble.py"
        known = [tuple(map(int, python.split("."))) for python in pythons]
        preamble.write_text(
            (ROOT / "release" / "preamble.py").read_text().replace("KNOWN = ()", f"KNOWN = {known}")
        )
        output.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "shiv",
                    "--site-packages",
                    str(packages),
                    "--entry-point",
                    "tuiadvisor.cli:main",
                ),
                *(
                    "--preamble",
                    str(preamble),
                    "--compressed",
                    "--reproducible",
                    "--output-file",
                    str(output),
                ),
            ],
            check=True,
        )
    num_bytes = output.stat().st_size
    print(f"{output}: {num_bytes / 1e6:.1f} MB, for Python {', '.join(pythons)} on {platform.machine()}")
    if num_bytes > MAX_BYTES:
        raise SystemExit(
            f"that is more than {MAX_BYTES / 1e6:.0f} MB: leave more out, or a version of Python"
        )


def main() -> None:
    """Options and build."""
    parser = argparse.ArgumentParser(description="tuiadvisor as one file")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist" / "tuiadvisor.pyz")
    parser.add_argument(
        "--python", nargs="+", default=list(PYTHONS), metavar="3.12", help="versions it runs on"
    )
    options = parser.parse_args()
    build(options.output, options.python)


if __name__ == "__main__":
    main()
