"""Does another commit show the same of the same frames, to the last digit? For changes that only make things faster.

Run: python tests/benchmarks/same_views.py COMMIT [FILE.tuirec ...].  Both trees fold the recordings of
tests/recordings, those given, and simulated worlds of several sizes (each also with frames that are lost, swapped or
come twice, some with restarts), in batches cut at random, and write down every view on the way, those of an earlier
step and of chosen steps too. Prints what differs; the exit code says whether anything did.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

TREE: Final = Path(__file__).resolve().parents[2]
VIEWS: Final = 6  # of each recording
WORLDS: Final = ((4, 12_000), (64, 40_000), (1024, 80_000), (5000, 120_000))
MAX_SAID: Final = 20

if TYPE_CHECKING:
    from collections.abc import Iterator


def written(folder: Path) -> Iterator[Path]:
    """Recordings of simulated worlds."""
    for place in ("unit", "accuracy", "benchmarks"):
        sys.path.insert(0, str(TREE / "tests" / place))
    from generated import encoded_frames, straggling
    from synthetic_run import Job, elastic, encoded

    from tuiadvisor.stream.frames import FrameKind, encode

    first = encode(FrameKind.RUN, "hub", 0, 0, {"schema": 1, "label": "train.py"})
    lots = random.Random(7)  # noqa: S311
    for num_ranks, num_rank_steps in WORLDS:
        world = straggling(num_ranks, num_rank_steps)
        for name, damaged in (("whole", False), ("damaged", True)):
            frames = list(encoded_frames(replace(world, seed=num_ranks)))
            if damaged:
                frames = [again for one in frames for again in [one] * lots.choice((0, 1, 1, 1, 1, 1, 1, 2))]
                for at in range(0, len(frames) - 1, 9):
                    frames[at], frames[at + 1] = frames[at + 1], frames[at]
            yield _file(folder / f"{num_ranks} ranks, {name}", [first, *frames])
    for how in ("ten steps of one rank a frame", "both in one frame"):
        sequence = elastic(Job(num_steps=300), how)
        yield _file(folder / f"restarted, {how}", [first, *map(encoded, sequence)])


def _file(path: Path, frames: list[bytes]) -> Path:
    from tuiadvisor.stream.recording import RecordingWriter

    writer = RecordingWriter(path, frames[0])
    writer.append(b"".join(frames[1:]), len(frames) - 1)
    writer.close()
    return path


def plain(value: object, place: str) -> Iterator[str]:
    """A line for every leaf, with its place: `repr` has all digits of a number."""
    if is_dataclass(value):
        for field in fields(value):
            yield from plain(getattr(value, field.name), f"{place}.{field.name}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from plain(item, f"{place}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        yield f"{place}: {len(value)}"
        for index, item in enumerate(value):
            yield from plain(item, f"{place}[{index}]")
    else:
        yield f"{place} = {value!r}"


def views(path: Path) -> Iterator[str]:
    """What the tree on sys.path shows of a recording."""
    from tuiadvisor.advisor.fold import Advisor
    from tuiadvisor.stream.recording import RecordingReader

    with RecordingReader(path) as reader:
        data = [located.data for located in reader.frames()]
    advisor, lots, begin = Advisor(), random.Random(path.name), 0  # noqa: S311
    due = [len(data) * (number + 1) // VIEWS for number in range(VIEWS)]
    while begin < len(data):
        stop = min(begin + lots.choice((1, 3, 40, 300)), due[0])
        advisor.feed_many(data[begin:stop])
        begin = stop
        if begin == due[0]:
            due.pop(0)
            yield from plain(advisor.view(), f"{path.name}: frame {begin}")
    held = advisor.held_steps()
    if held is not None:
        middle = sum(held) // 2
        yield from plain(advisor.view_at(middle), f"{path.name}: step {middle}")
        yield from plain(advisor.view_of((middle, held[1])), f"{path.name}: from step {middle}")


def of_tree(tree: Path, recordings: list[Path], result: Path) -> None:
    """Let that tree's own code write its views."""
    paths = [str(tree), str(tree / "probes"), str(tree / "rules")]
    command = [sys.executable, __file__, "--write", str(result), *map(str, recordings)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": ":".join(paths)}, cwd=tree)


def differences(one: Path, other: Path, new: tuple[str, ...] = ()) -> int:
    """How many lines differ, but for fields of the view that are new; the first of them are printed."""
    marks = tuple(mark for name in new for mark in (f".{name}.", f".{name} ="))
    num = num_lines = 0
    with one.open() as left, other.open() as right:
        while (mine := left.readline()) or True:
            others = right.readline()
            while others and any(mark in others for mark in marks):
                others = right.readline()
            if not mine and not others:
                break
            num_lines += 1
            if mine != others:
                num += 1
                if num <= MAX_SAID:
                    print(f"- {mine.rstrip()}\n+ {others.rstrip()}")
    print(f"{num_lines:,} values compared, {num:,} differ")
    return num


def main() -> int:
    """Compare, or write down what this tree shows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("commit", nargs="?", help="compare with it; with --write: a recording")
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--new", action="append", default=[], help="a field of the view that the other lacks")
    options = parser.parse_args()
    if options.write:
        with options.write.open("w") as out:
            for path in (Path(options.commit), *options.recordings):
                out.writelines(f"{line}\n" for line in views(path))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder, other = Path(name), Path(name) / "tree"
        git = ["git", "-C", str(TREE), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(other), options.commit], check=True)
        try:
            recordings = [*sorted((TREE / "tests" / "recordings").glob("*.tuirec")), *options.recordings]
            recordings += written(folder)
            for tree, result in ((other, folder / "before"), (TREE, folder / "after")):
                of_tree(tree, recordings, result)
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)
        return 1 if differences(folder / "before", folder / "after", tuple(options.new)) else 0


if __name__ == "__main__":
    sys.exit(main())
