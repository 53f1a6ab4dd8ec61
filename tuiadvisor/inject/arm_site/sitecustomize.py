# noqa: INP001  not a package: Python finds this file by its name in a folder of PYTHONPATH
"""Start the dormant listener, then make way for the user's own sitecustomize.

Found by every Python process of a job started with `tuiadvisor arm`. Must never disturb: without the
listener's file (another machine, a container) nothing happens.
"""

import os
import sys

NAME = "_tuiadvisor_armed"


def _start_listener() -> None:
    path = os.environ.get("TUIADVISOR_ARM_LISTENER")
    if path and os.environ.get("TUIADVISOR_ARM") == "1" and os.path.exists(path):  # noqa: PTH110  pathlib costs 5 ms
        # By its loader, which keeps compiled code and is there already: importlib would cost as much as the rest.
        code = sys.modules["_frozen_importlib_external"].SourceFileLoader(NAME, path).get_code(NAME)
        module = type(sys)(NAME)
        if code is not None:
            exec(code, module.__dict__)  # noqa: S102  our own listener
            module.start()


def _make_way() -> None:
    """Leave sys.path and import what would have been found without us."""
    here = __file__.rpartition("/")[0]
    sys.path[:] = [entry for entry in sys.path if entry != here]
    ours = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, ours)


try:  # noqa: SIM105  contextlib is not imported yet
    _start_listener()
except Exception:  # noqa: BLE001, S110  a listener that cannot start must not be heard
    pass
_make_way()
