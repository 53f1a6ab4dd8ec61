"""`tuiadvisor scale`: the JSON contract, the text, and the user's mistakes."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from scaling_tables import MEGASCALE, ZERO_3, csv_of, write
from synthetic_run import Job, encoded, frames

from tuiadvisor.cli import scale
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.frames import FrameKind, encode
from tuiadvisor.stream.recording import RecordingWriter


def run(*arguments: str) -> None:
    """The command with these arguments."""
    parser = argparse.ArgumentParser()
    scale.add_options(parser)
    assert 0 == scale.run(parser.parse_args([*arguments]))


def as_json(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> dict[str, Any]:
    """What --json printed; nothing else may be on stdout."""
    run(*arguments, "--json")
    sys.stdout.flush()
    found: dict[str, Any] = json.loads(capfdbinary.readouterr().out)
    return found


def test_document_has_the_contract(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The keys of schema 1, times in the table's unit, nothing that JSON can't say."""
    path = write(tmp_path, csv_of(MEGASCALE))
    found = as_json(capfdbinary, "--table", path, "--predict", "2048,1536", "--price-per-device-hour", "2")
    assert {"schema", "fit", "rows", "predictions", "flags", "refused", "decision"} <= set(found)
    assert {"model", "error"} <= set(found["fit"])
    assert [256, 512, 768, 1024] == [row["devices"] for row in found["rows"]]
    assert {"devices", "time", "efficiency", "karp_flatt"} <= set(found["rows"][0])
    assert [1536, 2048] == [one["devices"] for one in found["predictions"]]
    prediction = found["predictions"][0]
    assert {"expected", "low", "high"} == set(prediction["time"])
    assert prediction["cost"] == pytest.approx(1536 * prediction["time"]["expected"] / 3600 * 2, rel=1e-4)
    assert {"decision", "devices", "because"} == set(found["decision"])
    assert 0 < found["fit"]["error"] < 0.1


def test_throughput_is_answered_in_both(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A table of rates: time is 1/rate, and the rate itself is there with its interval the right way round."""
    path = write(tmp_path, "devices,throughput\n8,800\n16,1560\n")
    one = as_json(capfdbinary, "--table", path, "--predict", "32")["predictions"][0]
    assert one["throughput"]["low"] < one["throughput"]["expected"] < one["throughput"]["high"]
    assert 1 == pytest.approx(one["throughput"]["low"] * one["time"]["high"], rel=1e-4)


def test_times_are_told_in_a_unit_that_people_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A million tokens a second were 1.174e-05 s per token; the document keeps the table's own unit."""
    run("--table", write(tmp_path, "devices,tokens_per_s\n8,85000\n16,165000\n32,310000\n"))
    told = capsys.readouterr().out
    assert "time in us per token" in told
    assert "       8      11.76" in told
    assert re.search(r"\(predicted 1\.\d+ us per token", told)
    assert not re.search(r"\de-\d", told)
    run("--table", write(tmp_path, "devices,step_s\n8,0.2\n16,0.105\n"))
    assert "time in s," in capsys.readouterr().out


def test_labels_give_a_document_each(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The main series on top, all of them under "series"; --label chooses."""
    path = write(tmp_path, "devices,step_s,label\n8,4,a\n16,2,a\n8,5,b\n16,3,b\n32,2,b\n")
    found = as_json(capfdbinary, "--table", path)
    assert ("b", ["b", "a"]) == (found["label"], [one["label"] for one in found["series"]])
    assert "a" == as_json(capfdbinary, "--table", path, "--label", "a")["label"]


def test_noise_scale_is_shown(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """(φ + 64)/(φ + 256) with φ = 100, against the smallest batch."""
    path = write(tmp_path, "devices,step_s,global_batch\n8,1.0,64\n16,1.03,128\n")
    found = as_json(capfdbinary, "--table", path, "--predict", "32", "--noise-scale", "100")
    assert 164 / 356 == pytest.approx(found["predictions"][0]["statistical_efficiency"], rel=1e-5)


def test_text_fits_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Plain ASCII, a line a size of at most 100 columns, the decision last."""
    run("--table", write(tmp_path, csv_of(ZERO_3)), "--predict", "3072")
    out = capsys.readouterr().out
    assert out.isascii()
    sizes = [line for line in out.splitlines() if line[:8].strip() in {"384", "768", "1,536", "3,072"}]
    assert 4 == len(sizes)
    assert max(len(line) for line in sizes) <= 100
    assert out.splitlines()[-1].startswith(
        "STOP: go back to 768 devices: going from 768 to 1,536 devices makes the run no faster at 2.00 times the cost"
    )


def test_missing_scipy_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login node without the extra gets one line that says how to get it."""
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(TuiadvisorError, match=r"pip install 'tuiadvisor\[scale\]'"):
        run("--table", write(tmp_path, csv_of(MEGASCALE)))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--predict", "64,x"),
        ("--predict", "0"),
        ("--predict", ","),
        ("--predict", "-8"),
        ("--budget", "nan"),
        ("--budget", "-1"),
        ("--price-per-device-hour", "0"),
        ("--deadline", "soon"),
        ("--objective", "fame"),
    ],
)
def test_bad_options_are_usage_errors(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and the option's name."""
    with pytest.raises(SystemExit) as caught:
        run("--table", "table.csv", *arguments)
    assert 2 == caught.value.code
    assert arguments[0] in capsys.readouterr().err


def test_batch_needs_a_size(tmp_path: Path) -> None:
    """--global-batch alone asks nothing."""
    with pytest.raises(TuiadvisorError, match="add --predict"):
        run("--table", write(tmp_path, csv_of(MEGASCALE)), "--global-batch", "6144")


def record(folder: Path, num_ranks: int) -> str:
    """A recording of this many ranks, one a host."""
    path = str(folder / f"{num_ranks}.tuirec")
    begin = {"schema": 1, "tuiadvisor": "0.1.0", "created_wall_ns": 1_700_000_000 * 10**9}
    writer = RecordingWriter(path, encode(FrameKind.RUN, "hub", 0, 0, begin))
    for frame in frames(Job(num_ranks=num_ranks, ranks_per_host=1)):
        writer.append(encoded(frame))
    writer.close()
    return path


@pytest.mark.slow
def test_recordings_are_sizes(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Several are a table whose batch was observed; a single one is bounded by its parts."""
    paths = [record(tmp_path, num_ranks) for num_ranks in (2, 4)]
    several = as_json(capfdbinary, *paths, "--predict", "8")
    assert "weak" == several["fit"]["regime"]
    assert [2, 4] == [row["devices"] for row in several["rows"]]
    assert 256 == several["predictions"][0]["global_batch"]
    alone = as_json(capfdbinary, paths[1], "--predict", "8,128")
    assert "one run" == alone["source"]
    assert [(8, "weak"), (8, "strong")] == [(one["devices"], one["mode"]) for one in alone["predictions"]]
    assert [128] == [one["devices"] for one in alone["refused"]]
    run(paths[1])
    assert b"one run, 4 devices on 4 hosts" in capfdbinary.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give recordings, or --table CSV"),
        (["a.tuirec", "--table", "b.csv"], "one of the two"),
        (["a.tuirec"] * 33, "33 recordings; give at most 32"),
        (["a.tuirec", "--budget", "5"], "--budget needs measured sizes"),
        (["missing.tuirec"], "missing.tuirec"),
    ],
)
def test_a_mistake_in_what_to_scale_is_one_line(arguments: list[str], says: str) -> None:
    """Which of the two, how many, and what one run cannot answer."""
    with pytest.raises(TuiadvisorError, match=says):
        run(*arguments)


def test_the_projects_file_is_read_and_the_command_line_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A limit about the whole run says nothing of a table whose run has no stated length: it is left out."""
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "devices,step_s\n8,4\n16,2.2\n32,1.3\n")
    (tmp_path / ".tuiadvisor.toml").write_text(
        'objective = "cost"\nprice_per_device_hour = 2.5\nbudget = 1e6\nremaining_samples = 5\n'
    )
    found = as_json(capfdbinary, "--table", path)
    assert found["rows"][0]["cost"] == pytest.approx(8 * 4 * 2.5 / 3600)
    assert ("rescale", 8) == (found["decision"]["decision"], found["decision"]["devices"])
    assert ": the cheapest; no deadline was given" in found["decision"]["because"]
    found = as_json(capfdbinary, "--table", path, "--remaining-steps", "1000", "--objective", "time")
    assert "within the budget of 1,000,000" in found["decision"]["because"]
    assert "the fastest" in found["decision"]["because"]


WEAK = "gpus,step_time_ms,global_batch\n8,520,256\n16,530,512\n32,561,1024\n"


def test_the_text_shows_what_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hours of the run, whose steps are counted, why a cheaper size is none: the table seemed to contradict."""
    path = write(tmp_path, WEAK)
    run("--table", path, "--deadline", "72h", "--remaining-steps", "200000", "--price-per-device-hour", "2.5")
    out = capsys.readouterr().out
    rows = {line[:8].strip(): line for line in out.splitlines()}
    assert rows["devices"].endswith("hours")
    assert {"8": "115.6", "16": "58.89"} == {size: rows[size].split()[-2] for size in ("8", "16")}
    assert "8 devices make 800,000 for the same samples" in out
    assert "above the efficiency floor of 0.8: about" in out
    assert "8 devices would cost 2,311, but need 115.6 h" in out.splitlines()[-1]
    assert max(len(rows[size]) for size in ("8", "16", "32", "64")) <= 100


def test_without_a_runs_length_the_fastest_is_told_by_the_same_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step of 64 devices takes longer than one of 8, and is eight times the work."""
    run("--table", write(tmp_path, WEAK))
    out = capsys.readouterr().out
    assert "hours" not in out.splitlines()[5]
    assert "8 devices make 4 for the same samples" in out
    assert out.rstrip().endswith("the fastest of the sizes compared, in time for the same work")
