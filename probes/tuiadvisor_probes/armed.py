"""Dormant listener of a process started armed: waits, asleep, for a watcher's code.

Only when TUIADVISOR_ARM=1. One thread asleep in accept(), 0.4 MB, no wake-ups; it costs about 5 ms once, at
the start. Standard library only, and not `threading`: a stranger's process should not see a thread object of ours. Nor
`socket`, `struct` and `contextlib`: importing them doubles the start of Python (17 against 3 ms); nor `__future__`.
Protocol: see `start`. Code is taken from the same user and from root only, and from nobody else the socket's
private folder would let in.
"""

import _socket
import _thread
import atexit
import os
import stat
import sys

_MAX_CODE_BYTES = 64 << 20
_RECEIVE_S = 5.0
_CREDENTIALS_BYTES = 12  # struct ucred: pid, uid, gid
_listener: _socket.socket | None = None


def start() -> bool:
    """Listen on /tmp/tuiadvisor-arm-<uid>[-<random>]/<pid>.sock; False where that is impossible or not wanted.

    A connection brings 8 bytes big-endian length and as many bytes of UTF-8 source. It is closed when they
    are there, then the source runs in a fresh namespace. A forked child isn't armed: the thread stays behind
    and the socket is closed.
    """
    global _listener
    if os.environ.get("TUIADVISOR_ARM") != "1" or _listener is not None:
        return False
    try:
        path = os.path.join(_private_folder(), f"{os.getpid()}.sock")
        _listener = _listen(path)
        _thread.start_new_thread(_serve, (_listener,))
    except (OSError, RuntimeError):
        return False
    atexit.register(_remove, path, os.getpid())
    os.register_at_fork(after_in_child=_close)
    return True


def _private_folder() -> str:
    """The user's folder, which must be a real folder, ours, and closed to others: /tmp is everybody's.

    Where somebody else has taken its name, one of this process's own, under a name that nobody can know before.
    """
    folder = f"/tmp/tuiadvisor-arm-{os.getuid()}"  # noqa: S108  checked below; watchers look here
    try:  # noqa: SIM105  contextlib costs more than all of this
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        folder = f"{folder}-{os.urandom(8).hex()}"
        os.mkdir(folder, 0o700)
    return folder


def _listen(path: str) -> _socket.socket:
    try:  # noqa: SIM105
        os.unlink(path)  # left behind by a killed process that had our number
    except FileNotFoundError:
        pass
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    listener.bind(path)
    listener.listen(4)
    return listener


def _serve(listener: _socket.socket) -> None:
    while True:
        try:
            descriptor, _ = listener._accept()  # type: ignore[attr-defined]  # what socket.accept itself calls
        except OSError:
            return
        try:
            code = _receive(_socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, descriptor))
            if code is not None:
                _run(code)
        except Exception:  # noqa: BLE001, S110  whoever connects with nonsense is not answered
            pass


def _receive(connection: _socket.socket) -> str | None:
    try:
        if not _is_trusted(connection):
            return None
        connection.settimeout(_RECEIVE_S)
        length = int.from_bytes(_read(connection, 8), "big")
        return _read(connection, length).decode() if length <= _MAX_CODE_BYTES else None
    finally:
        connection.close()


def _is_trusted(connection: _socket.socket) -> bool:
    credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS_BYTES)
    uid = int.from_bytes(credentials[4:8], sys.byteorder)
    return uid in {0, os.getuid()}


def _read(connection: _socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length:
        part = connection.recv(min(length - len(content), 1 << 16))
        if not part:
            raise ConnectionError
        content += part
    return bytes(content)


def _run(code: str) -> None:
    # SystemExit and KeyboardInterrupt of the code end nothing here, and nothing is printed.
    try:  # noqa: SIM105
        exec(code, {"__name__": "_tuiadvisor_boot"})  # noqa: S102  this is what the listener is for
    except BaseException:  # noqa: BLE001, S110
        pass


def _close() -> None:
    global _listener
    if _listener is not None:
        _listener.close()
        _listener = None


def _remove(path: str, owner_pid: int) -> None:
    if os.getpid() == owner_pid:
        try:
            os.unlink(path)
            if path.count("-") > 2:  # a folder of this process's own
                os.rmdir(os.path.dirname(path))
        except OSError:
            pass
