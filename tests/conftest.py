"""Shared by all tests: helpers importable by name, and the folder of real traces where it exists."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
import skips
from thinned import num_examples

pytest.register_assert_rewrite("probing")  # what it compares is shown where it differs
# Rules of whoever runs the tests must not decide them; processes that tests start inherit this.
os.environ["XDG_CONFIG_HOME"] = str(Path(__file__).parent / "no-config")
os.environ.pop("TUIADVISOR_LOG", None)
# Threads of OpenMP spin while they wait for each other: on two cores that tests share, a small model's training
# took seven times its processor time. Ranks under torchrun have one thread each, too.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell starts what runs in its background with ^C ignored, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The default limit of 200 ms an example fails on a busy machine, and says nothing about the code.
settings.register_profile("tuiadvisor", deadline=None, max_examples=num_examples(100))
# A fixed seed where a change is judged; at a desk each run tries other examples.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=num_examples(100))
settings.load_profile("ci" if os.environ.get("CI") and "FUZZ_TIMES" not in os.environ else "tuiadvisor")


# What runs a probe runs it on both cores: the native one shall tell what the reference tells.
BOTH_CORES = ("test_probe_", "test_attach_cycles", "test_barrier_behind_step")
# The other files' half on Python's hooks runs in `make test-all`, and where no native core can be had; in every run
# tests/unit/test_native_core.py compares the two.
BOTH_IN_EVERY_RUN = ("test_probe_threads",)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of the probe once with each core; unit tests of its modules' own classes have one."""
    name = metafunc.module.__name__.rpartition(".")[2]
    if name.startswith(BOTH_CORES) and "integration" in str(metafunc.definition.path):
        metafunc.fixturenames.append("core")
        import native_core

        is_whole = name.startswith(BOTH_IN_EVERY_RUN) or native_core.why_not()
        marks = () if is_whole else (pytest.mark.extended,)
        cores = [pytest.param("python", marks=marks), "native"]
        metafunc.parametrize("core", cores, indirect=True, scope="function")


def pytest_configure() -> None:
    """A busy machine must not decide what a command says: how far it is, it says as soon as it takes a second.

    Tests of those lines set their own patience.
    """
    from tuiadvisor.app import progress
    from tuiadvisor.cli import import_

    until_the_end = pytest.MonkeyPatch()
    until_the_end.setattr(progress, "PATIENCE_S", 3600.0)
    until_the_end.setattr(import_, "TOLD_EVERY_S", 3600.0)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests and what they import live to the end: the garbage collector need not look at them each time.

    It went through all of them again whenever a test had made objects enough, and while they were made.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


POLICY = os.sched_getscheduler(0)  # under which the suite was started


def pytest_runtest_teardown() -> None:
    """A hub or an agent that a test ran in its own process has made way for good; the next test has not."""
    if os.sched_getscheduler(0) != POLICY:
        os.sched_setscheduler(0, POLICY, os.sched_param(0))


MAX_NAME = 120  # characters: some tests are given megabytes, and workers send each other their names


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A short name of a long parameter; None: pytest's own."""
    return f"{argname} of {len(val)}" if isinstance(val, str | bytes) and len(val) > MAX_NAME else None


@pytest.fixture
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the probes that the test and its processes attach."""
    import native_core

    name: str = request.param
    if name == "native" and (why_not := native_core.why_not()):
        pytest.skip(f"no native core: {why_not}")
    monkeypatch.setenv("TUIADVISOR_NATIVE", str(int(name == "native")))
    return name


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What a worker of `make coverage` has measured: xdist kills one that takes ten seconds to end."""
    measuring = sys.modules.get("coverage")
    current = measuring.Coverage.current() if measuring is not None else None
    if current is not None and hasattr(session.config, "workerinput"):
        current.save()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why tests were left out, for the one line that ends `make test`."""
    file = os.environ.get("SKIPS_FILE")
    if file and not hasattr(terminalreporter.config, "workerinput"):
        skips.append(Path(file), [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])])
