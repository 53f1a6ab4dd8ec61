"""The screens through a real ssh over a slow line, beside htop and btop: bytes, frames, lag of the screen behind a key.

Run: python tests/benchmarks/slow_line.py [--seconds 20] [--rate 50000] [--rtt 0.15] [--ranks 4 1024].  An sshd of our
own on loopback, with keys of its own, behind a proxy that lets so many bytes a second through each way and holds each
back for half the round trip. What is not installed is skipped with a line. The terminal at this end is a
pseudo-terminal that answers where its cursor is, as soon as it has read the question.
"""

from __future__ import annotations

import argparse
import getpass
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from screens import Terminal

HERE = Path(__file__).parent
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
# What a line holds before its sender has to wait: routers and modems have buffers.
LINE_BUFFER_BYTES = 32_000
NUM_KEYS = 15
SIZES = ((80, 24), (200, 50))


@dataclass
class Way:
    """One direction of a slow line. Bytes leave in order, so many a second, each after the delay."""

    rate: float
    delay_s: float
    num_bytes: int = 0
    longest_queue_s: float = 0.0
    _free_s: float = 0.0
    _held: deque[tuple[float, bytes]] = field(default_factory=deque)
    _num_held: int = 0
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _ended: bool = False

    def put(self, data: bytes) -> None:
        """Take what a sender wrote; waits while the line's buffer is full."""
        with self._lock:
            self._lock.wait_for(lambda: self._num_held < LINE_BUFFER_BYTES or self._ended)
            now_s = time.monotonic()
            begins_s = max(self._free_s, now_s)
            self.longest_queue_s = max(self.longest_queue_s, begins_s - now_s)
            self._free_s = begins_s + len(data) / self.rate
            self._held.append((self._free_s + self.delay_s, data))
            self._num_held += len(data)
            self.num_bytes += len(data)
            self._lock.notify_all()

    def take(self) -> bytes:
        """What has arrived at the other end; waits for it. Empty at the end."""
        with self._lock:
            self._lock.wait_for(lambda: self._held or self._ended)
            if not self._held:
                return b""
            due_s, data = self._held[0]
        time.sleep(max(due_s - time.monotonic(), 0.0))
        with self._lock:
            self._held.popleft()
            self._num_held -= len(data)
            self._lock.notify_all()
        return data

    def end(self) -> None:
        """Let go of whoever waits."""
        with self._lock:
            self._ended = True
            self._lock.notify_all()


class SlowLine:
    """A port on loopback that leads to another one, slowly. One connection at a time is counted."""

    def __init__(self, port: int, rate: float, rtt_s: float) -> None:
        self.target = port
        self.rate, self.delay_s = rate, rtt_s / 2
        self.down = self.up = Way(rate, self.delay_s)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            self.up, self.down = Way(self.rate, self.delay_s), Way(self.rate, self.delay_s)
            for way, source, sink in ((self.up, near, far), (self.down, far, near)):
                threading.Thread(target=_read, args=(way, source), daemon=True).start()
                threading.Thread(target=_write, args=(way, sink), daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self.listener.close()


def _read(way: Way, source: socket.socket) -> None:
    # 1,400 bytes: larger pieces would arrive at once where a line delivers one packet after the other.
    with suppress(OSError):
        while data := source.recv(1400):
            way.put(data)
    way.end()


def _write(way: Way, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := way.take():
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


class Server:
    """An sshd with keys and a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("host_key", "user_key"):
            _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)])
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        config = folder / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/user_key.pub\nStrictModes no\nPasswordAuthentication no\n"
            "PermitRootLogin prohibit-password\nPrintMotd no\nPrintLastLog no\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on it
        self.log = (folder / "sshd.log").open("wb")
        self.process = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(config)], stderr=self.log)
        end_s = time.monotonic() + 10
        while time.monotonic() < end_s and self.process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)
        raise RuntimeError(f"sshd did not start: {(folder / 'sshd.log').read_text()}")

    def command(self, port: int, remote: str, *, compressed: bool) -> list[str]:
        """The ssh command that runs `remote` on a terminal through this port."""
        options = ["StrictHostKeyChecking=no", f"UserKnownHostsFile={self.folder}/known", "LogLevel=ERROR"]
        options += ["IdentitiesOnly=yes", "BatchMode=yes", f"Compression={'yes' if compressed else 'no'}"]
        arguments = [each for option in options for each in ("-o", option)]
        identity = ["-i", f"{self.folder}/user_key", "-p", str(port)]
        return [
            str(shutil.which("ssh")),
            "-tt",
            *identity,
            *arguments,
            f"{getpass.getuser()}@127.0.0.1",
            remote,
        ]

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(10)
        self.log.close()


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=30)


@dataclass(frozen=True)
class Program:
    """What is looked at over the line."""

    name: str
    remote: str
    ready: bytes  # a pattern: it is on the screen
    key: bytes
    answer: bytes  # a pattern that only the answer to the key has
    back: bytes  # takes the answer away again
    leave: bytes


def programs(ranks: list[int]) -> list[Program]:
    """Ours on its heaviest screen, and the others where they are installed."""
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "PATH") if name in os.environ}
    environment = " ".join(f"{name}='{value}'" for name, value in kept.items())
    found = []
    for num in ranks:
        ours = f"{environment} {sys.executable} {HERE / 'screens.py'} --child {num} 17"
        found.append(
            Program(f"ours, {num} ranks", ours, rb"pretrain-7b", b"?", rb"all other keys", b"?", b"q")
        )
    for name, answer, back in (
        ("htop", rb"(?i)press any key|Released under", b" "),
        (
            "btop",
            rb"Description",
            b"\x1b",
        ),  # its menu is drawn, letter by letter, of blocks: only its help has words
    ):
        path = shutil.which(name)
        if path is None:
            print(f"skipped: {name} is not installed")
            continue
        remote = f"TERM=xterm-256color LC_ALL=C.UTF-8 {path}" + (" --utf-force" if name == "btop" else "")
        found.append(Program(name, remote, rb"(?i)cpu", b"h", answer, back, b"q"))
    return found


def measure(
    server: Server,
    line: SlowLine,
    program: Program,
    size: tuple[int, int],
    seconds: float,
    *,
    compressed: bool,
) -> str:
    """A row of the table."""
    terminal = Terminal([], *size, program=server.command(line.port, program.remote, compressed=compressed))
    try:
        if not terminal.read(60.0, program.ready):
            return f"| {program.name} | {size[0]}x{size[1]} | did not start |"
        terminal.read(4.0)
        if program.name.startswith("ours"):
            os.write(terminal.fd, b"2")  # the ranks, heat map and all
            terminal.read(3.0)
        shown, wire, frames = terminal.num_bytes, line.down.num_bytes, terminal.num_frames
        line.down.longest_queue_s = 0.0
        terminal.read(seconds)
        rates = [
            (now - before) / seconds
            for now, before in ((terminal.num_bytes, shown), (line.down.num_bytes, wire))
        ]
        per_s = (terminal.num_frames - frames) / seconds
        lags = [lag for _ in range(NUM_KEYS) if (lag := _lag_s(terminal, program)) is not None]
        queued_s = line.down.longest_queue_s
        os.write(terminal.fd, program.leave)
        terminal.read(1.0)
    finally:
        terminal.close()
    waited = (
        f"{statistics.median(lags) * 1e3:,.0f} | {max(lags) * 1e3:,.0f}" if len(lags) == NUM_KEYS
        else f"{NUM_KEYS - len(lags)} of {NUM_KEYS} keys unanswered | "
    )  # fmt: skip
    name = program.name + (", ssh -C" if compressed else "")
    asked = f"{per_s:.1f}" if terminal.num_frames else "does not ask"
    measured = f"{rates[0]:,.0f} | {rates[1]:,.0f} | {asked} | {waited} | {queued_s * 1e3:,.0f}"
    return f"| {name} | {size[0]}x{size[1]} | {measured} |"


def _lag_s(terminal: Terminal, program: Program) -> float | None:
    """From a key to the end of what it brings on the screen at this end; None when it never came."""
    terminal.read(0.3)
    begin_s = time.monotonic()
    os.write(terminal.fd, program.key)
    seen = terminal.read(10.0, program.answer)
    taken_s = time.monotonic() - begin_s
    terminal.read(0.5)
    os.write(terminal.fd, program.back)
    terminal.read(0.7)
    return taken_s if re.search(program.answer, seen) else None


def main() -> None:
    """Print a row for each program and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rate", type=float, default=50_000.0, help="bytes a second, each way")
    parser.add_argument("--rtt", type=float, default=0.15, help="seconds there and back")
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 1024])
    parser.add_argument("--only", default="", help="programs whose name contains this")
    options = parser.parse_args()
    missing = [name for name, path in (("sshd", SSHD), ("ssh", shutil.which("ssh"))) if path is None]
    if missing:
        print(f"skipped: {' and '.join(missing)} not installed (openssh-server, openssh-client)")
        return
    print(f"real ssh, {options.rate / 1e3:g} kB/s each way, {options.rtt * 1e3:g} ms there and back")
    heads = [
        *("program", "size", "to the terminal, B/s", "on the wire, B/s", "frames/s, asked for"),
        *("key to screen, median ms", "worst ms", "longest wait in the line, ms"),
    ]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    with tempfile.TemporaryDirectory(prefix="slow-line-") as folder:
        server = Server(Path(folder))
        line = SlowLine(server.port, options.rate, options.rtt)
        try:
            for program in programs(options.ranks):
                if options.only not in program.name:
                    continue
                for size in SIZES:
                    for compressed in (False, True) if program.name.startswith("ours") else (False,):
                        row = measure(server, line, program, size, options.seconds, compressed=compressed)
                        print(row, flush=True)
        finally:
            line.close()
            server.close()


if __name__ == "__main__":
    main()
