"""The user's place in the screens as prompts and actions know it: the pages, and what may be asked of them.

The Navigator is one; nothing here imports it, so that it may import whoever acts on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tuiadvisor.text.line import Target
    from tuiadvisor.tui.contract.desk import DeskState
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Page
    from tuiadvisor.tui.contract.shell import Shell
    from tuiadvisor.tui.pages.comparison import ComparePage
    from tuiadvisor.tui.pages.details import FindingPage, RankPage
    from tuiadvisor.tui.pages.guidance import Guidance
    from tuiadvisor.tui.pages.help import PalettePage
    from tuiadvisor.tui.pages.journal import LogPage
    from tuiadvisor.tui.pages.overlap import OverlapPage
    from tuiadvisor.tui.pages.overview import Overview
    from tuiadvisor.tui.pages.pipeline import Pipeline
    from tuiadvisor.tui.pages.preferences import PreferencesPage
    from tuiadvisor.tui.pages.ranks import Ranks
    from tuiadvisor.tui.pages.runs import Runs
    from tuiadvisor.tui.pages.scaling import ScalingPage


class Place(Protocol):
    """Which pages there are, which one is on top, and what can be done from any of them."""

    shell: Shell
    state: FeedState
    desk: DeskState
    stack: list[Page]
    page_rows: int  # that the page on top drew
    overview: Overview
    ranks: Ranks
    overlap: OverlapPage
    pipeline: Pipeline
    runs: Runs
    compare: ComparePage
    advisor: Guidance
    scaling: ScalingPage
    preferences: PreferencesPage
    log: LogPage
    palette: PalettePage
    finding_page: FindingPage
    rank_page: RankPage

    @property
    def page(self) -> Page:
        """The page on top."""

    def say(self, text: str) -> None:
        """Answer the last key in the footer."""

    def perform(self, name: str) -> None:
        """Do a command, or say why it cannot be done."""

    def filtered(self) -> Ranks | Runs:
        """The list that `/` filters here."""

    def show_page(self, page: Page) -> None:
        """Put a page on top."""

    def open_target(self, target: Target | None) -> None:
        """Open what enter or a click points at."""

    def go_back(self) -> None:
        """Close the page on top."""

    def go_live(self) -> None:
        """From a recording back to the live run."""

    def show_runs(self) -> None:
        """The list of recordings."""

    def show_advisor(self) -> None:
        """The guided session."""

    def show_scaling(self) -> None:
        """How what is shown scales."""

    def show_preferences(self) -> None:
        """What is preferred."""

    def show_help(self) -> None:
        """Help for the page below."""

    def show_palette(self) -> None:
        """The commands, filtered by what is typed."""
