"""A .zip, .tar or packed .tar of traces or recordings: its files in a folder that goes when the program ends.

In: a path.  Out: the folder, or the path itself where it is no archive. Hostile ones: regular files alone are taken,
none whose name leads out of the folder, so many and so many bytes, counted as they unpack; links and devices are left
out. Tar is read here, since Python's reader takes headers of any length into memory.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import opened
from tuiadvisor.unpacking import into_temporary

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILES: Final = 4096
MAX_BYTES: Final = 4 << 30  # of all files, unpacked
MAX_NAME_BYTES: Final = 1 << 16
MAX_DEPTH: Final = 16
MAX_LIST_BYTES: Final = 16 << 20  # of a zip's list of its files
PIECE_BYTES: Final = 1 << 20
BLOCK: Final = 512
MARK_AT: Final = 257
TAR_MARK: Final = b"ustar"
ZIP_MAGICS: Final = (b"PK\x03\x04", b"PK\x05\x06")  # the second of one that holds nothing
ZIP_END: Final = b"PK\x05\x06"
ZIP64_END: Final = b"PK\x06\x06"
ZIP_END_BYTES: Final = 22 + (1 << 16)  # with its comment
ZIP64_END_BYTES: Final = 76  # of its two records before that
REGULAR: Final = (b"0", b"\0", b"7")
LONG_NAME: Final = b"L"
EXTENDED: Final = b"x"
PICKLE: Final = "data.pkl"
OF_MACOS: Final = ("__MACOSX", "._")  # beside each file

_kept: dict[tuple[int, int, int, int], tempfile.TemporaryDirectory[str]] = {}
_names: dict[str, str] = {}  # what an archive is unpacked into -> as the user named it first


def inside(path: Path) -> Path:
    """The folder of what an archive holds, or of ARCHIVE/NAME what is called so in it; the path where it is none.

    TuiadvisorError: why it is not opened.
    """
    outer = _archive_above(path)
    if outer is not None:
        return _member(outer, path.relative_to(outer))
    root = _unpacked(path)
    return path if root is None else _down(root)


def holds(path: Path) -> bool:
    """Whether this is ARCHIVE/NAME, of whatever is in it."""
    return _archive_above(path) is not None


def _archive_above(path: Path) -> Path | None:
    """The file that is named on the way to what is none itself."""
    if path.exists():
        return None
    return next((above for above in path.parents if above.is_file() and _kind(above)), None)


def _member(archive: Path, name: Path) -> Path:
    root = _unpacked(archive)
    found = None if root is None or ".." in name.parts else root / name
    if found is None or not found.exists():
        raise TuiadvisorError(f"{archive} holds no {name}; tuiadvisor open {archive} lists what it holds")
    return found


def _unpacked(path: Path) -> Path | None:
    """The folder that an archive was unpacked into; None: it is none."""
    kind = _kind(path) if path.is_file() else None
    if kind is None:
        return None
    held = path.stat()
    key = (held.st_dev, held.st_ino, held.st_size, held.st_mtime_ns)
    if key not in _kept:
        folder = tempfile.TemporaryDirectory(prefix="tuiadvisor-")
        try:
            with into_temporary(path, kind, zipfile.BadZipFile, NotImplementedError, ValueError):
                _unpack(path, kind, _within(folder, path))
        except BaseException:
            folder.cleanup()
            raise
        _kept[key] = folder
        _names[str(_within(folder, path))] = str(path)
    return _within(_kept[key], path)


def by_their_names(text: str) -> str:
    """What is said of files in archives, with the archives' own names for the folders that they are in for now."""
    for folder, path in _names.items():
        text = text.replace(folder, path)
    return text


def _down(folder: Path) -> Path:
    """Through folders that hold nothing but one folder."""
    held = list(folder.iterdir())
    return _down(held[0]) if len(held) == 1 and held[0].is_dir() else folder


def _within(folder: tempfile.TemporaryDirectory[str], path: Path) -> Path:
    return Path(folder.name, path.name)  # so that what is said of its files names it


def _kind(path: Path) -> str | None:
    try:
        with opened(path) as file:
            head = file.read(BLOCK)
    except TuiadvisorError:
        return None  # whoever reads it says what is wrong
    if head.startswith(ZIP_MAGICS):
        return "zip"
    return "tar" if head[MARK_AT : MARK_AT + len(TAR_MARK)] == TAR_MARK else None


def _unpack(path: Path, kind: str, folder: Path) -> None:
    folder.mkdir()
    total = num_files = 0
    for name, pieces in _of_zip(path) if kind == "zip" else _of_tar(path):
        place = _place(path, name)
        if place is None:
            continue
        num_files += 1
        if num_files > MAX_FILES:
            raise TuiadvisorError(f"{path}: more than {MAX_FILES} files: unpack it and name a part of them")
        target = folder.joinpath(*place)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise TuiadvisorError(f"{path}: holds a name twice, as a file and a folder: unpack it") from None
        if target.exists():
            raise TuiadvisorError(f"{path}: holds {name!r} twice: unpack it and name one")
        with target.open("xb") as file:
            for piece in pieces:
                total += len(piece)
                if total > MAX_BYTES:
                    raise TuiadvisorError(
                        f"{path}: above {MAX_BYTES >> 30} GiB unpacked: unpack it and name a part of it"
                    )
                file.write(piece)
    if not num_files:
        raise TuiadvisorError(f"{path}: an archive without files")


def _place(path: Path, name: str) -> tuple[str, ...] | None:
    """The parts of a member's name; None: nobody's file. TuiadvisorError for one that leads out."""
    parts = tuple(part for part in name.split("/") if part not in {"", "."})
    if ".." in parts or "\0" in name:
        raise TuiadvisorError(
            f"{path}: a name in it leads out of its folder ({name[:80]!r}): not opened; who made it?"
        )
    if not parts or parts[0] == OF_MACOS[0] or parts[-1].startswith(OF_MACOS[1]):
        return None
    if len(parts) > MAX_DEPTH or any(len(os.fsencode(part)) > 255 for part in parts):
        raise TuiadvisorError(f"{path}: a name in it is too long: unpack it and name a part of it")
    return parts


def _of_zip(path: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    with opened(path) as file:
        _check_list(path, file)
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                # Of Unix links and devices the upper half of these bits tells.
                if member.is_dir() or (member.external_attr >> 16) & 0o170000 not in {0, 0o100000}:
                    continue
                if member.filename.rpartition("/")[2] == PICKLE:
                    raise TuiadvisorError(f"{path}: what torch.save wrote, a pickle, which is never opened")
                if member.flag_bits & 1:
                    raise TuiadvisorError(f"{path}: encrypted; unpack it and name what it holds")
                yield member.filename, _of_member(path, archive, member)


def _of_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise TuiadvisorError(
            f"{path}: packed by another method than deflate; unpack it and name what it holds"
        )
    with archive.open(member) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _check_list(path: Path, file: IO[bytes]) -> None:
    """Before Python reads the whole list of files into memory: how long it says that it is."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - ZIP_END_BYTES - ZIP64_END_BYTES, 0))
    tail = file.read(ZIP_END_BYTES + ZIP64_END_BYTES)
    file.seek(0)
    at, at64 = tail.rfind(ZIP_END), tail.rfind(ZIP64_END)
    num = int.from_bytes(tail[at + 10 : at + 12], "little") if at >= 0 else 0
    num_bytes = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    if at64 >= 0:
        num = max(num & 0x7FFF, int.from_bytes(tail[at64 + 32 : at64 + 40], "little"))
        num_bytes = int.from_bytes(tail[at64 + 40 : at64 + 48], "little")
    if num > 4 * MAX_FILES or num_bytes > MAX_LIST_BYTES:
        raise TuiadvisorError(f"{path}: more than {MAX_FILES} files: unpack it and name a part of them")


def _of_tar(path: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    with opened(path) as file:
        name = ""
        while (header := file.read(BLOCK)).strip(b"\0"):
            if len(header) < BLOCK or header[MARK_AT : MARK_AT + len(TAR_MARK)] != TAR_MARK:
                raise _damaged(path)
            size, kind = _number(path, header[124:136]), header[156:157]
            if kind in {LONG_NAME, EXTENDED}:
                said = _block(path, file, size)
                name = (
                    said.rstrip(b"\0").decode("utf-8", "replace") if kind == LONG_NAME else _pax(said) or name
                )
                continue
            body = _Body(path, file, size)
            if kind in REGULAR:
                yield name or _ustar_name(header), body.pieces()
            body.skip()
            name = ""


def _ustar_name(header: bytes) -> str:
    name, prefix = (header[at:end].partition(b"\0")[0] for at, end in ((0, 100), (345, 500)))
    is_posix = header[MARK_AT + 5 : MARK_AT + 6] == b"\0"  # GNU keeps times there
    return (prefix + b"/" + name if prefix and is_posix else name).decode("utf-8", "replace")


def _pax(said: bytes) -> str:
    """The path of an extended header: lines of "LENGTH key=value"."""
    for line in said.split(b"\n"):
        key, _, value = line.partition(b" ")[2].partition(b"=")
        if key == b"path":
            return value.decode("utf-8", "replace")
    return ""


def _number(path: Path, field: bytes) -> int:
    """Octal, or of large files binary behind a set bit."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[4:], "big")
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        raise _damaged(path) from None


def _block(path: Path, file: IO[bytes], size: int) -> bytes:
    if not 0 <= size <= MAX_NAME_BYTES:
        raise TuiadvisorError(f"{path}: a name in it is too long: unpack it and name a part of it")
    data = file.read(-(-size // BLOCK) * BLOCK)
    if len(data) < size:
        raise _damaged(path)
    return data[:size]


class _Body:
    """What follows a header: so many bytes, filled up to whole blocks."""

    def __init__(self, path: Path, file: IO[bytes], size: int) -> None:
        self._path, self._file = path, file
        self._left = size
        self._filled = -size % BLOCK

    def pieces(self) -> Iterator[bytes]:
        while self._left > 0:
            piece = self._file.read(min(self._left, PIECE_BYTES))
            if not piece:
                raise _damaged(self._path)
            self._left -= len(piece)
            yield piece

    def skip(self) -> None:
        """To the next header; what lies there counts as unpacked, so no hole is endless."""
        for number, _ in enumerate(self.pieces()):
            if number * PIECE_BYTES > MAX_BYTES:
                raise TuiadvisorError(
                    f"{self._path}: above {MAX_BYTES >> 30} GiB unpacked: unpack it by hand"
                )
        self._file.read(self._filled)


def _damaged(path: Path) -> TuiadvisorError:
    return TuiadvisorError(f"{path}: truncated or damaged tar; copy it again")
