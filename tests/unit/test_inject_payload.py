from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

from tuiadvisor.inject.payload import wrapped
from tuiadvisor.inject.stubs import LIBC_FUNCTIONS, PYTHON_FUNCTIONS, build_block

FAILING = [
    "raise ValueError('x')",
    "raise SystemExit(3)",
    "raise KeyboardInterrupt",
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
    exec(wrapped("this is no Python", before="done.append(1)"), namespace)  # noqa: S102  as above
    assert namespace["done"] == [1]


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
    return {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in functions.items()}


def test_pending_entry_runs_the_text_and_unmaps_itself() -> None:
    """The machine code, called in our own process: result 0, effect there, block gone, no reference lost."""
    seen: list[object] = []
    sys.modules["_tuiadvisor_test_seen"] = seen  # type: ignore[assignment]
    try:
        for source in ("__import__('sys').modules['_tuiadvisor_test_seen'].append(1)", "raise ValueError"):
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
