"""Tables from strangers: understood, or refused in one line that says where."""

from __future__ import annotations

import tempfile
from pathlib import Path

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scaling_tables import write
from thinned import num_examples

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.analysis import analyse
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.document import document
from tuiadvisor.scaling.table import normal_layout, read_table
from tuiadvisor.scaling.text import text


def test_reads_the_contract(tmp_path: Path) -> None:
    """All columns of the contract, in any order of rows."""
    table = read_table(
        write(tmp_path, "label,devices,step_s,global_batch,layout\na,16,1.5,64,tp8 dp2\nb,8,3,64,tp8 dp1\n")
    )
    assert [(16, 1.5, 64.0, "tp8"), (8, 3.0, 64.0, "tp8")] == [
        (row.devices, row.value, row.global_batch, row.layout) for row in table.rows
    ]
    assert ("s", "step_s") == (table.quantity.unit, table.quantity.column)


@pytest.mark.parametrize(
    ("header", "unit"),
    [
        ("GPUs;Tokens/s", "1/throughput"),
        ("num_gpus\tTotal (min)", "min"),
        ("\ufeffdevices, total_days", "days"),
        ("chips,step time (ms)", "ms"),
    ],
)
def test_headers_of_others(header: str, unit: str, tmp_path: Path) -> None:
    """Other names, other separators, a byte order mark."""
    separator = next(mark for mark in ";\t," if mark in header)
    table = read_table(write(tmp_path, f"{header}\n# a comment\n\n8{separator} 20\n16{separator}11\n"))
    assert (unit, [8, 16]) == (table.quantity.unit, [row.devices for row in table.rows])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "empty"),
        ("devices,step_s\n", "no measured row"),
        ("devices\n8\n", "no column of times"),
        ("step_s\n8\n", "no column of device counts"),
        ("devices,step_s,total_h\n8,1,2\n", "step_s and total_h both measure"),
        ("devices,devices,step_s\n8,8,2\n", "devices appears twice"),
        ("devices,step_s\n8,fast\n", "line 2: step_s 'fast'"),
        ("devices,step_s\n8,nan\n", "line 2: step_s 'nan'"),
        ("devices,step_s\n8,-1\n", "line 2: step_s '-1'"),
        ("devices,step_s\n8,0\n", "line 2: step_s '0'"),
        ("devices,step_s\n8,1_0\n", "line 2: step_s '1_0'"),
        ("devices,step_s\n8,1e400\n", "line 2: step_s '1e400'"),
        ("devices,step_s\n\n8.5,1\n", "line 3: devices must be a whole number"),
        ("devices,step_s\n,1\n", "line 2: devices must be a whole number"),
        ("devices,step_s\n99999999999,1\n", "line 2: devices must be a whole number"),
        ("devices,step_s\n8,1,2\n", "line 2: 3 cells under 2 columns"),
        ("devices,step_s\n8,\x1b[31m\n", "line 2: step_s '?[31m'"),
        ("devices,step_s\n8,\0\n", "zero bytes"),
        ("devices,step_s\n" + "8,1\n" * 1001, "more than 1000 rows"),
        ("devices,step_s\n" + "#" * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_says_what_is_wrong_and_where(content: str, expected: str, tmp_path: Path) -> None:
    """One line, naming the file, the line and the cell."""
    with pytest.raises(TuiadvisorError) as caught:
        read_table(write(tmp_path, content))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "table.csv" in str(caught.value)


@pytest.mark.parametrize("path", ["", "no such file", "nul\0byte", "/", "new\nline"])
def test_unreadable_path(path: str) -> None:
    """A file that isn't there is the user's mistake, in one line."""
    with pytest.raises(TuiadvisorError, match="can't be read") as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def test_not_utf_8(tmp_path: Path) -> None:
    """Bytes of another encoding are named by their place."""
    path = tmp_path / "latin.csv"
    path.write_bytes(b"devices,step_s\n8,1\xff\n")
    with pytest.raises(TuiadvisorError, match="byte 18 is not UTF-8"):
        read_table(str(path))


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("TP8, PP4, DP2", "tp8 pp4"),
        ("dp=16 tp=8", "tp=8"),
        ("DDP4", "data parallel"),
        ("tp8/pp2/data_parallel=4", "tp8 pp2"),
        ("zero3", "zero3"),
        ("hdp4", "hdp4"),
    ],
)
def test_data_parallel_degree_is_no_layout(layout: str, expected: str) -> None:
    """It is what grows with the devices; everything else must stay the same."""
    assert expected == normal_layout(layout)


NUMBERS = st.one_of(
    st.integers(-5, 10**12).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(str),
    st.sampled_from(["", " ", "1e-13", "1e15", "1,024", "0x8", "٣", "\x1b[2J", '"', "-", "1e-12"]),
    st.text(max_size=5),
)
HEADERS = st.lists(
    st.sampled_from(
        [
            "devices",
            "gpus",
            "step_s",
            "throughput",
            "total_h",
            "global_batch",
            "layout",
            "label",
            "total",
            "tp",
            "?",
        ]
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=num_examples(150), deadline=None)
@given(HEADERS, st.lists(st.lists(NUMBERS, max_size=6), max_size=6), st.sampled_from(",;\t"))
@example(["devices", "step_s"], [["1", "1e-12"], ["100000000", "1e15"]], ",")
@example(["devices", "step_s"], [["1", "1e15"], ["100000000", "1e-12"]], ",")
@example(
    ["devices", "throughput", "global_batch"], [["1", "1e15", "1"], ["2", "1e-12", "2"], ["3", "1", "3"]], ","
)
def test_no_traceback_on_hostile_tables(header: list[str], rows: list[list[str]], separator: str) -> None:
    """Anything in a cell ends in a printed report or in one line of error."""
    content = "\n".join(separator.join(cells) for cells in [header, *rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hostile.csv"
        path.write_text(content, encoding="utf-8", newline="", errors="surrogatepass")
        _print_or_refuse(path)


@settings(max_examples=num_examples(150), deadline=None)
@given(st.binary(max_size=200))
def test_no_traceback_on_hostile_bytes(content: bytes) -> None:
    """Nor do bytes of any kind."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hostile.csv"
        path.write_bytes(b"devices,step_s\n8,2\n16,1\n" + content)
        _print_or_refuse(path)


def _print_or_refuse(path: Path) -> None:
    shown = _printed(path)
    assert shown.replace("\n", "").isprintable()


def _printed(path: Path) -> str:
    try:
        table = read_table(str(path))
        reports = analyse(table, [], Aim(price_per_device_hour=2.0))
    except TuiadvisorError as error:
        return str(error) if "\n" not in str(error) else "\0 more than one line"
    orjson.dumps(document(table, reports, Aim()))
    return text(table, reports, Aim())


def test_a_second_measured_column_is_said_not_to_be_used(tmp_path: Path) -> None:
    """Half a second in one and two in the other: which of them counts was not told."""
    table = read_table(write(tmp_path, "devices,step_ms,step_s\n8,1000,1\n16,500,2\n"))
    assert table.quantity.column == "step_s"
    assert table.notes == ("measured column: step_s; not used: step_ms",)
