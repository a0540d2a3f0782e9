"""Statements with MATCH_RECOGNIZE that are refused, each at its place, and those that stand beside CEQL."""

import pickle
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.errors import EventsError, OptionError, QueryError, QueryTooLargeError, QueryTypeError
from cer_gpu.row_patterns import program
from cer_gpu.row_patterns.pattern import parse_pattern

ROWS = pa.table({"k": [1, 1, 1, 2, 2], "ts": [1, 2, 3, 1, 2], "x": [3, 2, 4, 1, 0], "s": ["a", "b", None, "a", "b"]})


def statement(
    *,
    measures="MEASURES LAST(x) AS low",
    rest="",
    pattern="A B+",
    define="B AS x < PREV(x)",
    head="SELECT * FROM t",
    tail="",
    partition="PARTITION BY k ORDER BY ts",
):
    return f"{head} MATCH_RECOGNIZE ({partition} {measures} {rest} PATTERN ({pattern}) DEFINE {define}) {tail}"


REFUSED = [
    ({"pattern": "A B+ |"}, "unexpected its end in PATTERN", ")"),
    ({"pattern": "A{3,2} B"}, "in the wrong order", "3"),
    ({"pattern": "A{0} B"}, "repeats nothing", "0"),
    ({"pattern": "A & B"}, "unexpected '&' in PATTERN", "&"),
    ({"define": "C AS x > 1"}, "DEFINE names C, which PATTERN does not have", "x > 1"),
    ({"define": "B AS x > 1, B AS x > 2"}, "DEFINE has B twice", "B"),
    ({"define": "B AS q.x > 1"}, "q is no variable of PATTERN", "q"),
    ({"define": "B AS x ! 1"}, "unexpected '!'", "!"),
    ({"measures": "MEASURES x > 1 AS a"}, "conditions stand in DEFINE", "x > 1"),
    ({"partition": "", "measures": ""}, "has no columns without MEASURES", "SELECT"),
    ({"define": "B AS CASE WHEN x THEN 1 END"}, "CASE is not supported", "CASE"),
    ({"measures": "MEASURES x + 1"}, "a measure has a name", "1"),
    ({"measures": "MEASURES x AS a, x AS a"}, "two measures are called 'a'", "a"),
    ({"measures": "MEASURES FOO(x) AS a"}, "FOO is not supported", "FOO"),
    ({"measures": "MEASURES FINAL ABS(x) AS a"}, "FINAL stands before FIRST", "FINAL"),
    ({"measures": "MEASURES PREV(x + 1) AS a"}, "PREV takes a column", "PREV"),
    ({"measures": "MEASURES LAST(x, -1) AS a"}, "number of rows, 0 or more", "LAST"),
    ({"measures": "MEASURES SUM(x + 1) AS a"}, "SUM takes a column", "SUM"),
    ({"rest": "AFTER MATCH SKIP TO C"}, "AFTER MATCH SKIP names C", "AFTER"),
    ({"rest": "ALL ROWS PER MATCHES"}, "expected ALL ROWS PER MATCH", "ALL"),
    ({"rest": "ALL ROWS PER MATCH WITH UNMATCHED ROWS", "pattern": "A {- B -}"}, "exclude one another", "A {-"),
    ({"partition": "ORDER BY ts PARTITION BY k"}, "stands after ORDER BY", "PARTITION"),
    ({"partition": "ORDER BY ts + 1"}, "expected a comma or the next clause, got '+'", "+"),
    ({"tail": "WHERE low > 1"}, "'WHERE' after MATCH_RECOGNIZE (...) is not supported", "WHERE"),
    ({"head": "SELECT a + b FROM t"}, "expressions stand in MEASURES", "+"),
    ({"head": "SELECT k AS q, low q FROM t"}, "two columns of SELECT are called 'q'", "q FROM"),
    ({"head": "SELECT k AS low, t.low FROM t"}, "two columns of SELECT are called 'low'", "low FROM"),
    ({"head": "SELECT a FROM (SELECT 1)"}, "expected the name of a table", "(SELECT"),
]


@pytest.mark.parametrize(("parts", "message", "place"), REFUSED, ids=[message for _, message, _ in REFUSED])
def test_what_is_wrong_or_not_supported_is_told_at_its_place(parts, message, place):
    with pytest.raises(QueryError) as caught:
        cer_gpu.compile(statement(**parts))
    assert message in str(caught.value)
    error = caught.value
    assert error.text[error.start :].startswith(place)


@pytest.mark.parametrize("clause", ["PATTERN", "DEFINE"])
def test_clauses_that_must_be_there(clause):
    other = {"PATTERN": "DEFINE A AS x > 1", "DEFINE": "PATTERN (A)"}[clause]
    with pytest.raises(QueryError, match=f"MATCH_RECOGNIZE needs {clause}"):
        cer_gpu.compile(f"SELECT * FROM t MATCH_RECOGNIZE ({other})")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"define": "B AS y < 1"}, "the events have no column 'y'"),
        ({"define": "B AS s < 1"}, "cannot compare"),
        ({"measures": "MEASURES SUM(s) AS a"}, "SUM needs numbers"),
        ({"measures": "MEASURES x + s AS a"}, "measure 'a'"),
        ({"partition": "PARTITION BY z"}, "the events have no column 'z'"),
        ({"partition": "PARTITION BY l"}, "PARTITION BY needs columns of plain values"),
        ({"partition": "ORDER BY l"}, "ORDER BY needs values in an order"),
    ],
)
def test_what_does_not_fit_the_schema_is_told_while_compiling(parts, message):
    with pytest.raises(QueryTypeError, match=message):
        cer_gpu.compile(statement(**parts), schema=ROWS.schema.append(pa.field("l", pa.list_(pa.int64()))))


def test_selected_columns_have_their_names():
    query = cer_gpu.compile(statement(head="SELECT low AS lowest, k FROM t"))
    assert query.evaluate(ROWS).to_pylist() == [{"lowest": 2, "k": 1}, {"lowest": 0, "k": 2}]
    with pytest.raises(QueryError, match="SELECT names 'x', which is no column of the result"):
        cer_gpu.compile(statement(head="SELECT x FROM t"), schema=ROWS.schema)


@pytest.mark.parametrize("select", ["*", "x, d"])
def test_columns_of_one_name_are_refused_where_they_are_read(select):
    rows = pa.table([pa.array([1, 2])] * 4, names=["x", "ts", "d", "d"])
    parts = {"partition": "ORDER BY ts", "rest": "ALL ROWS PER MATCH", "define": "B AS x > 1"}
    with pytest.raises(QueryTypeError, match=r"the events have 2 columns 'd'\n(.|\n)*hint: rename all but one"):
        cer_gpu.compile(statement(head=f"SELECT {select} FROM t", **parts)).evaluate(rows)
    found = cer_gpu.compile(statement(head="SELECT x, low FROM t", **parts)).evaluate(rows)
    assert found.to_pylist() == [{"x": 1, "low": 1}, {"x": 2, "low": 2}]


def test_a_limit_stops_after_so_many_rows():
    assert cer_gpu.compile(statement()).evaluate(ROWS, limit=1).num_rows == 1


@pytest.mark.parametrize("limit", [-1, 2.5, True])
def test_a_limit_is_a_number_from_0_on(limit):
    with pytest.raises(OptionError, match="limit must be a number from 0 on, or None for all, got "):
        cer_gpu.compile(statement()).evaluate(ROWS, limit=limit)


def test_a_query_can_be_pickled():
    query = cer_gpu.compile(statement())
    assert pickle.loads(pickle.dumps(query)).evaluate(ROWS).equals(query.evaluate(ROWS))


def test_files_and_batches_give_what_a_table_gives(tmp_path):
    query = cer_gpu.compile(statement())
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    wanted = query.evaluate(ROWS)
    assert query.evaluate(tmp_path / "rows.parquet").equals(wanted)
    assert query.stream(ROWS.to_reader(max_chunksize=2)).read_all().equals(wanted)


def test_a_skip_to_the_first_row_is_an_error():
    query = cer_gpu.compile(statement(rest="AFTER MATCH SKIP TO FIRST A"))
    with pytest.raises(EventsError, match="would be found again for ever"):
        query.evaluate(ROWS)


def test_options_of_ceql_are_refused():
    with pytest.raises(OptionError, match="time_column is an option of CEQL"):
        cer_gpu.compile(statement(), time_column="ts")


def test_sums_keep_their_types():
    rows = pa.table({"d": pa.array([1, 2, None], pa.decimal128(9, 2)), "u": pa.array([1, 2, 3], pa.uint8())})
    measures = "MEASURES SUM(d) AS d, SUM(u) AS u, AVG(d) AS a"
    text = statement(partition="", measures=measures, pattern="A+", define="A AS u > 0")
    found = cer_gpu.compile(text).evaluate(rows)
    assert found.schema.types == [pa.decimal128(38, 2), pa.uint64(), pa.float64()]
    assert [str(value) for value in found.to_pylist()[0].values()] == ["3.00", "6", "1.5"]


def test_a_sum_beyond_its_type_is_an_error():
    rows = pa.table({"x": [2**62, 2**62]})
    text = "SELECT * FROM t MATCH_RECOGNIZE (MEASURES SUM(x) AS s PATTERN (A+) DEFINE A AS x > 0)"
    with pytest.raises(EventsError, match=r"measure 's': SUM\(x\) is beyond int64"):
        cer_gpu.compile(text).evaluate(rows)


def test_words_in_texts_are_left_alone():
    rows = pa.table({"n": ["final count (x)", "b"]})
    measures, define = "MEASURES 'final count (x)' AS t, FINAL  LAST(n) AS l", "A AS n = 'final count (x)'"
    text = statement(partition="", measures=measures, pattern="A", define=define)
    assert cer_gpu.compile(text).evaluate(rows).to_pylist() == [{"t": "final count (x)", "l": "final count (x)"}]


def test_a_column_with_the_name_of_a_variables_column_is_another_one():
    rows = pa.table({"x": [1, 2, 3], "A.x": [0, 9, 0]})
    text = 'SELECT * FROM t MATCH_RECOGNIZE (MEASURES LAST(x) AS v PATTERN (A B) DEFINE A AS A.x >= 1, B AS "A.x" > 5)'
    assert cer_gpu.compile(text).evaluate(rows).to_pylist() == [{"v": 2}]


def test_arrays_of_texts_with_a_dictionary():
    rows = pa.table({"n": pa.array(["a", "b"]).dictionary_encode()})
    measures = "MEASURES ARRAY_AGG(n) AS l, ARRAY_AGG(B.n) AS b"
    text = statement(partition="", measures=measures, pattern="A+ B?", define="A AS TRUE")
    assert cer_gpu.compile(text).evaluate(rows).to_pylist() == [{"l": ["a", "b"], "b": None}]


def test_constants_are_null_in_rows_of_no_match():
    rest = "ALL ROWS PER MATCH WITH UNMATCHED ROWS"
    found = cer_gpu.compile(statement(measures="MEASURES 1 AS one", rest=rest)).evaluate(ROWS)
    assert found["one"].to_pylist() == [1, 1, None, 1, 1]


@pytest.mark.parametrize("name", ["initial", "seek", "subset", "define"])
def test_columns_may_have_names_of_clauses(name):
    rows = pa.table({name: [1, 0]})
    measures = f"MEASURES LAST({name}) AS {name}"
    text = statement(partition=f"ORDER BY {name}", measures=measures, pattern="A", define=f"A AS {name} > 0")
    assert cer_gpu.compile(text).evaluate(rows).to_pylist() == [{name: 1}]


@pytest.mark.parametrize("pattern", ["PERMUTE(A, B, C, D, E, F, G, H, I, J, K, L)", "(){3000000}", "(A B?){1,3000}"])
def test_patterns_that_are_too_large_are_refused_at_once(pattern):
    begun = time.process_time()
    with pytest.raises(QueryTooLargeError, match="more than 2,000 places"):
        cer_gpu.compile(statement(pattern=pattern, define="A AS x > 0", measures="MEASURES 1 AS n"))
    assert time.process_time() - begun < 5


def test_repetitions_of_a_variable_may_have_any_length():
    rows = pa.table({"k": [1] * 5000, "ts": range(5000), "x": [0] * 4000 + [1] * 1000})
    text = statement(pattern="A{2,3000}? B", define="B AS x > 0", measures="MEASURES COUNT(*) AS n, B.ts AS ts")
    assert cer_gpu.compile(text).evaluate(rows).to_pylist()[0] == {"k": 1, "n": 3001, "ts": 4000}
    text = statement(pattern="A{4000,99999999999} $", define="A AS x >= 0", measures="MEASURES COUNT(*) AS n")
    assert cer_gpu.compile(text).evaluate(rows).to_pylist() == [{"k": 1, "n": 5000}]
    # places that are searched are written out
    searched = statement(pattern="A{1,300} B", define="B AS x > A.x", measures="MEASURES COUNT(*) AS n")
    assert cer_gpu.compile(searched).evaluate(rows).to_pylist() == [{"k": 1, "n": 301}]
    with pytest.raises(QueryTooLargeError, match="more than 2,000 places"):
        cer_gpu.compile(searched.replace("300", "3000"))


def test_rows_far_beyond_the_partition_are_null():
    query = cer_gpu.compile(
        statement(define="B AS PREV(x, 900000000) IS NULL", measures="MEASURES NEXT(x, 900000000) AS n")
    )
    assert query.evaluate(ROWS).to_pylist() == [{"k": 1, "n": None}, {"k": 2, "n": None}]
    with pytest.raises(QueryError, match="PREV goes 1,000,000,000 rows at most"):
        cer_gpu.compile(statement(define="B AS PREV(x, 99999999999999999999) > 1"))


COMPARED = pa.table({"x": [1, None, 3, 4], "y": [1, None, None, 5], "z": pa.nulls(4)})


@pytest.mark.parametrize(
    ("define", "rows"),
    [
        ("x IS NOT DISTINCT FROM y", [0, 1]),
        ("x IS DISTINCT FROM y", [2, 3]),
        ("NOT (x IS DISTINCT FROM NULL)", [1]),
        ("x = NULL OR x <> NULL", []),
        ("x IN (1, NULL)", [0]),
        ("x NOT IN (1, NULL)", []),
        ("x + NULL IS NULL", [0, 1, 2, 3]),
        ("NULL OR x = 3", [2]),
        ("PREV(x) IS NOT DISTINCT FROM NULL AND z IS NULL", [0, 2]),
        ("FIRST(x) IS DISTINCT FROM NULL AND NOT MAX(z) > 1", []),
        ("FIRST(x) IS DISTINCT FROM NULL AND MAX(z) IS NULL AND SUM(z) IS NULL", [0, 2, 3]),
    ],
)
def test_null_is_a_value_that_nothing_equals(define, rows):
    rest = "ALL ROWS PER MATCH"
    text = statement(partition="", measures="MEASURES NULL AS none", rest=rest, pattern="A", define=f"A AS {define}")
    found = cer_gpu.compile(text).evaluate(COMPARED)
    assert found["none"].null_count == len(rows)
    assert found.drop_columns("none").equals(COMPARED.take(pa.array(rows, pa.int64())))


@pytest.mark.parametrize(
    ("define", "wanted"),
    [
        ("ts < PREV(ts) + INTERVAL '2' MINUTE", [60]),
        ("ts - INTERVAL '2' MINUTE < PREV(ts)", [60]),
        ("PREV(ts) + INTERVAL '1' MINUTE + INTERVAL '60' SECOND > ts", [60]),
        ("ts BETWEEN PREV(ts) AND INTERVAL '150' SECOND + PREV(ts)", [60, 200]),
        ("ts - PREV(ts) < INTERVAL '1' MINUTE + INTERVAL '60' SECOND", [60]),
        ("PREV(ts) - (- INTERVAL '5' MINUTE) < ts", [900]),
        ("ts - INTERVAL '1' MINUTE = PREV(ts) + INTERVAL '80' SECOND", [200]),
    ],
)
def test_intervals_are_added_to_times(define, wanted):
    rows = pa.table({"ts": pa.array([0, 60, 200, 900], pa.timestamp("s"))})
    text = statement(partition="ORDER BY ts", measures="MEASURES ts AS at", pattern="A", define=f"A AS {define}")
    assert cer_gpu.compile(text).evaluate(rows)["at"].cast(pa.int64()).to_pylist() == wanted


NAN = float("nan")


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("f", [1.0, 3.0, NAN, None]),
        ("f DESC", [NAN, 3.0, 1.0, None]),
        ("f NULLS FIRST", [None, 1.0, 3.0, NAN]),
        ("f DESC NULLS FIRST", [None, NAN, 3.0, 1.0]),
    ],
)
def test_nan_is_the_greatest_value(order, wanted):
    rows = pa.table({"f": [1.0, NAN, None, 3.0]})
    measures = "MEASURES ARRAY_AGG(f) AS l, MAX(f) AS most, MIN(f) AS least"
    text = statement(partition=f"ORDER BY {order}", measures=measures, pattern="A+", define="A AS TRUE")
    found = cer_gpu.compile(text).evaluate(rows).to_pylist()[0]
    assert repr(list(found.values())) == repr([wanted, NAN, 1.0])


def test_dictionaries_of_views_are_columns_like_others():
    """Categories of Polars are such."""
    codes = pa.array([0, 0, 1, 1], pa.uint32())
    coded = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"], pa.string_view()))
    rows = pa.table({"k": coded, "x": [3, 2, 5, 4]})
    text = statement(
        partition="PARTITION BY k ORDER BY k",
        measures="MEASURES LAST(k) AS last",
        rest="ALL ROWS PER MATCH",
        pattern="A B",
        define="B AS k = PREV(k)",
    )
    found = [tuple(row.values()) for row in cer_gpu.compile(text).evaluate(rows).to_pylist()]
    assert found == [("a", "a", 3), ("a", "a", 2), ("b", "b", 5), ("b", "b", 4)]
    text = statement(
        partition="", measures="MEASURES MAX(k) AS most", pattern="A B+", define="B AS k >= A.k AND x < A.x"
    )
    assert cer_gpu.compile(text).evaluate(rows).to_pylist() == [{"most": "a"}, {"most": "b"}]


def test_views_and_runs_are_columns_like_others():
    texts = pa.array(["a", "b", "a"], pa.string_view())
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, 7]))
    rows = pa.table({"k": texts, "o": pa.array(["z", None, "y"], pa.string_view()), "r": runs})
    text = statement(
        partition="PARTITION BY k ORDER BY o",
        measures="MEASURES MIN(o) AS least, LAST(r) AS last",
        rest="ALL ROWS PER MATCH",
        pattern="A+",
        define="A AS k < 'c' AND (PREV(o) IS NULL OR o > PREV(o))",
    )
    found = cer_gpu.compile(text).evaluate(rows)
    rows = [tuple(row.values()) for row in found.to_pylist()]
    assert rows == [("a", "y", "y", 7, 7), ("a", "z", "y", 5, 5), ("b", None, None, 5, 5)]
    assert found.schema.field("k").type == pa.string_view()


@pytest.mark.parametrize(
    ("pattern", "n"), [("((A?){40}){40}", 1600), ("(A?){2000}", 2000), ("((A{0,3}){1,5}){2,100}", 1500)]
)
def test_optional_parts_repeated_are_one_repetition(pattern, n):
    text = statement(partition="", pattern=pattern, define="A AS x > 0", measures="MEASURES COUNT(*) AS n")
    assert cer_gpu.compile(text).evaluate(pa.table({"x": [1] * 2500}))["n"][0].as_py() == n


def test_patterns_with_too_many_ways_are_refused(monkeypatch):
    monkeypatch.setattr(program, "MAX_PROGRAM_STEPS", 10_000)
    with pytest.raises(QueryTooLargeError, match=r"too many ways(.|\n)*hint: put fewer optional parts"):
        program.program_of(parse_pattern("(A*){200}", (0, 9)))


PLACES = [
    ({"define": "B AS x > 3 AND name > PREV(x) + 1"}, "name > PREV(x) + 1"),
    ({"define": "B AS x > 3 AND (x + 2) * abs( name ) > 2"}, "name"),
    ({"define": "B AS x > 3 OR NOT prize IN (1, 2)"}, "prize"),
    ({"define": "B AS x > 3 OR NOT name IN (17, 2)"}, "17"),
    ({"define": "B AS name LIKE 'a%' AND x LIKE 'b%'"}, "x"),
    ({"define": "B AS x > 1 AND FINAL  LAST(x) > 2"}, "FINAL  LAST(x)"),
    ({"define": "B AS x > 1 AND - name > 2"}, "name"),
    ({"define": "B AS abs(x) > 1 AND abs(C.x) > 2"}, "C"),
    ({"measures": "LAST(x) AS a, RUNNING   LAST(x) + FINAL LAST(prize) AS b"}, "FINAL LAST(prize)"),
    ({"measures": "1 + (x > 2) AS a"}, "x > 2"),
]


@pytest.mark.parametrize(("parts", "place"), PLACES, ids=[place for _, place in PLACES])
def test_an_error_is_told_at_its_part_of_an_expression(parts, place):
    schema = pa.schema({"x": pa.int64(), "name": pa.string()})
    clauses = {"measures": "LAST(x) AS a", "define": "B AS x > 1", **parts}
    text = f"SELECT * FROM t MATCH_RECOGNIZE (MEASURES {clauses['measures']} PATTERN (A B+) DEFINE {clauses['define']})"
    with pytest.raises(QueryError) as caught:
        cer_gpu.compile(text, schema=schema)
    assert text[caught.value.start : caught.value.end] == place
