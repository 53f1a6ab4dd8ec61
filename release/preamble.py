"""Runs in the bundle before anything of ours: a Python without its compiled modules gets one line."""

import sys

KNOWN = ()  # filled in by bundle.py

if sys.implementation.name != "cpython" or sys.version_info[:2] not in KNOWN:
    known = ", ".join(".".join(map(str, one)) for one in KNOWN)
    print(
        f"tuiadvisor: this file is for CPython {known}, not for {sys.version.split()[0]}; start it with one of them",
        file=sys.stderr,
    )
    sys.exit(2)
