"""`make arm-check`: each way into a process, tried inside an emulated aarch64 machine; not in CI, some ten minutes.

    python tests/arm/check.py [--cpu max,pauth-impdef=on] [--log FILE]

Takes a kernel and a Python of Debian's archive, without installing anything here, and needs qemu-system-aarch64 and
aarch64-linux-gnu-gcc (apt-get install qemu-system-arm gcc-aarch64-linux-gnu libc6-dev-arm64-cross). The machine has
no disk and no network: all it needs is in its memory. Ends with 1 unless every trial is well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from archive import write_archive

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
BUILD: Final = ROOT / "build" / "arm"
NEEDED: Final = ("qemu-system-aarch64", "aarch64-linux-gnu-gcc", "apt-get", "dpkg-deb")
INSTALL: Final = "apt-get install qemu-system-arm gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
# In memory, each file costs room twice: nothing here is needed by the trials.
LEFT_OUT: Final = ("usr/share", "usr/lib/python3.11/test", "usr/lib/python3.11/lib2to3", "var")
CPU: Final = "max,pauth-impdef=on"  # SVE and SME; without that the emulator spends its time on signing return addresses
COMMAND_LINE: Final = "console=ttyAMA0 panic=-1 quiet rdinit=/usr/bin/python3.11 -- /work/guest.py"


def main() -> None:
    """Fetch, pack, boot, and say what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", default=CPU)
    parser.add_argument("--log", type=Path, default=BUILD / "console.log")
    parser.add_argument("--limit-s", type=float, default=3600.0)
    options = parser.parse_args()
    missing = [name for name in NEEDED if not program(name)]
    if missing:
        sys.exit(f"not found: {', '.join(missing)}; on Debian: {INSTALL}")
    BUILD.mkdir(parents=True, exist_ok=True)
    debs = fetched()
    kernel = kernel_of(debs)
    image = BUILD / "image.cpio.gz"
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        pack(debs, Path(folder))
        write_archive(Path(folder), image)
    told = boot(kernel, image, options.cpu, options.log, options.limit_s)
    print("\n".join(line for line in told if line.startswith(("ok ", "failed ", "aarch64 "))))
    if "all ok" not in told:
        sys.exit(f"not all is well; the whole console: {options.log}")


def program(name: str) -> str:
    """Where it is; empty where it is not."""
    return shutil.which(name) or ""


def fetched() -> list[Path]:
    """Debian's packages for aarch64: a Python with what it needs, and a kernel; kept for the next time."""
    apt = BUILD / "apt"
    archives = apt / "cache" / "archives"
    if not list(archives.glob("linux-image-*.deb")):
        for folder in ("state", "lists/partial", "cache/archives/partial"):
            (apt / folder).mkdir(parents=True, exist_ok=True)
        (apt / "status").touch()
        settings = {
            "Dir::State": apt / "state", "Dir::State::Lists": apt / "lists", "Dir::State::status": apt / "status",
            "Dir::Cache": apt / "cache", "APT::Architecture": "arm64", "APT::Sandbox::User": "",
            "APT::Install-Recommends": "false",
        }  # fmt: skip
        lines = [f'{name} "{value}";' for name, value in settings.items()]
        (apt / "apt.conf").write_text("\n".join([*lines, 'APT::Architectures { "arm64"; };', ""]))
        environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
        subprocess.run([program("apt-get"), "update"], env=environment, check=True)
        download = [program("apt-get"), "--yes", "--download-only", "install", "python3"]
        subprocess.run(download, env=environment, check=True)
        asked = [program("apt-cache"), "depends", "linux-image-cloud-arm64"]
        told = subprocess.run(asked, env=environment, check=True, capture_output=True, text=True).stdout
        name = next(line.split()[1] for line in told.splitlines() if line.split()[0] == "Depends:")
        subprocess.run([program("apt-get"), "download", name], env=environment, check=True, cwd=archives)
    return sorted(archives.glob("*.deb"))


def kernel_of(debs: list[Path]) -> Path:
    """The kernel of the one package that has one."""
    (package,) = [deb for deb in debs if deb.name.startswith("linux-image-")]
    folder = BUILD / "kernel"
    if not list(folder.glob("boot/vmlinuz-*")):
        subprocess.run([program("dpkg-deb"), "--extract", package, folder], check=True)
    (kernel,) = folder.glob("boot/vmlinuz-*")
    return kernel


def pack(debs: list[Path], folder: Path) -> None:
    """Python, what we try, and the trials."""
    for deb in debs:
        if not deb.name.startswith("linux-image-"):
            subprocess.run([program("dpkg-deb"), "--extract", deb, folder], check=True)
    for name in LEFT_OUT:
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("proc", "sys", "dev", "tmp", "work/tuiadvisor", "work/probes"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    work = folder / "work"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    (work / "tuiadvisor" / "__init__.py").touch()
    for module in (ROOT / "tuiadvisor").glob("[!_]*.py"):  # whichever of them the way in needs
        shutil.copy(module, work / "tuiadvisor")
    shutil.copytree(ROOT / "tuiadvisor" / "inject", work / "tuiadvisor" / "inject", ignore=ignored)
    probes = ROOT / "probes" / "tuiadvisor_probes"
    shutil.copytree(probes, work / "probes" / "tuiadvisor_probes", ignore=ignored)
    shutil.copy(HERE / "guest.py", work)
    shutil.copy(ROOT / "tests" / "native_notes.py", work)
    compiler = program("aarch64-linux-gnu-gcc")
    options = ["-O1", "-shared", "-fPIC", "-o"]
    subprocess.run([compiler, *options, work / "vectors.so", HERE / "vectors.c"], check=True)
    # Python's headers are those of this machine: the limited API's are the same on both.
    build: list[str | Path] = [
        sys.executable,
        ROOT / "probes" / "native" / "core_build.py",
        work / "core.abi3.so",
    ]
    subprocess.run(build, check=True, env={**os.environ, "CC": compiler})


def boot(kernel: Path, image: Path, cpu: str, log: Path, limit_s: float) -> list[str]:
    """What the machine said until it went off."""
    command = [
        program("qemu-system-aarch64"), "-M", "virt", "-cpu", cpu, "-accel", "tcg,thread=multi", "-smp", "2",
        "-m", "1G", "-nic", "none", "-nographic", "-no-reboot", "-kernel", str(kernel), "-initrd", str(image),
        "-append", COMMAND_LINE,
    ]  # fmt: skip
    with log.open("wb") as console:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=console, check=False, timeout=limit_s)
    return log.read_text(errors="replace").splitlines()


if __name__ == "__main__":
    main()
