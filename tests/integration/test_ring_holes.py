"""A ring that its owner shortens or punches holes into while it is read: the reader, who may be root, lives on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

READER = """
import ctypes, os, sys
from tuiadvisor_probes import ring
folder, way = sys.argv[1:]
path = os.path.join(folder, "ring")
ring.create_ring_file(path)
writer, reader = ring.RingWriter(path), ring.RingReader(path)
writer.put_step((7,) * ring.NUM_STEP_SLOTS)
writer.put_u64(ring.OFFSET_STATE, ring.STATE_LIVE)
print(len(reader.take_steps()), reader.get_u64(ring.OFFSET_STATE), flush=True)
if way == "shorten":
    os.truncate(path, 0)
else:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDWR)
    size = os.fstat(descriptor).st_size
    os.pwrite(descriptor, (3000).to_bytes(8, "little"), ring.OFFSET_STEP_HEAD)
    for start in (ring.HEADER_BYTES, 0):
        fill = os.open(os.path.join(folder, "fill"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        assert libc.fallocate(descriptor, 3, ctypes.c_long(start), ctypes.c_long(size - start)) == 0
        try:
            while True: os.write(fill, bytes(4096))
        except OSError as error:
            print(error.strerror)
        print(reader.take_steps(), reader.num_lost_steps)
print(reader.take_events(), reader.get_u64(ring.OFFSET_STATE), reader.now()[0], reader.info())
reader.put_u64(ring.OFFSET_COMMAND, ring.COMMAND_DETACH)
print(reader.get_u64(ring.OFFSET_COMMAND))
print("alive")
"""


LOST = 2999 - 2047  # older than half a ring; the younger ones may still be being written


def _read(command: list[str], folder: Path, way: str) -> list[str]:
    done = subprocess.run(
        [*command, sys.executable, "-c", READER, str(folder), way],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.splitlines()


def test_a_ring_that_is_shortened_while_it_is_read_ends_nobody(tmp_path: Path) -> None:
    """Between a look at its size and the reading of it: what is gone reads as nothing."""
    assert _read([], tmp_path, "shorten")[-1] == "alive"


def test_a_ring_with_holes_in_a_full_file_system_ends_nobody(tmp_path: Path) -> None:
    """No page can be had any more: the records are gone, the word to leave cannot be written, and that is all."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("no file system of its own (be root)")
    mounted = 'mount -t tmpfs -o size=4m tuiadvisor-test "$0" && exec "$@"'
    lines = _read(["unshare", "--mount", "sh", "-c", mounted, str(tmp_path)], tmp_path, "punch")
    full = "No space left on device"
    assert lines == ["1 2", full, f"[] {LOST}", full, f"[] {LOST}", "[] 0 0 b''", "0", "alive"]
