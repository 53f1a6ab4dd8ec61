from __future__ import annotations

import _thread
import ctypes
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from patience import PATIENCE_S, wait_until

from tuiadvisor.inject.payload import started, wrapped
from tuiadvisor.inject.stubs import LIBC_FUNCTIONS, PYTHON_FUNCTIONS, PYTHON_VARIABLES, build_block

FAILING = [
    "raise ValueError('x')",
    "raise SystemExit(3)",
    "raise BaseException",
    "this is no Python",
    "import no_such_module",
    "def f(): return f()\nf()",
]


@pytest.mark.parametrize("code", FAILING)
def test_failing_code_neither_raises_nor_speaks(code: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Not even a syntax error or SystemExit reaches the host."""
    exec(wrapped(code), {})  # noqa: S102  as the target does
    assert tuple(capfd.readouterr()) == ("", "")


def test_code_runs_in_a_namespace_of_its_own() -> None:
    """Names of the code appear nowhere else, and text survives whatever its characters."""
    seen: list[object] = []
    namespace: dict[str, object] = {}
    sys.modules["_tuiadvisor_test_seen"] = seen  # type: ignore[assignment]
    try:
        code = "import sys\nsys.modules['_tuiadvisor_test_seen'].append((__name__, 'é\\0\\n“'))"
        exec(wrapped(code), namespace)  # noqa: S102  as the target does
    finally:
        del sys.modules["_tuiadvisor_test_seen"]
    assert seen == [("_tuiadvisor_boot", "é\0\n“")]
    assert {"__builtins__"} == set(namespace)


def test_line_before_runs_first() -> None:
    """A script removes its own file even when the code is broken."""
    namespace: dict[str, object] = {"done": []}
    exec(started("this is no Python", before="done.append(1)"), namespace)  # noqa: S102  as above
    assert namespace["done"] == [1]


@pytest.mark.parametrize("is_startable", [True, False])
def test_a_script_runs_its_code_in_a_thread_where_one_can_be_started(
    *, is_startable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No handler of the host's runs there; where there can be none the code runs all the same."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    if not is_startable:
        monkeypatch.setattr(_thread, "start_new_thread", refuse)
    seen: list[int] = []
    monkeypatch.setitem(sys.modules, "_tuiadvisor_test_seen", seen)
    code = "import _thread, sys; sys.modules['_tuiadvisor_test_seen'].append(_thread.get_ident())"
    exec(started(code, before="pass"), {})  # noqa: S102  as above
    wait_until(lambda: seen)
    assert is_startable == (seen != [threading.get_ident()])


def _mapped(content: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    base = libc.mmap(None, len(content), 1 | 2 | 4, 2 | 32, -1, 0)
    ctypes.memmove(base, content, len(content))
    return int(base)


def _addresses() -> dict[str, int]:
    libc = ctypes.CDLL(None)
    functions = {name: getattr(ctypes.pythonapi, name) for name in PYTHON_FUNCTIONS}
    functions |= {name: getattr(libc, name) for name in LIBC_FUNCTIONS}
    variables = {name: ctypes.c_void_p.in_dll(ctypes.pythonapi, name) for name in PYTHON_VARIABLES}
    return {
        name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in functions.items()
    } | {name: ctypes.addressof(variable) for name, variable in variables.items()}


class TimeLimitError(Exception):
    """What a handler of the host's raises."""


class Exiting:
    """A handler that is no function."""

    def __call__(self, *_: object) -> None:
        raise SystemExit(3)


def _limit(*_: object) -> None:
    raise TimeLimitError


def _once(number: int, _frame: object) -> None:
    """A handler that is none any more when it raises."""
    signal.signal(number, signal.SIG_DFL)
    raise TimeLimitError


@pytest.mark.parametrize(
    ("handler", "raised"),
    [
        (_limit, TimeLimitError),
        (partial(_limit, 1), TimeLimitError),
        (_once, TimeLimitError),
        (Exiting(), SystemExit),
        (signal.default_int_handler, KeyboardInterrupt),
    ],
    ids=["function", "partial", "none any more", "object", "Python's own"],
)
def test_what_a_handler_of_the_hosts_raises_amid_the_code_is_the_hosts(
    handler: Callable[..., object], raised: type[BaseException]
) -> None:
    """It passes through the guard, and through the machine code, which asks Python to raise it where the host was."""
    code = f"import signal\nsignal.raise_signal({int(signal.SIGUSR1)})"
    former = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(raised):
            exec(wrapped(code), {})  # noqa: S102  as the target does
        signal.signal(signal.SIGUSR1, handler)
        block = build_block(_addresses(), wrapped(code).encode())
        base = _mapped(block.content)
        call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(base + block.pending_entry)
        with pytest.raises(raised):
            call(base)
    finally:
        signal.signal(signal.SIGUSR1, former)
    sum(range(10))  # a pending call comes between two lines
    assert f"{base:x}-" not in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_start_entry_starts_a_thread_that_runs_the_text() -> None:
    """A call of the main thread's returns 0 at once; the text runs in another thread, which unmaps the block."""
    seen: list[int] = []
    sys.modules["_tuiadvisor_test_seen"] = seen  # type: ignore[assignment]
    try:
        source = "import _thread, sys; sys.modules['_tuiadvisor_test_seen'].append(_thread.get_ident())"
        block = build_block(_addresses(), source.encode())
        base = _mapped(block.content)
        assert 0 == ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(base + block.start_entry)(base)
        wait_until(lambda: f"{base:x}-" not in Path("/proc/self/maps").read_text(encoding="utf-8"))
    finally:
        del sys.modules["_tuiadvisor_test_seen"]
    assert len(seen) == 1
    assert seen != [threading.get_ident()]


def test_pending_entry_runs_the_text_and_unmaps_itself() -> None:
    """The machine code, called in our own process: result 0, effect there, block gone, no reference lost."""
    seen: list[object] = []
    sys.modules["_tuiadvisor_test_seen"] = seen  # type: ignore[assignment]
    try:
        for source in (
            "__import__('sys').modules['_tuiadvisor_test_seen'].append(1)",
            wrapped("raise ValueError"),
        ):
            block = build_block(_addresses(), source.encode())
            base = _mapped(block.content)
            assert len(block.content) % 4096 == 0
            call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(base + block.pending_entry)
            assert call(base) == 0
            assert f"{base:x}-" not in Path("/proc/self/maps").read_text(encoding="utf-8")
    finally:
        del sys.modules["_tuiadvisor_test_seen"]
    assert seen == [1]


def test_thread_entry_takes_and_gives_the_gil() -> None:
    """Started as a real thread in a process of its own, many times over."""
    program = f"""
import ctypes, sys, time
sys.path[:0] = {sys.path!r}
sys.path.append({__file__.rpartition("/")[0]!r})
from test_inject_payload import _addresses, _mapped
from tuiadvisor.inject.stubs import build_block
seen = sys.modules["seen"] = []
libc = ctypes.CDLL(None)
block = build_block(_addresses(), b"__import__('sys').modules['seen'].append(1)")
for _ in range(50):
    base = _mapped(block.content)
    slot = ctypes.c_ulong()
    entry = ctypes.c_void_p(base + block.thread_entry)
    assert libc.pthread_create(ctypes.byref(slot), None, entry, ctypes.c_void_p(base)) == 0
while len(seen) < 50:
    time.sleep(0.001)
"""
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (completed.stdout, completed.stderr, completed.returncode) == ("", "", 0)


@pytest.mark.slow
def test_large_text_fills_whole_pages() -> None:
    """A block grows with its text and ends with a zero byte."""
    source = b"#" * 10_000
    block = build_block(_addresses(), source)
    assert len(block.content) == 3 * 4096
    assert source + b"\0" in block.content
    gc.collect()
