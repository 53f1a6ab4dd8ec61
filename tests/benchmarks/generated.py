"""Frames as the agents of a large job send them, and recordings of any size made of them in seconds.

In: a World of tests/accuracy.  Out: its HELLO and STEPS frames with a HOST and a STATUS frame an agent and second
between them, encoded.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "accuracy"))

from worlds import Fault, World, frames

from tuiadvisor.stream.frames import FrameKind, encode
from tuiadvisor.stream.recording import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_S: Final = 0.125  # eight steps a frame: one frame an agent and second
RANKS_AN_AGENT: Final = 8


def straggling(num_ranks: int, num_rank_steps: int) -> World:
    """A world with about so many rank-steps, one rank late in backward from a third of it on."""
    num_steps = -(-num_rank_steps // num_ranks)
    late = Fault("backward", 0.1, (num_ranks // 2,), onset=num_steps // 3)
    return World(num_ranks, num_steps, STEP_S, RANKS_AN_AGENT, faults=(late,))


def encoded_frames(world: World) -> Iterator[bytes]:
    """All frames of all agents as time goes by, each agent's numbered without a gap."""
    seqs: dict[str, int] = {}

    def numbered(kind: FrameKind, source: str, time_ns: int, payload: dict[str, object]) -> bytes:
        seqs[source] = seqs.get(source, -1) + 1
        return encode(kind, source, seqs[source], time_ns, payload)

    ranks: dict[str, list[int]] = {}
    for frame in frames(world):
        source, host = frame.source, frame.source.split("/", 1)[0]
        yield numbered(frame.kind, source, frame.time_ns, frame.payload)
        if frame.kind is FrameKind.HELLO:
            entries = frame.payload["ranks"]
            assert isinstance(entries, list)
            ranks[source] = [entry["rank"] for entry in entries]
        else:
            common = {
                "host": host,
                "mono_ns": frame.time_ns,
                "wall_ns": frame.time_ns + 1_700_000_000 * 10**9,
            }
            yield numbered(
                FrameKind.HOST, source, frame.time_ns, common | _host(frame.time_ns, ranks[source])
            )
            yield numbered(
                FrameKind.STATUS, source, frame.time_ns, common | _status(frame.time_ns, ranks[source])
            )


def write_recording(path: Path, world: World) -> None:
    """The same as a recording."""
    writer = RecordingWriter(path, encode(FrameKind.RUN, "hub", 0, 0, {"schema": 1, "label": "train.py"}))
    for data in encoded_frames(world):
        writer.append(data)
    writer.close()


def _host(now_ns: int, ranks: list[int]) -> dict[str, object]:
    noise = now_ns % 997
    return {
        "cpu": 0.4 + noise / 9970,
        "memory": 0.31,
        "load_1m": 3.0 + noise / 997,
        "disk_read_bytes_s": 1_000_000.0 + noise,
        "net_bytes_s": 2_000_000.0 + noise,
        "ranks": [
            {
                "rank": rank,
                "cpu_s": now_ns * 9e-10 + rank,
                "run_delay_s": now_ns * 1e-12,
                "rss_bytes": 1 << 30,
            }
            for rank in ranks
        ],
    }


def _status(now_ns: int, ranks: list[int]) -> dict[str, object]:
    return {
        "ranks": [
            {"rank": rank, "state": "live", "phase": "backward", "phase_since_ns": now_ns - 1_000_000}
            for rank in ranks
        ]
    }
