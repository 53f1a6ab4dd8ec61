"""How a Python of our own is started: with our modules, whatever lies in the current folder.

`python -m …` looks into the current folder first. There may be a project's own secrets.py, which breaks us, or
somebody else's orjson.py, which would run with our rights. This file imports only what every Python holds already.
"""

import os
import sys

# -P: not from the current folder. Not -I: it drops PYTHONPATH and the user's packages, where tuiadvisor may lie.
SAFE_PATH = "-P"
# An empty part of these lists, as `X=$X:/more` makes of an unset X, is the current folder too.
_SEARCHED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - not imported yet
# The one-file build (release/bundle.py) unpacks into a folder where no Python looks by itself.
_IS_BUNDLE = os.path.exists(f"{_ROOT}/tuiadvisor-bundle")  # noqa: PTH110
_OUR_FOLDERS = (_ROOT, f"{_ROOT}/probes", f"{_ROOT}/rules")  # of a checkout; installed, all lies in the first


def python_command(module: str, *arguments: str, python: str = "") -> list[str]:
    """The command line that runs a module; python: another one than ours."""
    if _IS_BUNDLE:  # PYTHONPATH would do, too, and bring our numpy into trainings that we start
        find = (
            f"import runpy,sys;sys.path.insert(0,{_ROOT!r});runpy.run_module({module!r},None,'__main__',True)"
        )
        return [python or sys.executable, SAFE_PATH, "-c", find, *arguments]
    return [python or sys.executable, SAFE_PATH, "-m", module, *arguments]


def own_environment() -> dict[str, str]:
    """Our environment for what we start for ourselves: nothing is looked up where we happen to stand."""
    environment = dict(os.environ)
    for name in _SEARCHED:
        kept = [part for part in _parts(name) if part.startswith("/")]
        if name == "PYTHONPATH":
            kept += [folder for folder in _given_relatively() if folder in _OUR_FOLDERS]
        if kept:
            environment[name] = ":".join(kept)
        else:
            environment.pop(name, None)  # an empty list would be the current folder again
    return environment


def leave_current_folder() -> None:
    """Import nothing more from it in a process that a user started, unless we lie there ourselves."""
    left = [folder for folder in _given_relatively() if folder not in _OUR_FOLDERS]
    num_ahead = next((at for at, entry in enumerate(sys.path) if entry.endswith(".zip")), len(sys.path))
    ahead = [entry for entry in sys.path[:num_ahead] if entry and entry not in left]
    sys.path[:num_ahead] = ahead


def _given_relatively() -> list[str]:
    """Folders we import from only because of where we stand: by `python -m`, or a relative part of PYTHONPATH."""
    try:
        here = os.getcwd()  # noqa: PTH109
    except OSError:
        return []  # it is gone
    given = [os.path.normpath(f"{here}/{part}") for part in _parts("PYTHONPATH") if not part.startswith("/")]
    by_module = not sys.flags.safe_path and sys.path[:1] == [here]
    return [here] * by_module + given


def _parts(name: str) -> list[str]:
    value = os.environ.get(name, "")
    return value.split(":") if value else []
