"""Bytes to and from network file systems, from the kernel's own files in their true shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuiadvisor.agent.network_storage import bytes_moved

MOUNTSTATS = """\
device rootfs mounted on / with fstype rootfs
device proc mounted on /proc with fstype proc
device filer:/data mounted on /data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2
\tage:\t86400
\tcaps:\tcaps=0xfffbf7f,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t12 3 0 0 4 5 6 0 0 7 0 0 1 0 8 0 0 0 0 9 0 0 0 0 0 0 0
\tbytes:\t700 20 0 0 5000 300 4 1
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 2 0 12 99 99 0 99 0 2 0 0
device filer:/data mounted on /home/data with fstype nfs4 statvers=1.1
\tbytes:\t700 20 0 0 5000 300 4 1
device old:/scratch mounted on /scratch with fstype nfs statvers=1.1
\tbytes:\t1 2 3 4 1000 0 0 0
"""
LLITE = """\
snapshot_time             1732450000.123456789 secs.nsecs
read_bytes                6 samples [bytes] 4096 4194304 8000
ioctl                     2 samples [regs]
open                      9 samples [regs]
"""


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_nfs_counts_what_came_from_servers_once_an_export(tmp_path: Path) -> None:
    """Reads from the page cache are none; an export that is mounted twice has one set of counters."""
    put(tmp_path / "proc/self/mountstats", MOUNTSTATS)

    assert bytes_moved(tmp_path) == (6000, 300)


def test_lustre_adds_its_own(tmp_path: Path) -> None:
    """A file system that was only read has written nothing."""
    put(tmp_path / "proc/self/mountstats", MOUNTSTATS)
    put(tmp_path / "sys/kernel/debug/lustre/llite/scratch-ffff8/stats", LLITE)

    assert bytes_moved(tmp_path) == (14_000, 300)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "device proc mounted on /proc with fstype proc\n",
        "device a:/b mounted on /c with fstype nfs4\n\tbytes:\t1 2 3\n",
        "device a:/b mounted on /c with fstype nfs4\n\tbytes:\t1 2 3 4 x 6\n",
        "device\n\tbytes:\t1 2 3 4 5 6\n",
        "bytes: " + "9" * 100,
    ],
)
def test_without_such_a_file_system_nothing_is_known(tmp_path: Path, text: str) -> None:
    """None, which is not 0 bytes."""
    put(tmp_path / "proc/self/mountstats", text)
    put(tmp_path / "proc/fs/lustre/llite/x/stats", "no statistics at all\n")

    assert bytes_moved(tmp_path) == (None, None)


def test_what_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    assert bytes_moved(tmp_path) == (None, None)
