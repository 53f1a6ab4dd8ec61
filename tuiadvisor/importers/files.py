"""Reading what others wrote, within bounds: plain or packed, a chunk or a whole, a folder's regular files.

Everything that is wrong with a file becomes one TuiadvisorError line.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers import widetext
from tuiadvisor.unpacking import (
    DAMAGED,
    MAGIC_BYTES,
    MAX_FILE_BYTES,
    SUFFIXES,
    copied,
    packing,
    unpacked,
)

if TYPE_CHECKING:
    import gzip
    import io
    from collections.abc import Iterator

MAX_WHOLE_BYTES: Final = 256 << 20  # for what must be parsed in one piece, ten times that in memory
MAX_FILES: Final = 4096
MAX_DEPTH: Final = 3  # as a profiler lays its files by rank, host and process
BOM: Final = b"\xef\xbb\xbf"  # as some editors and shells put before UTF-8
SEPARATORS: Final = ",\t;|"
RANK_IN_NAME: Final = re.compile(r"rank[-_.]?(\d{1,8})(?!\d)", re.IGNORECASE)
# Ranks of something smaller or larger than a process of the job.
OTHER_RANK: Final = re.compile(r"(?:local|node|group|host|role|(?<![a-z])[dtpce]p)[-_.]?rank", re.IGNORECASE)

# Before the events of a trace of PyTorch's profiler: whose it is, and when it began.
TRACE_HEAD_BYTES: Final = 1 << 16
RANK_OF_WORLD: Final = re.compile(
    rb'"distributedInfo"\s*:\s*\{[^{}]{0,400}?"rank"\s*:\s*(\d{1,8})\s*,\s*"world_size"\s*:\s*(\d{1,8})\b'
)
BASE_TIME: Final = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
FIRST_TIME: Final = re.compile(rb'"ts"\s*:\s*"?(\d{1,19}(?:\.\d{1,9})?)\b')
TOGETHER_NS: Final = (
    60e9  # chosen: profilers of a job begin at one step; captures a minute apart are of two runs
)


@contextmanager
def opened(path: Path, packed: list[IO[bytes]] | None = None) -> Iterator[IO[bytes]]:
    """The file's bytes, decompressed if it is packed by its content. Errors of reading are one line.

    packed: is given the file as it lies there, whose position tells how much of it was read.
    """
    try:
        # O_NONBLOCK: a named pipe must not hang us before we can see what it is.
        raw = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise TuiadvisorError(
            f"cannot read {path}: {error.strerror}; check the path and its permissions"
        ) from None
    with raw:
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raise TuiadvisorError(f"{path} is not a regular file: name a file")
        if packed is not None:
            packed.append(raw)
        kind = None
        try:
            kind = packing(raw.read(MAGIC_BYTES))
            raw.seek(0)
            if kind is None:
                yield _past_mark(raw)
            else:
                with unpacked(raw, kind) as plain:
                    yield _past_mark(plain)
        except DAMAGED as error:
            raise TuiadvisorError(
                f"{path}: truncated or damaged {kind or 'file'} ({error}); copy it again"
            ) from None
        except OSError as error:
            raise TuiadvisorError(f"cannot read {path}: {error.strerror or error}") from None


def _past_mark(unpacked: gzip.GzipFile | io.BufferedReader) -> IO[bytes]:
    """As UTF-8 behind its byte order mark, where there is one; packing hides it."""
    head = unpacked.peek(widetext.LONGEST_MARK)[: widetext.LONGEST_MARK]
    if head.startswith(BOM):
        unpacked.read(len(BOM))
    encoding = widetext.encoding_of(head)
    return (
        widetext.as_utf8(cast("IO[bytes]", unpacked), encoding) if encoding else cast("IO[bytes]", unpacked)
    )


@contextmanager
def unpacked_file(path: Path) -> Iterator[Path]:
    """What a library opens by its name: the file itself, or a copy of what it unpacks to, gone afterwards."""
    packed: list[IO[bytes]] = []
    with tempfile.NamedTemporaryFile(prefix="tuiadvisor-") as copy:
        with opened(path, packed) as file:
            is_packed = file is not packed[0]
            if is_packed and not copied(file, copy.file):
                raise TuiadvisorError(f"{path} is above {MAX_FILE_BYTES >> 30} GiB unpacked")
        copy.flush()
        yield Path(copy.name) if is_packed else path


def read_whole(path: Path, limit: int = MAX_WHOLE_BYTES) -> bytes:
    """All bytes of a file that must fit in memory; TuiadvisorError above the limit."""
    with opened(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise TuiadvisorError(
            f"{path} is larger than {limit >> 20} MiB unpacked: split it and import the parts"
        )
    return data


def listed(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The folder's regular files with one of the suffixes, packed or not, by name; a single file stands for itself.

    Of a folder without any, those in its folders, where each of these is of a rank.
    """
    try:
        if folder.is_file():
            return [folder]
        found = _with_suffix(folder, suffixes)
        if not found:
            found = [file for below in rank_folders(folder) for file in files_below(below, suffixes)]
    except OSError as error:
        raise TuiadvisorError(f"cannot open {folder}: {error.strerror}; name a folder of traces") from None
    if not found:
        raise TuiadvisorError(
            f"{folder} has no {' or '.join(suffixes)} files: name the folder with one file a rank"
        )
    if len(found) > MAX_FILES:
        raise TuiadvisorError(
            f"{folder} has {len(found)} files, more than {MAX_FILES}: import a part of them"
        )
    return found


def _with_suffix(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    entries = sorted(entry.path for entry in os.scandir(folder) if is_regular(entry))
    return [Path(path) for path in entries if plain_name(path).endswith(suffixes)]


def files_below(folder: Path, suffixes: tuple[str, ...], depth: int = MAX_DEPTH) -> list[Path]:
    """Its regular files with one of the suffixes, and those of the folders in it, so deep and so many. OSError."""
    found = _with_suffix(folder, suffixes)
    if depth:
        entries = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
        for path in entries:
            found += files_below(Path(path), suffixes, depth - 1)
            if len(found) >= MAX_FILES:
                break
    return found[:MAX_FILES]


def rank_folders(folder: Path) -> list[Path]:
    """Folders in it of one job's ranks: named after them, by rank, or with traces that say so. OSError.

    None where fewer than two are, or two are of one rank.
    """
    named: dict[int, list[Path]] = {}
    for entry in os.scandir(folder):
        rank = rank_in_name(entry.name)
        if rank is not None and entry.is_dir(follow_symlinks=False):
            named.setdefault(rank, []).append(Path(entry.path))
    if len(named) < 2 or any(len(paths) > 1 for paths in named.values()):
        return _folders_of_hosts(folder)
    return [named[rank][0] for rank in sorted(named)[:MAX_FILES]]


def _folders_of_hosts(folder: Path) -> list[Path]:
    """Folders, each with a host's traces, say, of which every one is of another rank of one job and of one time."""
    folders = sorted(
        entry.path
        for entry in os.scandir(folder)
        if entry.is_dir(follow_symlinks=False) and entry.name[0] != "."
    )[:MAX_FILES]
    heads: list[re.Match[bytes]] = []
    begins_ns: list[float] = []
    for below in folders if len(folders) > 1 else []:
        paths = _with_suffix(Path(below), (".json",))
        if not paths or len(heads) + len(paths) > MAX_FILES:
            return []
        for path in paths:
            try:
                with opened(path) as file:
                    head = file.read(TRACE_HEAD_BYTES)
            except TuiadvisorError:
                return []
            told, base, begin = RANK_OF_WORLD.search(head), BASE_TIME.search(head), FIRST_TIME.search(head)
            if told is None or begin is None:
                return []
            heads.append(told)
            begins_ns.append(float(base[1] if base else 0) + 1e3 * float(begin[1]))
    ranks = {int(told[1]) for told in heads}
    is_one_job = len(ranks) == len(heads) > 1 and len({int(told[2]) for told in heads}) == 1
    is_one_time = is_one_job and max(begins_ns) - min(begins_ns) <= TOGETHER_NS
    return [Path(below) for below in folders] if is_one_time else []


def name_within(path: Path, folder: Path) -> str:
    """A file's name, behind its folder's where that lies in the one that was named."""
    return path.name if folder in (path.parent, path) else f"{path.parent.name}/{path.name}"


def is_regular(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file, or a link to one; a link that leads in a circle is none, and hides nothing beside it."""
    try:
        return entry.is_file()
    except OSError:
        return False


def plain_name(name: str) -> str:
    """In lower case, without what says how it is packed."""
    name = name.lower()
    return next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)


def separator(header: str) -> str:
    """What stands between the columns of a table, by its first line: comma, tab, semicolon or bar."""
    return max(SEPARATORS, key=header.count)


def rank_in_name(name: str) -> int | None:
    """The rank behind the word "rank" in a file's name; None without one, or where it names two."""
    found = {int(number) for number in RANK_IN_NAME.findall(OTHER_RANK.sub("other", name))}
    return found.pop() if len(found) == 1 else None
