"""Python runs this first in a rank that compiles nothing: torch's compiler is not imported there (see no_compiler).

DistributedDataParallel and every optimizer import it to tell it that it shall leave them alone: as much processor time
again as torch itself takes, in each rank of each training.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

COMPILER = "torch._dynamo"
STAND_IN = Path(__file__).parent / "no_compiler"


class Finder:
    """Answers for the compiler's package alone; its modules are looked for in the stand-in's folder."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG004
        """The stand-in's."""
        if name != COMPILER:
            return None
        return importlib.util.spec_from_file_location(
            name, STAND_IN / "__init__.py", submodule_search_locations=[str(STAND_IN)]
        )


sys.meta_path.insert(0, Finder)
