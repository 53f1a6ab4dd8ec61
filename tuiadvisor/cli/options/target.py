"""From the options that say which training is meant to the session that watches it."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuiadvisor.agent.discovery import RankProcess, find_ranks
from tuiadvisor.app.live_session import Session, Share, Terms, Visit
from tuiadvisor.cli.options.work import work_of
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.launch.invited import InvitedLauncher
from tuiadvisor.launch.ray import RayLauncher
from tuiadvisor.launch.slurm import SlurmLauncher
from tuiadvisor.launch.ssh import SshLauncher, SshOptions, parse_hosts
from tuiadvisor.stream.keys import Invitation, read_invitation

if TYPE_CHECKING:
    import argparse

    from tuiadvisor.launch.agents import Launcher


def ranks_of(options: argparse.Namespace) -> list[RankProcess]:
    """The ranks meant. TuiadvisorError with what to do next when there are none or several trainings."""
    try:
        return find_ranks(options.pid or None)
    except TuiadvisorError as error:
        if (
            len(options.pid) > 1 and getattr(options, "ranks", ...) is None
        ):  # --pid takes all numbers behind it
            raise type(error)(f"{error} (a rank is named before --pid: RANKS --pid PID)") from None
        raise


def invitation_of(options: argparse.Namespace) -> Invitation | None:
    """The running hub that is meant; None when a session is to be started. TuiadvisorError if both are."""
    if not options.url and not options.key:
        return None
    ours = (
        options.pid,
        options.hosts,
        options.slurm,
        options.ray,
        options.invite,
        options.forward,
        options.share,
        options.output,
    )
    if any(ours) or terms_of(options) != Terms():
        raise TuiadvisorError(
            "a running hub has its own ranks, recording, budget and work per step: leave out --pid, --hosts, --slurm, "
            "--invite, --forward, --share, -o, --budget, --samples-per-step, --tokens-per-step, "
            "--flops-per-step and --peak-flops"
        )
    found = read_invitation(options.key) if options.key else Invitation(options.url)
    return Invitation(options.url or found.url, found.key)


def open_session(options: argparse.Namespace) -> Session:
    """Hub and agents for what is meant. TuiadvisorError before anything starts if there is nothing."""
    upper = read_invitation(options.forward) if options.forward else None
    session = _session(options)
    if upper is not None:
        session.forward(upper)
    return session


def _session(options: argparse.Namespace) -> Session:
    launcher = _launcher(options)
    share = _share(options)
    if launcher is not None:
        label = f"slurm job {options.slurm}" if options.slurm else options.hosts or "invited agents"
        label = f"ray {options.ray}" if options.ray else label
        return Session((), options.output, label, "", launcher=launcher, share=share, terms=terms_of(options))
    ranks = ranks_of(options)
    first = ranks[0]
    pids = options.pid or [one.pid for one in ranks if one.is_alone]
    return Session(pids, options.output, first.label, first.command, share=share, terms=terms_of(options))


def terms_of(options: argparse.Namespace) -> Terms:
    """What the command line says of a session of one's own."""
    return Terms(replace(work_of(options), measured=()), options.budget_ppm)


def open_target(options: argparse.Namespace) -> Session | Visit:
    """A session of our own or a visit."""
    invitation = invitation_of(options)
    return Visit(invitation) if invitation else open_session(options)


def _launcher(options: argparse.Namespace) -> Launcher | None:
    if sum(map(bool, (options.pid, options.hosts, options.slurm, options.ray, options.invite))) > 1:
        raise TuiadvisorError(
            "--pid, --hosts, --slurm, --ray and --invite each name a training: give one of them"
        )
    if options.ray:
        return RayLauncher(options.ray, options.remote_python, options.hub_address)
    if options.invite:
        return InvitedLauncher(Path(options.invite), options.hub_address or socket.gethostname())
    if options.slurm:
        return SlurmLauncher(options.slurm, options.remote_python, options.hub_address)
    if options.hosts:
        hosts = parse_hosts(options.hosts)
        return SshLauncher(SshOptions(hosts, options.ssh_config, options.remote_python, options.hub_address))
    return None


def _share(options: argparse.Namespace) -> Share | None:
    files = tuple(Path(name) for name in dict.fromkeys(options.share))
    return Share(files, options.hub_address or socket.gethostname()) if files else None
