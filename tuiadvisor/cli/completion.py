"""`tuiadvisor completion SHELL`: a script that completes commands, options and files, made from the parser itself."""

from __future__ import annotations

import argparse
from typing import Final

import shtab

SHELLS: Final = ("bash", "zsh", "fish")
# What an option or a word is called in the help, where it is a path.
FILES: Final = frozenset(
    {"FILE", "RUN", "CSV", "PATH", "BEFORE", "AFTER", "TABLE", "URL|FILE", "OUT", "OTHER", "session.md"}
)
FOLDERS: Final = frozenset({"DIR"})


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "shell", choices=SHELLS, help="where it is to be used; the script says how in its first lines"
    )


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from tuiadvisor.cli.commands import build_parser  # noqa: PLC0415 - it imports this module

    parser = build_parser()
    _mark_paths(parser)
    script = shtab.complete(parser, shell=options.shell)
    first, _, rest = script.partition("\n")
    # zsh wants its #compdef in the first line.
    print(
        f"{first}\n{HOW[options.shell]}\n{rest}"
        if first.startswith("#")
        else f"{HOW[options.shell]}\n{script}"
    )
    return 0


HOW: Final = {
    "bash": "# tuiadvisor completion bash > ~/.local/share/bash-completion/completions/tuiadvisor",
    "zsh": "# tuiadvisor completion zsh > ~/.zfunc/_tuiadvisor   with fpath=(~/.zfunc $fpath) before compinit",
    "fish": "# tuiadvisor completion fish > ~/.config/fish/completions/tuiadvisor.fish",
}


def _mark_paths(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for inner in action.choices.values():
                _mark_paths(inner)
        elif action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
