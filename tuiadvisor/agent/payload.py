"""The strings of Python that an injection runs inside a rank: load the probe, or take it out.

The probe is loaded under a private name; `sys.path` is not touched, and nothing of the host's is imported that is not
there already. Compiling its modules inside the rank would hold the interpreter for 20 ms, so the agent compiles them
beforehand, with the rank's own interpreter, into a bundle beside the ring; where that cannot be had, source is loaded.
Either is loaded module by module with the interpreter given back in between: the training waits for the longest piece,
of the bundle a fraction of a millisecond, and not for the sum.
"""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tuiadvisor_probes
from tuiadvisor.inject.identity import the_same
from tuiadvisor_probes.native import packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.inject.identity import Identity

PRIVATE_NAME: Final = "_tuiadvisor_probe"
BUNDLE_NAME: Final = "probe.bin"
NATIVE_VARIABLE: Final = "TUIADVISOR_NATIVE"
NATIVE_NAME: Final = "native.bin"
TRIED_MACHINES: Final = frozenset(
    {"x86_64"}
)  # where its hooks ran with torch; on others whoever watches asks for it
CORE_FILE: Final = f"core.{os.uname().machine}.elf"  # of the package, or compiled with it: probes/native
COMPILE_TIMEOUT_S: Final = 10.0
# Between two modules, in a thread of our own, so that few of the pieces that hold the interpreter fall into one step.
PAUSE_S: Final = 0.003

_ATTACH = """
import sys
if {name!r} not in sys.modules:
    import importlib.util, marshal, threading, time
    pause_s = 0 if threading.get_ident() == threading.main_thread().ident else {pause_s!r}
    try:
        modules = None
        try:
            with open({bundle!r}, "rb") as file:
                magic, modules = marshal.load(file)
            if magic != importlib.util.MAGIC_NUMBER:
                modules = None
        except (OSError, ValueError, EOFError, TypeError):
            pass
        if modules is not None:
            for module_name, code in modules:
                uncounted = sys.modules.get({name!r} + ".uncounted")
                if uncounted is not None:
                    uncounted.begin()
                code = marshal.loads(code)
                module = type(sys)(module_name)
                module.__file__ = code.co_filename
                module.__package__ = {name!r}
                if module_name == {name!r}:
                    module.__path__ = []
                    module.native_file = {native!r}
                sys.modules[module_name] = module
                written = sys.dont_write_bytecode
                sys.dont_write_bytecode = True
                try:
                    exec(code, module.__dict__)
                finally:
                    sys.dont_write_bytecode = written
                if module_name != {name!r}:
                    setattr(sys.modules[{name!r}], module_name.rpartition(".")[2], module)
                if uncounted is not None:
                    uncounted.end()
                if pause_s:
                    time.sleep(pause_s)
        else:
            spec = importlib.util.spec_from_file_location(
                {name!r}, {init!r}, submodule_search_locations=[{folder!r}])
            package = importlib.util.module_from_spec(spec)
            package.native_file = {native!r}
            sys.modules[{name!r}] = package
            for stem in {order!r}:
                uncounted = sys.modules.get({name!r} + ".uncounted")
                if uncounted is not None:
                    uncounted.begin()
                written = sys.dont_write_bytecode
                sys.dont_write_bytecode = True
                try:
                    if stem == "__init__":
                        spec.loader.exec_module(package)
                    else:
                        importlib.import_module({name!r} + "." + stem)
                finally:
                    sys.dont_write_bytecode = written
                if uncounted is not None:
                    uncounted.end()
                if pause_s:
                    time.sleep(pause_s)
        sys.modules[{name!r} + ".install"].install({ring!r})
    except BaseException:  # of a signal's handler, say: half of the modules would bar every later attach
        if getattr(sys.modules.get({name!r} + ".install"), "_probe", None) is None:
            for each in [each for each in list(sys.modules) if each.partition(".")[0] == {name!r}]:
                del sys.modules[each]
        raise
"""

# Into a probe that is there: one more module, and what it shall do.
_EXTEND = """
import sys
if {name!r} + ".install" in sys.modules and {module!r} not in sys.modules:
    import importlib.util, marshal
    code = None
    try:
        with open({bundle!r}, "rb") as file:
            magic, ((_, code),) = marshal.load(file)
        code = marshal.loads(code) if magic == importlib.util.MAGIC_NUMBER else None
    except (OSError, ValueError, EOFError, TypeError):
        pass
    if code is None:
        with open({source!r}, "rb") as file:
            code = compile(file.read(), {shown!r}, "exec", dont_inherit=True)
    module = type(sys)({module!r})
    module.__file__ = code.co_filename
    module.__package__ = {name!r}
    sys.modules[{module!r}] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[{module!r}]
        raise
if {module!r} in sys.modules:
    sys.modules[{module!r}].{call}
"""

_DETACH = """
import sys
install = sys.modules.get({name!r} + ".install")
if install is not None:
    install.uninstall()
"""

# Runs in any Python from 3.10 on: modules in the order in which they import each other.
_COMPILE = """
import importlib.util, marshal, os, sys
folder, name = sys.argv[1:3]
modules = []
for stem in sys.argv[3:]:
    path = os.path.join(folder, stem + ".py")
    with open(path, "rb") as file:
        code = compile(file.read(), "<" + path + ">", "exec", dont_inherit=True, optimize=2)
    modules.append((name if stem == "__init__" else name + "." + stem, marshal.dumps(code)))
sys.stdout.buffer.write(marshal.dumps((importlib.util.MAGIC_NUMBER, modules)))
"""
# Each module after those it imports; a test holds this against the modules' own imports.
MODULE_ORDER: Final = (
    "__init__",
    "uncounted",
    "phases",
    "ring",
    "forks",
    "native",
    "duty",
    "step_record",
    "other_frames",
    "code_loops",
    "optimizer_turns",
    "books",
    "collections_log",
    "group_sequence",
    "step_clock",
    "calibration",
    "guard",
    "training_thread",
    "pickled",
    "patch",
    "process",
    "detail",
    "compiled",
    "eval_span",
    "attributes",
    "forward_look",
    "roots",
    "buckets",
    "device_barrier",
    "model_hooks",
    "data_hook",
    "packed_lengths",
    "loader_stages",
    "collective_hooks",
    "functional_waits",
    "sharded_waits",
    "pipeline_hooks",
    "deepspeed_pipeline",
    "device_memory",
    "accelerator",
    "device_times",
    "step_hooks",
    "optimizer_hook",
    "framework_hooks",
    "background_saves",
    "mark_hooks",
    "iterator_hook",
    "model_walk",
    "model_facts",
    "install",
)
STANDALONE_MODULES: Final = ("armed", "stuck")  # run without the rest of the probe
BESIDE: Final = {"stuck": ("other_frames", "group_sequence")}  # of which they need the functions
LATE_MODULES: Final = ("capture",)  # loaded into an attached probe when they are asked for, never with it


def probe_folder() -> Path:
    """Where the probe's files lie on this machine."""
    return Path(tuiadvisor_probes.__file__).resolve().parent


def attach_code(ring_path: str, folder: str | None = None) -> str:
    """Code that installs the probe on the ring at ring_path; folder: the probe's files as the target sees them."""
    where = folder or str(probe_folder())
    bundle = os.path.join(os.path.dirname(ring_path), BUNDLE_NAME)  # noqa: PTH118, PTH120 - a path in the target
    return _ATTACH.format(
        name=PRIVATE_NAME,
        init=where + "/__init__.py",
        folder=where,
        ring=ring_path,
        bundle=bundle,
        native=os.path.join(os.path.dirname(ring_path), NATIVE_NAME),  # noqa: PTH118, PTH120 - likewise
        pause_s=PAUSE_S,
        order=MODULE_ORDER,
    )


def detach_code() -> str:
    """Code that removes the probe, if there is one."""
    return _DETACH.format(name=PRIVATE_NAME)


def extension_code(stem: str, call: str, inner_folder: str, source_folder: str | None = None) -> str:
    """Code that loads one late module into the probe, from a bundle in inner_folder if there is one, and calls it.

    source_folder: the probe's files as the target sees them. Without a probe in the target nothing happens.
    """
    if stem not in LATE_MODULES:
        raise ValueError(stem)
    source = f"{source_folder or probe_folder()}/{stem}.py"
    return _EXTEND.format(
        name=PRIVATE_NAME,
        module=_private(stem),
        call=call,
        bundle=f"{inner_folder}/{BUNDLE_NAME}",
        source=source,
        shown=_shown(source),
    )


def standalone_code(stem: str, call: str) -> str:
    """Code that runs one standalone module in a namespace of its own and calls it."""
    if stem not in STANDALONE_MODULES:
        raise ValueError(stem)
    source = (probe_folder() / f"{stem}.py").read_text()
    beside = "".join(_defining(name) for name in BESIDE.get(stem, ()))
    return f"{source}\n{beside}{call}\n"


def _defining(stem: str) -> str:
    """Code that puts a module's names into the namespace it runs in: there is no package to import it from."""
    return f"exec({(probe_folder() / f'{stem}.py').read_text()!r}, globals())\n"


def write_bundle(folder: Path, target: Identity, stems: tuple[str, ...] = MODULE_ORDER) -> bool:
    """Put compiled modules of the probe there, for the process's own interpreter; False if they cannot be had."""
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        content = _bundle_for(target, stems)
        _put_beside(folder / BUNDLE_NAME, content, target.uid)
        return True
    return False


def wants_native() -> bool:
    """Whether ranks are sent the native core: where it was built and tried, unless TUIADVISOR_NATIVE says 0 or 1."""
    said = os.environ.get(NATIVE_VARIABLE, "")
    return said != "0" if said else os.uname().machine in TRIED_MACHINES and has_core()


def has_core() -> bool:
    """Whether this installation has a native core."""
    return (probe_folder() / CORE_FILE).is_file()


def write_native(folder: Path, uid: int | None = None) -> bool:
    """Put the native core beside the ring for the probe to load; False where it is not wanted or not there.

    uid: the owner of the process, where that is another than ours. The rank loads bytes: no path of ours is mapped.
    """
    if not wants_native():
        return False
    try:
        content = (probe_folder() / CORE_FILE).read_bytes()
    except OSError:
        return False
    with suppress(OSError):
        _put_beside(folder / NATIVE_NAME, packed(content), uid)
        return True
    return False


def _put_beside(path: Path, content: bytes, uid: int | None) -> None:
    """A file that is whole or not there, readable by the process alone. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if uid is not None and uid != os.geteuid():
                os.fchown(descriptor, uid, -1)
    except OSError:
        path.unlink()  # half a file would be read inside the rank for nothing
        raise


def _bundle_for(target: Identity, stems: tuple[str, ...]) -> bytes:
    # Its program is run with our rights: that of the process that was found, never of another that has its id now.
    with the_same(target) as process_fd:
        program_fd = os.open("exe", os.O_PATH | os.O_CLOEXEC, dir_fd=process_fd)
    try:
        interpreter, found = os.path.realpath(f"/proc/self/fd/{program_fd}"), os.fstat(program_fd)
        key = (interpreter, found.st_dev, found.st_ino, stems)
        return _BUNDLES.get(key, lambda: _bundle(interpreter, program_fd, stems))
    finally:
        os.close(program_fd)


class _Bundles:
    """What was compiled, by what for: once, though all ranks of a node ask at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[object, Future[bytes]] = {}

    def get(self, key: object, compiled: Callable[[], bytes]) -> bytes:
        """The bundle; what goes wrong with it goes wrong for all who wait, and is tried again for the next."""
        with self._lock:
            is_ours = key not in self._futures
            future = self._futures.setdefault(key, Future())
        if is_ours:
            try:
                future.set_result(compiled())
            except BaseException as error:
                with self._lock:
                    del self._futures[key]
                future.set_exception(error)
                raise
        return future.result()


_BUNDLES: Final = _Bundles()


def _bundle(interpreter: str, program_fd: int, stems: tuple[str, ...]) -> bytes:
    """Marshalled (magic number, [(module name, its marshalled code)]) of these modules for one interpreter."""
    if interpreter == os.path.realpath(sys.executable):
        modules = [(_private(stem), _compiled(stem)) for stem in stems]
        return marshal.dumps((MAGIC_NUMBER, modules))
    if not os.path.basename(interpreter).startswith("python"):  # noqa: PTH119 - a path in the target
        raise ValueError(f"{interpreter} embeds Python; it cannot compile for us")
    done = subprocess.run(
        [
            f"/proc/self/fd/{program_fd}",
            "-I",
            "-S",
            "-c",
            _COMPILE,
            str(probe_folder()),
            PRIVATE_NAME,
            *stems,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=COMPILE_TIMEOUT_S,
        pass_fds=(program_fd,),
        check=True,
    )
    return done.stdout


def _private(stem: str) -> str:
    return PRIVATE_NAME if stem == "__init__" else f"{PRIVATE_NAME}.{stem}"


def _compiled(stem: str) -> bytes:
    """One module's marshalled code, without docstrings: they would be read under the interpreter lock."""
    path = probe_folder() / f"{stem}.py"
    return marshal.dumps(compile(path.read_bytes(), _shown(path), "exec", dont_inherit=True, optimize=2))


def _shown(path: Path | str) -> str:
    """The file name of the probe's code in a rank, bracketed as code is that has no file there.

    A coverage measurement of the training would list the probe's files, count them in its total, and fail where the
    rank does not see them.
    """
    return f"<{path}>"
