"""Every screen in one list. Navigation, keys, palette, help and footer are made of it; nothing else names a page.

To add a screen:

1. Write `pages/NAME.py` with a class derived from `contract.page.Page`: `name`, `title`, `about` (a paragraph of help),
   `keys` (names of commands for its footer, most useful first) and `lines`, which returns the rows to draw; `terms`
   names what of `text/glossary.py` stands on it (a page of nothing of the field: its name in test_glossary.py).
2. Give it `commands`: `opening("name", "9", "Label", "a sentence for help and palette")` shows it, a `Command` does
   anything else. A command says where it works with `why_not`: the reason why not, or "".
   `does` gives usual commands another meaning on this page, with `labels` and `abouts` to say so;
   `opens` says what enter does on a kind of target. `is_screen` replaces whatever is open, otherwise it lies over it.
3. Add the class to PAGES below. A key or a name that is taken already is refused at the first start.
4. Say so: its key in `docs/keys.md`, the keys to it in `OPENED` of `tests/unit/test_glossary.py` where it has terms,
   and a case of its name in `tests/snapshot/test_screens.py`, whose picture the site shows.

What a page needs to be told comes by `take_state`, `take_answer`, `take_preferences` and `desk`; another page is found
with `place.at(ItsClass)`. `tests/unit/test_a_screen_is_one_file.py` adds one and shows that no other code is needed.

One exception: a page with `may_be_first` is also named in `tuiadvisor/preferences.py` (`first_screen`), because that
file is checked before any screen is loaded. A test holds the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.tui.contract.commands import CommandTable
from tuiadvisor.tui.control import everywhere, in_time
from tuiadvisor.tui.pages.comparison import ComparePage
from tuiadvisor.tui.pages.details import FindingPage
from tuiadvisor.tui.pages.device_work import DeviceWorkPage
from tuiadvisor.tui.pages.dialogue import DialoguePage
from tuiadvisor.tui.pages.efficiency import EfficiencyPage
from tuiadvisor.tui.pages.events import EventsPage
from tuiadvisor.tui.pages.goodput import GoodputPage
from tuiadvisor.tui.pages.guidance import Guidance
from tuiadvisor.tui.pages.help import HelpPage, PalettePage
from tuiadvisor.tui.pages.home import Home
from tuiadvisor.tui.pages.job import JobPage
from tuiadvisor.tui.pages.journal import LogPage
from tuiadvisor.tui.pages.overlap import OverlapPage
from tuiadvisor.tui.pages.overview import Overview
from tuiadvisor.tui.pages.pipeline import Pipeline
from tuiadvisor.tui.pages.preferences import PreferencesPage
from tuiadvisor.tui.pages.rank import RankPage
from tuiadvisor.tui.pages.ranks import Ranks
from tuiadvisor.tui.pages.runs import Runs
from tuiadvisor.tui.pages.scaling import ScalingPage
from tuiadvisor.tui.pages.selftest import SelfTestPage
from tuiadvisor.tui.pages.timeline import TimelinePage

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.page import Page

# In the order of help and palette.
PAGES: Final[tuple[type[Page], ...]] = (
    Overview,
    Ranks,
    Pipeline,
    OverlapPage,
    Guidance,
    DialoguePage,
    ScalingPage,
    GoodputPage,
    JobPage,
    ComparePage,
    Runs,
    Home,
    EfficiencyPage,
    DeviceWorkPage,
    TimelinePage,
    EventsPage,
    LogPage,
    HelpPage,
    SelfTestPage,
    PalettePage,
    PreferencesPage,
    FindingPage,
    RankPage,
)


def command_table(pages: tuple[type[Page], ...] = PAGES) -> CommandTable:
    """What these pages bring, and what works on all of them."""
    brought = [command for page in pages for command in page.commands]
    return CommandTable((*brought, *everywhere.COMMANDS, *in_time.COMMANDS))
