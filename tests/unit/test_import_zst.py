"""Traces packed with zstd: read as any other, and what is damaged, cut or a bomb gets one line."""

from __future__ import annotations

import gzip
import resource
from typing import TYPE_CHECKING

import pytest
import zstandard
from test_import_kineto import culprits, job

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers import files
from tuiadvisor.importers.kinetoreport import kineto_document

if TYPE_CHECKING:
    from pathlib import Path


def packed(folder: Path) -> Path:
    """The job's traces as .zst, each in several frames, as pzstd writes them, the last one empty."""
    job(folder, 2, [0, 40, -40, 0])
    for path in sorted(folder.glob("*.gz")):
        text = gzip.decompress(path.read_bytes())
        parts = [zstandard.compress(text[at : at + 9000]) for at in range(0, len(text), 9000)]
        path.with_suffix(".zst").write_bytes(b"".join([*parts, zstandard.compress(b"")]))
        path.unlink()
    return folder


def test_a_packed_folder_is_read_as_any_other(tmp_path: Path) -> None:
    """The same figures as unpacked, rank by its name."""
    plain = tmp_path / "plain"
    plain.mkdir()
    job(plain, 2, [0, 40, -40, 0])
    folder = tmp_path / "packed"
    folder.mkdir()
    assert [2] == culprits(packed(folder))
    rows, others = (kineto_document(each)["per_rank"] for each in (folder, plain))
    assert [row["all"] for row in others] == [row["all"] for row in rows]


@pytest.mark.parametrize("kept", [0.5, 0.999])
def test_a_file_that_ends_within_a_frame_is_told(tmp_path: Path, kept: float) -> None:
    """Not read as a shorter trace; the others are."""
    path = packed(tmp_path) / "rank1.json.zst"
    data = zstandard.compress(zstandard.decompress(path.read_bytes()) * 300)
    path.write_bytes(data[: int(kept * len(data))])
    (loss,) = kineto_document(tmp_path)["losses"]
    assert "rank1.json.zst: truncated or damaged zstd" in loss


def test_damaged_bytes_are_told(tmp_path: Path) -> None:
    """With the file's name."""
    path = tmp_path / "rank0.json.zst"
    path.write_bytes(zstandard.compress(b"{" * 9000)[:-4] + b"\xff" * 40)
    with pytest.raises(TuiadvisorError, match=r"rank0.json.zst: truncated or damaged zstd"):
        files.read_whole(path)


@pytest.mark.slow
def test_a_bomb_is_refused_and_takes_no_memory(tmp_path: Path) -> None:
    """4 GiB of zeros in 130 KB: the limit of what is read whole holds, and a piece at a time is unpacked."""
    path, packer = tmp_path / "rank0.json.zst", zstandard.ZstdCompressor().compressobj()
    zeros = bytes(1 << 24)
    with path.open("wb") as file:
        for _ in range(256):
            file.write(packer.compress(zeros))
        file.write(packer.flush())
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TuiadvisorError, match="larger than 64 MiB unpacked"):
        files.read_whole(path, 64 << 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 400 << 10
