"""For Lightning: `Trainer(..., callbacks=[TuiadvisorCallback("run.tuirec")])`. Imports Lightning."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from tuiadvisor.integrations.recorder import Recorder
from tuiadvisor.integrations.trackers import Summary, numbers, summary

if TYPE_CHECKING:
    import os

logger: Final = logging.getLogger("tuiadvisor")


class TuiadvisorCallback(Callback):
    """Records from the first step to the last; the figures go to the trainer's loggers and `self.summary`."""

    def __init__(self, output: str | os.PathLike[str]) -> None:
        super().__init__()
        self._recorder = Recorder(output)
        self.summary: Summary | None = None  # once the training has ended

    def on_train_start(self, *_: Any) -> None:
        """Start the recording."""
        self._recorder.start()

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        """End it, and tell the loggers."""
        document = self._recorder.finish()
        if document is None:
            return
        self.summary = summary(document)
        for taker in trainer.loggers:
            try:
                taker.log_metrics(numbers(self.summary), step=trainer.global_step)
            except Exception:  # a logger's own trouble
                logger.exception("tuiadvisor: %s took no summary", type(taker).__name__)
