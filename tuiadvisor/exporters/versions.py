"""Versions, device models and the like, cut down to the part that cannot name a site.

A local build of torch may carry a company's name, a kernel a cluster's: what is kept is what all the world runs.
"""

from __future__ import annotations

import re
from typing import Final

_VERSION: Final = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,4}(?:(?:a|b|rc|\.dev|\.post)\d{1,8})?")
_BUILD: Final = re.compile(r"\+(?:cpu|xpu|cu\d{2,4}|rocm\d[\d.]{0,6})$")
_SYSTEM: Final = re.compile(r"(Linux|Darwin|Windows)(?:-(\d{1,3}\.\d{1,3}))?")
_MACHINE: Final = re.compile(r"\b(x86_64|aarch64|ppc64le|arm64|riscv64|AMD64)\b")
_LIBC: Final = re.compile(r"\b(glibc\d\.\d{1,3}|musl)")
_MODEL: Final = re.compile(
    r"(?:NVIDIA|AMD|Intel|Tesla|GeForce|Quadro|Habana|Ascend)(?:[ -][A-Za-z0-9.()]{1,12}){0,8}"
)
_LAYOUT: Final = frozenset({"dp", "tp", "pp", "cp", "ep", "sp", "fsdp", "hsdp", "zero", "vpp", "edp", "etp"})


def version(text: str) -> str | None:
    """'2.6.0+cu124' stays, '2.6.0+acme.17' is '2.6.0', words are None."""
    found = _VERSION.match(text)
    if found is None:
        return None
    build = _BUILD.search(text)
    return found[0] + (build[0] if build and build.start() == found.end() else "")


def platform_name(text: str) -> str | None:
    """'Linux-6.1 x86_64 glibc2.36' of whatever the system calls itself."""
    system = _SYSTEM.match(text)
    if system is None:
        return None
    rest = (_MACHINE.search(text), _LIBC.search(text))
    return " ".join([system[0], *(found[1] for found in rest if found)])


def device_model(text: str) -> str:
    """'NVIDIA H100 80GB HBM3'; anything else is 'device'."""
    return text if _MODEL.fullmatch(text) else "device"


def is_layout_name(text: str) -> bool:
    """dp, tp, pp and their kin."""
    return text in _LAYOUT
