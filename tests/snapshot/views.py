"""Fixed RunViews for snapshots, pilots and benchmarks: realistic, the same on every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

from tuiadvisor.advisor.assemble.prospects import prospects
from tuiadvisor.advisor.assemble.rank_groups import groupings
from tuiadvisor.phases import PHASES
from tuiadvisor.tui.contract.feed import FeedState, PastState, ReplayState, StretchState
from tuiadvisor.views.communication import BucketBar, ExchangeView, Segment, SizeChoice
from tuiadvisor.views.device_work import DevicePart, DeviceTime, DeviceWork, KernelSum
from tuiadvisor.views.efficiency import Efficiency, Stack
from tuiadvisor.views.event import Event
from tuiadvisor.views.goodput import Goodput, parts_of
from tuiadvisor.views.job import JobView, Recorded
from tuiadvisor.views.pipeline import PipelineChunk, PipelineRank, PipelineStage, PipelineView
from tuiadvisor.views.prospect import Prospect
from tuiadvisor.views.run_view import (
    Action,
    ChainLink,
    CollectiveRow,
    Finding,
    HostRow,
    Imported,
    Losses,
    Overlap,
    ProbeWork,
    RankRow,
    RunInfo,
    RunView,
    Speedup,
    StepSummary,
    Straggler,
    Trend,
    Unknown,
    Verdict,
    Window,
)
from tuiadvisor.views.stack_card import CardLine, StackCard, StandsAt
from tuiadvisor.views.stall import Stall
from tuiadvisor.views.step_map import StepMap
from tuiadvisor.views.timeline import Timeline, TimelineLane
from tuiadvisor.views.unheard import unheard

Drawn = tuple[str, float] | tuple[str, float, int]  # a kind, seconds, and a bucket's number

PARTS_S = dict.fromkeys(PHASES) | {
    "data_wait": 0.0021,
    "h2d": None,
    "forward": 0.0048,
    "backward": 0.0072,
    "comm_exposed": 0.0049,
    "optimizer": 0.0016,
    "checkpoint": 0.0,
    "eval": 0.0,
    "pipeline_idle": 0.0,
    "other": 0.0007,
}
NO_OVERLAP = Overlap(None, 0.0049, None, 0.0009, 0.0040, 0.0)
NO_PARTS = dict.fromkeys(PARTS_S)


def shares(seconds: dict[str, float | None]) -> dict[str, float | None]:
    whole = sum(value for value in seconds.values() if value)
    return {phase: None if value is None else value / whole for phase, value in seconds.items()}


def rank_row(
    rank: int, *, host: str = "node01", steps: int = 120, late_from: int | None = None, seed: int = 7
) -> RankRow:
    """A live rank; from step `late_from` on it arrives last."""
    noise = Random(seed * 1000 + rank)  # noqa: S311  # the same picture on every run
    levels = bytearray(noise.choices((0, 0, 0, 0, 1, 1, 2), k=steps))
    if late_from is not None:
        for step in range(late_from, steps):
            levels[step] = noise.choice((5, 6, 6, 7))
    culprit = late_from is not None
    seconds = dict(PARTS_S)
    if culprit:
        seconds |= {"data_wait": 0.0139, "comm_exposed": 0.0003}
    else:
        seconds |= {"data_wait": 0.0019 + rank % 5 * 0.0001, "comm_exposed": 0.0121}
    return RankRow(
        rank=rank,
        host=host,
        local_rank=rank % 8,
        pid=41200 + rank,
        state="live",
        state_detail="",
        now="data wait 9 ms" if culprit else "exposed comm 3 ms",
        last_step=341,
        step_s=0.0286,
        shares=shares(seconds),
        seconds=seconds,
        compute=0.48,
        idle=0.49,
        overlap=0.045 if culprit else 0.31,
        comm_exposed_s=seconds["comm_exposed"],
        wait_s=0.0002 if culprit else 0.0117,
        caused_wait_s=0.0351 if culprit else 0.0004,
        caused_each_s=0.0117 if culprit else 0.00013,
        last_arrivals=0.98 if culprit else 0.01,
        is_culprit=culprit,
        lateness_levels=bytes(levels),
        phase_levels=bytes((6 if culprit else rank % 7 // 3, 255, *(rank * 7 % 3 // 2 for _ in PHASES[2:]))),
        is_outlier=culprit,
    )


def straggler_finding() -> Finding:
    return Finding(
        id="straggler_data",
        title="Rank 2 reads its data late",
        pattern="P1",
        lens="L-BALANCE",
        layer="storage",
        severity="critical",
        ranks=(2,),
        hosts=("node01",),
        phase="data_wait",
        since_step=257,
        evidence={
            "data_wait_s": 0.0139,
            "peers_data_wait_s": 0.0021,
            "last_arrivals": 0.98,
            "slowdown": 1.69,
            "steps_seen": 84,
            "data_workers": None,
        },
        loss_s_per_step=0.0118,
        message="Rank 2 waits 13.9 ms for its batch, its peers 2.1 ms; the others wait for it in 98 % of the steps.",
        measure_next=(
            "Compare the read rate of rank 2's files with a neighbour's.",
            "Look at the loader's workers on node01 for a few seconds.",
        ),
        actions=(
            Action(
                "Give rank 2 more loader workers, or move its shard to the disk its peers read from.",
                None,
                "low",
                "minutes",
            ),
            Action(
                "See where the loader of rank 2 spends its time.",
                "py-spy dump --pid 41202 --subprocesses",
                "low",
                "seconds",
            ),
        ),
    )


def comm_finding() -> Finding:
    return Finding(
        id="exposed_comm",
        title="Communication is not hidden",
        pattern="P1",
        lens="L-BALANCE",
        layer="network",
        severity="warning",
        ranks=(),
        hosts=(),
        phase="comm_exposed",
        since_step=None,
        evidence={"comm_exposed_share": 0.17, "overlap": 0.31, "comm_bytes": 25_600_000},
        loss_s_per_step=0.0031,
        message="17 % of the step is communication that nothing hides, most of it waiting for rank 2.",
        measure_next=("Measure again after rank 2 is relieved: most of this is its lateness.",),
        actions=(),
    )


def warmup_finding() -> Finding:
    return Finding(
        id="warmup",
        title="The first steps were slow",
        pattern="P2",
        lens="L-AMORT",
        layer="runtime",
        severity="info",
        ranks=(),
        hosts=(),
        phase=None,
        since_step=0,
        evidence={"warmup_steps": 20, "warmup_s": 2.4},
        loss_s_per_step=None,
        message="The first 20 steps took 2.4 s more than steady ones: paid back after 110 steps.",
        measure_next=(),
        actions=(),
    )


def straggler() -> RunView:
    """Four ranks, rank 2 late by its data since step 257."""
    trend = tuple(0.0169 if index < 36 else 0.0286 for index in range(60))
    return RunView(
        schema=1,
        run=RunInfo(
            label="train.py",
            command="torchrun --nproc-per-node 4 train.py --batch 64",
            world_size=4,
            hosts=("node01",),
            torch="2.13.0",
            python="3.11.9",
            backend="gloo",
            device="cpu",
            parallel={"dp": 4},
            started_wall_s=1_790_000_000.0,
        ),
        window=Window(257, 341, 84, {"warmup": 20, "partial": 1}, enough=True, num_missing_steps=0),
        step=StepSummary(
            0.0286,
            0.0311,
            34.9,
            8934.0,
            None,
            shares(PARTS_S | {"data_wait": 0.0051}),
            PARTS_S | {"data_wait": 0.0051},
            mean_s=0.0286,
        ),
        overlap=Overlap(0.0131, 0.0049, 0.31, 0.0009, 0.0040, 0.03, 0.0041, 13, 0.0090, 0.0080),
        slowdown=1.69,
        stragglers=(Straggler(2, 0.61, "data_wait", 0.0118, 257, persistent=True),),
        ranks=tuple(rank_row(rank, late_from=36 if rank == 2 else None) for rank in range(4)),
        heat_first_step=222,
        findings=(straggler_finding(), comm_finding(), warmup_finding()),
        verdict=Verdict(
            decision="tune",
            sentence="Tune: rank 2 reads its data 11.8 ms late in each step; "
            "without it the mean step would take 16.9 ms (1.69\u00d7).",
            finding="straggler_data",
            pattern="P1",
            speedup=Speedup(1.69, 1.6, 1.75),
            next_constraint="comm_exposed",
            because="98 % of the steps wait for rank 2 at the gradient barrier.",
            verify="Record 200 steps after the change and compare: the step should be 16.9 ms ± 1 ms.",
        ),
        goodput=0.57,
        goodput_losses={"straggler": 3.1, "data_wait": 0.6},
        trend=Trend(42, 5, trend, tuple(1 / value for value in trend), ((222, "rank 2 late"),)),
        hosts=(HostRow("node01", 0.61, 0.34, 7.2, 16, 12_300_000.0, 3_400_000.0),),
        unknown=(
            Unknown("h2d", "the run uses no device"),
            Unknown("mfu", "the peak of this CPU is not known"),
        ),
        losses=Losses(),
        probe_cost=0.0021,
        num_frames=412,
        event_time_s=11.4,
        last_step=341,
        ended="",
        chain=chain(PARTS_S | {"data_wait": 0.0051}, "backward", (2, 0.0139)),
        probe=ProbeWork(0.00083, 0.0025, 0.05, 15, is_over=False),
    )


def from_start(*, is_attached: bool = False) -> RunView:
    """The straggler's run with its wall time; is_attached: nobody saw its start."""
    kinds = {
        "useful": 96.0,
        "straggler": 52.0,
        "startup": 41.0,
        "checkpoint": 9.0,
        "data_wait": 7.5,
        "warmup": 2.1,
    }
    if is_attached:
        kinds = {
            "useful": 96.0,
            "straggler": 52.0,
            "data_wait": 7.5,
            "before_watcher": 610.0,
            "not_judged": 3.0,
        }
    unknown_s = 613.0 if is_attached else 0.0
    wall = Goodput(
        end_to_end=96.0 / (sum(kinds.values()) - unknown_s),
        steady=0.617,
        span_s=sum(kinds.values()),
        unknown_s=unknown_s,
        from_start=not is_attached,
        startup_s=None if is_attached else 41.0,
        num_restarts=0 if is_attached else 1,
        waterfall=parts_of(kinds),
    )
    return replace(straggler(), wall=wall)


def job() -> JobView:
    """The straggler's job: one recording, a restart, another one."""
    first, second = replace(from_start(), ended="all ranks lost"), from_start()
    goodput = second.wall
    assert goodput is not None
    recordings = (Recorded("monday.tuirec", first, None, 120), Recorded("tuesday.tuirec", second, 95.0, None))
    return JobView(recordings, goodput, ("steps done again before monday.tuirec: nobody saw them",))


def detailed() -> RunView:
    """Steps were watched in detail: hidden communication and collectives one by one."""
    view = straggler()
    return replace(
        view,
        overlap=replace(view.overlap, hidden_s=0.0041),
        collectives=(
            CollectiveRow(
                "all_reduce", 0, 25_600_000, 12, 32, 4, 0.0021, 0.0012, 0.0009, 0.0008, 3.2e10, 2, 0.94, 338
            ),
            CollectiveRow("broadcast", 0, 8, 0.5, 25, 4, 0.0003, None, None, None, None, None, None, 320),
        ),
    )


def in_buckets() -> RunView:
    """The same, and the gradient all-reduce bucket by bucket: most of it leaves when backward has ended."""
    view = detailed()
    return replace(
        view,
        overlap=replace(view.overlap, transfer_s=0.0039, skew_s=0.001, hidden_s=0.0008),
        exchange=exchange(),
    )


def with_prospects() -> RunView:
    """The straggler fixed, and more buckets, which is a bound."""
    fixed = Prospect(
        "rank 2 fixed", 0.0286, 0.0169, 0.0165, 0.0174, False, "90 %, by the loss measured", 0.59
    )
    more = prospects([], exchange(), 0.0286)
    return replace(in_buckets(), prospects=(fixed, *more))


def exchange() -> ExchangeView:
    """Two buckets, the second of them large: six would hide more of it."""
    first, second = (
        BucketBar(4_194_304, 0.0016, 0.0016, 0.0024),
        BucketBar(21_405_696, 0.0072, 0.0072, 0.0111),
    )
    now: list[Drawn] = [
        ("idle", 0.0016),
        ("bucket", 0.0008, 1),
        ("idle", 0.0048),
        ("bucket", 0.0039, 2),
    ]
    then: list[Drawn] = [("idle", 0.0016)]
    for number in range(1, 6):
        then += [("bucket", 0.0008, number), ("idle", 0.0006)]
    then += [("bucket", 0.0007, 6), ("idle", 0.0018)]
    lanes: dict[str, Sequence[Drawn]] = {
        "backward": [("backward", 0.0072), ("idle", 0.0039)],
        "buckets": now,
        "5 MiB each": then,
    }
    return ExchangeView(
        num_steps=40,
        num_bytes=25_600_000,
        backward_s=0.0072,
        exposed_s=0.0039,
        rate_bytes_s=5.45e9,
        bus_bytes_s=8.2e9,
        transfer_s=0.0047,
        ratio=0.65,
        hideable_s=0.0032,
        lever="smaller_buckets",
        best_cap_mib=5,
        saved_s=0.0031,
        saved_low_s=0.0029,
        saved_high_s=0.0033,
        start_cost_s=0.00078,
        core_left=1.0,
        num_parameters=6_400_000,
        tokens_per_rank=None,
        flop_s=None,
        buckets=(first, second),
        sizes=(SizeChoice(5, 6, 0.0008, 0.0031), SizeChoice(25, 2, 0.0039, 0.0)),
        lanes=tuple((name, tuple(Segment(*part) for part in parts)) for name, parts in lanes.items()),
        words=(
            "The first of 2 buckets leaves 1.6 ms into 7.2 ms of backward; moving all 25.6 MB takes 4.7 ms.",
            (
                "In 40 steps seen in detail transfer outlasts backward by 3.9 ms; order and size of buckets could "
                "hide 3.2 ms at most."
            ),
            "bucket_cap_mb=5 would save 3.1 ms a step (2.9 ms to 3.3 ms), if a bucket costs less than 780 us to start.",
        ),
    )


def chain(
    seconds: dict[str, float | None], longest: str, late: tuple[int, float] | None = None
) -> tuple[ChainLink, ...]:
    """The links of a step; late: the rank that takes longest for its data, and how long."""
    whole = sum(value for value in seconds.values() if value)
    links = []
    for phase in ("data_wait", "h2d", "forward", "backward", "comm_exposed", "optimizer"):
        value = seconds[phase]
        rank, worst = late if late and phase == "data_wait" else (None, None)
        share = None if value is None else value / whole
        links.append(ChainLink(phase, value, share, rank, worst, phase == longest))
    return tuple(links)


def chunks(num_ranks: int, num_chunks: int, heavy: int | None) -> tuple[PipelineChunk, ...]:
    """GPipe drawn by hand: forwards of 2, backwards of 3 turns, twice as long on the heavy rank."""
    times: list[tuple[int, str, int, float, float]] = []
    done: dict[tuple[str, int, int], float] = {}
    free = dict.fromkeys(range(num_ranks), 0.0)
    for kind, cost, ranks in (("F", 2, range(num_ranks)), ("B", 3, range(num_ranks - 1, -1, -1))):
        for chunk in range(num_chunks):
            for rank in ranks:
                before = done.get((kind, rank + (-1 if kind == "F" else 1), chunk), 0.0)
                begin = max(free[rank], before)
                free[rank] = done[kind, rank, chunk] = begin + cost * (2 if rank == heavy else 1)
                times.append((rank, kind, chunk, begin, free[rank]))
    end = max(free.values())
    return tuple(
        PipelineChunk(rank, rank, chunk, kind, begin / end, finish / end)
        for rank, kind, chunk, begin, finish in sorted(times)
    )


def pipeline(num_ranks: int = 4, num_chunks: int = 8, heavy: int | None = 2) -> RunView:
    """A pipeline whose heavy stage takes twice as long; None: all stages alike."""
    view = healthy()
    stages = tuple(
        PipelineStage(
            stage=rank,
            rank=rank,
            forward_s=0.064 if rank == heavy else 0.032,
            backward_s=0.096 if rank == heavy else 0.048 + (0.004 if rank == num_ranks - 1 else 0),
            balance=1.0 if rank == heavy else 0.5,
            excess=1.0 if rank == heavy else 0.05 if rank == num_ranks - 1 else 0.0,
            is_heavy=rank == heavy,
        )
        for rank in range(num_ranks)
    )
    picture = PipelineView(
        schedule="ScheduleGPipe",
        why_unknown="",
        num_pipelines=1,
        num_ranks=num_ranks,
        num_stages=num_ranks,
        num_micro_batches=num_chunks,
        first_step=40,
        last_step=103,
        num_steps=64,
        num_recorded_steps=4,
        span_s=0.193 if heavy is not None else 0.114,
        busy=0.52 if heavy is not None else 0.70,
        bubble=0.48 if heavy is not None else 0.30,
        ideal_bubble=0.273,
        ideal_is_formula=True,
        fill_share=0.195 if heavy is not None else 0.27,
        imbalance_share=0.265 if heavy is not None else 0.01,
        delay_share=0.02,
        stages=stages,
        ranks=tuple(PipelineRank(rank, (rank,), 0.5, 0.2, 0.2, 0.1) for rank in range(num_ranks)),
        slowest_stage=heavy if heavy is not None else num_ranks - 1,
        split_stage=heavy,
        heavy_loss_s=0.0796 if heavy is not None else None,
        even_loss_s=0.0523 if heavy is not None else None,
        micro_batches_for=((0.3, 7), (0.2, 12), (0.15, 17), (0.1, 27), (0.05, 57)),
        chart_step=96,
        chart_s=0.193,
        chart=chunks(num_ranks, num_chunks, heavy),
    )
    return replace(view, run=replace(view.run, label="pipeline.py", parallel={"pp": 4}), pipeline=picture)


def pipeline_unknown() -> RunView:
    """Ranks that hold stages of which no chunk was seen."""
    view = healthy()
    return replace(view, pipeline=PipelineView("ScheduleZBVZeroBubble", "no chunk of a stage was seen yet"))


def healthy() -> RunView:
    view = straggler()
    trend = tuple(0.0169 + (index % 3) * 0.0001 for index in range(60))
    return replace(
        view,
        ranks=tuple(rank_row(rank) for rank in range(4)),
        stragglers=(),
        slowdown=1.01,
        findings=(),
        step=replace(
            view.step,
            median_s=0.0169,
            mean_s=0.0169,
            p95_s=0.0175,
            throughput_steps_s=59.1,
            throughput_samples_s=15_146.0,
            shares=shares(PARTS_S),
            seconds=PARTS_S,
        ),
        chain=chain(PARTS_S, "backward"),
        trend=replace(view.trend, step_s=trend, marks=()),
        verdict=Verdict(
            "keep",
            "Keep: no loss found is worth acting on; all ranks arrive within 0.3 ms.",
            None,
            None,
            None,
            None,
            "",
            "",
        ),
        goodput=0.93,
    )


def too_early() -> RunView:
    """Attached a moment ago: nine steps, no verdict."""
    view = straggler()
    return replace(
        view,
        window=Window(0, 8, 8, {"partial": 1}, enough=False, num_missing_steps=12),
        verdict=Verdict(None, "not enough yet: 12 more steps", None, None, None, None, "", ""),
        findings=(),
        stragglers=(),
        slowdown=None,
        ranks=tuple(
            replace(
                rank_row(rank, steps=9),
                last_step=8,
                last_arrivals=None,
                wait_s=None,
                caused_wait_s=None,
                caused_each_s=None,
            )
            for rank in range(4)
        ),
        heat_first_step=0,
        trend=Trend(0, 1, (None, *(0.0285 for _ in range(8))), (None,) * 9, ()),
        last_step=8,
        goodput=None,
        num_frames=7,
        event_time_s=0.3,
    )


def lost_ranks() -> RunView:
    """One rank killed, one refused, an agent silent, events dropped."""
    view = straggler()
    ranks = list(view.ranks)
    ranks[1] = replace(
        ranks[1],
        state="killed",
        state_detail="killed by SIGKILL after step 341",
        now="",
        shares=NO_PARTS,
        seconds=NO_PARTS,
    )
    ranks[3] = replace(
        ranks[3],
        state="refused",
        state_detail="ptrace is forbidden here: start the job with 'tuiadvisor run', "
        "or set kernel.yama.ptrace_scope to 1",
        now="",
        step_s=None,
        shares=NO_PARTS,
        seconds=NO_PARTS,
        lateness_levels=b"",
    )
    return replace(
        view,
        ranks=tuple(ranks),
        losses=Losses(1204, 3, 1, 2, (1,), ("agent on node01 silent for 12 s",)),
    )


def unknown_everything() -> RunView:
    """Ranks are there, nothing was observed yet."""
    view = straggler()
    ranks = tuple(
        replace(
            rank_row(rank, steps=0),
            state="waiting_to_attach",
            state_detail="injected; blocked in C, the probe starts with the next Python call",
            host="",
            local_rank=None,
            pid=None,
            now="",
            last_step=None,
            step_s=None,
            shares=NO_PARTS,
            seconds=NO_PARTS,
            compute=None,
            idle=None,
            overlap=None,
            comm_exposed_s=None,
            wait_s=None,
            caused_wait_s=None,
            caused_each_s=None,
            last_arrivals=None,
        )
        for rank in range(4)
    )
    return replace(
        view,
        run=RunInfo("", "", None, (), None, None, None, None, {}),
        window=Window(None, None, 0, {}, enough=False, num_missing_steps=20),
        step=StepSummary(None, None, None, None, None, NO_PARTS, NO_PARTS),
        overlap=Overlap(None, None, None, None, None, None),
        slowdown=None,
        stragglers=(),
        ranks=ranks,
        heat_first_step=None,
        findings=(),
        verdict=Verdict(None, "", None, None, None, None, "", ""),
        goodput=None,
        trend=Trend(0, 1, (), (), ()),
        hosts=(),
        unknown=(Unknown("step", "no optimizer step seen yet"),),
        chain=(),
        probe_cost=None,
        probe=None,
        num_frames=0,
        event_time_s=None,
        last_step=None,
    )


def one_rank() -> RunView:
    view = healthy()
    return replace(
        view,
        run=replace(view.run, world_size=1),
        ranks=view.ranks[:1],
        overlap=Overlap(None, None, None, None, None, None),
    )


def finished() -> RunView:
    view = healthy()
    return replace(
        view,
        ended="run finished",
        ranks=tuple(
            replace(rank, state="exited", state_detail="finished after step 341", now="")
            for rank in view.ranks
        ),
    )


def grouped(view: RunView, num_stages: int = 0) -> RunView:
    """The view with its ranks put together as a fold does it; with stages, each replica is a run of ranks."""
    stages = {rank.rank: (rank.rank % num_stages,) for rank in view.ranks} if num_stages else {}
    replicas = {rank.rank: rank.rank // num_stages * num_stages for rank in view.ranks} if num_stages else {}
    return replace(view, groupings=groupings(view.ranks, stages, replicas))


@cache
def grouped_many(num_ranks: int = 1024, num_stages: int = 4) -> RunView:
    """Many ranks in groups: one late, one killed, one that computes longer without being named for it."""
    view = many(num_ranks)
    ranks = [rank if rank.is_culprit else replace(rank, last_arrivals=2e-5) for rank in view.ranks]
    ranks[77] = replace(
        ranks[77], state="killed", state_detail="killed by SIGKILL after step 341", now="", is_outlier=True
    )
    late = bytes(5 if step % 3 else 0 for step in range(120))
    ranks[300] = replace(ranks[300], lateness_levels=late, is_outlier=True, last_arrivals=0.01)
    return grouped(replace(view, ranks=tuple(ranks)), num_stages)


@cache
def many(num_ranks: int = 1024, *, seed: int = 7) -> RunView:
    """Many ranks on hosts of eight, rank 612 late."""
    view = straggler()
    culprit = min(612, num_ranks - 1)
    ranks = tuple(
        rank_row(rank, host=f"gpu{rank // 8:03d}", late_from=36 if rank == culprit else None, seed=seed)
        for rank in range(num_ranks)
    )
    hosts = tuple(f"gpu{host:03d}" for host in range((num_ranks + 7) // 8))
    return replace(
        view,
        run=replace(
            view.run, world_size=num_ranks, hosts=hosts, backend="nccl", device="cuda", label="pretrain-7b"
        ),
        ranks=ranks,
        stragglers=(replace(view.stragglers[0], rank=culprit),),
        clock="device",
    )


def with_values(view: RunView) -> RunView:
    """The view with data wait and backward of each step: the culprits' data wait is 14 of 20 ms."""
    rows = {rank.rank: place for place, rank in enumerate(view.ranks)}
    waits = [bytes(6 if level >= 5 else 1 for level in rank.lateness_levels) for rank in view.ranks]
    waits[0] = bytes([255]) * 20 + waits[0][20:]
    backward = [bytes([3 + rank.rank % 2]) * len(waits[0]) for rank in view.ranks]
    maps = (("data_wait", 0.02, waits), ("backward", 0.01, backward))
    return replace(
        view,
        step_maps=tuple(
            StepMap(phase, view.clock, top_s, len(waits[0]), rows, b"".join(cells))
            for phase, top_s, cells in maps
        ),
    )


def with_card(view: RunView | None = None) -> RunView:
    """The straggler's stacks were sampled, and a peer's."""
    view = view or straggler()
    rank = view.stragglers[0].rank
    lines = (
        ("dataset.py:118", "__getitem__", "loads", 118, 0.61, 0.0612, 0.007, 3, 0.02, 0.0015, True),
        ("train.py:80", "main", "Tensor.backward", 12, 0.06, 0.0063, 0.003, 126, 0.65, 0.065, True),
        ("collate.py:31", "pad_sequence", "", 8, 0.04, 0.0041, 0.003, 8, 0.04, 0.0041, False),
        ("train.py:77", "main", "Module._wrapped_call_impl", 55, 0.28, 0.028, 0.006, 57, 0.29, 0.029, False),
    )
    workers = (
        ("dataset.py:118", "__getitem__", "loads", 341, 0.88, None, None, None, None, None, False),
        ("train.py:31", "make_batch", "", 45, 0.12, None, None, None, None, None, False),
    )
    words = f"rank {rank} spends 61 ± 7 ms a step at dataset.py:118 in __getitem__; its peer, rank 0: 1.5 ms a step"
    card = StackCard(
        look=7,
        subject="straggler",
        rank=rank,
        peer=0,
        words=words,
        basis="; ".join(
            (
                f"193 samples of rank {rank} by py-spy, nothing stopped",
                "193 samples of rank 0 by py-spy, nothing stopped",
                "386 samples of 2 of its loader's workers; 20 steps meanwhile",
            )
        ),
        step_s=0.1,
        num_samples=193,
        num_peer_samples=193,
        lines=tuple(CardLine(*line) for line in lines),
        workers=tuple(CardLine(*line) for line in workers),
        num_workers=2,
        num_worker_samples=386,
        stands=(),
        notes=(),
    )
    return replace(view, cards=(card,))


def with_hang_card() -> RunView:
    """Where each rank of the stalled job stands."""
    view = stalled()
    (card,) = with_card(straggler()).cards
    native = ("clock_nanosleep (libc.so.6)", "wait (train.py:49)", "main (train.py:80)")
    stands = (
        StandsAt(3, "train.py:49", "wait", "", 1.0, native, ""),
        *(StandsAt(rank, "train.py:80", "main", "Tensor.backward", 1.0, (), "") for rank in (0, 1)),
        StandsAt(2, "", "", "", None, (), "its interpreter does not answer: a thread is busy in C code"),
    )
    basis = "97 samples of rank 3; 97 samples of rank 0; 97 samples of rank 1"
    hang = replace(
        card, subject="hang", rank=3, peer=None, words="rank 3 stands at train.py:49 in wait", basis=basis,
        lines=(), workers=(), num_workers=0, stands=stands,
    )  # fmt: skip
    return replace(view, cards=(hang,))


def stalled(for_s: float = 41.3) -> RunView:
    """Rank 3 was stopped by a signal in the middle of a step; the others wait for it."""
    view = healthy()
    words = "ranks 0, 1 and 2 wait for rank 3, stopped by a signal or a debugger"
    said = f"no step for {for_s:.1f} s: {words}, at step 341"
    return replace(
        view,
        stall=Stall(for_s, (0, 1, 2), (3,), words, "stopped", "kill -CONT 41203", ""),
        ranks=tuple(
            replace(rank, held="stopped" if rank.rank == 3 else "waits", is_outlier=rank.rank == 3)
            for rank in view.ranks
        ),
        findings=(
            replace(straggler_finding(), id="hang", title="No rank makes progress", ranks=(3,), message=said),
        ),
        verdict=replace(view.verdict, decision="tune", sentence=f"Stalled: {said}.", finding="hang"),
    )


def live(view: RunView | None = None, **changes: object) -> FeedState:
    state = FeedState(view, "live", "live", "", None, None, 1)
    return replace(state, **changes)  # type: ignore[arg-type]


def looking() -> FeedState:
    return live(None, phase="finding ranks", message="Scanning the processes of this machine.", version=0)


def standing() -> RunView:
    """It hung before anybody came: no step, and of each rank what was found out."""
    idle = "none of its threads is doing anything: it waits, has finished or hangs"
    why = f"{idle} (tuiadvisor stacks --pid 7 tells where)"
    view = unknown_everything()
    said = f"Not enough yet: no step was seen. Each rank: {why.partition(' (')[0]}."
    return replace(
        view,
        last_step=None,
        verdict=replace(view.verdict, sentence=said),
        ranks=tuple(replace(row, state="live", host="node01", state_detail=why) for row in view.ranks),
    )


def attaching() -> FeedState:
    return live(None, phase="attaching 2/4", message="Injecting into pid 41202.", progress=(2, 4))


def hub_lost() -> FeedState:
    return live(
        unheard(straggler()), phase="hub lost", message="No frame for 12 s from ipc:///tmp/hub; trying again."
    )


def replay(view: RunView | None = None, *, paused: bool = False) -> FeedState:
    where = ReplayState(0.62, 341, 0, 549, 4.0, paused, ((0.47, "rank 2 late"), (0.8, "checkpoint")))
    return live(view or straggler(), mode="replay", phase="paused" if paused else "live", replay=where)


def past() -> FeedState:
    """A live run that is looked at as it was."""
    return live(straggler(), phase="past", past=PastState(341, 120, 1840, 0.13))


def stretch() -> FeedState:
    """Fifty steps of a run, chosen."""
    view = straggler()
    chosen = StretchState(250, 299, 0, 341, view.trend)
    view = replace(view, trend=replace(view.trend, first_step=250, step_s=view.trend.step_s[-50:],
                   throughput_steps_s=view.trend.throughput_steps_s[-50:], steps_per_bucket=1, marks=()),
                   ranks=tuple(replace(rank, now="") for rank in view.ranks))  # fmt: skip
    return live(replace(view, window=replace(view.window, first_step=257, last_step=299, num_steps=43)),
                phase="stretch", stretch=chosen)  # fmt: skip


def with_events(state: FeedState | None = None) -> FeedState:
    """What a morning holds; the first step is no longer held, so its time is unknown."""
    told = (
        Event("checkpoint", 100, (), "4.1 s"),
        Event("onset", 222, (2,), "Rank 2 reads its data late", 1_700_000_000.0),
        Event("checkpoint", 240, (), "4.2 s on average", 1_700_000_100.0),
        Event("stalled", 290, (3,), "ranks 0, 1 and 2 wait for rank 3, stopped by a signal", 1_700_000_300.0),
        Event("resolved", 290, (), "moves again after 41 s or a little more", 1_700_000_300.0),
        Event("capture", 300, (2,), "the profiler saw steps 300\u2013302", 1_700_000_400.0),
        Event("restart", 320, (), "the job started anew", 1_700_090_000.0, by_then=True),
        Event("resolved", 341, (2,), "Rank 2 reads its data late", 1_700_090_060.0, by_then=True),
    )
    return replace(state or live(straggler()), events=told)


class FakeFeed:
    """A feed that shows what it is given and remembers what it was told."""

    def __init__(self, state: FeedState) -> None:
        self.state = state
        self.commands: list[object] = []

    def latest(self) -> FeedState:
        return self.state

    def command(self, command: object) -> None:
        self.commands.append(command)

    def show(self, state: FeedState) -> None:
        self.state = replace(state, version=self.state.version + 1)


def traced() -> RunView:
    """Of an imported trace: its devices wait for the loader, communication is not hidden."""
    parts = (
        DevicePart("the training thread waits for data: the loader", 0.285, 0.285),
        DevicePart("exposed communication, which nothing hides", 0.1, 0.1),
        DevicePart("between launch and start, or between two kernels", 0.021, 0.021),
    )
    kinds = (
        KernelSum("matrix product", "matrix product", 0.42, 0.7, 1314),
        KernelSum("communication", "communication", 0.18, 0.3, 80),
    )
    kernels = (
        KernelSum("ampere_sgemm_128x64_nn", "matrix product", 0.42, 0.7, 1314),
        KernelSum("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "communication", 0.18, 0.3, 80),
    )
    ranks = tuple(DeviceTime(rank, 1.0, 0.594, 0.1, 0.285, parts, 0.02 * rank) for rank in range(4))
    words = "PyTorch Profiler traces, by the devices' clocks"
    held = Imported("kineto", "traces", words, "rank 2 arrives last", (2,), DeviceWork(ranks, kinds, kernels))
    return replace(straggler(), imported=held)


def efficient() -> RunView:
    """Of a language model in bf16 on four devices: MFU known, what it rests on beside it."""
    found = Efficiency(
        mfu=0.412,
        hfu=0.498,
        flops_per_step=3.44e13,
        peak_flops=9.89e14,
        peak_source="its data sheet",
        dtype="bfloat16",
        flops_source="6 times the parameters, and attention",
        flops_s_per_device=4.07e14,
        tokens_per_step=32_768.0,
        num_devices=4,
        ridge_flop_byte=295.0,
        judgement="good",
        judgement_source="published runs",
    )
    facts: dict[str, int | str] = {
        "class": "GPT",
        "params": 124_439_808,
        "trainable": 124_439_808,
        "embedding": 38_597_376,
        "device_name": "NVIDIA H100 80GB HBM3",
        "compiled": 1,
    }
    return replace(straggler(), efficiency=found, stack=Stack(facts))


def timeline() -> Timeline:
    """Four ranks of two streams each; rank 2 computes longer, the others' communication waits for it."""
    lanes = []
    for rank in range(4):
        late = rank == 2
        compute = ("CCCCcc.CCC......" if not late else "CCCCccCCCCCCCC..") * 3
        comm = ("....nNNNNNNNNN.." if not late else "....n.........N.") * 3
        names = (
            ("ampere_sgemm_128x64_nn", 0.012),
            ("void at::native::vectorized_elementwise_kernel<4>", 0.004),
        )
        lanes.append(TimelineLane(rank, 7, compute, 0.6, names))
        lanes.append(TimelineLane(rank, 20, comm, 0.5, (("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0.02),)))
    return Timeline(1.25, 1.31, 4.0, tuple(lanes), ((0, 104), (16, 105), (32, 106)), 2e-6)
