"""For Hugging Face's Trainer: `Trainer(..., callbacks=[TuiadvisorCallback("run.tuirec")])`. Imports transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from tuiadvisor.integrations.recorder import Recorder
from tuiadvisor.integrations.trackers import Summary, send, summary

if TYPE_CHECKING:
    import os


class TuiadvisorCallback(TrainerCallback):
    """Records from the first step to the last; the verdict goes to W&B, MLflow and `self.summary`."""

    def __init__(self, output: str | os.PathLike[str], writer: Any = None) -> None:
        """writer: a TensorBoard SummaryWriter that takes the summary, too."""
        self._recorder = Recorder(output)
        self._writer = writer
        self.summary: Summary | None = None  # once the training has ended

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Start the recording."""
        self._recorder.start()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End it, and tell the trackers."""
        document = self._recorder.finish()
        if document is not None:
            self.summary = summary(document)
            send(self.summary, self._writer)
