"""The site holds every command, option, finding, threshold, metric and term, and no link of it leads nowhere."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from posixpath import dirname, normpath

import pytest
import yaml

sys.path.append(str(Path(__file__).parents[2] / "release"))
from detection_numbers import numbers
from reference import pages
from site_pages import assemble, relinked, sources

from tuiadvisor.cli.commands import build_parser
from tuiadvisor.exporters.tables import TABLES
from tuiadvisor.stream.frames import FrameKind
from tuiadvisor.text.glossary import TERMS
from tuiadvisor.tui.control.registry import PAGES, command_table
from tuiadvisor_rules.loader import load_catalog
from tuiadvisor_rules.metric_names import ALL

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


all_pages = cache(pages)  # none of them is changed


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    assemble(folder)
    return folder


def options(parser: argparse.ArgumentParser, name: str = "") -> dict[str, set[str]]:
    """Command -> the words its options begin with."""
    found: dict[str, set[str]] = {name: set()}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner, command in action.choices.items():
                found |= options(command, f"{name} {inner}".strip())
        elif action.help != argparse.SUPPRESS:
            found[name] |= set(action.option_strings)
    return found


@pytest.mark.slow
def test_every_command_and_option_is_in_its_section() -> None:
    text = pages()["reference/cli.md"]
    sections = re.split(r"^## (.+?) \{.*\}$", text, flags=re.MULTILINE)
    told = {"": sections[0], **dict(zip(sections[1::2], sections[2::2], strict=True))}
    there = options(build_parser())
    assert set(told) == set(there)
    for name, words in there.items():
        shown = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", told[name]))
        assert words <= shown, name


@pytest.mark.slow
def test_every_finding_threshold_metric_and_term_is_there() -> None:
    made = all_pages()
    rules = load_catalog()
    assert set(re.findall(r"^## (\w+)", made["reference/findings.md"], re.MULTILINE)) == {
        rule.id for rule in rules
    }
    rows = set(
        re.findall(r"^\| \[(\w+)\]\S* \| `(\w+)` \| (\S+) \|", made["reference/thresholds.md"], re.MULTILINE)
    )
    assert rows == {
        (rule.id, name, f"{one.value:g}") for rule in rules for name, one in rule.thresholds.items()
    }
    assert all(f"| `{one.file}` | `{one.name}` |" in made["reference/thresholds.md"] for one in numbers())
    metrics = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", made["reference/metrics.md"], re.MULTILINE))
    assert metrics == {(entry.name, entry.scope) for entry in ALL}
    assert made["reference/terms.md"].count("\n| ") == len(TERMS) + 1


@pytest.mark.slow
def test_every_screen_key_and_column_is_there(site: Path) -> None:
    made = all_pages()
    screens = made["reference/screens.md"]
    assert set(re.findall(r"^## .+ \{ #(\w+) \}$", screens, re.MULTILINE)) == {page.name for page in PAGES}
    assert screens.count("\n| ") == len(command_table().commands) + 1
    shown = re.findall(r"\(\.\./screens/(\w+)\.svg\)", screens)
    asked = "each needs a case of its name in tests/snapshot/test_screens.py, whose picture it shows"
    assert sorted(shown) == sorted(page.name for page in PAGES), asked
    assert all((site / "screens" / f"{name}.svg").read_text().startswith("<svg") for name in shown)
    columns = set(re.findall(r"^\| `(\w+)` \| ", made["reference/recording.md"], re.MULTILINE))
    assert columns == {column.name for table in TABLES.values() for column in table}
    assert all(f"{kind.value} {kind.name}" in made["reference/recording.md"] for kind in FrameKind)


def anchors(text: str) -> set[str]:
    """As the site's headings have them."""
    found = set(re.findall(r"\{ #(\S+) \}", text))
    for words in re.findall(
        r"^#+ (.+?)(?: \{.*)?$", CODE.sub(lambda code: code[0].strip("`"), text), re.MULTILINE
    ):
        found.add(re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower()))
    return found


@pytest.mark.slow
def test_no_link_leads_nowhere(site: Path) -> None:
    texts = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.md")}
    assert len(texts) == len(sources()) + len(all_pages())
    wrong, looked_at = [], 0
    for name, text in texts.items():
        for target in LINK.findall(CODE.sub("", text)):
            path, _, anchor = target.partition("#")
            if ":" in path:
                continue
            looked_at += 1
            meant = normpath(f"{dirname(name)}/{path}".lstrip("/")) if path else name
            if not (site / meant).is_file() or (anchor and anchor not in anchors(texts.get(meant, ""))):
                wrong.append((name, target))
    assert wrong == []
    assert looked_at > 100


def test_links_out_of_the_site_become_names_of_files() -> None:
    placed = sources()
    page = "see [how](../ARCHITECTURE.md#layers), [code](../tuiadvisor/api.py), `[no](link.md)`, [web](https://example.com/)"
    assert relinked(page, "docs/python.md", placed, set()) == (
        "see [how](architecture.md#layers), code (`tuiadvisor/api.py`), `[no](link.md)`, [web](https://example.com/)"
    )


def test_a_link_to_a_rule_becomes_one_to_its_finding() -> None:
    page = "[`hang`](../../rules/catalog/hang.toml)"
    assert relinked(page, "docs/symptoms/hang.md", sources(), {"reference/findings.md"}) == (
        "[`hang`](../reference/findings.md#hang)"
    )


def test_every_link_of_a_page_leads_somewhere_in_a_checkout() -> None:
    """The site has pages that only `make docs` makes; who reads the sources does not have them.

    A piece of news is read where it comes to stand, in the changelog at the root.
    """
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed: which pages are ours is not known")
    listed = subprocess.run([git, "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no checkout of git: which pages are ours is not known")
    wrong, looked_at = [], 0
    for name in listed.stdout.split():
        folder = "" if name.startswith("changes/+") else dirname(name)
        for target in LINK.findall(CODE.sub("", (ROOT / name).read_text(encoding="utf-8"))):
            path = target.partition("#")[0]
            if path and ":" not in path:
                looked_at += 1
                wrong += [] if (ROOT / folder / path).exists() else [(name, target)]
    assert wrong == []
    assert looked_at > 100


def test_the_navigation_names_every_page(site: Path) -> None:
    def named(entry: object) -> list[str]:
        if isinstance(entry, dict):
            return [name for value in entry.values() for name in named(value)]
        return [name for one in entry for name in named(one)] if isinstance(entry, list) else [str(entry)]

    navigation = named(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(navigation) == sorted(path.relative_to(site).as_posix() for path in site.rglob("*.md"))


@pytest.mark.extended
def test_mkdocs_builds_it_without_a_complaint(site: Path, tmp_path: Path) -> None:
    pytest.importorskip("material")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text()) | {"docs_dir": str(site), "site_dir": "site"}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "symptoms" / "one-rank" / "index.html").is_file()
    shutil.rmtree(tmp_path / "site")
