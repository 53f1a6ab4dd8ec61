"""What a screen shows of a gradient exchange bucket by bucket; frozen, seconds a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tuiadvisor.metrics.communication.bucket_timeline import Lever

SegmentKind = Literal["backward", "bucket", "idle"]


@dataclass(frozen=True, slots=True)
class BucketBar:
    """One bucket of the typical step, seconds after backward began."""

    num_bytes: int
    ready_s: float  # its last gradient, on the last rank to have it
    begin_s: float  # on the link, by the model
    end_s: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a lane of the picture; the parts of each lane sum to the same time."""

    kind: SegmentKind
    seconds: float
    bucket: int | None = None  # its number, from 1 on


@dataclass(frozen=True, slots=True)
class SizeChoice:
    """The same gradients with another bucket_cap_mb, by the model."""

    cap_mib: int
    num_buckets: int
    exposed_s: float
    saved_s: float  # against what was seen, if compute leaves it a core


@dataclass(frozen=True, slots=True)
class ExchangeView:
    """What of the exchange could be hidden on this hardware, and what that would buy."""

    num_steps: int  # seen in detail, that all of this rests on
    num_bytes: int
    backward_s: float  # until the last gradient, on the rank that comes last
    exposed_s: float  # transfer beyond it, in these steps
    rate_bytes_s: float | None  # that explains when the exchange ended
    bus_bytes_s: float | None  # the same as a ring all-reduce loads the link (nccl-tests' busbw)
    transfer_s: float | None  # all of it at that rate
    ratio: float | None  # transfer_s / backward_s: up to 1 it could be hidden wholly (Ultra-Scale Playbook)
    hideable_s: float  # most that order and size of buckets could still hide
    lever: Lever
    best_cap_mib: int | None  # the largest buckets that do nearly as well as the best
    saved_s: (
        float  # by them, of the exposed transfer of all steps, as far as compute leaves the exchange a core
    )
    saved_low_s: float  # 0 where compute and exchange share cores
    saved_high_s: float
    start_cost_s: float | None  # a bucket may cost so much by itself before nothing is saved
    core_left: (
        float | None
    )  # of a core, what compute leaves to a rank's exchange; None: not known; 1: they do not meet
    num_parameters: int
    tokens_per_rank: float | None
    flop_s: (
        float | None
    )  # achieved by a rank in the backward of all its micro-batches: 4 x parameters x tokens
    buckets: tuple[BucketBar, ...]
    sizes: tuple[SizeChoice, ...]
    lanes: tuple[
        tuple[str, tuple[Segment, ...]], ...
    ]  # backward, buckets as they were and as they would be, by name
    words: tuple[str, ...]  # the same in sentences
