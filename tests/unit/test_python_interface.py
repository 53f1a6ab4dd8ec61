"""From Python: what the commands print, as objects, dicts and tables; importing it costs nothing until it is asked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic_run import MS, Fault, Job
from test_contents import recording

import tuiadvisor
from tuiadvisor.cli.commands import run as command
from tuiadvisor.errors import TuiadvisorError

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With what the page speaks of."""
    recording(tmp_path / "run.tuirec", Job(faults=(Fault("backward", (2,), 8 * MS),)))
    recording(tmp_path / "before.tuirec", Job())
    (tmp_path / "sizes.csv").write_text("devices,step_s\n1,1.0\n2,0.55\n4,0.3\n8,0.2\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsysbinary: pytest.CaptureFixture[bytes], *words: str) -> dict[str, object]:
    """The document of a command."""
    assert command(list(words)) == 0
    found: dict[str, object] = json.loads(capsysbinary.readouterr().out)
    return found


def test_the_dicts_are_those_of_the_commands(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    def plain(document: object) -> object:
        return json.loads(json.dumps(document))

    run = tuiadvisor.open("run.tuirec")
    said = printed(capsysbinary, "diagnose", "run.tuirec", "--json")
    del said["economics"]
    assert plain(run.diagnose()) == said
    assert (run.verdict.decision, run.findings[0].ranks) == ("tune", (2,))
    compared = tuiadvisor.compare("before.tuirec", run)
    assert plain(compared) == printed(capsysbinary, "compare", "before.tuirec", "run.tuirec", "--json")
    scaled = tuiadvisor.scale(table="sizes.csv", predict=[16])
    assert plain(scaled) == printed(
        capsysbinary, "scale", "--table", "sizes.csv", "--predict", "16", "--json"
    )


def test_tables_hold_each_rank_and_step_and_null_where_unknown(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    steps = tuiadvisor.open(folder / "run.tuirec").steps()
    assert hasattr(steps, "__arrow_c_stream__")
    assert steps.num_rows == 4 * 200
    assert sorted(set(steps["rank"].to_pylist())) == [0, 1, 2, 3]
    means = steps.group_by("rank").aggregate([("backward_ns", "mean")]).to_pylist()
    mean = {row["rank"]: row["backward_ns_mean"] for row in means}
    assert max(mean, key=mean.__getitem__) == 2
    assert steps["h2d_ns"].null_count == steps.num_rows  # no device: unknown, not nothing
    assert tuiadvisor.open("run.tuirec").ranks().num_rows == 4


class _Frames(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_in_a_notebook_it_is_one_frame_in_which_nothing_runs(folder: Path) -> None:
    parser = _Frames()
    parser.feed(tuiadvisor.open("run.tuirec")._repr_html_())
    ((tag, attributes),) = parser.tags
    assert (tag, attributes["sandbox"]) == ("iframe", "")
    assert "rank 2" in (attributes["srcdoc"] or "")
    assert "tune" in repr(tuiadvisor.open("run.tuirec")).lower()


def test_mistakes_are_one_line(folder: Path) -> None:
    with pytest.raises(TuiadvisorError, match=r"no\.tuirec"):
        tuiadvisor.open("no.tuirec")
    with pytest.raises(TuiadvisorError, match=r"sizes\.csv"):
        tuiadvisor.open("sizes.csv")
    with pytest.raises(TuiadvisorError, match="one of the two"):
        tuiadvisor.scale()
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        tuiadvisor.nothing_of_this_name  # noqa: B018


def test_the_page_does_what_it_says(folder: Path) -> None:
    """Each block in order, in one namespace, but for what needs a training."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102
    assert names["late"]


def test_importing_it_loads_nothing(folder: Path) -> None:
    """Command lines import the package first: numpy and the rest wait until somebody asks."""
    code = "import sys, tuiadvisor; print(tuiadvisor.__version__, {'numpy', 'zmq', 'textual'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith(" set()\n")
