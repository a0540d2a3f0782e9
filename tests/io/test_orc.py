"""ORC files: queries find in them what they find in the table that pyarrow reads from them."""

import datetime
import decimal
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from sizes import scaled

import cer_gpu
from cer_gpu.io.sources import open_events

COLUMNS = {
    "x": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int8(), st.integers(-128, 127)),
    "a.b": (pa.float64(), st.floats(allow_nan=False)),
    "f": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "s": (pa.large_string(), st.text(max_size=4)),
    "flag": (pa.bool_(), st.booleans()),
    "at": (pa.timestamp("us", "UTC"), st.datetimes(datetime.datetime(1902, 1, 1), datetime.datetime(2200, 1, 1))),
    "local": (pa.timestamp("ms"), st.datetimes(datetime.datetime(1902, 1, 1), datetime.datetime(2200, 1, 1))),
    "day": (pa.date32(), st.dates(datetime.date(1902, 1, 1))),
    "price": (pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2).map(decimal.Decimal)),
    "tags": (pa.list_(pa.string()), st.lists(st.text(max_size=2), max_size=2)),
    "a": (pa.struct([("b", pa.int32()), ("c", pa.string())]), st.fixed_dictionaries({"b": st.integers(0, 9)})),
}
TEXTS = (
    "SELECT * FROM S WHERE A ; B WITHIN 3 EVENTS",
    "SELECT * FROM S WHERE A AS a ; B AS b FILTER a[x > 0] AND b[`a.b` < 1 OR flag = TRUE] WITHIN 4 EVENTS",
    "SELECT * FROM S WHERE A AS a ; B AS b FILTER a[s > 'a' OR price > 2] AND b.day >= a.day",
    "SELECT * FROM S WHERE A AS p ; B AS q FILTER p[a.b = 3 OR ANY(tags) = 'x'] AND q.at > p.at WITHIN 5 EVENTS",
)
QUERIES = [cer_gpu.compile(text) for text in TEXTS]


@st.composite
def tables(draw):
    """Draw a table of all types that ORC and events have in common, with NULL in each column."""
    n = draw(st.sampled_from([0, 1, 5, 40]))
    columns = {"type": pa.array(draw(st.lists(st.sampled_from("AB"), min_size=n, max_size=n)), pa.string())}
    for name, (kind, values) in COLUMNS.items():
        columns[name] = pa.array(draw(st.lists(st.none() | values, min_size=n, max_size=n)), kind)
    return pa.table(columns)


@settings(max_examples=scaled(30), deadline=None)
@given(
    tables(),
    st.sampled_from([64, 1 << 16]),
    st.sampled_from(["uncompressed", "zstd", "snappy"]),
    st.sampled_from(QUERIES),
)
def test_events_are_the_rows_that_pyarrow_reads(table, stripe_size, compression, query):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.orc"
        orc.write_table(table, path, stripe_size=stripe_size, batch_size=4, compression=compression)
        rows = orc.read_table(path)
        source = open_events(str(path))
        assert (source.schema, source.n_rows) == (rows.schema, table.num_rows)
        for names in (rows.schema.names, ["a.b"], ["a", "s"], ["type"]):
            read = pa.Table.from_batches(source.batches(names), pa.schema([rows.schema.field(n) for n in names]))
            assert read.equals(rows.select(names))
        assert query.evaluate(path, output="events").equals(query.evaluate(rows, output="events"))
        assert query.count(path, threads=2) == query.count(rows)


@pytest.mark.parametrize("keep", [0, 3, 40, -1])
def test_a_file_without_its_end_is_an_error(tmp_path, keep):
    path = tmp_path / "events.orc"
    orc.write_table(pa.table({"type": ["A", "B"] * 50}), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(cer_gpu.EventsError, match=r"events\.orc: "):
        cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluate(path)
