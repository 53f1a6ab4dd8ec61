"""Run a command in which ptrace is forbidden, as hardened containers do it: `python tests/without_ptrace.py COMMAND …`.

A seccomp filter answers ptrace(2) with EPERM; it holds for all children and needs no rights. Exit code 77 where the
kernel has no seccomp filters.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_LOAD_NUMBER, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_PTRACE = 101  # x86-64
_EPERM, _ALLOW = 0x00050001, 0x7FFF0000
NO_SECCOMP = 77
PROGRAM = (
    (_LOAD_NUMBER, 0, 0, 0),
    (_JUMP_IF_EQUAL, 0, 1, _PTRACE),
    (_RETURN, 0, 0, _EPERM),
    (_RETURN, 0, 0, _ALLOW),
)


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def main() -> None:
    """Forbid, then become the command."""
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in PROGRAM)
    room = ctypes.create_string_buffer(code)
    program = _Program(len(PROGRAM), ctypes.addressof(room))
    libc = ctypes.CDLL(None)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_SECCOMP, _FILTER, ctypes.byref(program), 0, 0):
        sys.exit(NO_SECCOMP)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  that is what it is for


if __name__ == "__main__":
    main()
