"""The native core in the place of a class's function, in an interpreter without torch: `python native_slots.py CORE`.

Prints one line, `ok` and what was seen, or ends with an exception. Every CPython from 3.11 on must take it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "probes"))

from tuiadvisor_probes import native, ring

native.core = native.load(Path(sys.argv[1]).read_bytes())  # before the clock is imported, whose base it is

from tuiadvisor_probes import guard, phases, step_clock  # noqa: E402


class Model:
    """Called by its type's slot."""

    def __call__(self, value: int, *, more: int = 0) -> Any:
        frames, frame = [], sys._getframe()
        while frame := frame.f_back:  # type: ignore[assignment]
            frames.append(frame.f_code.co_name)
        if value < 0:
            raise KeyError(value)
        return value + more, frames


def main() -> None:
    """Patch, call in all ways, leave, call again."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/ring"
        ring.create_ring_file(path)
        writer = ring.RingWriter(path)
        clock = step_clock.StepClock(writer, threading.get_ident(), lambda: None)
        hook = guard.Hook("model", 0, lambda _: None)
        original = Model.__call__
        ours = guard.timed(original, hook, clock, phases.FORWARD, observes=1 << phases.FORWARD)
        Model.__call__ = ours  # type: ignore[method-assign]
        model = Model()
        value, frames = model(3, more=4)
        assert value == 7
        assert "tuiadvisor_hook" not in frames, frames
        assert ours(model, 1)[0] == 1
        assert Model.__call__(model, 1)[0] == 1
        assert ours(*(model, 1), more=0)[0] == 1
        try:
            model(-1)
        except KeyError:
            assert clock.phase == phases.OTHER
        else:
            raise AssertionError("an exception was lost")
        assert clock.books.num_transitions == 10, clock.books.num_transitions
        references = sys.getrefcount(model), sys.getrefcount(original)
        for _ in range(10_000):
            model(1)
        assert (sys.getrefcount(model), sys.getrefcount(original)) == references
        other = threading.Thread(target=lambda: model(1))
        other.start()
        other.join()
        transitions = clock.books.num_transitions
        assert transitions == 20_010
        if (child := os.fork()) == 0:
            os._exit(0 if model(1)[0] == 1 and not hook.error else 3)
        assert os.waitpid(child, 0)[1] == 0
        clock.active = False
        clock.let_go()
        writer.close()
        assert model(5)[0] == ours(model, 5)[0] == 5
        Model.__call__ = original  # type: ignore[method-assign]
        assert hook.active
        print("ok", sys.version.split()[0], transitions)


main()
