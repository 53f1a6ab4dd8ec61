"""Contents of a recording as the JSON document of `info --json`, schema 1: keys may be added, never changed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from tuiadvisor.report.document import losses_document, run_document

if TYPE_CHECKING:
    from tuiadvisor.report.document import Document
    from tuiadvisor.views.contents import Contents


def contents_document(held: Contents) -> Document:
    """The document; unknown is null."""
    damage = held.damage
    return {
        "schema": 1,
        "file": held.path,
        "bytes": held.num_bytes,
        "created_wall_s": held.created_wall_s,
        "recorded_by": held.recorded_by,
        "run": run_document(held.run, ended=held.ended),
        "hosts": [
            {
                "host": host.host,
                "ranks": sorted(host.ranks),
                "cpus": host.num_cpus,
                "memory_bytes": host.memory_bytes,
                "platform": host.platform,
                "gpus": list(host.gpus),
                "samples": host.num_samples,
                "agents": host.num_agents,
            }
            for host in held.hosts
        ],
        "ranks": {"recorded": held.num_ranks, "states": held.states},
        "steps": {
            "first_step": held.first_step,
            "last_step": held.last_step,
            "early_steps": held.num_early_steps,
            "rank_steps": held.num_rank_steps,
            "events": held.num_events,
        },
        "given": held.given.document(),
        "probe": asdict(held.probe) if held.probe else None,
        "duration_s": held.duration_s,
        "bytes_per_rank_step": {"file": held.bytes_per_rank_step, "steps": held.step_bytes_per_rank_step},
        "frames": {
            name: {"count": kind.num_frames, "bytes": kind.num_bytes}
            for name, kind in sorted(held.kinds.items())
        },
        "opened": held.opened or None,
        "damage": {
            "bad_bytes": damage.num_bad_bytes,
            "bad_regions": damage.num_bad_regions,
            "tail_bytes": damage.num_tail_bytes,
            "notes": list(damage.notes),
        },
        "losses": losses_document(held.losses),
    }
