"""The table at the start of a block that is put into a target: addresses of what its code calls.

In: a name.  Out: where in the block its address lies.
"""

from __future__ import annotations

PYTHON_FUNCTIONS = (
    "Py_IsInitialized",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyDict_New",
    "PyRun_StringFlags",
    "Py_DecRef",
    "PyErr_Clear",
    "PyErr_Occurred",
    "PyErr_ExceptionMatches",
    "Py_AddPendingCall",
)
PYTHON_VARIABLES = ("PyExc_RecursionError", "PyExc_MemoryError")
"""Of the exceptions that a run may end in before its first line."""
LIBC_FUNCTIONS = ("pthread_self", "pthread_detach", "pthread_create", "munmap")
SLOTS = (*PYTHON_FUNCTIONS, *PYTHON_VARIABLES, *LIBC_FUNCTIONS, "block_size")
CODE_OFFSET = 192
PY_FILE_INPUT = 257


def slot_offset(name: str) -> int:
    """Bytes from the start of the block."""
    return 8 * SLOTS.index(name)
