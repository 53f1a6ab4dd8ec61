"""An asynchronous device made of threads, for real training on a CPU: what CUDA does to the host's clock, without one.

A stream is a thread with a bounded launch queue; a launch blocks only when that is full. A kernel is a wait of known
length in it, an event is passed when the thread reaches it. The device has a clock of its own that is exact: a kernel
ends its length after the later of its launch and the end of the one before it, however late the thread woke up. That
clock is the host's monotonic one, so that ranks on one machine can meet on it.

`install()` puts it where `torch.get_device_module` looks for the CPU's module.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

QUEUE_LENGTH = 256  # CUDA has 1024 entries; with few kernels a step that would be minutes ahead
NAME = "asynchronous"
Entry = Callable[["Stream"], None]


class Stream:
    """Works off what is launched into it, in order, in a thread."""

    def __init__(self, length: int = QUEUE_LENGTH, **_options: int) -> None:
        """length: launches that fit in the queue; the next one waits for room."""
        self.free_ns = time.monotonic_ns()  # the device's clock: all before is done
        self.is_slow_by = 1.0
        self.length = length
        self.waits: list[
            tuple[int, int]
        ] = []  # when it stood still for an event of another stream: begin, end in ns
        self._entries: deque[tuple[int, Entry]] = deque()
        self._is_busy = False
        lock = threading.Lock()
        self._came, self._room = threading.Condition(lock), threading.Condition(lock)
        self.passed = threading.Condition(lock)  # an event
        threading.Thread(target=self._work, name="device-stream", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._came:
                self._is_busy = False
                while not self._entries:
                    self._came.wait()
                launched_ns, entry = self._entries.popleft()
                self._is_busy = True
                self._room.notify()
            self.free_ns = max(self.free_ns, launched_ns)
            entry(self)

    def _put(self, entry: Entry) -> None:
        with self._room:
            while len(self._entries) >= self.length:
                self._room.wait()
            is_idle = not self._entries and not self._is_busy
            now = time.monotonic_ns()
            if is_idle and isinstance(entry, Recording):
                # No thread to be woken: the host would wait for it to let go of the interpreter.
                self.free_ns = entry.passed_ns = max(self.free_ns, now)
                entry.is_passed = True
                return
            self._entries.append((now, entry))
            self._came.notify()

    def _until_free(self) -> None:
        """The thread comes to where the device's clock already is."""
        left_ns = self.free_ns - time.monotonic_ns()
        if left_ns > 0:
            time.sleep(left_ns * 1e-9)

    def launch(self, seconds: float) -> None:
        """A kernel of this length; returns at once while there is room in the queue."""
        length_ns = int(seconds * 1e9 * self.is_slow_by)

        def kernel(stream: Stream) -> None:
            stream.free_ns += length_ns
            stream._until_free()

        self._put(kernel)

    def call(self, function: Callable[[int], int]) -> None:
        """In the stream: function(device's clock) waits for something else, and returns when that was, in ns."""

        def host_function(stream: Stream) -> None:
            stream.free_ns = max(stream.free_ns, function(stream.free_ns))
            stream._until_free()

        self._put(host_function)

    def hold(self) -> Callable[[], None]:
        """Stand still until the answer is called: the host is then ahead by all that it has launched."""
        opened = threading.Event()

        def until_opened(_clock_ns: int) -> int:
            opened.wait()
            return time.monotonic_ns()

        self.call(until_opened)
        return opened.set

    def record_event(self, event: Event | None = None) -> Event:
        """An event that is passed when the stream comes to it."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """What is launched from here on begins after the event; the host does not wait."""
        recording = event.latest
        if recording is not None:

            def wait(stream: Stream) -> None:
                recording.wait()
                if recording.passed_ns > stream.free_ns:
                    stream.waits.append((stream.free_ns, recording.passed_ns))
                    stream.free_ns = recording.passed_ns

            self._put(wait)

    def wait_stream(self, other: Stream) -> None:
        """What is launched from here on begins after all that lies in the other one."""
        self.wait_event(other.record_event())

    def synchronize(self) -> None:
        """Wait in the host for all that was launched."""
        self.record_event().synchronize()

    def query(self) -> bool:
        """Whether all that was launched is done."""
        with self._came:
            return not self._entries and not self._is_busy


class Recording:
    """One recording of an event: a later one of the same event is another."""

    __slots__ = ("is_passed", "passed_ns", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.is_passed = False
        self.passed_ns = 0

    def __call__(self, stream: Stream) -> None:
        self.passed_ns = stream.free_ns
        with stream.passed:
            self.is_passed = True
            stream.passed.notify_all()

    def wait(self) -> None:
        """Until the stream has come to it."""
        with self.stream.passed:
            while not self.is_passed:
                self.stream.passed.wait()


class Event:
    """A mark in a stream, with the device's time; as torch.cuda's."""

    def __init__(self, **_options: bool) -> None:
        self.latest: Recording | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark behind all that was launched into the stream, the current one if none is given."""
        chosen = stream or current_stream()
        self.latest = recording = Recording(chosen)
        chosen._put(recording)

    def wait(self, stream: Stream | None = None) -> None:
        """Let a stream wait for it."""
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        """Whether the device has passed it."""
        return self.latest is None or self.latest.is_passed

    def synchronize(self) -> None:
        """Wait in the host until the device has passed it."""
        if self.latest is not None:
            self.latest.wait()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds of the device from this event to that one; both have to be passed."""
        if self.latest is None or end.latest is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (end.latest.passed_ns - self.latest.passed_ns) / 1e6


class _Current(threading.local):
    stream: Stream | None = None


_current = _Current()
_default: list[Stream] = []  # made at first use: a thread does not survive a fork
_making = threading.Lock()


def default_stream(device: object = None) -> Stream:
    """The stream that kernels go to where no other was chosen."""
    with _making:
        if not _default:
            _default.append(Stream())
    return _default[0]


def current_stream(device: object = None) -> Stream:
    """The stream that this thread launches into."""
    return _current.stream or default_stream()


@contextlib.contextmanager
def stream(chosen: Stream | None) -> Iterator[None]:
    """Launch into this one within the block."""
    before, _current.stream = _current.stream, chosen or _current.stream
    try:
        yield
    finally:
        _current.stream = before


def synchronize(device: object = None) -> None:
    """Wait in the host for the default stream, where all others end."""
    default_stream().synchronize()


class Properties:
    """What a device says of itself."""

    def __init__(self, index: int) -> None:
        self.name = "threads"
        self.uuid = f"threads-{os.getpid()}-{index}"
        self.total_memory = 1 << 30


def device_module() -> Any:
    """What `torch.get_device_module` is to return: as torch.cuda, as far as a training's watcher asks it."""
    module: Any = ModuleType(f"torch.{NAME}")
    module.Event, module.Stream = Event, Stream
    module.current_stream, module.default_stream, module.stream = current_stream, default_stream, stream
    module.synchronize = synchronize
    module.is_available = module.is_initialized = lambda: True
    module.is_current_stream_capturing = lambda: False
    module.current_device = lambda: 0
    module.device_count = lambda: 1
    module.device = lambda _device: contextlib.nullcontext()
    module.get_device_properties = lambda device=None: Properties(getattr(device, "index", device) or 0)
    module.get_device_name = lambda _device=None: Properties(0).name
    module.memory_stats = lambda _device=None: {}
    return module


def install() -> Any:
    """Put it in the place of the CPU's module, in this process for good; the module."""
    import sys

    import torch

    module = device_module()
    original = torch.get_device_module

    @functools.wraps(original)  # torch.compile looks for what it wraps
    def get_device_module(device: Any = None) -> Any:
        name = device.type if isinstance(device, torch.device) else device
        return module if name is None or str(name).partition(":")[0] == "cpu" else original(device)

    torch.get_device_module = get_device_module
    setattr(torch, NAME, module)
    sys.modules[f"torch.{NAME}"] = module
    # Its threads are the device: they do not wait five milliseconds for the host's Python.
    sys.setswitchinterval(0.0005)
    return module
