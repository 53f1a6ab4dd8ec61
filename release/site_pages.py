"""`python release/site_pages.py FOLDER`: the pages of the site in one folder, for mkdocs (`make docs`).

Pages of docs/ and of the root go there as they are, but for their links: those that lead out of the site, to a file of
the sources, become its name. A link to a rule's file, which is what a checkout has, goes to its finding's section.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Final

from reference import pages, pictures

ROOT: Final = Path(__file__).parents[1]
# Pages that lie elsewhere in the sources -> where the site has them.
MOVED: Final = {
    "README.md": "readme.md",
    "ARCHITECTURE.md": "architecture.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CHANGELOG.md": "changelog.md",
    "rules/README.md": "rules.md",
}
FINDINGS: Final = "reference/findings.md"  # one section a rule, by its id
RULE: Final = re.compile(r"\]\([./]*rules/catalog/(\w+)\.toml\)")
LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^()\s]+)\)")
FENCE: Final = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def sources() -> dict[str, str]:
    """Every page of ours: path in the sources -> path in the site."""
    own = {f"docs/{path.relative_to(ROOT / 'docs').as_posix()}" for path in (ROOT / "docs").rglob("*.md")}
    return {**{name: name.removeprefix("docs/") for name in sorted(own)}, **MOVED}


def assemble(folder: Path) -> None:
    """Write the pages, pictures and the generated reference into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(
        ROOT / "docs", folder, ignore=lambda _, names: [name for name in names if name.endswith(".md")]
    )
    made = pages()
    (folder / "screens").mkdir()
    for name, picture in pictures().items():
        shutil.copy(picture, folder / "screens" / f"{name}.svg")
    placed = sources()
    for name, place in placed.items():
        text = relinked((ROOT / name).read_text(encoding="utf-8"), name, placed, set(made))
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for place, text in made.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n", encoding="utf-8")


def relinked(text: str, name: str, placed: dict[str, str], made: set[str]) -> str:
    """The page with its links as the site needs them; name: its path in the sources."""
    here = str(PurePosixPath(placed[name]).parent)

    def changed(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        path, hash_, anchor = target.partition("#")
        if not path or ":" in path:
            return found[0]
        meant = normpath(str(PurePosixPath(name).parent / path))
        inside = meant.removeprefix("docs/")
        if meant in placed:
            inside = placed[meant]
        elif not (meant.startswith("docs/") and (inside in made or (ROOT / meant).is_file())):
            return f"{words} (`{meant}`)" if words != meant else f"`{meant}`"
        return f"{mark}[{words}]({relpath(inside, here)}{hash_}{anchor})"

    if FINDINGS in made:  # their words are code, which is left as it is below
        text = RULE.sub(rf"]({relpath(FINDINGS, here)}#\1)", text)
    parts = FENCE.split(text)
    return "".join(part if at % 2 else LINK.sub(changed, part) for at, part in enumerate(parts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the pages of the site in one folder, for mkdocs")
    parser.add_argument("folder", type=Path)
    assemble(parser.parse_args().folder)
