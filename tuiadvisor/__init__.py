"""Watch running PyTorch training from a terminal, find the straggler, decide: tune, rescale or stop."""

__version__ = "0.1.0"
