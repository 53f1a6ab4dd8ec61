"""Fixed states of what lies beside the run, for snapshots and pilots."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from snapshot import views

from tuiadvisor.advisor.compare.distribution import distribution
from tuiadvisor.metrics.steps.arrays import Floats
from tuiadvisor.scaling.columns import Quantity
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.onerun import Mode, Parts
from tuiadvisor.scaling.picture import Picture
from tuiadvisor.scaling.table import Row, Table
from tuiadvisor.session.conduct import conduct
from tuiadvisor.session.entries import Stated
from tuiadvisor.session.guided import Guided, guided
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.machine import Machine
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.sizing import Known, picture_of
from tuiadvisor.tui.contract.desk import NO_DESK, DeskState
from tuiadvisor.views.comparison import (
    Bottleneck,
    Change,
    Comparison,
    Difference,
    FindingChange,
    PhaseChange,
    Rates,
    RunSide,
    WorkUnit,
)
from tuiadvisor.views.job_list import JobEntry, Watched
from tuiadvisor.views.run_list import RunEntry
from tuiadvisor_rules.questions import load_questions

LATE = tuple(0.0169 if index < 14 else 0.0286 for index in range(24))
EVEN = tuple(0.0169 + index % 3 * 0.0002 for index in range(24))


def runs() -> tuple[RunEntry, ...]:
    """Each state a row can have."""
    return (
        RunEntry(
            "/runs/after.tuirec", "after", "11-21 19:08", 120_463, "read", "", "train.py", 4, 519, 0.0169, EVEN,
            "keep", "Keep: no loss found is worth acting on; the mean step takes 16.9 ms.", "run finished",
        ),
        RunEntry(
            "/runs/before.tuirec", "before", "11-21 19:05", 114_813, "read", "", "train.py", 4, 499, 0.0286, LATE,
            "tune", views.straggler().verdict.sentence, "run finished",
        ),
        RunEntry(
            "/runs/node/pretrain-7b.tuirec", "node/pretrain-7b", "2025-12-01", 1_204_000_000, "reading",
        ),
        RunEntry("/runs/old.tuirec", "old", "2025-11-02", 80_000),
        RunEntry(
            "/runs/short.tuirec", "short", "11-20 08:00", 6_183, "read", "", "train.py", 4, None, None, (), None,
            "Not enough yet: 20 more steady steps.",
        ),
        RunEntry(
            "/runs/torn.tuirec", "torn", "11-20 07:59", 19, "broken",
            "no recording: it begins with other bytes; tuiadvisor record makes one",
        ),
    )  # fmt: skip


def side(path: str, step_s: float) -> RunSide:
    return RunSide(
        path,
        "train.py",
        ("node01",),
        WorkUnit(4, 128.0, None, 268_800, 1, 1),
        497,
        500,
        step_s,
        step_s * 1.2,
        step_s * 1.01,
        Rates(1 / step_s, 128 / step_s, 32 / step_s),
        None,
        step_s * 1.003,
        (20, 499),
    )


def comparison() -> Comparison:
    """Rank 2 was relieved: 41 % less a step."""
    change = Change(0.0286, 0.0169, 0.591, 0.57, 0.61, significant=True)
    phases = (
        PhaseChange("data_wait", 0.0051, 0.0021, -0.0030, -0.0035, -0.0025, significant=True),
        PhaseChange("forward", 0.0048, 0.0048, 0.00001, -0.0002, 0.0002, significant=False),
        PhaseChange("backward", 0.0072, 0.0073, 0.0001, 0.00005, 0.0002, significant=True),
        PhaseChange("comm_exposed", 0.0131, 0.0049, -0.0082, -0.009, -0.007, significant=True),
        PhaseChange("h2d", None, None, None, None, None, significant=False),
        PhaseChange("optimizer", 0.0016, 0.0016, None, None, None, significant=False),
    )
    return Comparison(
        schema=1,
        verdict="improved",
        sentence="Improved: a step takes 16.9 ms instead of 28.6 ms, 41 % less (95 %: 39 % to 43 %).",
        reasons=(),
        cautions=("the second recording is from another day",),
        basis="step",
        before=side("/runs/before.tuirec", 0.0286),
        after=side("/runs/after.tuirec", 0.0169),
        change=change,
        steady=change,
        every_step=change,
        throughput=change,
        phases=phases,
        bottleneck=Bottleneck(
            "straggler",
            None,
            moved=True,
            sentence="The bottleneck was one rank late in data; now nothing is above info.",
        ),
        findings=(
            FindingChange(
                "straggler", "Others wait for rank 2", "resolved", "data_wait", (2,), (), 0.0118, None
            ),
        ),
        environment=(Difference("torch", "2.12.0", "2.13.0"),),
        noise_floor=0.02,
        smallest_detectable=0.03,
        gate=None,
        distribution=distribution(_steps(0.0286, 0.0015), _steps(0.0169, 0.0006)),
    )


def _steps(mean_s: float, deviation_s: float) -> Floats:
    """Five hundred of them, one in fifty with a checkpoint."""
    made = np.random.default_rng(1).normal(mean_s, deviation_s, 500)
    made[::50] += 0.12
    return made


def desk(**changes: object) -> DeskState:
    """A folder with recordings, nothing compared yet."""
    return replace(NO_DESK, folder="/runs", machine="node17", runs=runs(), has_live=True, **changes)  # type: ignore[arg-type]


WATCHED = Watched(
    "ipc:///run/viewers", "before.tuirec", 1.0, 3338, 0.415, 2.41, "tune", views.straggler().verdict.sentence
)
STANDS = replace(
    WATCHED, recording="", last_step=48_211, steps_s=None, decision="hang",
    sentence="Hang: ranks 0, 1 and 2 wait for rank 3, stopped by a signal or a debugger.",
)  # fmt: skip


def jobs() -> tuple[JobEntry, ...]:
    """A watched training, one of one's own, another user's, one that stands, and two jobs in Slurm."""
    here = JobEntry("1.1", "train.py", "python train.py --lr 0.1", "you", 8, "gpu", "2 h 14 m", (8812,))
    return (
        replace(here, is_watched=True, watched=WATCHED),
        replace(
            here,
            key="2.1",
            label="sweep.py",
            command="python sweep.py",
            since="21 m",
            num_ranks=4,
            pids=(9000,),
        ),
        replace(here, key="4.1", label="sft.py", since="6 h", is_watched=True, watched=STANDS),
        replace(here, key="3.1", label="serve.py", owner="anna", is_ours=False, device="cpu", num_ranks=2),
        JobEntry(
            "slurm 481223",
            "llama-70b",
            "",
            "you",
            None,
            "",
            "6:00:00",
            slurm="481223",
            where="8 nodes, running",
        ),
        JobEntry(
            "slurm 481230",
            "eval",
            "",
            "you",
            None,
            "",
            "0:00",
            slurm="481230",
            where="1 node, pending",
            is_running=False,
        ),
    )


class FakeDesk:
    """A desk that shows what it is given and remembers what it was told."""

    def __init__(self, state: DeskState) -> None:
        self.state = state
        self.commands: list[object] = []

    def desk(self) -> DeskState:
        return self.state

    def command(self, command: object) -> None:
        self.commands.append(command)


def guided_session(answers: dict[str, str | float] | None = None, last: str = "") -> Guided:
    """The session on the straggler, as the engine holds it."""
    recorded = Recorded("before.tuirec", views.straggler(), 268_800)
    questions = load_questions()
    intent = Intent(objective="cost", price_per_device_hour=2.5, remaining_steps=100_000)
    return guided(
        conduct([recorded], intent, answers or {}, questions, last=last), "saved in before.session.json"
    )


STEP = Quantity("step_s", "step", "s", 1.0)
MEASURED = ((8, 1.0), (16, 0.53), (32, 0.30))
LIMITS = Aim(
    price_per_device_hour=2.5, deadline_h=7.0, budget=1200.0, remaining_steps=100_000, efficiency_floor=0.8
)


def table(rows: tuple[tuple[int, float], ...] = MEASURED) -> Table:
    """Sizes of one job, strong scaling."""
    return Table(
        "sizes.csv",
        STEP,
        tuple(Row(line, devices, value, 512.0, None, None) for line, (devices, value) in enumerate(rows, 2)),
        (),
    )


@cache
def sized(
    aim: Aim = LIMITS,
    candidates: tuple[int, ...] = (64, 128),
    rows: tuple[tuple[int, float], ...] = MEASURED,
) -> Picture:
    """A table of sizes as the screen shows it."""
    return picture_of(Known(table=table(rows)), Stated(aim, candidates), Machine())


def bounded(aim: Aim = LIMITS, mode: Mode = "weak", room: int = 16) -> Picture:
    """One run of eight devices alone."""
    from tuiadvisor.scaling.oneruncurves import one_run_picture
    from tuiadvisor.session.entries import entries

    parts = Parts(8, 1, 8, room, 0.1, 0.07, 0.045, 0.01, 0.02, 0.005, 0.005, 0.01, 256)
    stated = Stated(aim, (), mode)
    picture = one_run_picture("before", parts, aim, (), mode)
    return picture.with_entries(entries(stated, STEP, is_one_run=True))


def unsized() -> Picture:
    """A run whose ranks share one host's cores: one size says nothing."""
    return picture_of(Known(Recorded("before", views.straggler(), 268_800)), Stated(Aim()), Machine())
