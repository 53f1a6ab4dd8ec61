"""The options that say which training is meant. Loaded with a command's help, so nothing heavy is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.cli.options.work import add_budget, add_work

if TYPE_CHECKING:
    import argparse


def add_target(parser: argparse.ArgumentParser) -> None:
    """--pid; without it the only training on this machine."""
    parser.add_argument(
        "--pid",
        type=int,
        nargs="+",
        action="extend",
        metavar="P",
        default=[],
        help="processes of the ranks, or of their launcher; default: the only training on this machine",
    )


def add_remote_target(parser: argparse.ArgumentParser) -> None:
    """Trainings on other machines, and viewers there."""
    parser.add_argument(
        "--hosts", metavar="A,B", help="the trainings' machines, reached over ssh without a password"
    )
    parser.add_argument("--slurm", metavar="JOBID", help="the nodes of this running Slurm job")
    parser.add_argument(
        "--ray",
        metavar="HOST:PORT",
        help="the nodes of the Ray cluster with this head, or auto on one of them",
    )
    parser.add_argument(
        "--invite", metavar="FILE",
        help="start no agent: write address and key to this new file, for agents that are started elsewhere by "
        "`python -P -m tuiadvisor.agent --invitation FILE`",
    )  # fmt: skip
    parser.add_argument(
        "--forward", metavar="FILE",
        help="send what the agents say on to another hub, by the invitation that it wrote with --invite FILE",
    )  # fmt: skip
    parser.add_argument(
        "--remote-python", default="", metavar="PATH", help="python with tuiadvisor on those machines"
    )
    parser.add_argument("--ssh-config", default="", metavar="FILE", help="with --hosts: ssh's own -F")
    parser.add_argument(
        "--hub-address", default="", metavar="ADDRESS",
        help="an address of this machine that the others reach; with --hosts: instead of a tunnel through ssh",
    )  # fmt: skip
    parser.add_argument(
        "--share", metavar="FILE", action="append", default=[],
        help="let viewers on other machines in: a key for `tuiadvisor watch --key FILE`, written to this new file; "
        "given several times, each file is a key of its own",
    )  # fmt: skip


def add_probe_options(parser: argparse.ArgumentParser) -> None:
    """For a session of one's own: what the probes may cost, and the work of a step."""
    add_budget(parser)
    add_work(parser)


def add_visit(parser: argparse.ArgumentParser) -> None:
    """A hub that runs already."""
    parser.add_argument("url", nargs="?", metavar="URL", help="a running hub: ipc:///path or tcp://HOST:PORT")
    parser.add_argument("--key", metavar="FILE", help="the key of that hub, from its --share FILE")
