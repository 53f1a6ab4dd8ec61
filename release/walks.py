"""Four walks through the screens, driven in tmux over real runs, a picture after each stop; and the README's animation.

    python release/walks.py OUT [--story slow] [--size 80x24] [--animate docs/demo.svg]

Each stop waits for words on the screen, presses key `I`, which saves the screen as SVG, and prints the file. Needs
tmux and torch; starts trainings of its own and ends them, also when it is itself ended. A stop whose words do not
come fails the walk.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent.discovery import find_ranks
from tuiadvisor.cli.demo import end_training, start_training, training_script, wait_for_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S: Final = 90.0
SIZES: Final = ("80x24", "160x45", "200x50")
FRAME_S: Final = 2.5  # a frame of the animation
OWN: Final = f"{shlex.quote(sys.executable)} -P -m tuiadvisor"
STRAGGLER: Final = ("--fault", "slow-backward", "--fault-rank", "2", "--delay-ms", "15")
# MegaScale, NSDI'24, table 2: seconds per iteration of 175B on so many GPUs.
SIZES_TABLE: Final = "devices,step_s,global_batch\n256,32.0,768\n512,16.5,768\n768,11.5,768\n1024,8.9,768\n"


MOST_ANSWERS: Final = 7  # from the symptom to the decision
MOST_S: Final = 180.0
STEPS_LEFT: Final = ("Down",) * 3  # below the price
DECIDED_BY: Final = ("Down",) * 3  # below the steps left
DECIDED: Final = "no question left that could change it|answers were given: measure now"
# What the dialogue may ask: words of the question, the keys that answer. No other job is on the hosts, ranks hold
# parts alike, 500,000 steps remain; other questions of yes or no: no. Any other is skipped, which counts, too.
ANSWERS: Final = (
    ("Does every rank hold", ("y",)),
    ("How many steps of this", ("Enter", *"500000", "Enter")),
    ("hours of an engineer would", ("Enter", *"2", "Enter")),
    ("hour of an engineer cost", ("Enter", *"100", "Enter")),
    ("one device cost", ("Enter", *"2", "Enter")),
    ("Which one decides", ("Down", "Enter")),
    ("if the run were to end", (*("Down",) * 3, "Enter")),
    ("minutes does ending", ("Enter", *"5", "Enter")),
    ("worth to have the result", ("Enter", *"10", "Enter")),
    ("total batch stay fixed", ("Down", "Enter")),
    ("\nno\n", ("n",)),
)


@dataclass(frozen=True, slots=True)
class Stop:
    """Keys as tmux names them, then what must be on the screen."""

    name: str
    keys: tuple[str, ...]
    shows: str  # regular expression
    settle_s: float = 1.0
    meanwhile: str = ""  # a key that is pressed until the words come
    is_pictured: bool = True  # not while a question takes what is typed
    answers: tuple[tuple[str, tuple[str, ...]], ...] = ()  # to what is asked until the words come
    num_answers: int = 0  # that the keys give
    is_decided: bool = False  # its words are the decision; else the last stop's are


@dataclass(frozen=True, slots=True)
class Story:
    """One walk. command: after `tuiadvisor`; {pid} is the training's, {folder} the walk's."""

    command: str
    stops: tuple[Stop, ...]
    fault: tuple[str, ...] = ()  # of the training that is started; empty: none
    before: str = ""  # a command to run first
    stops_rank: int | None = None  # is stopped after the first stop, and goes on at the end


STORIES: Final = {
    "slow": Story(
        "home {folder}",
        (
            Stop("home", (), "--seed {seed}", meanwhile="Down"),  # ours alone: others may train here
            Stop("asks", ("Enter",), "y or n", is_pictured=False),
            Stop("verdict", ("y", "Enter"), "TUNE", 6.0),
            Stop("ranks", ("2",), "ranks by rank", 2.0),
            Stop("rank", ("Enter",), "lines of code|no difference|too few samples", 1.5),
            Stop("what-if", ("3", "i"), "rank 2 fixed", 1.5),
            Stop("dialogue", ("d",), "causes by weight", 2.0),
            Stop("answered", ("n",), "you said", 2.0, num_answers=1),
            Stop("decided", (), DECIDED, 2.0, answers=ANSWERS),
        ),
        STRAGGLER,
    ),
    "more-gpus": Story(
        "scale --table {folder}/sizes.csv --predict 64,2048 --tui",
        (
            Stop("curves", (), "devices"),
            # Price of a device-hour, steps that are left, what decides: three answers, and the decision has its money.
            Stop("price", ("Enter", "2", "Enter"), "in money|price of a device-hour +2", 1.5, num_answers=1),
            Stop("length", (*STEPS_LEFT, "Enter", *"100000", "Enter"), "100,?000", 1.5, num_answers=1),
            Stop(
                "decision", (*DECIDED_BY, "Enter", *"cost", "Enter"), "decided by +cost", 1.5, num_answers=1
            ),
        ),
    ),
    "hang": Story(
        "watch --pid {pid}",
        (
            Stop("runs", (), "KEEP|TUNE|LIVE", 6.0),
            Stop("stalled", (), "STALLED", 2.0),
            Stop("where", ("Escape", "C"), "stands at|stand at", 2.0, is_decided=True),
            Stop("events", ("E",), "stalled", 2.0),
        ),
        ("--fault", "none"),
        stops_rank=3,
    ),
    "last-night": Story(
        "replay {folder}/night.tuirec",
        (
            Stop("opens", (), "REPLAY", 3.0),
            Stop("verdict", (), "TUNE", 2.0),
            Stop("goodput", ("W",), "useful", 1.5),
            Stop("events", ("E",), "events", 1.5),
            Stop("advisor", ("5",), "judged: the whole recording", 3.0),
            # A size that somebody thinks of: what is known of it, or why nothing is.
            Stop("dialogue", ("d",), "causes by weight", 1.5),
            Stop("other-size", ("N", *"64", "Enter"), "64 devices", 1.5, num_answers=1),
            Stop("decided", (), DECIDED, 2.0, answers=ANSWERS),
        ),
        STRAGGLER,
        before="record --pid {pid} --for 20s -o {folder}/night.tuirec",
    ),
}


class Walk:
    """A tmux server of its own with one window."""

    def __init__(self, folder: Path, size: str, command: str) -> None:
        """folder: where the screens begin, and where key I saves."""
        self.num_answers = 0
        self.decided_s: float | None = None  # from the start of the screens
        self._is_decided = False
        self._begun_s = time.monotonic()
        self._server = f"walk-{os.getpid()}"
        self._folder = folder
        columns, rows = size.split("x")
        environment = f"TERM=xterm-256color COLORTERM=truecolor LANG=C.UTF-8 XDG_CONFIG_HOME={folder}/config"
        self._tmux(
            *("-f", os.devnull, "new-session", "-d", "-x", columns, "-y", rows, "-c", str(folder)),
            f"env {environment} {command}",
        )

    def visit(self, stop: Stop) -> Path | None:
        """Press its keys, wait for its words, save the picture if there is to be one."""
        for key in stop.keys:
            self._tmux("send-keys", key)
            time.sleep(0.4)
        self.num_answers += stop.num_answers
        if stop.answers:
            self._answer(stop)
        self._wait(stop)
        if self.decided_s is None or not self._is_decided:
            self.decided_s = time.monotonic() - self._begun_s
        self._is_decided |= stop.is_decided
        time.sleep(stop.settle_s)
        if not stop.is_pictured:
            return None
        known = set(self._folder.glob("tuiadvisor-*.svg"))
        self._tmux("send-keys", "I")
        deadline_s = time.monotonic() + PATIENCE_S
        while not (new := set(self._folder.glob("tuiadvisor-*.svg")) - known):
            self._check(deadline_s, f"{stop.name}: no picture")
            time.sleep(0.1)
        time.sleep(0.3)
        return new.pop()

    def close(self) -> None:
        """Leave as a user does, then end the server that was started here."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self._tmux("send-keys", "q")
            time.sleep(4.0)
            self._tmux("kill-server")

    def _answer(self, stop: Stop) -> None:
        """Answer what is asked, one question after the other, until the words of the stop come."""
        while not re.search(stop.shows, screen := self._tmux("capture-pane", "-p")):
            if self.num_answers > MOST_ANSWERS:
                raise SystemExit(f"{stop.name}: more than {MOST_ANSWERS} answers; the screen was:\n{screen}")
            asked = _asked(screen)
            words, keys = next(
                (pair for pair in stop.answers if re.search(pair[0], asked)), ("skipped", ("s",))
            )
            print(f"  {stop.name}: {words.strip()}: {' '.join(keys)}", flush=True)
            for key in keys:
                self._tmux("send-keys", key)
                time.sleep(0.4)
            self.num_answers += 1
            deadline_s = time.monotonic() + PATIENCE_S
            while _asked(self._tmux("capture-pane", "-p")) == asked:
                self._check(deadline_s, f"{stop.name}: the answer to {words.strip()!r} changed nothing")
                time.sleep(0.2)

    def _wait(self, stop: Stop) -> None:
        words = stop.shows.format(seed=os.getpid())
        deadline_s = time.monotonic() + PATIENCE_S
        while not re.search(words, self._tmux("capture-pane", "-p")):
            self._check(deadline_s, f"{stop.name}: {words!r} never came")
            if stop.meanwhile:
                self._tmux("send-keys", stop.meanwhile)
            time.sleep(1.0)

    def _check(self, deadline_s: float, what: str) -> None:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{what}; the screen was:\n{self._tmux('capture-pane', '-p')}")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._server, *words],  # noqa: S607 - wherever it lies
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout


def _asked(screen: str) -> str:
    """How many were answered and what is asked now, without what was; at 160 columns the causes stand beside it."""
    shown = re.split("to find out|ONE change", re.split("── dialogue", screen)[-1])[0]
    shown = "\n".join(re.split(" {3,}", each.strip())[0] for each in shown.splitlines())
    return re.sub(r"you said: [^?]*\?[^\n]*\n", "", shown)


@contextlib.contextmanager
def training(fault: tuple[str, ...]) -> Iterator[int]:
    """The demo's, if the story has one; the process id of its launcher."""
    if not fault:
        yield 0
        return
    process = start_training(4, training_script("train.py"), ["--seed", str(os.getpid()), *fault])
    try:
        wait_for_ranks(process, 4)
        yield process.pid
    finally:
        end_training(process)


def walk(name: str, size: str, out: Path) -> list[Path]:
    """One story at one size; its pictures in order."""
    story = STORIES[name]
    made = []
    with tempfile.TemporaryDirectory() as place, training(story.fault) as pid:
        folder = Path(place)
        (folder / "sizes.csv").write_text(SIZES_TABLE)
        words = {"pid": pid, "folder": folder}
        if story.before:
            subprocess.run(f"{OWN} {story.before.format(**words)}", shell=True, check=True)  # noqa: S602 - ours
        stopped = None
        screens = Walk(folder, size, f"{OWN} {story.command.format(**words)}")
        try:
            for number, stop in enumerate(story.stops):
                picture = out / f"{name}-{size}-{number}-{stop.name}.svg"
                taken = screens.visit(stop)
                if taken is not None:
                    taken.replace(picture)
                    print(picture, flush=True)
                    made.append(picture)
                if number == 0 and story.stops_rank is not None:
                    stopped = next(one.pid for one in find_ranks([pid]) if one.rank == story.stops_rank)
                    os.kill(stopped, signal.SIGSTOP)
        finally:
            if stopped is not None:
                os.kill(stopped, signal.SIGCONT)
            screens.close()
    if screens.decided_s is not None:
        told = f"{name} at {size}: decided after {screens.decided_s:.0f} s with {screens.num_answers} answers"
        print(told, flush=True)
        if screens.decided_s > MOST_S or screens.num_answers > MOST_ANSWERS:
            raise SystemExit(f"{told}: more than {MOST_S:.0f} s or {MOST_ANSWERS} answers")
    return made


def animated(pictures: list[Path]) -> str:
    """One SVG that shows each picture for FRAME_S, round and round; the names within each are its own already."""
    texts = [re.sub(r"<\?xml[^>]*\?>", "", path.read_text()).strip() for path in pictures]
    box = re.search(r'viewBox="([^"]+)"', texts[0])
    if box is None:
        raise SystemExit(f"{pictures[0]}: no picture of a screen")
    whole_s, num = FRAME_S * len(texts), len(texts)
    frames = []
    for number, text in enumerate(texts):
        values = ";".join("visible" if place == number else "hidden" for place in range(num))
        first = "visible" if number == 0 else "hidden"
        frames.append(
            f'<g visibility="{first}"><animate attributeName="visibility" values="{values}" calcMode="discrete" '
            f'dur="{whole_s:g}s" repeatCount="indefinite"/>{text}</g>'
        )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box[1]}">{"".join(frames)}</svg>\n'


def _end(number: int, _: object) -> None:
    """Leave as by an error: what was started is ended on the way out, and no second signal keeps it from that."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main() -> None:
    """Walk what was asked for."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--story", choices=tuple(STORIES), action="append")
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument(
        "--animate", type=Path, metavar="FILE", help="the first story at 80x24 as one moving SVG"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.story or STORIES:
        for size in options.size or SIZES:
            pictures = walk(name, size, options.out)
            if options.animate is not None and (name, size) == ("slow", SIZES[0]):
                # Home names folders of this machine and what else trains on it.
                options.animate.write_text(animated(pictures[1:]))
                print(options.animate)


if __name__ == "__main__":
    main()
