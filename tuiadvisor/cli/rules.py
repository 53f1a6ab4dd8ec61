"""`tuiadvisor rules`: what the advisor knows, readable and checkable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.text.printed import say_on_stderr
from tuiadvisor_rules.condition import one_line
from tuiadvisor_rules.evaluate import check, general_title, show
from tuiadvisor_rules.loader import load_catalog
from tuiadvisor_rules.user import is_shipped, load_rules, user_dir

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    actions = parser.add_subparsers(dest="action", metavar="list | show ID | check [DIR]", required=True)
    actions.add_parser("list", help="one line a rule")
    one = actions.add_parser("show", help="what a rule finds, why it matters, what to do")
    one.add_argument("id")
    checked = actions.add_parser("check", help="validate rule files and run their cases")
    checked.add_argument(
        "directory",
        nargs="?",
        metavar="DIR",
        help="rules that extend or override the shipped ones; default: those and your own",
    )


def run(options: argparse.Namespace) -> int:
    """Do what the action says; `check` exits with 2 if a rule is wrong."""
    try:
        if options.action == "check":
            problems = check(options.directory)
            for problem in problems:
                say_on_stderr(problem)
            print(
                f"{len(problems)} problem{'s' * (len(problems) > 1)}"
                if problems
                else "all rules are sound and their cases hold"
            )
            return 2 if problems else 0
        rules = load_rules()
        if options.action == "show":
            print(show(options.id, rules))
        else:
            width = max(len(rule.id) for rule in rules)
            for rule in rules:
                origin = "" if is_shipped(rule) else f"  [{one_line(rule.path)}]"
                print(f"{rule.id:{width}}  {rule.pattern}  {general_title(rule)}{origin}")
            for name in sorted({rule.id for rule in load_catalog()} - {rule.id for rule in rules}):
                print(f"{name:{width}}  --  switched off  [{user_dir()}]")
    except ValueError as error:  # the rules package knows nothing of ours: its RuleError is a ValueError
        raise TuiadvisorError(str(error)) from error
    return 0
