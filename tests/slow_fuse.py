"""A file system in user space that takes its time: `python tests/slow_fuse.py FOLDER SECONDS [COMMAND ...]`.

One file, `data`, of 1 GiB of zeros, that passes the kernel's cache by, as a mounted bucket may. Every lookup, open and
read is answered after SECONDS. Mounted in a user and mount namespace of its own (nobody else sees it, no right is
needed); COMMAND runs in it, with its exit code for ours; 77 where the kernel lets nobody mount such a thing.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

LOOKUP, GETATTR, OPEN, READ, INIT, FORGET, INTERRUPT = 1, 3, 14, 15, 26, 2, 36  # linux/fuse.h
ROOT, FILE = 1, 2
SIZE: Final = 1 << 30
DIRECT_IO: Final = 1
HEADER: Final = struct.Struct("<IIQQIIII")
NO_MOUNT: Final = 77
CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000
EPERM, ENOENT, ENOSYS = 1, 2, 38


def attributes(node: int) -> bytes:
    """As struct fuse_attr."""
    mode, size = (0o40755, 0) if node == ROOT else (0o100644, SIZE)
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, size // 512, *[0] * 6, mode, 1, 0, 0, 0, 4096, 0)


def answer(op: int, node: int, body: bytes) -> bytes | int:
    """What is told after the header, or the error."""
    if op == INIT:
        return struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, 0, 0, 0, 4096, 0, 0, 0, 0, *[0] * 7)
    if op == LOOKUP:
        is_there = body.rstrip(b"\0") == b"data"
        return struct.pack("<QQQQII", FILE, 0, 0, 0, 0, 0) + attributes(FILE) if is_there else ENOENT
    if op == GETATTR:
        return struct.pack("<QII", 0, 0, 0) + attributes(node)
    if op == OPEN:
        return struct.pack("<QII", 0, DIRECT_IO, 0)
    if op == READ:
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes(max(0, min(size, SIZE - offset)))
    return ENOSYS


def serve(device: int, seconds: float) -> None:
    """Until it is unmounted."""
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError:
            return
        _, op, unique, node, *_ = HEADER.unpack_from(request)
        if op in {FORGET, INTERRUPT}:
            continue
        if op != INIT:
            time.sleep(seconds)
        told = answer(op, node, request[HEADER.size :])
        code, body = (-told, b"") if isinstance(told, int) else (0, told)
        try:
            os.write(device, struct.pack("<IiQ", 16 + len(body), code, unique) + body)
        except OSError:  # whoever asked has gone
            continue


def own_namespaces() -> None:
    """As their root."""
    uid, gid = os.getuid(), os.getgid()
    _checked(ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER | CLONE_NEWNS))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)


def _checked(code: int) -> None:
    if code:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> int:
    """COMMAND's exit code."""
    folder, seconds, *command = sys.argv[1:]
    try:
        own_namespaces()
        device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
        _checked(ctypes.CDLL(None, use_errno=True).mount(b"slow", folder.encode(), b"fuse", 0, options))
    except OSError as error:
        print(f"no file system in user space can be mounted here: {error}", file=sys.stderr)
        return NO_MOUNT
    threading.Thread(target=serve, args=(device, float(seconds)), daemon=True).start()
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
