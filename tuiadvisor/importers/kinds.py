"""What can be imported, one row a kind: what it is, which module reads it, whether a recording can be made of it.

How a file of it is recognised stands in `cli/recognizing.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of file: its reader's module is loaded when it is asked for."""

    words: str  # what `open` says that a file is
    help: str
    what: str  # the path's name in the help; empty: a benchmark's FILE, which may be kept as a ceiling
    module: str
    document: str  # function of the path: the JSON document
    summary: str  # function of the document: lines for people
    why_no_steps: str = ""  # why no recording can be made of it
    run: str = ""  # "module.function" of the path, for (document, ImportedRun)
    takes_one_file: bool = False  # and no folder of several
    is_long: bool = False  # may be gigabytes: says how far it is


KINDS: Final = {
    "kineto": Kind(
        "PyTorch Profiler traces",
        "PyTorch Profiler traces, one file a rank",
        "DIR",
        "kinetoreport",
        "kineto_document",
        "kineto_summary",
        run="kinetorun.kineto_run",
        is_long=True,
    ),
    "nsys": Kind(
        "Nsight Systems' export",
        "Nsight Systems' SQLite export (nsys export --type sqlite): kernels, NCCL, NVTX ranges as steps",
        "PATH",
        "nsysreport",
        "nsys_document",
        "nsys_summary",
        run="nsysreport.nsys_run",
        is_long=True,
    ),
    "rocprof": Kind(
        "rocprofv3's traces",
        "what AMD's rocprofv3 writes (CSV, or its rocpd database): kernels, RCCL, copies, ROCTx ranges as steps",
        "PATH",
        "rocprofreport",
        "rocprof_document",
        "rocprof_summary",
        run="rocprofreport.rocprof_run",
        is_long=True,
    ),
    "ops": Kind(
        "a per-operation table",
        "a per-operation trace, parquet or CSV, into the what-if analysis",
        "TABLE",
        "opsreport",
        "ops_document",
        "ops_summary",
        run="opsrun.ops_run",
        takes_one_file=True,
    ),
    "steplog": Kind(
        "a log of steps",
        "step times: torchtitan's structured logs, Megatron-LM's and NeMo's output, MLPerf's result logs, CSV of "
        "Lightning",
        "PATH",
        "steplog",
        "steplog_document",
        "steplog_summary",
        run="steplog.steplog_run",
    ),
    "metrics": Kind(
        "a metric of each rank",
        "a metric of each rank over time (JSON): whose data was late against its peers'",
        "FILE",
        "metricsreport",
        "metrics_document",
        "metrics_summary",
        "a metric over time holds no steps",
        takes_one_file=True,
    ),
    "nccl-inspector": Kind(
        "logs of NCCL's Inspector",
        "what NCCL's Inspector plugin logs: collectives by size, who comes last",
        "PATH",
        "inspector",
        "inspector_document",
        "inspector_summary",
        "NCCL's Inspector logs calls and no steps",
    ),
    "deepspeed": Kind(
        "output of DeepSpeed's communication logger",
        "output with the tables of DeepSpeed's communication logger",
        "LOG",
        "deepspeed",
        "deepspeed_document",
        "deepspeed_summary",
        "DeepSpeed's communication logger sums calls and has no steps",
        takes_one_file=True,
    ),
    "chakra": Kind(
        "execution traces",
        "PyTorch execution traces (Chakra), with times where the profiler's traces lie beside them",
        "PATH",
        "chakra",
        "chakra_document",
        "chakra_summary",
        "an execution trace has no clock: import kineto -o takes the profiler's trace beside it",
    ),
    "memory": Kind(
        "a memory timeline of torch.profiler",
        "torch.profiler's memory timeline (JSON): what the device's memory was full of",
        "FILE",
        "memory_timeline",
        "memory_document",
        "memory_summary",
        "a memory timeline holds no steps",
        takes_one_file=True,
    ),
    "flight-recorder": Kind(
        "flight-recorder dumps of a hang",
        "PyTorch flight-recorder dumps of a hang, as NCCL leaves them (nccl_trace_rank_0) or in JSON",
        "DIR",
        "hangreport",
        "hang_document",
        "hang_summary",
        run="hangrun.hang_run",
    ),
    "nccl-tests": Kind(
        "the output of nccl-tests",
        "what all_reduce_perf printed: the ceiling of this machine's links",
        "",
        "nccl_tests",
        "nccl_document",
        "nccl_summary",
        "nccl-tests measures links and has no steps of a training",
        takes_one_file=True,
    ),
    "fio": Kind(
        "fio's JSON output",
        "fio's JSON output: the ceiling of this machine's storage",
        "",
        "fio",
        "fio_document",
        "fio_summary",
        "fio measures storage and has no steps of a training",
        takes_one_file=True,
    ),
}
