"""`tuiadvisor run -- torchrun … train.py`: start a training and watch it from its first steps on."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Any, Final

from tuiadvisor import expendable, log
from tuiadvisor.advisor.judge.findings import catalog
from tuiadvisor.agent import procfs
from tuiadvisor.agent.discovery import NoRanksError, find_ranks, has_torch
from tuiadvisor.app.awaiting_ranks import look_pause_s
from tuiadvisor.app.kept_output import KeptOutput
from tuiadvisor.app.live_feed import LiveFeed
from tuiadvisor.app.live_session import Session
from tuiadvisor.cli.options.outlets import add_outlets, follow, outlets_of
from tuiadvisor.cli.options.peaks import measured_here
from tuiadvisor.cli.options.target import terms_of
from tuiadvisor.cli.options.training import add_probe_options
from tuiadvisor.cli.watching import say_goodbye, see_end, show
from tuiadvisor.errors import EndedError, TuiadvisorError, one_line
from tuiadvisor.inject.armed import arm_environment
from tuiadvisor.inject.permission import tracing_forbidden
from tuiadvisor.stream.recording import check_place
from tuiadvisor.text.printed import say
from tuiadvisor.tui.pages.once import plain_summary

logger: Final = log.Logger(__name__)
LOOK_S: Final = 0.1


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "-o", "--output", "--record", metavar="FILE",
        help="keep the recording in this file; --record is its older name",
    )  # fmt: skip
    parser.add_argument(
        "--no-ui", action="store_true",
        help="no screens: the training prints to the terminal, then the verdict as text; with screens its output goes "
        "to FILE's NAME.output.txt (without -o it is not kept), and its last lines are shown when the screens are left",
    )  # fmt: skip
    add_probe_options(parser)
    add_outlets(parser)
    parser.add_argument(
        "training", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what starts the training"
    )


def run(options: argparse.Namespace) -> int:
    """Start the command, attach as soon as its ranks appear; its exit code is ours."""
    # A container or a Slurm step that was told to run us ends with us, and the training with it.
    expendable.no_longer()
    command = options.training[1:] if options.training[:1] == ["--"] else options.training
    if not command:
        raise TuiadvisorError(
            "nothing to run: write the training's command after --, e.g. -- torchrun train.py"
        )
    catalog()  # a wrong rule file is said before the training is started, as is a place that takes no recording
    if options.output is not None:
        check_place(options.output)
    with outlets_of(options) as outlets:
        return _run(command, options, outlets)


def _run(command: list[str], options: argparse.Namespace, outlets: Any) -> int:
    has_screens = not options.no_ui and sys.stdout.isatty()
    # Screens and prints of the ranks cannot share a terminal.
    output = _kept_output(options.output) if has_screens else None
    printed = output.descriptor if output is not None else subprocess.DEVNULL if has_screens else None
    try:
        training = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, env=_environment()
        )
    except OSError as error:
        if output is not None:
            output.discard()
        raise TuiadvisorError(f"{command[0]}: {error.strerror}; check the command after --") from error
    if output is not None:
        output.handed_over()
    try:
        return _follow(training, " ".join(command), options, outlets, output, has_screens=has_screens)
    except KeyboardInterrupt as stop:
        # Of ^C the terminal has told the training too; a polite kill names us alone, who stand for it.
        if isinstance(stop, EndedError):
            training.terminate()
        training.wait()
        raise
    finally:
        if output is not None:
            print(output.last_words(has_failed=training.returncode not in {0, None}), flush=True)
            output.close()


def _kept_output(recording: str | None) -> KeptOutput | None:
    """Where the training prints to while the screens have the terminal; None, and why, where nothing takes it."""
    try:
        return KeptOutput(recording)
    except OSError as error:
        _say(f"what the training prints is not kept: {error.strerror}")
        return None


def _follow(
    training: subprocess.Popen[bytes],
    command: str,
    options: argparse.Namespace,
    outlets: Any,
    output: KeptOutput | None,
    *,
    has_screens: bool,
) -> int:
    """Watch as long as it goes, wait until the training has ended."""
    try:
        if _wait_for_ranks(training):
            _watch(training, command, options, outlets, output, has_screens=has_screens)
        else:
            _say(f"the command ended with exit code {_exit_code(training)} before a rank appeared")
    except TuiadvisorError as error:
        _say(f"not watched any more: {error}")
    except (
        Exception
    ) as error:  # a fault of ours: a batch script that ended here would take the training with it
        logger.exception("the training goes on without us")
        _say(f"not watched any more: an error of tuiadvisor's own ({error!r})")
    if training.poll() is None:
        prints = f" and prints to {one_line(output.path)}" if output is not None and output.path else ""
        say(f"the training goes on (process {training.pid}){prints}; waiting for its end, ^C ends it")
    return _exit_code(training)


def _say(line: str) -> None:
    say(f"tuiadvisor run: {line}", stream=sys.stderr)


def _exit_code(training: subprocess.Popen[bytes]) -> int:
    """As a shell tells it: 128 and the number of the signal that ended it."""
    code = training.wait()
    return code if code >= 0 else 128 - code


def _is_over(training: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended; its exit code stays where the agent can read it, which tells a crash from an end."""
    try:
        return os.waitid(os.P_PID, training.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _environment() -> dict[str, str] | None:
    """The training's: as ours, and armed where there is no other way in."""
    forbidden = tracing_forbidden()
    if forbidden is None:
        return None
    _say(f"{forbidden[0]}: the training is started armed")
    return arm_environment(dict(os.environ))


def _wait_for_ranks(training: subprocess.Popen[bytes]) -> bool:
    refusal = ""
    while training.poll() is None:
        begin_s = time.thread_time()
        try:
            # A Python without torch may be about to import it, or to start those who do.
            if any(rank.rank is not None or has_torch(rank.pid) for rank in find_ranks([training.pid])):
                return True
        except NoRanksError:
            pass
        except TuiadvisorError as error:
            # Within its exit, which takes seconds where much memory is given back, nothing of a process can be read.
            if str(error) == refusal and not procfs.is_at_its_end(training.pid):
                raise
            refusal = str(error)
        time.sleep(look_pause_s(time.thread_time() - begin_s))
    return False


def _watch(
    training: subprocess.Popen[bytes],
    command: str,
    options: argparse.Namespace,
    outlets: Any,
    output: KeptOutput | None,
    *,
    has_screens: bool,
) -> None:
    record = options.output
    with Session([training.pid], record, "", command, terms=terms_of(options)) as session:
        feed = LiveFeed(session.source(), session.agent_error, session.request, measured_here())
        if output is not None:
            feed.say_aside = output.sentence
        feed.start()
        follow(outlets, feed)
        try:
            if has_screens:
                show(feed, recording=record or "")
                see_end(feed, session.agent_ended)
            else:
                while not _is_over(training) and not session.agent_ended():
                    time.sleep(LOOK_S)
                time.sleep(1.0)  # the last frames are still on their way
        finally:
            feed.stop()
    session.drop_if_nothing()
    state = feed.latest()
    if feed.failure is not None:
        raise feed.failure
    if not has_screens and state.view is not None:
        print(plain_summary(state.view))
    say_goodbye(state, record, with_verdict=has_screens, is_dropped=session.is_dropped)
