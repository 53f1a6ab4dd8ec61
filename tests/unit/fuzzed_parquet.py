"""Hostile parquet tables of operations: damaged bytes behind a right end, and whole files with odd columns.

Out: bytes for `import ops`. Needs pyarrow, whoever uses it skips without.
"""

from __future__ import annotations

import datetime as dt
import decimal
import importlib
import io
from typing import TYPE_CHECKING, Any

import test_import_ops as tables
from fuzzing import damaged

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

# Numbers as a footer writes them, and what a page of them begins with.
ODD = (
    *(
        b"\xff" * 5,
        b"\xff" * 9 + b"\x01",
        b"\0" * 8,
        b"\x15\xfe\xff\xff\xff\x0f",
        b"\x15\x01",
        b"\x19\xfc",
        b"\x1c",
    ),
    *(b"\xff\xff\xff\x7f", b"\x02\0\0\0", b"PAR1", b"", b"\x80" * 12),
)
KINDS: Sequence[Sequence[Any]] = (
    *(
        (None,),
        (None, 1),
        (True, False),
        (-1, 1 << 62, -(1 << 63)),
        (0.5, 1e308, float("inf"), float("nan"), -0.0),
    ),
    *(("", "x" * 5000, "\x00\x1b[2J\n", "forward-compute", "1"), (b"\xff", b""), ([], [1], [None])),
    *(
        ({"a": 1}, {"a": None}),
        (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
        (decimal.Decimal("1.50"),),
    ),
    *((dt.timedelta(seconds=3),), (dt.date(1970, 1, 1),), (dt.time(1, 2),)),
)


def good_parquets() -> list[bytes]:
    """The same table written in several versions, compressions and encodings."""
    pa, pq = _library()
    pa.set_memory_pool(pa.system_memory_pool())  # others keep what was freed, and a limit on memory counts it
    table, good = pa.Table.from_pylist(tables.pipeline(range(1))), []
    for version, compression, page in (
        ("2.6", "NONE", "1.0"),
        ("1.0", "snappy", "1.0"),
        ("2.6", "zstd", "2.0"),
    ):
        for use_dictionary in (True, False):
            sink = io.BytesIO()
            options = {"version": version, "compression": compression, "data_page_version": page}
            pq.write_table(table, sink, use_dictionary=use_dictionary, row_group_size=100, **options)
            good.append(sink.getvalue())
    return good


def hurt_parquet(good: bytes, chance: random.Random) -> bytes:
    """Bytes of its pages, more often of its footer, with the length of that right or wrong; or bytes anywhere."""
    way = chance.random()
    if way < 0.2:
        return damaged(good, chance, ODD)
    num_footer = int.from_bytes(good[-8:-4], "little")
    pages, footer = good[: -8 - num_footer], good[-8 - num_footer : -8]
    if way < 0.5:
        pages = b"PAR1" + damaged(pages[4:], chance, ODD)
    else:
        footer = damaged(footer, chance, ODD)
    length = len(footer) if chance.random() < 0.9 else chance.choice((0, 1, 1 << 20, (1 << 32) - 1))
    return pages + footer + length.to_bytes(4, "little") + b"PAR1"


def odd_parquet(chance: random.Random) -> bytes:
    """A whole file, some of whose columns are of a kind, or hold what no table of operations holds."""
    pa, pq = _library()
    num_rows = chance.choice((0, 1, 5, 40))
    columns = {}
    for name in ("step", "rank", "dp_rank", "stage", "optype", "start_s", "dur_s", "seq_id", "mc"):
        good = "forward-compute" if name == "optype" else chance.randrange(4)
        values: list[Any] = [good] * num_rows
        if chance.random() < 0.25:
            kind = chance.choice(KINDS)
            values = [chance.choice(kind) for _ in range(num_rows)]
        columns[name] = pa.array(values)
        if chance.random() < 0.1 and pa.types.is_string(columns[name].type):
            columns[name] = columns[name].dictionary_encode()
    for name in chance.sample(sorted(columns), chance.choice((0, 0, 0, 1))):
        del columns[name]
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression=chance.choice(("NONE", "snappy", "zstd")))
    return sink.getvalue()


def _library() -> tuple[Any, Any]:
    """Untyped: only its few calls here matter."""
    return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
