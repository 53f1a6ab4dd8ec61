"""What a process calls itself, maps and writes into its ring never hides who it is, and silences nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fuzzed_processes import good_object, hurt_object, names_in, odd_process
from fuzzing import chances

from tuiadvisor.agent import procfs
from tuiadvisor.agent.drain import Drain
from tuiadvisor.agent.timespace import OUR_CLOCK
from tuiadvisor.inject import process
from tuiadvisor.inject.elf import NotElfError
from tuiadvisor.stream.frames import unpack_columns
from tuiadvisor_probes import ring

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import mmap, sys
open("/proc/self/comm", "wb").write(bytes.fromhex(sys.argv[1]))
file = open(bytes.fromhex(sys.argv[2]), "rb")
held = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_process_cannot_hide_who_it_is_behind_its_name_and_paths(tmp_path: Path) -> None:
    """Its name says another owner in a line of its own and is no UTF-8; its path another mapping. Both are real."""
    forged = os.fsencode(tmp_path) + b"/x\r7f00-8f00 r-xp 0 0:0 1 \xe2\x80\xa8libpython3.11.so\x0b"
    with open(forged, "wb") as file:  # noqa: PTH123 - no text
        file.truncate(4096)
    name = b"\xff\rUid: 9 9 9 9"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name.hex(), forged.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert os.geteuid() == procfs.owner(child.pid)
        assert os.geteuid() == process.status(child.pid).uid
        mappings = process.maps(child.pid)
        (mapped,) = [one for one in mappings if os.fsencode(one.path) == forged]
        assert mapped.start not in {0x7F00, 0x8F00}
        assert 0x7F00 not in {one.start for one in mappings}
        child.stdin.close()


def test_facts_are_found_whatever_stands_around_them() -> None:
    """Names out of every line end and of what the next line would begin with."""
    for chance in chances(200):
        shown = odd_process(chance)
        text = shown.status.decode(errors="replace")
        status, stat = process.parse_status(text), procfs.parse_stat(shown.stat)
        assert (shown.uid, shown.pid, 0) == (status.uid, status.inner_pid, status.tracer_pid)
        assert (shown.pid, 1, "S") == (stat.pid, stat.ppid, stat.state)
        found = process.parse_maps(shown.maps.decode(errors="surrogateescape"))
        assert list(shown.starts) == [mapping.start for mapping in found]


def test_a_damaged_object_is_refused_or_read(tmp_path: Path) -> None:
    """Tables that promise 2^63 bytes, chains without end, links to no section: an address, none, or one refusal."""
    good, num_read, refusals = good_object(), 0, []
    path = tmp_path / "object"
    for chance in chances(300):
        path.write_bytes(hurt_object(good, chance))
        try:
            names_in(path)
            num_read += 1
        except NotElfError as error:
            refusals.append(str(error))
    assert num_read
    assert refusals
    assert all(refusals)


@pytest.mark.parametrize("kind", [1 << 31, 1 << 63, (1 << 64) - 1])
def test_one_ranks_impossible_event_costs_no_other_rank_its_rows(tmp_path: Path, kind: int) -> None:
    """An event's kind is a word of the ring, which its process may write: no column holds it."""
    drain = Drain()
    for rank in range(2):
        path = tmp_path / f"ring{rank}"
        ring.create_ring_file(str(path), 8, 8)
        writer = ring.RingWriter(str(path))
        writer.put_event(kind if rank == 0 else 3, tuple(range(ring.NUM_EVENT_SLOTS)))
        writer.put_event(4, tuple(range(ring.NUM_EVENT_SLOTS)))
        writer.close()
        session = SimpleNamespace(is_whole=lambda _: True)
        link: Any = SimpleNamespace(
            reader=ring.RingReader(str(path)), rank=rank, session=session, clock=OUR_CLOCK, detach_reason=None
        )
        drain.take(link)
        link.reader.close()
    ((_, payload),) = drain.frames()
    columns = unpack_columns(payload, ("rank", "kind"))
    assert [(0, 4), (1, 3), (1, 4)] == list(
        zip(columns["rank"].tolist(), columns["kind"].tolist(), strict=True)
    )
