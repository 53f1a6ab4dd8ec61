from tuiadvisor.api import LiveRun, Run, compare, open, scale, watch  # noqa: A004
from tuiadvisor.errors import TuiadvisorError

__version__: str
__all__ = ["LiveRun", "Run", "TuiadvisorError", "__version__", "compare", "open", "scale", "watch"]
