"""Whether a thread waits for storage: by its state, or by where in the kernel it sleeps.

A wait for a disk, NFS, SMB or Ceph is not to be interrupted, and shows as D. A file system in user space (FUSE: buckets
mounted as folders, sshfs, JuiceFS; virtiofs of a virtual machine) lets whoever opens, looks up or reads past the page
cache sleep as for a pipe (S), and Lustre counts its waits as idle (I), so that they are no load.
In: the state of /proc/PID/stat, /proc/PID/task/TID/wchan (the name of a function, for whoever may see the process).
"""

from __future__ import annotations

from typing import Final

from tuiadvisor.agent import procfs

_ALWAYS: Final = frozenset("DI")  # no thread of a user's process is idle for another reason
_SLEEPS: Final = "S"
# Functions of the kernel in which a thread waits for the answer of a file system: fs/fuse/dev.c (by versions from 4.x
# on, inlined or not), net/9p/client.c, Lustre's ptlrpc/client.c and obdclass/cl_io.c.
_PLACES: Final = frozenset({
    "request_wait_answer", "fuse_simple_request", "__fuse_simple_request", "fuse_request_send", "__fuse_request_send",
    "p9_client_rpc", "ptlrpc_set_wait", "cl_sync_io_wait",
})  # fmt: skip


def waits_for_storage(pid: int, thread: int, state: str) -> bool:
    """state: of the thread, just read. False also where the kernel does not tell."""
    if state in _ALWAYS:
        return True
    if state != _SLEEPS:
        return False
    place = (procfs.read(pid, f"task/{thread}/wchan") or b"").decode(errors="replace")
    return place.partition(".")[0] in _PLACES  # what a compiler splits off is NAME.isra.0
