"""What hooks may ask of the probe that installs them: for readers and type checkers, never loaded into a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from .buckets import Layout
    from .detail import Detail
    from .eval_span import EvalSpan
    from .guard import Hook
    from .patch import Patch
    from .ring import RingWriter
    from .step_clock import StepClock


class Host(Protocol):
    """The probe, as its hooks see it: the ring, the clock, and the ways in that are undone when it leaves."""

    ring: RingWriter
    clock: StepClock
    registrations: list[Any]  # with remove(), called when the probe leaves
    absences: dict[str, str]  # signal -> why it cannot be had
    pipeline: dict[str, Any]
    sequences: Any  # group_sequence.Sequences
    detail: Detail
    saves: Any  # background_saves.BackgroundSaves
    thread: Any  # training_thread.TrainingThread
    bucket_hook: Hook
    eval_span: EvalSpan
    forwards: Any  # model_hooks.Forwards
    roots: Any  # roots.Roots
    known_ddp: dict[int, Any]  # id -> weak reference
    model_facts: dict[str, Any]
    steps_before: int | None  # of the training, by its optimizer's count, before the clock's step 0
    looks_for_device: bool
    device_kind: str | None
    device_uuid: str | None
    unstepped: str  # name of a thread that runs backward without any optimizer step
    unmeasured: str  # why no step of this process is measured; empty where they are
    stepping: str  # class of an optimizer whose step was under way when the probe came
    captures: list[None]  # an item for each graph that is being captured
    memory: Any  # DeviceMemory, where the training is on a device
    shards: Any  # ShardedWaits, where FSDP2 was imported

    def hook(self, name: str) -> Hook:
        """A new numbered hook."""

    def patch(
        self, owner: Any, name: str, make_replacement: Callable[[Any], Any], *, by_value: bool = False
    ) -> Patch:
        """Replace an attribute; put back when the probe leaves."""

    def registration(self, handle: Any) -> None:
        """A handle whose remove() is called when the probe leaves."""

    def absent(self, name: str, why: str) -> None:
        """A signal that cannot be had in this process."""

    def when_loaded(self, module_name: str, name: str | None, install: Callable[[Any], None]) -> None:
        """install(module) now, or after the step in which the process has imported it."""

    def when(
        self, is_so: Callable[[], bool], name: str | None, why_not: str, install: Callable[[], None]
    ) -> None:
        """install() now, or after the step at which is_so() holds."""

    def put_info(self) -> None:
        """Describe rank, versions and hooks in the ring's info area."""

    def knows_ddp(self, module: Any) -> bool:
        """Whether this DDP module was seen before."""

    @property
    def has_wrapper(self) -> bool:
        """Whether a DDP module announced itself."""

    def found_ddp(self, module: Any) -> None:
        """A DDP module ran forward."""

    def broadcast_seen(self, begin_ns: int, end_ns: int, _args: tuple[Any, ...], _result: Any) -> None:
        """DDP's buffers were broadcast at the start of a forward."""

    def found_group(self, name: str, number: int) -> None:
        """A process group was used from Python for the first time."""

    def buckets(self, module: Any, ready: list[int]) -> Layout | None:
        """Which gradients this module sends together; None: not known yet."""
