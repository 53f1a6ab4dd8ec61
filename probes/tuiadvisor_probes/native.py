"""The native core, where the agent has sent one and this interpreter takes it; else hooks of Python's alone.

It comes as bytes that lie beside the ring and is loaded from a memory file: no path to it need exist, and a file system
that forbids programs forbids nothing here. What keeps it out is said in `why_not`, and the training never hears of it.
"""

from __future__ import annotations

import binascii
import fcntl
import os
import struct
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

from . import forks

NAME = "_tuiadvisor_core"
FIRST_DESCRIPTOR, NUM_DESCRIPTORS = 900, 4
INTERFACE = 3  # of the core, as the rest of the probe uses it
NOT_ASKED = "not asked for"

# Half a library that is mapped ends the process by SIGBUS: what lies beside the ring says how long it is, and its sum.
_HEAD = struct.Struct("<8sQQ")
_MAGIC = b"TUICORE\0"

core: Any = None
why_not = NOT_ASKED


def packed(content: bytes) -> bytes:
    """A library as it lies beside the ring."""
    return _HEAD.pack(_MAGIC, len(content), binascii.crc32(content)) + content


def unpacked(raw: bytes) -> bytes:
    """The library in it. Raises ImportError where it is not whole."""
    content = raw[_HEAD.size :]
    if raw[: _HEAD.size] != _HEAD.pack(_MAGIC, len(content), binascii.crc32(content)):
        raise ImportError("the file beside the ring is not whole")
    return content


def load(content: bytes) -> Any:
    """The module in these bytes. Raises ImportError or OSError with the reason where it cannot be had here."""
    if sys.implementation.name != "cpython" or sys.version_info < (3, 11):
        raise ImportError("needs CPython 3.11 or later")
    if "t" in sys.abiflags:
        raise ImportError("not for a free-threaded Python")
    if type(forks.page_with(0)) is not memoryview:
        raise ImportError("this kernel does not empty a page in forked children")
    import resource

    # Of memory files too: a signal may end who writes more.
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and limit < len(content):
        raise ImportError("this process may write files of " + str(limit) + " bytes only")
    memory = os.memfd_create(NAME, os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(content)
        module = _from_memory(memory, content)
    finally:
        os.close(memory)
    if getattr(module, "INTERFACE", 0) != INTERFACE:  # of a checkout that has moved on since
        raise ImportError("built for another version: python probes/native/core_build.py builds it anew")
    return module


def _from_memory(memory: int, content: bytes) -> Any:
    """Loaded under the path of a high descriptor: the C library takes one path for one library.

    So a second attach of the same core maps nothing anew; another one, which only the name tells, gets the next number.
    """
    for wanted in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + NUM_DESCRIPTORS):
        descriptor = fcntl.fcntl(memory, fcntl.F_DUPFD_CLOEXEC, wanted)
        try:
            loader = ExtensionFileLoader(NAME, f"/proc/self/fd/{descriptor}")
            spec = spec_from_loader(NAME, loader)
            if spec is None:
                break
            module = module_from_spec(spec)
            loader.exec_module(module)
        finally:
            os.close(descriptor)
        if module.BUILD.encode() in content:
            return module
    raise ImportError("other builds of the core are loaded in this process already")


def _choose() -> None:
    """What the attach code has said to the package, if it was it that loaded us."""
    global core, why_not
    path = getattr(sys.modules[__name__.rpartition(".")[0]], "native_file", "")
    if not path:
        return
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError:
        return
    try:
        core, why_not = load(unpacked(raw)), ""
    except Exception as error:  # noqa: BLE001 - the guard: Python's hooks do without
        why_not = type(error).__name__ + ": " + str(error)[:120]


_choose()
