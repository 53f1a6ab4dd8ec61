"""What shells complete and the man page says is what the parser knows: asked of the shells themselves."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tuiadvisor.cli.commands import COMMANDS
from tuiadvisor.cli.commands import run as command

# What is typed, and what must be among the answers.
TYPED = {
    "dia": "diagnose",
    "compare --fail": "--fail-if-slower",
    "rules sh": "show",
    "demo slow-b": "slow-backward",
    "diagnose ru": "run.tuirec",
}


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} (package {name})")
    return found


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script of the shell that the test is of, in a folder with a recording."""
    name = request.param
    assert command(["completion", name]) == 0
    path = tmp_path / f"_tuiadvisor.{name}"
    path.write_text(capsys.readouterr().out)
    (tmp_path / "run.tuirec").touch()
    return path


def said(*line: str, folder: Path) -> str:
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes(script: Path) -> None:
    ask = """
    source "$1"; words=(tuiadvisor $2); COMP_WORDS=("${words[@]}"); COMP_CWORD=$((${#words[@]} - 1)); COMPREPLY=()
    _shtab_tuiadvisor tuiadvisor "${words[-1]}" "${words[-2]}"; printf '%s\\n' "${COMPREPLY[@]}"
    """
    for typed, expected in TYPED.items():
        found = said(shell("bash"), "-c", ask, "bash", str(script), typed, folder=script.parent)
        assert expected in found.splitlines(), typed
        assert "scale" not in found.splitlines()


@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish_completes(script: Path) -> None:
    for typed, expected in TYPED.items():
        ask = f"source {script}; complete -C 'tuiadvisor {typed}'"
        found = said(shell("fish"), "--no-config", "-c", ask, folder=script.parent)
        assert expected in [line.partition("\t")[0] for line in found.splitlines()], typed


@pytest.mark.slow
@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_takes_the_script_for_a_completion(script: Path) -> None:
    folder = script.parent / "zfunc"
    folder.mkdir()
    (folder / "_tuiadvisor").write_text(script.read_text())
    ask = f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; echo $_comps[tuiadvisor]"
    assert said(shell("zsh"), "-f", "-c", ask, folder=folder) == "_tuiadvisor\n"
    assert said(shell("zsh"), "-f", "-n", str(script), folder=folder) == ""
    assert all(f"    {name}:'" in script.read_text() for name in COMMANDS)


@pytest.mark.slow
def test_the_man_page_names_every_command_and_option(tmp_path: Path) -> None:
    pytest.importorskip("argparse_manpage")
    page = tmp_path / "tuiadvisor.1"
    program = Path(__file__).parents[2] / "release" / "manpage.py"
    subprocess.run([sys.executable, str(program), "-o", str(page)], check=True)
    text = page.read_text().replace("\\-", "-")
    assert all(f"tuiadvisor {name}" in text for name in COMMANDS)
    assert "--fail-if-slower" in text
    # Filled and justified, "[-h]   [--once]  [--quiet", they were hard to read.
    laid_out = re.findall(
        r"^\.nf\nusage: tuiadvisor ([a-z]+) [^\n]*(?:\n +[^\n]*)*\n\.fi$", text, re.MULTILINE
    )
    assert laid_out == re.findall(r"^usage: tuiadvisor ([a-z]+) ", text, re.MULTILINE)
    assert set(laid_out) >= set(COMMANDS)
    lint = shutil.which("mandoc")
    if lint:
        done = subprocess.run(
            [lint, "-T", "lint", "-W", "error", str(page)], capture_output=True, check=False
        )
        assert done.stdout == b""
