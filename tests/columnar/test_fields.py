"""Fields of structs by their paths: read as columns, in every clause and from every source of events."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.syntax import relations
from cer_gpu.columnar.fields import array_of, attribute_type, batch_of, columns_with, narrowest

P = "`st`.`p`"
R = "`st`.`q`.`r`"


def structs():
    """Return five structs, sliced out of a longer array: the third, and the inner struct of the fourth, are NULL."""
    values = [
        None,
        {"p": 0.1, "q": {"r": 1, "o.d": "a"}},
        {"p": 0.9, "q": {"r": 2, "o.d": "b"}},
        None,
        {"p": 0.7, "q": None},
        {"p": None, "q": {"r": 4, "o.d": None}},
        {"p": 5.0, "q": {"r": 9, "o.d": "z"}},
    ]
    return pa.array(values).slice(1, 5)


def events():
    """Return events with a struct `st`, and with columns whose own names have dots."""
    return pa.record_batch(
        {
            "type": list("ABAAB"),
            "ts": range(5),
            "st": structs(),
            "st.p": [10, 20, 30, 40, 50],
            "we.ird": [1, 2, 3, 4, 5],
        }
    )


def positions(where, table=None, **options):
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {where}", type_column="type")
    return [row["positions"] for row in query.evaluate(events() if table is None else table, **options).to_pylist()]


# ---- lookup ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (P, [0.1, 0.9, None, 0.7, None]),
        (R, [1, 2, None, None, 4]),
        ("`st`.`q`.`o.d`", ["a", "b", None, None, None]),
        ("st.p", [10, 20, 30, 40, 50]),
    ],
)
def test_a_field_of_a_null_struct_is_null(path, values):
    assert array_of(events(), path).to_pylist() == values
    assert attribute_type(events().schema, path) == pa.array(values).type


def test_values_under_a_null_struct_are_ignored():
    mask = pa.array([False, True, False])
    plain = pa.StructArray.from_arrays([pa.array([7, 7, None])], ["p"], mask=mask)
    coded = pa.StructArray.from_arrays([pa.array(["x", "x", None]).dictionary_encode()], ["p"], mask=mask)
    for st, test in ((plain, "st.p = 7"), (coded, "st.p = 'x'"), (coded, "st.p LIKE 'x'")):
        table = pa.record_batch({"type": list("AAA"), "st": st})
        assert positions(f"A FILTER A[{test}]", table) == [[0]]
        assert positions(f"A FILTER A[NOT {test}]", table) == []


def test_fields_of_structs_in_a_dictionary_are_read():
    st = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1]), structs().slice(0, 2))
    assert attribute_type(pa.schema({"st": st.type}), P) == pa.float64()
    assert array_of(pa.record_batch({"st": st}), P).to_pylist() == [0.9, 0.1, None, 0.9]


@pytest.mark.parametrize("path", ["`st`.`x`", "`st`.`p`.`x`", "`no`.`p`", "`ts`.`p`"])
def test_a_missing_attribute_has_no_type(path):
    assert attribute_type(events().schema, path) is None


def test_two_fields_of_one_name_are_refused():
    schema = pa.schema({"type": pa.string(), "st": pa.struct([("p", pa.int8()), ("p", pa.int8())])})
    with pytest.raises(cer_gpu.QueryTypeError, match=r"the struct 'st' has 2 fields 'p'"):
        cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[st.p = 1]", schema=schema)


def test_a_column_that_looks_like_a_path_is_a_column():
    batch = pa.record_batch({"`a`.`b`": [1], "a": [{"b": 2}]})
    assert array_of(batch, "`a`.`b`").to_pylist() == [1]
    assert columns_with(batch.schema, ["`a`.`b`"]) == ["`a`.`b`"]


def test_fields_inside_of_other_attributes_are_not_read_again():
    schema = events().schema
    assert narrowest(schema, {R, "ts", P}) == ["ts", P, R]
    assert narrowest(schema, {R, "`st`.`q`", "`st`.`q`.`o.d`"}) == ["`st`.`q`"]
    assert narrowest(schema, {R, "st", P}) == ["st"]


def test_array_of_returns_the_arrays_of_batch_of():
    given = {"ts": pa.array([1, 2]), P: pa.array([None, 0.5]), R: pa.array([3, None])}
    batch = batch_of(list(given), list(given.values()))
    assert batch.schema.names == ["ts", "st"]
    assert {name: array_of(batch, name) for name in given} == given


# ---- in queries ---------------------------------------------------------------------------------------------------


def test_predicates_read_fields():
    assert positions("A FILTER A[st.p > 0.5]") == [[3]]
    assert positions("A AS x FILTER x[x.st.p > 0.5 AND x.ts > 1]") == [[3]]
    assert positions("B FILTER B[st.q.r + 1 = 3 AND `st`.q.`o.d` LIKE '^b']") == [[1]]


def test_a_column_with_a_dot_in_its_name_is_read_in_backquotes():
    assert positions("A FILTER A[`st.p` > 30]") == [[3]]
    assert positions("A FILTER A[`we.ird` > 3 AND st.p < 1]") == [[3]]


def test_a_variable_takes_precedence_over_a_struct_of_its_name():
    assert positions("A AS st FILTER st[st.ts > 2]") == [[3]]
    (relation,) = relations(parse("SELECT * FROM S WHERE A AS st ; B FILTER B[p > st.p]").formula)
    assert [role.variable.name for role in relation.roles] == ["B", "st"]


def test_partition_by_reads_fields():
    table = events()
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; A PARTITION BY [st.q.`o.d`, type], [st.p, ts]")
    found = query.evaluate(pa.Table.from_batches([table, table]))
    assert found.column_names[-2:] == ["st.q.o.d", "st.p"]
    # if the struct is NULL, the other name gives the key
    assert found.to_pylist() == [
        {"start": start, "end": start + 5, "positions": [start, start + 5], "st.q.o.d": name, "st.p": number}
        for start, name, number in ((0, "a", 0.1), (2, "A", 2.0), (3, "A", 0.7))
    ]


def test_select_lists_fields():
    query = cer_gpu.compile("SELECT a[st.q.r, a.ts], b[`st.p`] FROM S WHERE A AS a : B AS b FILTER a[st.p < 1]")
    rows = [{"st.q.r": None, "ts": 3, "st.p": 40}, {"st.q.r": 4, "ts": 4, "st.p": 50}]
    assert query.evaluate(events(), output="events")["events"].to_pylist()[-1] == rows


def test_attributes_that_would_have_one_name_are_refused():
    query = cer_gpu.compile("SELECT a[st.p], b[`st.p`] FROM S WHERE A AS a : B AS b")
    with pytest.raises(cer_gpu.QueryTypeError, match=r"two attributes 'st\.p'"):
        query.evaluate(events(), output="events")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["positions", "count", "events"])
def test_a_window_may_be_over_a_field(tmp_path, threads, kind):
    n = 400
    flat = pa.table({"type": ["AB"[k % 2] for k in range(n)], "at": [k // 3 for k in range(n)]})
    nested = flat.drop_columns(["at"]).append_column("st", pa.array([{"at": k // 3, "s": "x"} for k in range(n)]))
    pq.write_table(nested, tmp_path / "events.parquet", row_group_size=50)
    text = "SELECT a[type], B[type] FROM S WHERE A AS a ; B WITHIN 4 [{}]"
    expected = cer_gpu.compile(text.format("at")).evaluate(flat, output=kind)
    query = cer_gpu.compile(text.format("st.at"))
    for given in (nested, tmp_path / "events.parquet"):
        assert query.evaluate(given, output=kind, threads=threads).sort_by("end").equals(expected.sort_by("end"))


def test_a_window_over_a_field_that_decreases_names_it():
    table = pa.table({"type": list("AAA"), "st": [{"p": p} for p in (1, 3, 1)]})
    with pytest.raises(cer_gpu.TimeOrderError, match=r"the 'st\.p' of event 2 \(1\) is less than"):
        positions("A ; A WITHIN 1 [st.p]", table)


# ---- sources of events ---------------------------------------------------------------------------------------------

TEXT = "A ; A FILTER A[st.p < 1 OR st.q.r > 3] PARTITION BY [st.q.`o.d`, type]"
PLACES = ["table", "batches", "reader", "dataset", "e.parquet", "e.arrow", "e.arrows", "two files"]


def flat_positions(n, **options):
    """Return the positions that TEXT finds in n copies of the events, with columns in place of fields."""
    fields = {"p": array_of(events(), P), "r": array_of(events(), R), "s": array_of(events(), "`st`.`q`.`o.d`")}
    flat = pa.Table.from_batches([pa.record_batch({"type": events()["type"], "ts": events()["ts"], **fields})] * n)
    return positions("A ; A FILTER A[p < 1 OR r > 3] PARTITION BY [s, type]", flat, **options)


def stored(folder, where):
    """Return a source with the events twice (or four times, in two files)."""
    table = pa.Table.from_batches([events(), events()])
    pq.write_table(table, folder / "e.parquet")
    with pa.ipc.new_file(folder / "e.arrow", table.schema) as file:
        file.write_table(table)
    with pa.ipc.new_stream(folder / "e.arrows", table.schema) as stream:
        stream.write_table(table)
    in_memory = {"table": table, "batches": iter(table.to_batches()), "reader": table.to_reader()}
    files = {
        "dataset": pa.dataset.dataset(folder / "e.parquet"),
        "two files": [folder / "e.parquet", folder / "e.arrow"],
    }
    return (in_memory | files).get(where, folder / where)


@pytest.mark.parametrize("where", PLACES)
def test_all_sources_give_the_same_fields(tmp_path, where):
    expected = flat_positions(4 if where == "two files" else 2)
    assert len(expected) >= 2
    assert positions(TEXT, stored(tmp_path, where)) == expected


def test_threads_that_share_the_keys_read_fields():
    table = pa.Table.from_batches([events()] * 50)
    assert sorted(positions(TEXT, table, threads=2)) == sorted(flat_positions(50))


def test_parquet_files_are_read_for_the_needed_fields_only(tmp_path):
    query = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[st.q.r > 1 AND `we.ird` > 2]")
    source = query._open_source(stored(tmp_path, "e.parquet"))
    columns = query.columns(source.schema)
    assert columns == ["type", R, "we.ird"]
    (batch,) = source.batches(columns)
    assert batch.schema.field("st").type == pa.struct({"q": pa.struct({"r": pa.int64()})})
    whole = query.columns(source.schema, "events")
    assert whole == ["type", "ts", "st", "st.p", "we.ird"]


def test_sorted_late_and_merged_events_keep_their_fields():
    """Each of these changes the order of rows."""
    table = pa.Table.from_batches([events()])
    backwards = table.take([4, 3, 2, 1, 0])
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[st.p < 1] AND B[st.q.r > 1]", time_column="ts")

    def spans(found):
        return sorted(zip(found["start"].to_pylist(), found["end"].to_pylist(), strict=True))

    assert spans(query.evaluate(table)) == [(0, 1), (0, 4), (3, 4)]
    assert spans(query.evaluate(backwards, sort=True)) == [(1, 0), (4, 0), (4, 3)]
    assert spans(query.evaluate(iter(backwards.to_batches(max_chunksize=2)), lateness=9)) == [(1, 0), (4, 0), (4, 3)]
    query = cer_gpu.compile("SELECT * FROM S, T WHERE S>A ; T>B FILTER A[st.p < 1] AND B[st.q.r > 1]", time_column="ts")
    found = query.evaluate({"S": table, "T": table})
    assert spans(found) == [(0, 1), (0, 4), (3, 4)]  # in S and in T
    assert found["positions_stream"].to_pylist() == [["S", "T"]] * 3


def test_a_checkpoint_of_a_query_on_fields_is_restored():
    query = cer_gpu.compile("SELECT a[st.p], b[st.q.r] FROM S WHERE A AS a ; B AS b WITHIN 9 [ts]")
    one, other = events().slice(0, 2), events().slice(2)
    evaluator = query.evaluator(output="events")
    first = evaluator.push(one)
    resumed = query.restore(evaluator.checkpoint())
    rest = resumed.push(other)
    assert pa.Table.from_batches([first, rest]).equals(query.evaluate(events(), output="events"))


def test_structs_may_change_their_other_fields_between_batches():
    """Fields in another order, of another width, and additional ones."""
    wider = pa.record_batch({"type": ["A"], "st": pa.array([{"x": 1, "p": 0.75}])})
    narrow = pa.record_batch({"type": ["A"], "st": pa.array([{"p": 0.25}], pa.struct({"p": pa.float32()}))})
    assert positions("A FILTER A[st.p > 0.5]", iter([wider, narrow, wider])) == [[0], [2]]
    without = pa.record_batch({"type": ["A"], "st": pa.array([{"x": 1}])})
    with pytest.raises(cer_gpu.QueryTypeError, match="the struct 'st' has no field 'p'"):
        positions("A FILTER A[st.p > 0.5]", iter([wider, without]))


@pytest.mark.parametrize("sort", [False, True])
def test_dictionaries_inside_structs_may_change_and_hold_nulls(sort):
    def batch(names, values):
        coded = pa.DictionaryArray.from_arrays(pa.array([values.index(name) for name in names]), pa.array(values))
        inside = pa.ListArray.from_arrays(pa.array(range(len(names) + 1), pa.int32()), coded)
        st = pa.StructArray.from_arrays([coded, inside], ["d", "l"])
        return pa.record_batch({"type": ["A"] * len(names), "ts": [0] * len(names), "st": st})

    batches = [batch(["a", "b"], ["a", None, "b"]), batch(["b", None], ["b", None]), batch(["a"], ["c", "a"])]
    query = cer_gpu.compile("SELECT * FROM S WHERE A : A : A FILTER A[st.d >= 'a'] WITHIN 9 [ts]", time_column="ts")
    (row,) = query.evaluate(iter(batches), output="events", sort=sort).to_pylist()
    assert [event["st"] for event in row["events"]] == [{"d": name, "l": [name]} for name in ("a", "b", "b")]
    assert positions("A ; A PARTITION BY [st.d]", iter(batches)) == [[1, 2], [0, 4]]


def test_damaged_fields_of_files_are_refused(tmp_path):
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), pa.array(["x"]), safe=False)
    table = pa.table({"type": ["A", "A"], "st": pa.StructArray.from_arrays([coded], ["d"])})
    with pa.ipc.new_file(tmp_path / "e.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(cer_gpu.EventsError, match="column 'st' of events 0 to 1 is damaged"):
        positions("A ; A PARTITION BY [st.d]", tmp_path / "e.arrow")


# ---- messages and devices --------------------------------------------------------------------------------------------


def test_explain_shows_a_field_by_its_path():
    facts = str(
        cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[st.`o d`.r > 1] PARTITION BY [st.p]").explain(detail="all")
    )
    assert "A[st.`o d`.r > 1]" in facts
    assert "the same st.p" in facts


def test_fields_in_the_memory_of_a_gpu_are_refused():
    class OnDevice:
        __cuda_array_interface__ = {"typestr": "<f8"}  # noqa: RUF012

    with pytest.raises(cer_gpu.EventsError, match=r"column 'st': .*\nhint: .*each field as a column of its own"):
        cer_gpu.DeviceEvents({"st": {"p": OnDevice()}})
