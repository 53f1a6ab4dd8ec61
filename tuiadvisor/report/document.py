"""A RunView as the JSON document of `diagnose --json`, schema 1: keys may be added, never changed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from tuiadvisor.views.devices import NO_DEVICE, RankDevice
from tuiadvisor.views.lost_by import by_layer, by_lens

if TYPE_CHECKING:
    from tuiadvisor.views.job import JobView
    from tuiadvisor.views.pipeline import PipelineView
    from tuiadvisor.views.run_view import Finding, Losses, PastFinding, RankRow, RunInfo, RunView, Verdict

Document = dict[str, object]

# The shape of `scale --json`: a step's fixed time and its time a sample come from two batches, and a run has one.
BATCH_LAW: Final = {
    "fixed_s": None,
    "per_sample_s": None,
    "plateau": None,
    "why": "a run has one batch size: tuiadvisor scale RUN RUN tells it from recordings with two",
}


def document(view: RunView) -> Document:
    """The document; every value is plain JSON, unknown is null."""
    return {
        "schema": view.schema,
        "clock": view.clock,
        "imported": _imported(view),
        "traced": None if view.traced is None else asdict(view.traced),
        "run": {
            **run_document(view.run, ended=view.ended),
            "hosts": list(view.run.hosts),
            "last_step": view.last_step,
        },
        "window": {
            "first_step": view.window.first_step,
            "last_step": view.window.last_step,
            "steps": view.window.num_steps,
            "excluded": view.window.excluded,
            "change": view.window.change or None,
            "enough": view.window.enough,
            "missing_steps": None if view.window.why_no_step else view.window.num_missing_steps,
            "why_no_step": view.window.why_no_step or None,
        },
        "step": asdict(view.step),
        "overlap": asdict(view.overlap),
        "collectives": [asdict(row) for row in view.collectives],
        "exchange": asdict(view.exchange) if view.exchange else None,
        "device": asdict(view.device) if view.device else None,
        "efficiency": asdict(view.efficiency) if view.efficiency else None,
        "batch_law": dict(BATCH_LAW),
        "stack": {**view.stack.facts, "differing": list(view.stack.differing)} if view.stack else None,
        "stragglers": {
            "slowdown": view.slowdown,
            "ranks": [asdict(entry) for entry in view.stragglers],
        },
        "what_if": _what_if(view),
        "pipeline": _pipeline(view.pipeline),
        "chain": [asdict(link) for link in view.chain],
        "per_rank": [_rank(row) for row in view.ranks],
        "goodput": _goodput(view),
        "stacks": [asdict(card) for card in view.cards],
        "pauses": [asdict(pause) for pause in view.pauses],
        "findings": [_finding(finding) for finding in view.findings],
        "past_findings": [_past(past) for past in view.past],
        "verdict": _verdict(view.decided),
        "stall": asdict(view.stall) if view.stall else None,
        "no_step": asdict(view.no_step) if view.no_step else None,
        "unknown": [asdict(entry) for entry in view.unknown],
        "losses": losses_document(view.losses),
        "devices": {"per_rank": [asdict(row) for row in view.rank_devices or _no_devices(view)]},
        "links": [asdict(link) for link in view.links],
        "placement": [asdict(row) for row in view.placements],
        "hosts": [
            {
                **asdict(row),
                "gpus": list(row.gpus),
                "network_cards": list(row.network_cards),
                "storage": list(row.storage),
            }
            for row in view.hosts
        ],
        "probe_cost": view.probe_cost,
        "probe": asdict(view.probe) if view.probe else None,
        "num_frames": view.num_frames,
    }


def run_document(run: RunInfo, *, ended: str) -> Document:
    """Which run it is, and what it ran on."""
    return {
        "label": run.label,
        "command": run.command,
        "world_size": run.world_size,
        "torch": run.torch,
        "python": run.python,
        "backend": run.backend,
        "device": run.device,
        "parallel": run.parallel,
        "software": run.software,
        "started_wall_s": run.started_wall_s,
        "ended": ended,
    }


def losses_document(losses: Losses) -> Document:
    """What is missing of what was recorded."""
    return {**asdict(losses), "ranks_missing": list(losses.ranks_missing), "notes": list(losses.notes)}


def _no_devices(view: RunView) -> list[RankDevice]:
    refusals = {host.host: host.no_gpus for host in view.hosts}
    return [RankDevice(row.rank, why=refusals.get(row.host) or NO_DEVICE) for row in view.ranks]


def _imported(view: RunView) -> Document | None:
    """What an imported run was made of, with the ranks that it has not; null for what probes recorded."""
    if view.imported is None:
        return None
    return {**asdict(view.imported), "live": False, "ranks_missing": list(view.losses.ranks_missing)}


def _goodput(view: RunView) -> Document:
    """Of the window's time (value, losses), and of the wall time from the start of the process on."""
    wall = view.wall
    return {
        "value": view.goodput,
        "losses": view.goodput_losses,
        "end_to_end": wall.end_to_end if wall else None,
        "steady": wall.steady if wall else None,
        "span_s": wall.span_s if wall else None,
        "unknown_s": wall.unknown_s if wall else None,
        "from_start": wall.from_start if wall else None,
        "startup_s": wall.startup_s if wall else None,
        "unseen_share": wall.unseen if wall else None,
        "restarts": wall.num_restarts if wall else None,
        "steps_done_again": wall.known_again if wall else None,
        "own_steps": list(wall.own_steps) if wall and wall.own_steps else None,
        "waterfall": [asdict(part) for part in wall.waterfall] if wall else [],
        "by_layer": [asdict(row) for row in by_layer(view)],
        "by_lens": [asdict(row) for row in by_lens(view)],
    }


def job_document(job: JobView) -> Document:
    """Of several recordings of one job; each one's own document is that of `diagnose --json` on it alone."""
    whole = job.goodput
    return {
        "schema": 1,
        "job": {
            "label": job.recordings[-1].view.run.label,
            "goodput": {
                "end_to_end": whole.end_to_end,
                "span_s": whole.span_s,
                "unknown_s": whole.unknown_s,
                "from_start": whole.from_start,
                "restarts": whole.num_restarts,
                "steps_done_again": whole.known_again,
                "waterfall": [asdict(part) for part in whole.waterfall],
            },
            "notes": list(job.notes),
        },
        "recordings": [
            {
                "file": one.name,
                "gap_s": one.gap_s,
                "steps_done_again": one.steps_again,
                "world_size": one.view.run.world_size,
                "ended": one.view.ended,
                "goodput": _goodput(one.view),
                "verdict": _verdict(one.view.decided),
            }
            for one in job.recordings
        ],
    }


def _what_if(view: RunView) -> Document | None:
    what_if = view.what_if
    if what_if is None:
        return None
    return {
        "S": what_if.S,
        "S_t": what_if.S_t,
        "S_w": [{"rank": rank, "S": value} for rank, value in sorted(what_if.S_w.items())],
        "M_W": what_if.M_W,
        "M_S": what_if.M_S,
    }


def _pipeline(pipeline: PipelineView | None) -> Document | None:
    if pipeline is None:
        return None
    return {
        **asdict(pipeline),
        "micro_batches_for": [
            {"bubble": share, "micro_batches": num} for share, num in pipeline.micro_batches_for
        ],
    }


def _rank(row: RankRow) -> Document:
    return {
        "rank": row.rank,
        "host": row.host,
        "local_rank": row.local_rank,
        "pid": row.pid,
        "state": row.state,
        "state_detail": row.state_detail,
        "not_compared": row.why_apart,
        "last_step": row.last_step,
        "step_s": row.step_s,
        "shares": row.shares,
        "seconds": row.seconds,
        "idle": row.idle,
        "compute": row.compute,
        "overlap": row.overlap,
        "comm_exposed_s": row.comm_exposed_s,
        "wait_s": row.wait_s,
        "caused_wait_s": row.caused_wait_s,
        "last_arrivals": row.last_arrivals,
        "behind_s": row.behind_s,
        "is_culprit": row.is_culprit,
        "device": asdict(row.device) if row.device else None,
    }


def _finding(finding: Finding) -> Document:
    return {
        **asdict(finding),
        "ranks": list(finding.ranks),
        "hosts": list(finding.hosts),
        "measure_next": list(finding.measure_next),
        "actions": [asdict(action) for action in finding.actions],
    }


def _past(past: PastFinding) -> Document:
    found = past.finding
    return {
        "id": found.id,
        "title": found.title,
        "severity": found.severity,
        "ranks": list(found.ranks),
        "hosts": list(found.hosts),
        "phase": found.phase,
        "message": found.message,
        "first_step": past.first_step,
        "last_step": past.last_step,
        "times": past.num_times,
    }


def _verdict(verdict: Verdict) -> Document:
    return asdict(verdict)
