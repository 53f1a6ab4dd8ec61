"""Faults and innocent oddities on real trainings through the real commands: what was injected, what was found.

    python tests/accuracy/matrix.py [--severities] [--only PATTERN] [--disturbance PATTERN] [--repeat 1] [--keep FOLDER]
    python tests/accuracy/matrix.py --again FOLDER   the same judged anew from kept recordings

Each row starts the zoo's training, attaches with `tuiadvisor record`, reads `tuiadvisor diagnose --json`. A row is
right when the verdict names the fault's finding, rank and phase, or, for a healthy row, nothing above info.
--severities: instead, the causes that a CPU can show at 5, 10, 20, 50 and 100 % of a 45 ms step; ten minutes.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from disturbances import DISTURBANCES
from training import end, launch, wait_for_ranks

ZOO = Path(__file__).with_name("zoo.py")
PIPELINE = Path(__file__).parents[2] / "demo" / "pipeline.py"  # where a scenario is called pipeline:...
COMMAND = (sys.executable, "-m", "tuiadvisor")
BLAMING = ("straggler", "heavy_stage")  # findings that name ranks as the culprits


@dataclass(frozen=True)
class Row:
    """A scenario and what should come out; an expectation of None accepts anything."""

    scenario: str
    num_ranks: int = 4
    arguments: tuple[str, ...] = ()
    finding: str | None = "straggler"  # "" : nothing above info
    ranks: tuple[int, ...] | None = (1,)
    phases: tuple[str, ...] = ()
    seconds: int = 9
    tolerated: str | None = (
        None  # a finding that may be true as well, depending on what else the machine does
    )
    disturbance: str = ""  # of disturbances.DISTURBANCES
    settle_s: float = 0.0  # before the probes come
    may_be_missed: bool = (
        False  # too small to have to be found; an innocent rank's name is wrong all the same
    )
    is_remark: bool = False  # the finding asks for no action

    @property
    def name(self) -> str:
        """Of its recordings' files."""
        parts = (self.scenario.replace(":", "-"), f"{self.num_ranks}ranks", self.disturbance, *self.arguments)
        return "_".join(part.strip("-") for part in parts if part)

    @property
    def findings(self) -> list[str]:
        """Any of these will do."""
        return (self.finding or "").split("|")

    @property
    def is_fault(self) -> bool:
        """Whether something is wrong that asks for action."""
        return bool(self.finding) and self.finding != "taking_turns" and not self.is_remark


STYLES = ("ddp", "manual", "flat", "batchnorm", "barrier", "lossreduce", "alternate")
ROWS = [
    *[Row(f"{style}:backward", phases=("backward",)) for style in STYLES],
    *[Row(f"{style}:data", phases=("data_wait",)) for style in STYLES],
    *[Row(f"{style}:forward", phases=("forward",)) for style in ("ddp", "manual", "barrier")],
    # manual: eight all-reduces a step, of four ranks on two cores: that the exchange limits it is true, if it is said.
    *[
        Row(
            f"{style}:none",
            finding="",
            ranks=(),
            tolerated="communication_bound" if style == "manual" else None,
        )
        for style in (*STYLES, "accumulate", "generator", "workers")
    ],
    Row("accumulate:backward", phases=("backward",)),
    Row("accumulate:data", phases=("data_wait",), arguments=("--ms", "8")),
    Row("workers:data", phases=("data_wait",), arguments=("--ms", "60")),
    Row("generator:data", phases=("host", "other", "data_wait")),
    Row("ddp:optimizer", phases=("optimizer",)),
    Row("ddp:logging", phases=("host",)),
    Row("ddp:spin", phases=("backward", "host")),
    Row("ddp:two", finding="straggler", ranks=(1, 2), arguments=("--bad", "1", "2")),
    Row("ddp:intermittent", phases=("backward",), seconds=14),
    Row("ddp:evaluation", finding="", ranks=(), seconds=14),
    Row("ddp:balanced", finding="", ranks=()),
    Row("ddp:wandering", finding="taking_turns", ranks=None, arguments=("--ms", "30")),
    Row("ddp:turns", finding="wandering_lateness", ranks=None, arguments=("--ms", "12"), seconds=14),
    Row(
        "ddp:collect",
        finding="periodic_pause",
        ranks=None,
        arguments=("--every", "30", "--bad", "0", "1", "2", "3"),
        seconds=14,
    ),
    Row("ddp:data", phases=("data_wait",), arguments=("--every", "3", "--onset", "200"), seconds=16),
    Row("ddp:lengths", finding="uneven_lengths", ranks=None, arguments=("--ms", "30")),
    Row(
        "ddp:decay", finding="loader_decays", ranks=None, arguments=("--bad", "0", "1", "2", "3"), seconds=12
    ),
    Row("ddp:collect", phases=("host",), seconds=14),
    Row("ddp:everyone-forward", finding="", ranks=()),
    Row("ddp:saveall", finding="checkpoint_pause", ranks=None, seconds=14),
    Row("ddp:backward", num_ranks=2, phases=("backward",)),
    Row("ddp:backward", num_ranks=2, phases=("backward",), arguments=("--ms", "3")),
    Row("ddp:data", num_ranks=2, ranks=(0,), phases=("data_wait",), arguments=("--bad", "0")),
    Row("ddp:none", num_ranks=2, finding="", ranks=()),
    # Eight all-reduces a step, one a parameter: on two cores that is what limits it, and no rank is late.
    Row("manual:none", num_ranks=2, finding="communication_bound", ranks=None),
    Row("ddp:backward", ranks=(1, 2), phases=("backward",), arguments=("--bad", "1", "2")),
    Row("ddp:moving", ranks=(2,), phases=("backward",), arguments=("--bad", "1", "2"), seconds=22),
    Row("ddp:recovering", finding="", ranks=(), seconds=18),
    Row("ddp:savemine", ranks=(0,), phases=("backward",), arguments=("--bad", "0"), seconds=14),
    Row("ddp:uneven", finding="", ranks=()),
    Row("ddp:backward", num_ranks=2, phases=("backward",), arguments=("--scale", "0.1", "--ms", "1.5")),
    # Steps of 1.5 ms of work: where cores are crowded the exchange takes longer than that.
    Row("ddp:none", 2, ("--scale", "0.1"), finding="", ranks=(), tolerated="communication_bound"),
    Row("ddp:backward", phases=("backward",), arguments=("--scale", "18", "--ms", "90"), seconds=16),
    Row("ddp:none", finding="", ranks=(), arguments=("--scale", "18"), seconds=16),
    Row("ddp:forward", num_ranks=3, ranks=(2,), phases=("forward",), arguments=("--bad", "2")),
    Row("ddp:none", num_ranks=1, finding="", ranks=()),
    Row("ddp:none", disturbance="noise", finding="", ranks=()),
    Row("ddp:backward", disturbance="noise", phases=("backward", "host")),
    # A rank that mostly waits for its device gets a core whenever it asks: nothing is late, whoever else is busy.
    Row("ddp:none", disturbance="hog", finding="", ranks=()),
    Row("ddp:none", disturbance="nice", finding="", ranks=()),
    Row("ddp:none", 2, ("--busy",), disturbance="hog", phases=("host",), seconds=12),
    Row("ddp:none", disturbance="throttle", phases=("host", "forward", "backward"), seconds=12),
    Row("ddp:none", 2, ("--busy",), finding="", ranks=()),
    # Every 2 s is every 60 to 90 steps: a pause that rank 1 begins, or a straggler that stalls now and then.
    Row("ddp:none", disturbance="pause", finding="straggler|periodic_pause", seconds=20),
    # One stop of 3 s, and four errands at irregular steps: pauses of that rank, nobody is slow.
    Row("ddp:none", disturbance="once", finding="irregular_pause", is_remark=True, seconds=26),
    Row("ddp:none", 2, disturbance="once", finding="irregular_pause", is_remark=True, seconds=26),
    Row("ddp:errands", arguments=("--ms", "1500"), finding="irregular_pause", seconds=22),
    # What rank 0 does alone between steps, seen by no hook: a validation of the bare model, a file of its own.
    Row(
        "ddp:validation",
        ranks=(0,),
        arguments=("--bad", "0", "--ms", "90"),
        finding="periodic_pause",
        phases=("other",),
        seconds=22,
    ),
    Row(
        "batchnorm:keepmine",
        ranks=(0,),
        arguments=("--bad", "0", "--ms", "50"),
        finding="periodic_pause",
        phases=("other",),
        seconds=24,
    ),
    Row("ddp:none", disturbance="frozen", finding="hang", seconds=14),
    # torchrun ends the other ranks within a second: nobody may be blamed for what they leave unfinished.
    Row("ddp:none", disturbance="killed", finding="", ranks=(), seconds=14),
    Row("ddp:hang", arguments=("--onset", "200"), finding="hang", ranks=(1,), seconds=20),
    # All stand in backward: only what the threads do tells who has not come.
    Row("ddp:hang-backward", arguments=("--onset", "200"), finding="hang", ranks=(1,), seconds=20),
    *[
        Row(
            f"pipeline:stage{stage}",
            arguments=("--heavy-stage", str(stage), "--heavy", factor),
            finding="heavy_stage",
            ranks=(stage,),
            seconds=16,
        )
        for stage in range(4)
        for factor in ("1.4", "2")
    ],
    Row(
        "pipeline:gpipe",
        arguments=("--schedule", "gpipe", "--heavy-stage", "3"),
        finding="heavy_stage",
        ranks=(3,),
        seconds=16,
    ),
    # Stage 6 of eight is the second one of rank 2.
    Row(
        "pipeline:interleaved",
        arguments=("--schedule", "interleaved", "--heavy-stage", "6", "--forward-ms", "3"),
        finding="heavy_stage",
        ranks=(2,),
        seconds=20,
    ),
    Row(
        "pipeline:onset",
        arguments=("--heavy-stage", "1", "--onset", "60"),
        finding="heavy_stage",
        ranks=(1,),
        seconds=32,
    ),
    Row(
        "pipeline:few", arguments=("--micro-batches", "4"), finding="pipeline_bubble", ranks=None, seconds=14
    ),
    Row("pipeline:none", finding="", ranks=(), seconds=16),
    Row("pipeline:none", arguments=("--schedule", "gpipe"), finding="", ranks=(), seconds=16),
    Row(
        "pipeline:none",
        arguments=("--schedule", "interleaved", "--forward-ms", "3"),
        finding="",
        ranks=(),
        seconds=18,
    ),
    Row("pipeline:none", disturbance="noise", finding="", ranks=(), seconds=16),
]


STEP_MS = 45.0  # of a healthy step at SCALE
SCALE = "3"
MIN_SEVERITY = 0.1  # what has to be found
SEVERITIES = (0.05, 0.1, 0.2, 0.5, 1.0)


def severity_rows() -> list[Row]:
    """Kind x severity on 2 and 4 ranks in turns, and a healthy run beside each kind."""
    rows = []
    kinds = {"backward": "backward", "forward": "forward", "data": "data_wait", "optimizer": "optimizer",
             "logging": "host"}  # fmt: skip
    for number, (kind, phase) in enumerate(kinds.items()):
        for index, share in enumerate(SEVERITIES):
            ms = f"{share * STEP_MS:g}"
            rows.append(
                Row(f"ddp:{kind}", 2 if index % 2 else 4, ("--scale", SCALE, "--ms", ms), phases=(phase,),
                    seconds=8, may_be_missed=share < MIN_SEVERITY)
            )  # fmt: skip
        rows.append(Row("ddp:none", 2 + 2 * (number % 2), ("--scale", SCALE), "", (), seconds=8))
    return rows


def record(row: Row, path: Path, limits: Sequence[str] = ()) -> None:
    """Run one row and leave its recording; limits: how long to record, if not the row's seconds."""
    limits = limits or ["--for", f"{row.seconds}s"]
    is_pipeline = row.scenario.startswith("pipeline:")
    arguments = ["--print-every", "0"] if is_pipeline else [row.scenario]
    training = launch(
        row.num_ranks, [*arguments, *row.arguments], PIPELINE if is_pipeline else ZOO, is_whole=True
    )
    try:
        ranks = wait_for_ranks(training, row.num_ranks)
        disturb = DISTURBANCES[row.disturbance]
        pids = {rank.rank: rank.pid for rank in ranks if rank.rank is not None}
        time.sleep(row.settle_s)
        with disturb(pids):
            target = ["--pid", str(training.pid), "-o", str(path), *limits]
            subprocess.run(
                [*COMMAND, "record", *target], check=True, capture_output=True, timeout=row.seconds + 60
            )
    finally:
        end(training)


def diagnose(path: Path) -> Any:
    """The document of a recording."""
    done = subprocess.run(
        [*COMMAND, "diagnose", str(path), "--json"], check=True, capture_output=True, timeout=60
    )
    return json.loads(done.stdout)


def documents(rows: list[Row], keep: Path | None) -> Iterator[tuple[Row, Any]]:
    """Run each row; its recording stays in the folder, named by the row, if there is one."""
    with tempfile.TemporaryDirectory() as passing:
        folder = keep or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        for row in rows:
            number = len(list(folder.glob("*.tuirec")))
            path = folder / f"{row.name}_{number:03}.tuirec"
            record(row, path)
            yield row, diagnose(path)
            if keep is None:
                path.unlink()


def kept(folder: Path) -> Iterator[tuple[Row, Any]]:
    """The rows whose recordings lie in the folder."""
    by_name = {row.name: row for row in (*ROWS, *severity_rows())}
    for path in sorted(folder.glob("*.tuirec")):
        yield by_name[path.stem.rpartition("_")[0]], diagnose(path)


@dataclass(frozen=True)
class Judged:
    """How a row came out."""

    right: bool
    said: str
    is_found: bool  # the expected finding is there
    is_rank_right: bool
    has_false_alarm: bool  # above info: a straggler's name for an innocent rank, or anything on a healthy run


OF_THE_MACHINE = "crowded_host"  # who else wants its cores is no property of the row


def judge(row: Row, document: Any) -> Judged:
    """Compare the document with the row."""
    above = [
        finding
        for finding in document["findings"]
        if finding["severity"] != "info" and finding["id"] not in (row.tolerated, OF_THE_MACHINE)
    ]
    shown = above or [finding for finding in document["findings"] if finding["id"] in row.findings]
    said = "; ".join(
        f"{finding['id']} r{finding['ranks']} {finding['phase']} {1e3 * (finding['loss_s_per_step'] or 0):.1f}ms"
        for finding in shown
    )
    decision = document["verdict"]["decision"]
    said = said or f"nothing above info ({decision})"
    named = [finding for finding in document["findings"] if finding["id"] in row.findings]
    if row.is_fault:
        named = [finding for finding in named if finding["severity"] != "info"]
    ranks = {rank for finding in named for rank in finding["ranks"]}
    blamed = {rank for finding in above if finding["id"] in BLAMING for rank in finding["ranks"]}
    guilty = set(row.ranks or ()) if row.is_fault else set()
    false_alarm = bool(blamed - guilty) or (not row.is_fault and bool(above))
    if not row.is_fault:
        right = (
            not above
            and (decision == "keep" or row.tolerated or document["verdict"]["finding"] == OF_THE_MACHINE)
            and (not row.finding or bool(named))
            and (not row.is_remark or ranks == set(row.ranks or ()))
        )
        return Judged(right, said, bool(named) or not row.finding, not blamed, false_alarm)
    is_rank_right = bool(named) and (row.ranks is None or ranks == set(row.ranks))
    is_phase_right = not row.phases or not named or named[0]["phase"] in row.phases
    right = is_rank_right and is_phase_right and not false_alarm
    if row.may_be_missed and not above:
        right = True
    return Judged(right, said, bool(named), is_rank_right, false_alarm)


def main() -> int:
    """Print the table and the scores; 1 if a row is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="*")
    parser.add_argument("--disturbance", default="*")
    parser.add_argument("--severities", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the recordings")
    parser.add_argument("--again", type=Path, help="judge the recordings of this folder, run nothing")
    parser.add_argument("--row", type=int, help="this one alone of those chosen, from 0")
    options = parser.parse_args()
    rows = [
        row
        for row in (severity_rows() if options.severities else ROWS)
        if fnmatch.fnmatch(row.scenario, options.only)
        and fnmatch.fnmatch(row.disturbance, options.disturbance)
    ] * options.repeat
    if options.row is not None:
        rows = rows[options.row : options.row + 1]
    outcomes: list[tuple[Row, Judged]] = []
    for row, document in kept(options.again) if options.again else documents(rows, options.keep):
        outcome = judge(row, document)
        outcomes.append((row, outcome))
        what = " ".join((row.scenario, row.disturbance, *row.arguments))
        wanted = f"{row.finding or 'nothing'} {'' if row.ranks is None else list(row.ranks)}"
        print(
            f"{'ok   ' if outcome.right else 'WRONG'} {row.num_ranks} ranks {what:36} {wanted:24} {outcome.said}",
            flush=True,
        )
    print(scores(outcomes))
    return int(not all(outcome.right for _, outcome in outcomes))


def scores(outcomes: list[tuple[Row, Judged]]) -> str:
    """Recall, rank accuracy and false alarms in three lines."""
    faults = [outcome for row, outcome in outcomes if row.is_fault and not row.may_be_missed]
    healthy = [outcome for row, outcome in outcomes if not row.is_fault]
    found = [outcome for outcome in faults if outcome.is_found]
    accuracy = _share(sum(outcome.is_rank_right for outcome in found), len(found))
    faulty = [outcome for row, outcome in outcomes if row.is_fault]
    alarms = [sum(outcome.has_false_alarm for outcome in some) for some in (healthy, faulty)]
    lines = [
        f"{sum(outcome.right for _, outcome in outcomes)} of {len(outcomes)} rows right",
        f"recall {_share(len(found), len(faults))}, rank accuracy {accuracy}",
        f"false alarms: {alarms[0]} of {len(healthy)} healthy runs, {alarms[1]} of {len(faulty)} faulty ones",
    ]
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f} ({part} of {whole})" if whole else "unknown (no such row)"


if __name__ == "__main__":
    sys.exit(main())
