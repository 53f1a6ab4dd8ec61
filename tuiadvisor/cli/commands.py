"""The list of commands, their shared options, and the one place that catches a TuiadvisorError."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

from tuiadvisor import __version__, log
from tuiadvisor.cli.options.duration import seconds
from tuiadvisor.cli.output import OutputError, give_up_output
from tuiadvisor.errors import EndedError, FailureError, TuiadvisorError, one_line
from tuiadvisor.expendable import groups_that_end_together, may_run_short
from tuiadvisor.text.printed import say_on_stderr, unbroken
from tuiadvisor.text.terminal import shows_screens

logger: Final = log.Logger(__name__)

# name -> (module, one line). An explicit list: what is not here does not exist.
COMMANDS: Final = {
    "home": ("home", "what trains here and what was recorded; also what tuiadvisor alone shows"),
    "watch": ("watch", "live screens of the training that runs on this machine"),
    "record": ("record", "the same without screens, into a file"),
    "run": ("run_", "start a training and watch it from its first steps on"),
    "arm": ("arm", "run a command so that a watcher gets in later where ptrace is forbidden"),
    "capture": ("capture", "a few steps of running ranks under torch's profiler, a trace for Perfetto each"),
    "stacks": ("stacks", "where ranks that hang are, and in which collective"),
    "replay": ("replay", "the same screens on a recording"),
    "open": ("open_", "a recording, trace or folder, recognised by its content; a bare path is enough"),
    "runs": ("runs", "the recordings of a folder: open, search, compare"),
    "fleet": (
        "fleet",
        "many jobs in one folder: a hub and keys for each, one list, recordings kept by a limit",
    ),
    "serve": ("serve", "the screens as a web page of this machine"),
    "diagnose": ("diagnose", "the verdict on a recording, as text or JSON"),
    "advise": ("advise", "the guided session: six patterns, your answers, one decision"),
    "intent": ("intent", "what the training is for: objective, limits, prices, what remains"),
    "compare": ("compare", "two recordings: improved, regressed, no change, not decided or not comparable"),
    "report": ("report", "one file with verdict, charts and evidence: .html or .md"),
    "info": ("info", "what a recording holds, and what is damaged or was lost"),
    "scale": ("scale", "what more or fewer devices bring: time, efficiency, cost, decision"),
    "import": (
        "import_",
        "other tools' results: traces, operation tables, flight recorder, nccl-tests, fio, metrics of a server",
    ),
    "trim": ("trim", "some steps of a recording as a recording of its own"),
    "anonymize": ("anonymize", "a copy of a recording that names nobody"),
    "export": ("export", "a recording as Parquet tables or as a trace for Perfetto"),
    "detach": ("detach", "remove probes from running ranks"),
    "rules": ("rules", "list, show and check the rules of the advisor"),
    "mcp": ("mcp_", "serve an assistant over the Model Context Protocol; it may only read"),
    "completion": ("completion", "a script with which a shell completes commands, options and files"),
    "doctor": ("doctor", "what works on this machine, and the remedy for what does not"),
    "demo": ("demo", "a real training with a fault, and the screens on it"),
}
# Leave, look or start the user's own: never refused for memory.
TAKE_LITTLE: Final = frozenset({"detach", "doctor", "completion", "rules", "arm", "run"})


SCREENS: Final = frozenset(
    {"home", "watch", "replay", "run", "runs", "fleet", "demo"}
)  # `open` calls one of them


def _is_path(text: str) -> bool:
    """Whether there is such a file or folder, or a file on the way to it, as to what an archive holds."""
    return os.path.lexists(text) or any(above.is_file() for above in Path(text).parents)


class OneLineParser(argparse.ArgumentParser):
    """A wrong command line gives one line that says what is wrong and where to look, not the whole usage."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As ever; what no option takes is told with the help of the command that was meant."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            command = getattr(found, "command", "")
            prog = f"{self.prog} {command}" if command and " " not in self.prog else self.prog
            self._refuse(prog, f"unrecognized arguments: {' '.join(left)}")
        return found

    def error(self, message: str) -> NoReturn:
        """Print it and leave with 2."""
        # "argument --speed: '0' is not a speed" -> "--speed: '0' is not a speed"
        text = message.removeprefix("argument ").removeprefix("COMMAND: ")
        if text.startswith("invalid choice: ") and self.prog.count(" ") == 0:
            typed = text.partition("'")[2].partition("'")[0]
            near = difflib.get_close_matches(typed, COMMANDS, 1)
            kind = "file or command" if os.sep in typed or os.extsep in typed else "command"
            text = f"no {kind} {typed!r}" + (f"; did you mean {near[0]}?" if near else "")
        self._refuse(self.prog, text)

    def _refuse(self, prog: str, why: str) -> NoReturn:
        say_on_stderr(f"{prog}: {why}; {unbroken(f'{prog} --help')} shows what there is")
        self.exit(2)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser; `only`: load one command's options and leave the other modules unimported; "": none at all."""
    parser = OneLineParser(
        prog="tuiadvisor",
        description="Watch running PyTorch training, find the straggler, decide: tune, rescale or stop.",
        epilog=log.HELP,
    )
    parser.add_argument("--version", action="version", version=f"tuiadvisor {__version__}")
    parser.add_argument("--debug", action="store_true", help="show a traceback instead of one line")
    _add_log(parser, 0)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, line) in COMMANDS.items():
        command = subparsers.add_parser(name, help=line, description=line[0].upper() + line[1:] + ".")
        command.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
        if only in (None, name):
            importlib.import_module(f"tuiadvisor.cli.{module}").add_options(command)
        if name in SCREENS:
            command.add_argument(
                "--quiet-alerts", action="store_true", help="screens: no bell and no notification of alerts"
            )
            command.add_argument(
                "--quiet", type=_quiet_hours, metavar="22:00-07:00",
                help="screens: in these hours banners alone, but a job that stands still rings",
            )  # fmt: skip
            command.add_argument(
                "--repeat-alerts", type=seconds, metavar="10m", help="screens: what is still open rings again"
            )
        _add_log(command, 1)
    return parser


def _quiet_hours(text: str) -> tuple[int, int]:
    from tuiadvisor.preferences import quiet_hours  # noqa: PLC0415 - only where it is said

    try:
        return quiet_hours(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_log(parser: argparse.ArgumentParser, depth: int) -> None:
    """-v and --log, after the command's name and after that of an action of it as before them."""
    hidden = argparse.SUPPRESS
    # A count of its own for each place: a command's parser begins with nothing and replaces what came before it.
    verbose = f"verbose_{depth}"
    if depth == 0:
        parser.add_argument("-v", dest=verbose, action="count", default=0, help="log what is done; -vv: more")
        parser.add_argument("--log", metavar="FILE", help="log to this file")
        return
    parser.add_argument("-v", dest=verbose, action="count", default=hidden, help=hidden)
    parser.add_argument("--log", default=hidden, help=hidden)
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for parser_of_action in action.choices.values():
                _add_log(parser_of_action, depth + 1)


def _named(arguments: list[str]) -> str | None:
    """The command's name, which --log FILE may precede."""
    words = iter(arguments)
    for word in words:
        if not word.startswith("-"):
            return word
        if len(word) > len("--") and "--log".startswith(word):
            next(words, None)
    return None


def wants_screens(options: argparse.Namespace) -> bool:
    """Whether screens will be shown: scripts do not fail by a file that only screens read."""
    if not (options.command in SCREENS or getattr(options, "tui", False)):
        return False
    if any(getattr(options, name, False) for name in ("once", "no_ui", "headless")):
        return False
    return shows_screens()


def end_in_order() -> None:
    """SIGTERM ends a command as ^C does: probes are taken out, a demo's training ends, the terminal is given back.

    Also where we were started with it blocked, as srun starts its prolog.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    signal.signal(signal.SIGTERM, _ended)


def _ended(_number: int, _frame: object) -> None:
    raise EndedError


def run(arguments: list[str]) -> int:
    """Parse, run, and turn what went wrong into one line and an exit code."""
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        give_up_output()
        return 0  # `tuiadvisor diagnose … | head`: the reader has what it wanted
    except OutputError as error:
        give_up_output()
        say_on_stderr(f"tuiadvisor: standard output cannot be written: {error.strerror}")
        return FailureError.exit_code


def _run(arguments: list[str]) -> int:
    named = _named(arguments)
    if all(word in {"--debug", "-v", "-vv", "--quiet-alerts"} for word in arguments):
        arguments = ["home", *arguments]  # nothing was asked for: show what there is
        named = "home"
    if named is not None and named not in COMMANDS and _is_path(named):
        arguments = ["open", *arguments]  # a bare path
        named = "open"
    options = build_parser(named if named in COMMANDS else "").parse_args(arguments)
    chosen = ""
    try:
        has_screens = wants_screens(options)
        # Before anything else is touched.
        chosen = log.start(
            options.command, _verbosity(options), options.log, environ=os.environ, has_screens=has_screens
        )
        if options.command not in TAKE_LITTLE:
            _check_memory()
        return _logged(options, has_screens=has_screens)
    except TuiadvisorError as error:
        if options.debug:
            raise
        # Only who opened an archive has loaded what opens them.
        archive = sys.modules.get("tuiadvisor.importers.archive")
        said = str(error) if archive is None else archive.by_their_names(str(error))
        say_on_stderr(f"tuiadvisor {options.command}: {said}")
        return error.exit_code
    except KeyboardInterrupt as stopped:
        return 143 if isinstance(stopped, EndedError) else 130
    finally:
        log.stop()
        if chosen:
            say_on_stderr(f"the log is in {one_line(chosen)}")


def _check_memory() -> None:
    """Where running out of memory would end a training beside us, whoever goes first: only with room. FailureError."""
    if (groups := groups_that_end_together()) or may_run_short():
        room = importlib.import_module(
            "tuiadvisor.agent.room"
        )  # a tenth of a second that nobody else waits for
        room.check_own(groups)


def _logged(options: argparse.Namespace, *, has_screens: bool) -> int:
    """Run the command; the log gets its beginning and its end."""
    logger.info("tuiadvisor %s, Python %s: %s", __version__, sys.version.split()[0], options.command)
    try:
        if has_screens:
            # Before a training is touched: a bad file is said first.
            preferences = importlib.import_module("tuiadvisor.app.preferences_file")
            preferences.load()
            if getattr(options, "quiet_alerts", False):
                preferences.be_quiet()
            preferences.ring_by(getattr(options, "quiet", None), getattr(options, "repeat_alerts", None))
        module = importlib.import_module(f"tuiadvisor.cli.{COMMANDS[options.command][0]}")
        code: int = module.run(options)
    except TuiadvisorError as error:
        logger.info("ends with code %d: %s", error.exit_code, error)
        raise
    except (KeyboardInterrupt, BrokenPipeError) as error:
        logger.info("ended by %s", type(error).__name__)
        raise
    except BaseException:
        logger.exception("ends by a bug")
        raise
    logger.info("ends with code %d", code)
    return code


def _verbosity(options: argparse.Namespace) -> int:
    return sum(count for name, count in vars(options).items() if name.startswith("verbose_"))
