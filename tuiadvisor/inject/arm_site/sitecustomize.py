# noqa: INP001  not a package: Python finds this file by its name in a folder of PYTHONPATH
"""Start the dormant listener, then make way for the user's own sitecustomize.

Found by every Python process of a job started with `tuiadvisor arm`. Must never disturb: without the
listener's file (another machine, a container) nothing happens.
"""

import importlib.util
import os
import sys
from contextlib import suppress


def _start_listener() -> None:
    path = os.environ.get("TUIADVISOR_ARM_LISTENER")
    spec = path and importlib.util.spec_from_file_location("_tuiadvisor_armed", path)
    if spec and spec.loader and os.environ.get("TUIADVISOR_ARM") == "1":
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.start()


def _make_way() -> None:
    """Leave sys.path and import what would have been found without us."""
    here = __file__.rpartition("/")[0]
    sys.path[:] = [entry for entry in sys.path if entry != here]
    ours = sys.modules.pop(__name__)
    try:
        importlib.import_module(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, ours)


with suppress(Exception):  # a listener that cannot start must not be heard
    _start_listener()
_make_way()
