"""Facts of stored files by their footers, against the data itself."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from sizes import seeds

from cer_gpu.errors import EventsError
from spark_glue.files import stored_formats
from spark_glue.files.casting import in_unit, readable
from spark_glue.files.footers import find_footers, surveyed
from spark_glue.files.opening import Opener
from spark_glue.files.stored_events import DirectReadError, Scan

US, US_UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
ORDERS = [
    # stored, in the events, least and greatest value, units of the stored in one of the events
    (pa.int8(), pa.int8(), -128, 127, 1),
    (pa.int16(), pa.int32(), -(2**15), 2**15 - 1, 1),
    (pa.int32(), pa.int64(), -(2**31), 2**31 - 1, 1),
    (pa.int64(), pa.int64(), -(2**63), 2**63 - 1, 1),
    (pa.uint8(), pa.int16(), 0, 255, 1),
    (pa.uint16(), pa.int32(), 0, 2**16 - 1, 1),
    (pa.uint32(), pa.int64(), 0, 2**32 - 1, 1),
    (pa.date32(), pa.date32(), -(10**5), 10**6, 1),
    (pa.date64(), pa.date32(), -(10**5), 10**6, 1),
    (pa.timestamp("s"), US, -(10**11), 10**11, Fraction(1, 10**6)),
    (pa.timestamp("ms"), US, -(10**14), 10**14, Fraction(1, 1000)),
    (pa.timestamp("ms", "Europe/Rome"), US_UTC, -(10**14), 10**14, Fraction(1, 1000)),
    (US, US, -(2**63), 2**63 - 1, 1),
    (US_UTC, US_UTC, -(2**62), 2**62, 1),
    (pa.timestamp("ns"), US, -(2**63), 2**63 - 1, 1000),
    (pa.timestamp("ns", "UTC"), US_UTC, -5000, 5000, 1000),
    (pa.timestamp("ns", "UTC"), pa.int64(), -(2**63), 2**63 - 1, 1),
    (pa.duration("us"), pa.int64(), -(2**63), 2**63 - 1, 1),
]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
WORDS = ["A", "B", "Zz", "é", "", "\U0001f600", "B" * 100]


def drawn(rng, n, kind, lowest, highest, nulls):
    """Return a column of random values, and them as integers, dates in days."""
    span = rng.choice([10, 1000, highest - lowest])
    base = rng.randint(lowest, highest - min(span, highest - lowest))
    numbers = [None if rng.random() < nulls else rng.randint(base, min(base + span, highest)) for _ in range(n)]
    if pa.types.is_date64(kind):
        days = [None if number is None else number * 86_400_000 for number in numbers]
        return pa.array(days, pa.int64()).cast(kind), numbers
    if pa.types.is_date32(kind):
        return pa.array(numbers, pa.int32()).cast(kind), numbers
    return pa.array(numbers, kind if pa.types.is_integer(kind) else pa.int64()).cast(kind), numbers


def texts(words, kind):
    """Return a column of words; one dictionary serves all, as files of Arrow want."""
    if not pa.types.is_dictionary(kind):
        return pa.array(words, kind)
    numbers = [None if word is None else WORDS.index(word) for word in words]
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), WORDS)


def expected_group(numbers, words, units):
    """Return the bounds that a group must have: (low, high, number of NULLs) and those of the types."""
    valid = [Fraction(number) / units for number in numbers if number is not None]
    low, high = (min(valid).__floor__(), max(valid).__ceil__()) if valid else (None, None)
    named = [word for word in words if word is not None]
    return (low, high, len(numbers) - len(valid)), (min(named), max(named)) if named else None


def stored(rng, folder, kind, lowest, highest, units, ending):
    """Write random files; return their paths, what must be found in them, and True if bounds of types are exact."""
    paths, expected = [], []
    text = rng.choice(TEXTS)
    required = rng.random() < 0.3
    for i in range(rng.randint(1, 4)):
        path = str(folder / f"p{i}{ending}")
        groups = []
        schema = pa.schema(
            [
                pa.field("x", pa.list_(pa.int8())),
                pa.field("ts", kind, nullable=not required),
                pa.field("kind", text),
                pa.field("a.b", pa.float32()),
                pa.field("a", pa.struct({"b": pa.int16()})),
            ]
        )
        told = rng.choice([True, True, False, ["kind"], ["ts"]])
        with opened(path, schema, rng, told) as writer:
            for _ in range(rng.choice([0, 1, 2, 5])):
                n = rng.choice([0, 1, 2, rng.randint(3, 40)])
                nulls = 0 if required else rng.choice([0, 0, 0.3, 1])
                column, numbers = drawn(rng, n, kind, lowest, highest, nulls)
                words = [rng.choice([*WORDS, None]) for _ in range(n)]
                rows = [[[1]] * n, column, texts(words, text), [0.5] * n, [{"b": 1}] * n]
                arrays = [pa.array(values, each.type) for values, each in zip(rows, schema, strict=True)]
                writer.write_batch(pa.record_batch(arrays, schema))
                bounds, types = expected_group(numbers, words, units)
                if ending == ".arrow" or told is False or told == ["ts"]:
                    types = None
                groups.append((n, bounds, types, ending == ".arrow" or told is False or told == ["kind"]))
        paths.append(path)
        expected.append(groups)
    return paths, expected, not pa.types.is_dictionary(text)


def opened(path, schema, rng, told):
    if path.endswith(".arrow"):
        codec = rng.choice([None, "lz4", "zstd"])
        return pa.ipc.new_file(path, schema, options=pa.ipc.IpcWriteOptions(compression=codec))
    return pq.ParquetWriter(
        path,
        schema,
        write_statistics=told,
        compression=rng.choice(["snappy", "zstd", "none", "lz4", "gzip"]),
        use_dictionary=rng.random() < 0.5,
        data_page_version=rng.choice(["1.0", "2.0"]),
        write_page_index=rng.random() < 0.5,
    )


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
@pytest.mark.parametrize(("kind", "wanted", "lowest", "highest", "units"), ORDERS, ids=str)
@pytest.mark.parametrize("seed", seeds(4))
def test_random_layouts(tmp_path, kind, wanted, lowest, highest, units, ending, seed):
    if kind == pa.timestamp("s") and ending == ".parquet":
        units = Fraction(1, 10**6)  # stored in milliseconds, the same moments
    rng = random.Random(f"{seed}{kind}{wanted}{ending}")
    paths, expected, is_exact = stored(rng, tmp_path, kind, lowest, highest, units, ending)
    asked = []

    def survey(missing):
        asked.extend(missing)
        return [surveyed(Opener(), path, group, "ts", wanted) for path, group in missing]

    schema = pa.schema(
        [("time", wanted), ("type", pa.string()), ("x", pa.list_(pa.int8())), ("a", pa.struct({"b": pa.int32()}))]
    )
    scan = Scan(tuple(paths), schema, {"time": "ts", "type": "kind"})
    opener = None
    if seed % 2:
        opener = Opener(filesystem=fs.LocalFileSystem())  # as a store that is not mapped
    found = find_footers(scan, "type", "time", survey=survey if rng.random() < 0.7 else None, opener=opener)

    n_rows = [sum(n for n, *_ in groups) for groups in expected]
    assert [file.n_rows for file in found.files] == n_rows
    assert [file.first for file in found.files] == list(itertools.accumulate(n_rows, initial=0))[:-1]
    assert found.n_rows == sum(n_rows)
    assert [file.path for file in found.files] == paths
    facts, surveys = [], set()
    for i, groups in enumerate(expected):
        first = 0
        for n, bounds, types, is_surveyed in groups:
            if n:
                facts.append((i, first, n, *bounds, types))
                surveys |= {(i, first)} if is_surveyed else set()
            first += n
    ours = [(g.file, g.first_row, g.n_rows, g.low, g.high, g.n_nulls, g.types) for g in found.groups]
    if not is_exact:  # the bounds may be those of a dictionary, more than its rows have
        assert all(a[-1][0] <= b[-1][0] <= b[-1][1] <= a[-1][1] for a, b in zip(ours, facts, strict=True) if b[-1])
        ours, facts = [each[:-1] for each in ours], [each[:-1] for each in facts]
    assert ours == facts
    by_number = {(paths[g.file], g.number): (g.file, g.first_row) for g in found.groups}
    assert not asked or {by_number[each] for each in asked} == surveys
    for group in found.groups:  # the number is that of the file's own row group
        if ending == ".parquet":
            with pq.ParquetFile(paths[group.file]) as file:
                assert file.metadata.row_group(group.number).num_rows == group.n_rows


@pytest.mark.parametrize("seed", seeds(10))
def test_timestamps_of_int96_are_surveyed(tmp_path, seed):
    rng = random.Random(seed)
    numbers = [rng.randint(-(10**17), 10**17) for _ in range(rng.randint(1, 50))]
    if seed % 2:
        numbers[0] = 253_402_300_799_999_999  # the end of the year 9999, more than nanoseconds of 64 bits hold
    table = pa.table({"ts": pa.array([*numbers, None], US)})
    path = str(tmp_path / "x.parquet")
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=7)
    found = find_footers(Scan((path,), pa.schema([("ts", US_UTC)])), None, "ts")
    for group in found.groups:
        own = [n for n in [*numbers, None][group.first_row : group.first_row + group.n_rows] if n is not None]
        assert (group.low, group.high) == (min(own, default=None), max(own, default=None))
        assert group.n_nulls == group.n_rows - len(own)
    with pytest.raises(DirectReadError, match=r"x.parquet: column 'ts' is INT96, and timestamp\[us\]"):
        find_footers(Scan((path,), pa.schema([("ts", US)])), None, "ts")


def test_no_data_page_is_read_where_footers_tell_all(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"ts": list(range(1000)), "type": ["A"] * 1000}), path, row_group_size=100)
    size = pq.read_metadata(path).serialized_size
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"?" * (len(content) - 12 - size) + content[-8 - size :])
    schema = pa.schema([("ts", pa.int64()), ("type", pa.string())])
    found = find_footers(Scan((str(path),), schema), "type", "ts")
    assert [(g.low, g.high, g.types) for g in found.groups] == [(i, i + 99, ("A", "A")) for i in range(0, 1000, 100)]
    with pytest.raises(EventsError, match=r"x.parquet: cannot be read"):
        surveyed(Opener(), str(path), 0, "ts", pa.int64())


def test_no_files():
    found = find_footers(Scan((), pa.schema([("ts", US)])), None, "ts")
    assert (found.files, found.groups, found.n_rows) == ((), (), 0)


def test_files_of_other_schemas_in_turn(tmp_path):
    """A file's own unit, and the place of its own column, count."""
    paths = []
    for i in range(6):
        path = str(tmp_path / f"{i}.parquet")
        ts = pa.array([1000, 2000], pa.timestamp("ms" if i % 2 else "us"))
        pq.write_table(pa.table({"ts": ts, "k": [1, 2]} if i % 3 else {"k": [1, 2], "ts": ts}), path)
        paths.append(path)
    found = find_footers(Scan(tuple(paths), pa.schema([("ts", US), ("k", pa.int64())])), None, "ts")
    assert [g.low for g in found.groups] == [1000, 10**6] * 3


def test_folders_tell_the_columns_of_order_and_types(tmp_path):
    paths = []
    for day, kind in ((19000, "A"), (19001, "B"), (None, None)):
        name = "__HIVE_DEFAULT_PARTITION__"
        date = name if day is None else str(pa.scalar(day, pa.int32()).cast(pa.date32()).as_py())
        folder = tmp_path / f"day={date}" / f"type={kind or name}"
        folder.mkdir(parents=True)
        for ending in ("arrow", "parquet"):
            paths.append(str(folder / f"x.{ending}"))
            if ending == "parquet":
                pq.write_table(pa.table({"x": [1, 2]}), paths[-1])
            else:
                with pa.ipc.new_file(paths[-1], pa.schema([("x", pa.int64())])) as writer:
                    writer.write_table(pa.table({"x": [1, 2]}))
    schema = pa.schema([("day", pa.date32()), ("type", pa.string()), ("x", pa.int64())])
    found = find_footers(Scan(tuple(paths), schema, folders=("day", "type")), "type", "day")
    facts = [(19000, 19000, 0, ("A", "A")), (19001, 19001, 0, ("B", "B")), (None, None, 2, None)]
    assert [(g.low, g.high, g.n_nulls, g.types) for g in found.groups] == [fact for fact in facts for _ in range(2)]
    days = [pa.scalar(19000, pa.int32()).cast(pa.date32()).as_py(), "A"]
    assert [value for _, value in found.files[0].values] == days
    assert found.files[-1].values == (("day", None), ("type", None))


def test_buckets_are_told_by_names(tmp_path):
    path = str(tmp_path / "part-0_00005.c000.parquet")
    pq.write_table(pa.table({"ts": [1]}), path)
    schema = pa.schema([("ts", pa.int64())])
    assert find_footers(Scan((path,), schema, bucket_by=("ts",)), None, "ts").files[0].bucket == 5
    assert find_footers(Scan((path,), schema), None, "ts").files[0].bucket is None


# ---- files that tasks cannot read as Spark does ---------------------------------------------------------------


def write(tmp_path, table, name="x.parquet", **options):
    path = str(tmp_path / name)
    if name.endswith(".arrow"):
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, path, **options)
    return path


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("none", "no column 'none'"),
        ("price", "no column 'price', but 'Price'"),
        ("k", "column 'k' is int64, and int32 in"),
    ],
)
def test_columns_that_a_file_does_not_have(tmp_path, name, column, reason):
    good = write(tmp_path, pa.table({"ts": [1], "price": [1], "none": [1], "k": pa.array([1], pa.int32())}), f"a{name}")
    path = write(tmp_path, pa.table({"ts": [1], "Price": [1], "k": [1]}), name)
    schema = pa.schema([("ts", pa.int64()), ("price", pa.int64()), ("none", pa.int64()), ("k", pa.int32())])
    with pytest.raises(DirectReadError, match=rf"{path}: {reason}"):
        find_footers(Scan((good, path), schema), None, "ts", columns=[column])
    assert len(find_footers(Scan((good, path), schema), None, "ts", columns=["ts"]).files) == 2


def test_two_columns_of_one_name(tmp_path):
    table = pa.table([pa.array([1]), pa.array([2])], names=["ts", "ts"])
    with pytest.raises(DirectReadError, match=r"x.parquet: more than one column 'ts'"):
        find_footers(Scan((write(tmp_path, table),), pa.schema([("ts", pa.int64())])), None, "ts")


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.decimal128(9, 2), pa.uint64(), pa.string(), pa.bool_(), pa.duration("us")]
)
def test_types_that_do_not_order_files(kind):
    with pytest.raises(DirectReadError, match="ordered by 'ts' first, which is"):
        find_footers(Scan((), pa.schema([("ts", kind)])), None, "ts")


def test_nested_order_columns_are_refused():
    with pytest.raises(DirectReadError, match=r"'a.b' first, which is no column at the top"):
        find_footers(Scan((), pa.schema([("a", pa.struct({"b": pa.int64()}))])), None, "a.b")


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ({"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}, "legacyDateTime"),
        ({"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyINT96": ""}, "legacyINT96"),
        ({"org.apache.spark.version": "2.4.8"}, r"Spark 2\.4\.8"),
        ({"org.apache.spark.version": "4.0.0"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("kind", [pa.date32(), US, pa.struct({"t": pa.list_(US)}), pa.int64()], ids=str)
def test_times_of_the_old_calendar(tmp_path, notes, reason, kind):
    table = pa.table({"ts": [1], "x": pa.nulls(1, kind)}).replace_schema_metadata(notes)
    scan = Scan((write(tmp_path, table),), pa.schema([("ts", pa.int64()), ("x", kind)]))
    assert len(find_footers(scan, None, "ts", columns=[]).groups) == 1
    if reason is None or kind == pa.int64():
        assert len(find_footers(scan, None, "ts").groups) == 1
    else:
        with pytest.raises(DirectReadError, match=rf"x.parquet: .*hybrid calendar.*{reason}"):
            find_footers(scan, None, "ts")


def test_damaged_files_are_a_reason_and_missing_ones_an_error(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    schema = pa.schema([("ts", pa.int64())])
    with pytest.raises(DirectReadError, match=r"bad.parquet: cannot be read"):
        find_footers(Scan((str(tmp_path / "bad.parquet"),), schema), None, "ts")
    with pytest.raises(EventsError, match=r"gone.parquet: no such file"):
        find_footers(Scan((str(tmp_path / "gone.parquet"),), schema), None, "ts")


def test_statistics_that_another_order_made_are_not_believed(tmp_path, monkeypatch):
    path = write(tmp_path, pa.table({"ts": [3, 1, 2]}))
    real = stored_formats._bounds_of_column

    class Swapped:
        has_null_count, null_count, has_min_max, min_raw, max_raw = True, 0, True, 3, 1

    class Column:
        statistics = Swapped()

    monkeypatch.setattr(stored_formats, "_bounds_of_column", lambda column, *others: real(Column(), *others))
    found = find_footers(Scan((path,), pa.schema([("ts", pa.int64())])), None, "ts")
    assert [(g.low, g.high, g.n_nulls) for g in found.groups] == [(1, 3, 0)]


def test_statistics_without_a_number_of_nulls_are_completed(tmp_path, monkeypatch):
    real = stored_formats._bounds_of_column

    class Silent:
        has_null_count, null_count, has_min_max, min_raw, max_raw = False, None, True, 0, 9

    class Column:
        statistics = Silent()

    monkeypatch.setattr(stored_formats, "_bounds_of_column", lambda column, *others: real(Column(), *others))
    path = write(tmp_path, pa.table({"ts": [3, None, 2]}))
    found = find_footers(Scan((path,), pa.schema([("ts", pa.int64())])), None, "ts")
    assert [(g.low, g.high, g.n_nulls) for g in found.groups] == [(2, 3, 1)]
    required = pa.schema([pa.field("ts", pa.int64(), nullable=False)])
    path = write(tmp_path, pa.table({"ts": [3, 1, 2]}, schema=required))
    found = find_footers(Scan((path,), pa.schema([("ts", pa.int64())])), None, "ts")
    assert [(g.low, g.high, g.n_nulls) for g in found.groups] == [(0, 9, 0)]  # no row can be NULL


# ---- types ------------------------------------------------------------------------------------------------------

GOOD = [
    *((kind, wanted) for kind, wanted, *_ in ORDERS),
    *((text, pa.string()) for text in TEXTS),
    (pa.string(), pa.dictionary(pa.int32(), pa.string())),
    (pa.large_binary(), pa.binary()),
    (pa.binary(4), pa.binary()),
    (pa.binary_view(), pa.binary()),
    (pa.run_end_encoded(pa.int32(), pa.string()), pa.string()),
    (pa.bool_(), pa.bool_()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(9, 2), pa.decimal128(20, 2)),
    (pa.decimal32(9, 2), pa.decimal128(9, 2)),
    (pa.int64(), pa.duration("us")),
    (pa.large_list(pa.int8()), pa.list_(pa.int32())),
    (pa.list_(pa.large_string(), 3), pa.list_(pa.string())),
    (pa.struct({"a": pa.int8(), "b": pa.float64()}), pa.struct({"a": pa.int8()})),
    (
        pa.struct({"a": pa.list_(pa.struct({"b": pa.timestamp("ms")}))}),
        pa.struct({"a": pa.list_(pa.struct({"b": US}))}),
    ),
]
BAD = [
    (pa.int64(), pa.int32()),
    (pa.uint32(), pa.int32()),
    (pa.uint64(), pa.int64()),
    (pa.int8(), pa.uint8()),
    (pa.int32(), pa.float64()),
    (pa.float64(), pa.float32()),
    (pa.timestamp("us"), US_UTC),
    (US_UTC, US),
    (pa.timestamp("ms"), pa.int64()),
    (pa.int64(), US),
    (pa.date32(), US),
    (pa.string(), pa.binary()),
    (pa.binary(), pa.string()),
    (pa.decimal128(9, 2), pa.decimal128(9, 3)),
    (pa.decimal128(20, 2), pa.decimal128(9, 2)),
    (pa.decimal256(9, 2), pa.decimal128(9, 2)),
    (pa.float16(), pa.float32()),
    (pa.int32(), pa.duration("us")),
    (pa.list_(pa.int64()), pa.list_(pa.int32())),
    (pa.list_(pa.int64()), pa.int64()),
    (pa.struct({"A": pa.int8()}), pa.struct({"a": pa.int8()})),
    (pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int8()})),
    (pa.struct([("a", pa.int8()), ("a", pa.int8())]), pa.struct({"a": pa.int8()})),
    (pa.time64("us"), pa.int64()),
    (pa.map_(pa.string(), pa.int8()), pa.opaque(pa.binary(), "map<string,tinyint>", "Spark")),
    (pa.null(), pa.int64()),
]


@pytest.mark.parametrize(("stored", "wanted"), GOOD, ids=str)
def test_types_that_tasks_read_as_spark_does(stored, wanted):
    assert readable(stored, wanted) is None


@pytest.mark.parametrize(("stored", "wanted"), BAD, ids=str)
def test_types_that_tasks_do_not_read_as_spark_does(stored, wanted):
    reason = readable(stored, wanted)
    assert reason is not None
    assert str(wanted if not wanted.num_fields else wanted.field(0).name) in reason or "element" in reason


def test_bounds_stay_bounds_in_a_coarser_unit():
    ns = pa.timestamp("ns")
    for value in (-2001, -2000, -1999, -1, 0, 1, 999, 1000, 1001):
        low, high = (in_unit(value, ns, US, up=up) for up in (False, True))
        assert low * 1000 <= value <= high * 1000
        assert high - low == (value % 1000 != 0)


@pytest.mark.parametrize("values", [[3, 1, None, 1], [7], [None]])
@pytest.mark.parametrize("encoding", ["dictionary", "runs"])
def test_encoded_order_columns_of_arrow_files_are_surveyed(tmp_path, values, encoding):
    column = pa.array(values, pa.timestamp("ms"))
    coded = column.dictionary_encode() if encoding == "dictionary" else pc.run_end_encode(column)
    path = write(tmp_path, pa.table({"ts": coded}), "x.arrow")
    found = find_footers(Scan((path,), pa.schema([("ts", US)])), None, "ts").groups[0]
    own = [value * 1000 for value in values if value is not None]
    assert (found.low, found.high) == (min(own, default=None), max(own, default=None))
    assert found.n_nulls == values.count(None)


def test_a_column_that_cannot_be_surveyed_is_a_reason(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"ts": list(range(1000))}), path, write_statistics=False)
    size = pq.read_metadata(path).serialized_size
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"?" * (len(content) - 12 - size) + content[-8 - size :])
    with pytest.raises(DirectReadError, match=r"x.parquet: cannot be read"):
        find_footers(Scan((str(path),), pa.schema([("ts", pa.int64())])), None, "ts")
