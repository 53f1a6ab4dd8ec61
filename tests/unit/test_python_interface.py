"""From Python: what the commands print, as objects, dicts and tables; importing it costs nothing until it is asked."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE_S, wait_until
from synthetic_run import MS, Fault, Job, final_view
from test_contents import recording
from test_import_ops import pipeline, written

import tuiadvisor
from tuiadvisor.cli.commands import run as command
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.outlets import notices

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
NOTEBOOK = PAGE.parent / "tour.ipynb"


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


@pytest.mark.slow
def test_the_dicts_are_those_of_the_commands(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    def plain(document: object) -> object:
        return json.loads(json.dumps(document))

    run = tuiadvisor.open("run.tuirec")
    said = printed(capsysbinary, "diagnose", "run.tuirec", "--json")
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


def test_a_column_is_one_piece_of_memory_that_others_take_as_it_is(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    steps = tuiadvisor.open(folder / "run.tuirec").steps()
    assert {1} == {column.num_chunks for column in steps.columns}
    column = steps["rank_step"]
    taken = np.asarray(column.chunk(0).to_numpy(zero_copy_only=True))
    assert taken.__array_interface__["data"][0] == column.chunk(0).buffers()[1].address


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


@pytest.mark.parametrize("pid", [[123], "abc", None, 1.5])
def test_what_is_no_process_to_watch_is_one_line(pid: object) -> None:
    with pytest.raises(TuiadvisorError, match=r"no process; .*watch\(4711, 4712\)") as refused:
        tuiadvisor.watch(pid)  # type: ignore[arg-type]
    assert repr(pid) in str(refused.value)


def test_a_training_that_is_not_watched_yet_says_so() -> None:
    live = tuiadvisor.watch(4711)
    assert (live.view, live.verdict, live.findings) == (None, None, ())
    assert "nothing seen yet" in repr(live)
    assert "nothing seen yet" in live._repr_html_()
    with pytest.raises(TuiadvisorError, match=r"with tuiadvisor\.watch"):
        live.wait(1.0)


def test_in_a_notebook_a_live_run_is_its_report_as_far_as_it_is() -> None:
    live, late = tuiadvisor.watch(), final_view(Job(faults=(Fault("backward", (2,), 8 * MS),)))
    live._feed = _Feed(late)  # type: ignore[assignment]
    assert live.verdict == late.decided
    assert live.findings == late.findings
    assert repr(live) == f"<tuiadvisor.LiveRun: {late.decided.sentence}>"
    parser = _Frames()
    parser.feed(live._repr_html_())
    ((tag, attributes),) = parser.tags
    assert (tag, attributes["sandbox"]) == ("iframe", "")
    assert "rank 2" in (attributes["srcdoc"] or "")


def test_the_package_names_its_interface_and_nothing_else() -> None:
    """What completion offers after `tuiadvisor.`, with and without types: not the modules behind it."""
    offered = {name for name in dir(tuiadvisor) if not name.startswith("_")}
    stub = (Path(tuiadvisor.__file__).parent / "__init__.pyi").read_text()
    (named,) = re.findall(r"__all__ = \[(.*?)\]", stub, re.DOTALL)
    assert offered == set(re.findall(r'"(\w+)"', named)) - {"__version__"}
    assert all(getattr(tuiadvisor, name) is not None for name in offered)


def test_the_page_does_what_it_says(folder: Path) -> None:
    """Each block in order, in one namespace, but for what needs a training."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102
    assert names["late"]


def cells(kind: str) -> list[str]:
    """Of the notebook."""
    document = json.loads(NOTEBOOK.read_text())
    return ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == kind]


def shown(source: str, names: dict[str, object]) -> object:
    """Run a cell; what its last line is worth, which a notebook shows."""
    body = ast.parse(source, str(NOTEBOOK)).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), str(NOTEBOOK), "exec"), names)  # noqa: S102
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)  # noqa: S307


def test_the_notebook_runs_from_top_to_bottom(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each cell in order, as a kernel would; outputs are not kept in it."""
    pytest.importorskip("pyarrow")
    names: dict[str, object] = {}
    values = [shown(source, names) for source in cells("code")]
    printed = capsys.readouterr().out
    assert isinstance(values[0], tuiadvisor.Run)
    assert printed.startswith("Tune: rank 2 ")
    assert "critical straggler, ranks [2]" in printed
    assert re.search(r"^2 data_wait .* backward 1\d\.\d+ ms", printed, re.MULTILINE)
    assert values[3] == "regressed"
    assert isinstance(values[4], list)
    assert [one["devices"] for one in values[4]] == [16]
    kept = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(cell["outputs"] == [] for cell in kept if cell["cell_type"] == "code")


class _Feed:
    """Of a training in which a finding opens."""

    failure = None

    def __init__(self, view: object) -> None:
        self.view = view

    def latest(self) -> _Feed:
        return self


def test_a_callback_that_fails_is_said_and_called_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the user's: a mistake in it ends neither the watching nor what is told later."""
    told: list[str] = []
    two = threading.Event()

    def callback(document: dict[str, object]) -> None:
        told.append(str(document["event"]))
        if len(told) == 2:
            two.set()
        raise KeyError("a mistake of the user")

    monkeypatch.setattr(notices, "SETTLE_S", 0.0)
    monkeypatch.setattr(notices, "GONE_S", 0.0)
    late = final_view(Job(faults=(Fault("backward", (2,), 8 * MS),)))
    live = tuiadvisor.watch(on_finding=callback)
    feed = _Feed(late)
    live._feed = feed  # type: ignore[assignment]
    live._begin_telling()
    try:
        wait_until(lambda: told)
        feed.view = final_view(Job())  # it is over: told again, although the callback failed
        assert two.wait(PATIENCE_S)
    finally:
        live.__exit__(None, None, None)
    assert told[:2] == ["opened", "closed"]
    assert "a mistake of the user" in caplog.text


def test_importing_it_loads_nothing(folder: Path) -> None:
    """Command lines import the package first: numpy and the rest wait until somebody asks."""
    code = "import sys, tuiadvisor; print(tuiadvisor.__version__, {'numpy', 'zmq', 'textual'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith(" set()\n")


@pytest.mark.slow
def test_other_tools_traces_are_runs_too(folder: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """With the verdict of the command, in tables and in comparisons; what has no steps is its one line."""
    table = written(folder / "table.csv", pipeline(range(30)))
    run = tuiadvisor.open(table)
    assert printed(capsysbinary, "diagnose", "--json", str(table))["verdict"] == run.diagnose()["verdict"]
    assert 30 * len(run.view.ranks) == run.steps().num_rows
    compared = printed(capsysbinary, "compare", "--json", str(table), str(table))
    assert compared == json.loads(json.dumps(tuiadvisor.compare(table, run)))
    (folder / "fio.json").write_text(json.dumps({"fio version": "fio-3.28", "jobs": []}))
    with pytest.raises(
        TuiadvisorError, match="fio measures storage and has no steps of a training; tuiadvisor open"
    ):
        tuiadvisor.open(folder / "fio.json")
