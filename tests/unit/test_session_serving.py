"""The guided session on an imported metrics page: patterns, decision, and a file that may hold anything."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz_target import hurt_json
from serving_pages import RECORDINGS

from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.session.serving import serving_json, serving_markdown, serving_session

BUSY = [str(RECORDINGS / name) for name in ("vllm.prom", "vllm-later.prom")]


def saved(folder: Path, *pages: str) -> str:
    """What `import serving -o` leaves."""
    path = str(folder / "page.json")
    assert 0 == main(["import", "serving", *pages, "-o", path])
    return path


def test_a_busy_server_is_walked_through_the_six_patterns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What sets the pace, what is next, which lever first, what one page cannot tell."""
    path = saved(tmp_path, *BUSY, "--every", "60", "--ttft-slo", "500ms")
    capsys.readouterr()
    assert 0 == main(["advise", path])
    text = capsys.readouterr().out
    assert "## Decision: tune" in text
    assert all(f"## P{number} " in text for number in range(1, 7))
    assert "A mean request spends most in the queue: 1.61 s (71 %); shorten it, and decoding is next." in text
    assert "Objectives: TTFT missed" in text
    assert "at most 1.61 s of a mean request of 2.25 s" in text
    assert "between two pages, 60 s" in text
    session = serving_session(path)
    assert session.levers[0].finding == "serving_preemptions"
    assert "low" == session.levers[0].risk
    assert [stage.pattern for stage in session.stages if stage.unknown] == ["P4", "P6"]


def test_of_several_models_one_is_to_be_chosen(tmp_path: Path) -> None:
    """Their latencies stand apart on the page: "the page tells no latencies" was said of it."""
    page = str(RECORDINGS / "triton.prom")
    whole = serving_session(saved(tmp_path, page))
    assert whole.why == "4 models on the page, each with latencies of its own: import it with --model NAME."
    assert (
        whole.stages[0].conclusion
        == "Open: 4 models, each with latencies of its own: import it with --model NAME."
    )
    alone = serving_session(saved(tmp_path, page, "--model", "tensorrt_llm"))
    assert "A mean request spends most in work on prompt and tokens" in alone.stages[0].conclusion


def test_a_calm_server_is_kept(tmp_path: Path) -> None:
    session = serving_session(saved(tmp_path, BUSY[0], "--ttft-slo", "500ms"))
    assert ("keep", "none", ()) == (session.decision, session.expected, session.levers)


@pytest.mark.slow
def test_who_is_to_rescale_is_told_a_change_that_does(tmp_path: Path) -> None:
    """A decision to rescale stood beside the ONE change "give the cache more memory", a setting of the same replica."""
    decided = {}
    for name in ("vllm-later", "tgi", "sglang", "vllm-engines"):
        session = serving_session(saved(tmp_path, str(RECORDINGS / f"{name}.prom")))
        decided[name] = session.decision, "replica" in session.levers[0].text
    assert decided == {
        "vllm-later": ("rescale", True),
        "tgi": ("rescale", True),
        "sglang": ("tune", False),
        "vllm-engines": ("tune", False),
    }


@pytest.mark.parametrize("name", ["sglang", "tgi", "triton", "vllm-engines", "vllm-v0"])
def test_every_recorded_page_can_be_advised_on(name: str, tmp_path: Path) -> None:
    """Whatever it does not tell."""
    session = serving_session(saved(tmp_path, str(RECORDINGS / f"{name}.prom")))
    assert "P6" in serving_markdown(session)
    assert 6 == len(json.loads(json.dumps(serving_json(session)))["stages"])


def test_the_session_is_written_as_json_and_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, *BUSY)
    for name in ("session.md", "session.json"):
        assert 0 == main(["advise", path, "-o", str(tmp_path / name)])
    assert "# Session on vLLM" in (tmp_path / "session.md").read_text()
    assert "serving-session" == json.loads((tmp_path / "session.json").read_text())["kind"]
    capsys.readouterr()
    assert 0 == main(["advise", path, "--json"])
    assert "tune" == json.loads(capsys.readouterr().out)["decision"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not JSON"),
        ("[1]", "no document of an imported serving page"),
        ('{"kind": "kineto", "schema": 1}', "no document"),
        ('{"kind": "serving", "schema": 2}', "no document"),
        ('{"kind": "serving", "schema": 1}', "holds no figures"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_saved_page_is_one_line(
    content: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.json"
    path.write_text(content)
    assert 2 == main(["advise", str(path)])
    told = capsys.readouterr().err
    assert says in told
    assert 1 == told.count("\n")
    assert 2 == main(["advise", str(tmp_path / "none.json")])


@pytest.mark.parametrize("option", [["--tui"], ["--why", "idle"], ["--session", "s.json"], ["other.tuirec"]])
def test_options_of_a_training_are_refused(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, BUSY[0])
    assert 2 == main(["advise", path, *option])
    assert "an imported metrics page takes no" in capsys.readouterr().err


@pytest.mark.slow
def test_a_file_that_holds_anything_obeys_nobody(tmp_path: Path) -> None:
    """Values of other kinds: a session or one line, no control character, no number that cannot be."""
    good = Path(saved(tmp_path, *BUSY, "--every", "60", "--ttft-slo", "500ms")).read_bytes()
    path = tmp_path / "hurt.json"
    num_sessions = 0
    for seed in range(400):
        path.write_bytes(hurt_json(good, random.Random(seed)))  # noqa: S311 - the same every time
        try:
            text = serving_markdown(serving_session(str(path)))
        except TuiadvisorError:
            continue
        num_sessions += 1
        assert all(letter.isprintable() or letter == "\n" for letter in text)
        assert "nan" not in text.lower().split()
        assert "inf" not in text.lower().split()
    assert num_sessions > 100
