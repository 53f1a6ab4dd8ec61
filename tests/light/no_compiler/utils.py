"""What DistributedDataParallel asks."""


def get_optimize_ddp_mode() -> str:
    """The default's, without the reducer in Python."""
    return "ddp_optimizer"
