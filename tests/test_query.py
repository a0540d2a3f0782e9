"""Public API: compile, evaluate, stream, evaluator, and the errors of each."""

from __future__ import annotations

import inspect
import itertools
import pickle
import random
import threading

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.predicates import placement
from cer_gpu.runtime.matches import OUTPUT_ROWS

TEXT = "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 5] WITHIN 8 EVENTS"
BATCH_ROWS = 50


def make_events(n: int, seed: int = 1) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "type": [rng.choice("ABCDEF") for _ in range(n)],
            "x": [rng.randrange(10) for _ in range(n)],
            "at": pa.array(range(n), pa.timestamp("ms")),
        }
    )


EVENTS = make_events(1000)


class Counted:
    """Batches that count how many of them were read."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches
        self.n_read = 0

    def __iter__(self):
        for batch in self._batches:
            self.n_read += 1
            yield batch


# ---- three ways to the same result ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"time_column": "at"}, {"time_column": "at", "schema": EVENTS.schema}], ids=str
)
def test_evaluate_stream_and_evaluator_agree(options):
    query = cer_gpu.compile(TEXT, **options)
    table = query.evaluate(EVENTS)
    assert table.num_rows > 50
    assert table.schema == query.output_schema(EVENTS.schema)
    with query.stream(EVENTS) as reader:
        assert reader.schema == table.schema
        assert reader.read_all().equals(table)
    for rows in (1, 7, 1000):
        evaluator = query.evaluator()
        pieces = [evaluator.push(batch) for batch in EVENTS.to_batches(max_chunksize=rows)]
        pieces.append(evaluator.finish())
        assert all(isinstance(piece, pa.RecordBatch) and piece.schema == table.schema for piece in pieces)
        assert pa.Table.from_batches(pieces).combine_chunks().equals(table.combine_chunks())
        assert (evaluator.n_events, evaluator.n_matches) == (1000, table.num_rows)


def test_every_match_is_reported_with_the_batch_in_which_it_ends():
    evaluator = cer_gpu.compile(TEXT).evaluator()
    n_events = 0
    for batch in EVENTS.to_batches(max_chunksize=13):
        ends = evaluator.push(batch)["end"].to_pylist()
        assert all(n_events <= end < n_events + batch.num_rows for end in ends)
        n_events += batch.num_rows
    assert evaluator.finish().num_rows == 0


def test_a_query_can_be_used_many_times():
    query = cer_gpu.compile(TEXT)
    first = query.evaluate(EVENTS)
    query.evaluate(make_events(100, seed=2))
    assert query.evaluate(EVENTS).equals(first)


def test_two_evaluators_do_not_share_state():
    query = cer_gpu.compile("SELECT * WHERE A ; B")
    one, two = query.evaluator(), query.evaluator()
    one.push(pa.record_batch({"type": ["A"]}))
    assert two.push(pa.record_batch({"type": ["B"]})).num_rows == 0
    assert one.push(pa.record_batch({"type": ["B"]})).num_rows == 1


def test_evaluators_of_one_query_work_in_two_threads():
    query = cer_gpu.compile(TEXT, time_column="at")
    streams = [make_events(20_000, seed) for seed in (3, 4)]
    expected = [query.evaluate(s) for s in streams]
    assert not expected[0].equals(expected[1])
    found: dict[int, pa.Table] = {}
    start = threading.Barrier(2)

    def work(k: int) -> None:
        start.wait()
        evaluator = query.evaluator()
        pieces = [evaluator.push(batch) for batch in streams[k].to_batches(max_chunksize=500)]
        found[k] = pa.Table.from_batches(pieces)

    threads = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[k].combine_chunks() for k in (0, 1)] == [e.combine_chunks() for e in expected]


# ---- streams --------------------------------------------------------------------------------------------------------


def test_a_stream_reads_no_further_than_it_is_read():
    query = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[x = 5]")
    batch = pa.record_batch({"type": ["A"] * BATCH_ROWS, "x": [5] * BATCH_ROWS})
    source = Counted([batch] * 1000)
    with query.stream(source) as reader:
        assert source.n_read <= 1  # the first batch, for its schema
        for k in range(1, 6):
            assert reader.read_next_batch()["end"].to_pylist() == list(range((k - 1) * BATCH_ROWS, k * BATCH_ROWS))
            assert source.n_read <= k + 1


def test_a_stream_without_matches_reads_to_the_end_and_gives_no_rows():
    source = Counted(EVENTS.to_batches(max_chunksize=BATCH_ROWS))
    reader = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[x = 99]").stream(source)
    assert reader.read_all().num_rows == 0
    assert source.n_read == 20


def test_many_matches_of_one_batch_come_in_pieces():
    """The batch ends far more complex events than one batch of results should hold."""
    query = cer_gpu.compile("SELECT * FROM S WHERE S ; S ; S", type_column=None)
    reader = query.stream(pa.table({"x": [0] * 120}))
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 120 * 119 * 118 // 6
    assert max(sizes) <= OUTPUT_ROWS


@pytest.mark.parametrize(
    "error", [KeyError("lost"), ValueError("bad"), RuntimeError("odd"), cer_gpu.CerError("ours")], ids=repr
)
def test_errors_in_the_callers_own_iterator_keep_their_type(error):
    def batches():
        yield EVENTS.to_batches()[0]
        raise error

    for events in (batches(), pa.RecordBatchReader.from_batches(EVENTS.schema, batches())):
        with pytest.raises(type(error), match=error.args[0]):
            cer_gpu.compile(TEXT).evaluate(events)


def test_our_errors_come_through_the_reader():
    query = cer_gpu.compile("SELECT * FROM S WHERE A WITHIN 5 [x]")
    reader = query.stream(EVENTS)
    with pytest.raises(cer_gpu.TimeOrderError):
        reader.read_all()


# ---- evaluators -----------------------------------------------------------------------------------------------------


def test_push_after_finish_is_refused():
    evaluator = cer_gpu.compile(TEXT).evaluator()
    evaluator.push(EVENTS.to_batches()[0])
    evaluator.finish()
    with pytest.raises(cer_gpu.OptionError, match="finished: make a new evaluator"):
        evaluator.push(EVENTS.to_batches()[0])


def test_push_after_an_error_is_refused():
    evaluator = cer_gpu.compile("SELECT * FROM S WHERE S WITHIN 5 [x]", type_column=None).evaluator()
    evaluator.push(pa.record_batch({"x": [5]}))
    with pytest.raises(cer_gpu.TimeOrderError):
        evaluator.push(pa.record_batch({"x": [4]}))
    with pytest.raises(cer_gpu.OptionError, match="make a new evaluator"):
        evaluator.push(pa.record_batch({"x": [6]}))


@pytest.mark.parametrize(
    "wrong", [EVENTS, None, {"type": ["A"]}, [EVENTS.to_batches()[0]]], ids=lambda w: type(w).__name__
)
def test_push_refuses_anything_but_record_batches(wrong):
    with pytest.raises(cer_gpu.EventsError, match=rf"expected a pyarrow\.RecordBatch, got {type(wrong).__name__}"):
        cer_gpu.compile(TEXT).evaluator().push(wrong)


def test_batches_without_rows_change_nothing():
    evaluator = cer_gpu.compile("SELECT * WHERE A : B").evaluator()
    empty = pa.record_batch({"type": pa.array([], pa.string())})
    found = [
        evaluator.push(b)
        for b in (empty, pa.record_batch({"type": ["A"]}), empty, pa.record_batch({"type": ["B"]}), empty)
    ]
    assert [f.num_rows for f in found] == [0, 0, 0, 1, 0]
    assert {f.schema for f in found} == {found[0].schema}


def test_finish_without_events_returns_no_rows():
    assert cer_gpu.compile(TEXT).evaluator().finish().num_rows == 0


def test_the_schema_may_change_where_the_query_still_fits():
    query = cer_gpu.compile("SELECT * WHERE A ; B FILTER A[x > 5] AND B[x > 5.5]")
    batches = [
        pa.record_batch({"type": ["A"], "x": pa.array([9], pa.int8())}),
        pa.record_batch({"more": [1], "x": pa.array([6.5]), "type": pa.array(["B"]).dictionary_encode()}),
        pa.record_batch({"type": pa.array(["B", "B"], pa.large_string()), "x": pa.nulls(2)}),
        pa.record_batch({"type": pa.array(["B"], pa.string_view()), "x": pa.array([5], pa.uint64())}),
        pa.record_batch({"type": ["B"], "x": pa.array([6], pa.uint64())}),
    ]
    evaluator = query.evaluator()
    assert [evaluator.push(b)["positions"].to_pylist() for b in batches] == [[], [[0, 1]], [], [], [[0, 5]]]


def test_the_schema_may_not_change_to_one_that_does_not_fit():
    query = cer_gpu.compile("SELECT * WHERE A FILTER A[x > 5]", time_column="at")
    first = pa.record_batch({"type": ["A"], "x": [1], "at": [1]})
    cases = [
        ({"type": ["A"], "x": ["a"], "at": [1]}, cer_gpu.QueryTypeError, "cannot compare column 'x'"),
        ({"type": ["A"], "y": [1], "at": [1]}, cer_gpu.QueryTypeError, "no column 'x'"),
        ({"type": [1], "x": [1], "at": [1]}, cer_gpu.QueryTypeError, "type column 'type' must hold strings"),
        ({"type": ["A"], "x": [1], "at": pa.array([1], pa.int32())}, cer_gpu.EventsError, "changed its type"),
        ({"type": ["A"], "x": [1], "at": pa.array([1], pa.timestamp("s"))}, cer_gpu.EventsError, "changed its type"),
    ]
    for columns, error, message in cases:
        evaluator = query.evaluator()
        evaluator.push(first)
        with pytest.raises(error, match=message):
            evaluator.push(pa.record_batch(columns))


# ---- options --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_gpu(monkeypatch):
    """Pretend that the machine has no GPU."""
    monkeypatch.setattr(placement, "missing", lambda: "there is none\nhint: device='cpu'")


REFUSED = [
    ({"device": "cuda"}, cer_gpu.DeviceError, "GPU"),
    ({"device": "tpu"}, cer_gpu.OptionError, "device must be one of auto, cpu, cuda, got 'tpu'"),
    ({"output": "position"}, cer_gpu.OptionError, "did you mean 'positions'"),
    ({"lateness": "5s"}, cer_gpu.OptionError, "name the time column"),
    ({"late": "keep"}, cer_gpu.OptionError, "late must be one of raise, drop, got 'keep'"),
    ({"threads": 0}, cer_gpu.OptionError, "threads must be a positive number"),
    ({"shard": (2, 2)}, cer_gpu.OptionError, "shard must be"),
]


@pytest.mark.parametrize(("options", "error", "message"), REFUSED, ids=[str(o) for o, _, _ in REFUSED])
def test_wrong_options_are_refused_before_events_are_read(options, error, message, no_gpu):
    query = cer_gpu.compile(TEXT)
    unread = Counted(EVENTS.to_batches())
    for use in (
        lambda: query.evaluate(unread, **options),
        lambda: query.stream(unread, **options),
        lambda: query.evaluator(**options),
    ):
        with pytest.raises(error, match=message):
            use()
    assert unread.n_read == 0


def test_sorting_needs_a_time_column():
    with pytest.raises(cer_gpu.OptionError, match="name the time column"):
        cer_gpu.compile(TEXT).evaluate(EVENTS, sort=True)


@pytest.mark.parametrize(
    "options", [{"device": "cpu"}, {"device": "auto"}, {"threads": 1}, {"sort": False, "output": "positions"}], ids=str
)
def test_device_and_threads_change_no_result(options):
    query = cer_gpu.compile(TEXT)
    assert query.evaluate(EVENTS, **options).equals(query.evaluate(EVENTS))


def test_the_type_column_is_the_named_one():
    renamed = EVENTS.rename_columns(["kind", "x", "at"])
    assert cer_gpu.compile(TEXT, type_column="kind").evaluate(renamed).equals(cer_gpu.compile(TEXT).evaluate(EVENTS))
    with pytest.raises(cer_gpu.QueryTypeError, match="no column 'type'"):
        cer_gpu.compile(TEXT).evaluate(renamed)
    with pytest.raises(cer_gpu.QueryTypeError, match="the type column 'x' must hold strings, and is int64"):
        cer_gpu.compile(TEXT, type_column="x", schema=EVENTS.schema)


def test_without_a_type_column_the_stream_names_the_type():
    query = cer_gpu.compile("SELECT * FROM Trade WHERE Trade : Trade FILTER Trade[x > 8]", type_column=None)
    xs = EVENTS["x"].to_pylist()
    expected = [[i, i + 1] for i, (a, b) in enumerate(itertools.pairwise(xs)) if a > 8 and b > 8]
    assert query.evaluate(EVENTS)["positions"].to_pylist() == expected
    with pytest.raises(cer_gpu.QueryError, match="no events of type 'Quote'"):
        cer_gpu.compile("SELECT * FROM Trade WHERE Quote", type_column=None)
    with pytest.raises(cer_gpu.QueryError, match="no FROM"):
        cer_gpu.compile("SELECT * WHERE Trade", type_column=None)


def test_a_query_without_columns_counts_rows():
    query = cer_gpu.compile("SELECT * FROM S WHERE S ; S", type_column=None)
    assert query.columns(EVENTS.schema) == []
    assert query.evaluate(EVENTS.slice(0, 4)).num_rows == 6
    assert query.evaluate(EVENTS.slice(0, 4).select([])).num_rows == 6
    assert query.evaluate(pa.table({})).num_rows == 0


def test_columns_in_runs_are_listed_and_are_no_keys():
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 3, 6], pa.int32()), pa.array(["a", None, "b"], pa.string_view())
    )
    events = pa.table({"type": ["A", "B"] * 3, "x": runs}).slice(1)
    found = cer_gpu.compile("SELECT b[x] FROM S WHERE A ; B AS b WITHIN 1 EVENTS").evaluate(events, output="events")
    assert found["events"].to_pylist() == [[{"x": "b"}], [{"x": "b"}]]
    with pytest.raises(cer_gpu.QueryTypeError, match="PARTITION BY needs columns of plain values"):
        cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [x]").evaluate(events)


def test_views_inside_of_structs_are_listed():
    events = pa.table({"type": ["A", "B"], "x": pa.array([{"y": "a"}] * 2, pa.struct([("y", pa.string_view())]))})
    found = cer_gpu.compile("SELECT b[x] FROM S WHERE A ; B AS b").evaluate(events, output="events")
    assert found["events"].to_pylist() == [[{"x": {"y": "a"}}]]


def test_a_column_that_arrow_cannot_move_is_not_listed():
    events = pa.table({"type": ["A", "B"], "x": pa.array([[("y", 1)]] * 2, pa.map_(pa.string_view(), pa.int64()))})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    with pytest.raises(cer_gpu.EventsError, match=r"'x' is map<string_view, int64>, and .* cannot be listed"):
        query.evaluate(events, output="events")
    assert query.evaluate(events).num_rows == 1


def test_a_union_of_nothing_is_not_listed():
    evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluator(output="events")
    with pytest.raises(cer_gpu.EventsError, match=r"'x' is sparse_union<>, and events with such a column cannot be"):
        evaluator.expect(pa.schema({"type": pa.string(), "x": pa.sparse_union([])}))


def test_two_columns_of_one_name_are_not_listed():
    events = pa.table([["A", "B"], [1, 2], [3, 4]], ["type", "x", "x"])
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    assert query.evaluate(events).num_rows == 1
    with pytest.raises(cer_gpu.QueryTypeError, match="the events have 2 columns 'x'\nhint: rename all but one"):
        query.evaluate(events, output="events")


# ---- schemas, attributes and notes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "events", [EVENTS.slice(0, 0), EVENTS.schema.empty_table(), pa.Table.from_batches([], EVENTS.schema)]
)
def test_an_empty_stream_gives_an_empty_table_of_the_schema(events):
    query = cer_gpu.compile(TEXT, time_column="at")
    found = query.evaluate(events)
    assert found.num_rows == 0
    assert found.schema == query.output_schema(EVENTS.schema)


@pytest.mark.parametrize("output", ["positions", "bindings", "events", "count", "ends"])
@pytest.mark.parametrize(
    ("where", "clauses"),
    [
        ("A ; B", "WITHIN 9 EVENTS"),  # by stacks
        ("A ; B", ""),
        ("A ; B", "PARTITION BY [x]"),
        ("A ; (B ; C)+", "WITHIN 9 EVENTS"),  # by the automaton
        ("A ; (B ; C)+", "PARTITION BY [x] WITHIN 50 EVENTS CONSUME BY ANY"),
    ],
)
def test_limit_0_gives_the_schema_and_no_rows(output, where, clauses):
    text = f"SELECT * FROM S WHERE {where} {clauses}"
    unlimited = cer_gpu.compile(text, time_column="at").evaluate(EVENTS[:200], output=output)
    assert unlimited.num_rows
    query = cer_gpu.compile(f"{text} LIMIT 0", time_column="at")
    for options in {}, {"threads": 2}, {"shard": (0, 2)}:
        found = query.evaluate(EVENTS[:200], output=output, **options)
        assert found.equals(unlimited.schema.empty_table())
    evaluator = query.evaluator(output=output)
    (batch,) = EVENTS[:200].to_batches()
    assert evaluator.push(batch[:100]).num_rows == 0
    assert query.restore(evaluator.checkpoint()).push(batch[100:]).num_rows == 0
    assert query._without_choice().evaluate(EVENTS[:200], output=output).equals(unlimited)
    assert "At most 0 that end at the same event are reported (LIMIT)." in str(query.explain())


def test_output_schema_is_that_of_the_results():
    plain = [("start", pa.int64()), ("end", pa.int64()), ("positions", pa.list_(pa.int64()))]
    assert cer_gpu.compile(TEXT).output_schema(EVENTS.schema) == pa.schema(plain)
    timed = pa.schema([*plain, ("start_time", pa.timestamp("ms")), ("end_time", pa.timestamp("ms"))])
    assert cer_gpu.compile(TEXT, time_column="at").output_schema(EVENTS.schema) == timed
    count = pa.schema([("end", pa.int64()), ("count", pa.int64())])
    assert cer_gpu.compile(TEXT).output_schema(EVENTS.schema, output="count") == count
    with pytest.raises(cer_gpu.OptionError):
        cer_gpu.compile(TEXT).output_schema(EVENTS.schema, output="counts")
    with pytest.raises(cer_gpu.QueryTypeError):
        cer_gpu.compile(TEXT).output_schema(pa.schema({"type": pa.string()}))


def test_a_query_has_its_text_and_columns_as_attributes():
    query = cer_gpu.compile(TEXT, time_column="at")
    assert (query.text, query.type_column, query.time_column) == (TEXT, "type", "at")
    assert repr(query) == f"cer_gpu.compile({TEXT!r})"
    assert query.columns(EVENTS.schema) == ["type", "x", "at"]


def test_notes_name_unbound_and_plural_variables():
    assert cer_gpu.compile("SELECT * WHERE A AS a ; B FILTER a[x > 5]").notes == ()
    (note,) = cer_gpu.compile("SELECT * WHERE (A AS a OR B AS b) FILTER a[x > 5]").notes
    assert "'a' is not bound in every match" in note
    (note,) = cer_gpu.compile("SELECT * WHERE A+ AS a FILTER a[x > 5]").notes
    assert "'a' can hold several events" in note


def test_a_given_schema_is_checked_by_compile():
    with pytest.raises(cer_gpu.QueryTypeError, match="no column 'x'"):
        cer_gpu.compile(TEXT, schema=pa.schema({"type": pa.string()}))
    with pytest.raises(cer_gpu.QueryTypeError, match="time column 'at' must be"):
        cer_gpu.compile(TEXT, time_column="at", schema=EVENTS.schema.set(2, pa.field("at", pa.string())))
    assert cer_gpu.compile(TEXT, schema=EVENTS.schema).evaluate(EVENTS).equals(cer_gpu.compile(TEXT).evaluate(EVENTS))


def test_errors_have_one_base():
    for text in ("", "SELECT", "SELECT * WHERE A FILTER B[x = 1]", "SELECT MAX z WHERE A"):
        with pytest.raises(cer_gpu.CerError):
            cer_gpu.compile(text)
    assert issubclass(cer_gpu.OptionError, ValueError)


# ---- pickles --------------------------------------------------------------------------------------------------------


def test_a_query_can_be_pickled():
    query = cer_gpu.compile(TEXT, time_column="at", schema=EVENTS.schema)
    again = pickle.loads(pickle.dumps(query))
    assert (again.text, again.notes, again.time_column) == (query.text, query.notes, query.time_column)
    assert again.evaluate(EVENTS).equals(query.evaluate(EVENTS))
    assert pickle.loads(pickle.dumps(again)).evaluate(EVENTS).equals(query.evaluate(EVENTS))


@pytest.mark.parametrize(
    "use",
    [
        lambda: cer_gpu.compile("SELECT * WHERE A ; ;"),
        lambda: cer_gpu.compile("SELECT * WHERE A FILTER B[x = 1]"),
        lambda: cer_gpu.compile("SELECT * WHERE A").restore(b"none"),
        lambda: cer_gpu.compile(TEXT, schema=pa.schema({"type": pa.string()})),
        lambda: cer_gpu.compile(TEXT).evaluate(None),
        lambda: cer_gpu.compile("SELECT * WHERE A WITHIN 1 [x]").evaluate(EVENTS),
        lambda: cer_gpu.compile(TEXT).evaluate(EVENTS, device="cuda"),
    ],
)
def test_errors_can_be_pickled(use, no_gpu):
    with pytest.raises(cer_gpu.CerError) as caught:
        use()
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)
    assert vars(again) == vars(caught.value)


# ---- queries in files -----------------------------------------------------------------------------------------------


def test_a_query_is_read_from_a_file(tmp_path):
    path = tmp_path / "late.ceql"
    path.write_text(f"-- é\n{TEXT}\n", encoding="utf-8-sig")
    query = cer_gpu.compile(path)
    assert query.text == f"-- é\n{TEXT}\n"
    assert query.evaluate(EVENTS).equals(cer_gpu.compile(TEXT).evaluate(EVENTS))


def test_a_file_that_cannot_be_read_is_reported(tmp_path):
    with pytest.raises(cer_gpu.OptionError, match=r"gone\.ceql: cannot be read: No such file"):
        cer_gpu.compile(tmp_path / "gone.ceql")
    (tmp_path / "bad.ceql").write_bytes(b"SELECT \xff")
    with pytest.raises(cer_gpu.OptionError, match=r"bad\.ceql: is not text in UTF-8"):
        cer_gpu.compile(tmp_path / "bad.ceql")


def test_the_name_of_a_file_given_as_text_gets_a_hint(tmp_path):
    (tmp_path / "late.txt").write_text(TEXT)
    for name in ("late.ceql", str(tmp_path / "late.txt")):
        with pytest.raises(cer_gpu.QuerySyntaxError) as caught:
            cer_gpu.compile(name)
        assert caught.value.hint == f'that is a file: cer_gpu.compile(Path("{name}"))'
    with pytest.raises(cer_gpu.QuerySyntaxError) as caught:
        cer_gpu.compile("late")
    assert "file" not in str(caught.value)


@pytest.mark.parametrize("condition", ["b.k = a.k", "b.k > a.k", "b.k > a.x"])
def test_a_column_of_nothing_equals_nothing_of_another_event(condition):
    events = pa.table({"type": ["A", "B", "A", "B"], "k": pa.nulls(4), "x": [1, 2, 3, 4]})
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A AS a ; B AS b FILTER {condition} WITHIN 9 EVENTS")
    for output in ("positions", "count"):
        assert query.evaluate(events, output=output).num_rows == 0
        assert query.evaluate(events[:0], output=output).num_rows == 0


@pytest.mark.parametrize(
    "given", [(cer_gpu.compile, "SELECT * WHERE A"), (cer_gpu.compile_all, {"q": "SELECT * WHERE A"})]
)
def test_a_misspelt_option_of_a_compilation_is_refused_with_the_nearest_name(given):
    compile_, queries = given
    with pytest.raises(cer_gpu.OptionError, match=r"no option 'time_colum' here\nhint: did you mean 'time_column'\?"):
        compile_(queries, time_colum="ts")


@pytest.mark.parametrize("call", ["evaluate", "stream", "count", "evaluator"])
def test_a_misspelt_option_is_refused_with_the_nearest_name(call):
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    for each in (query, cer_gpu.compile_all({"q": query.text})):
        given = () if call == "evaluator" else (pa.table({"type": ["A"]}),)
        if hasattr(each, call):
            with pytest.raises(cer_gpu.OptionError, match=r"no option 'devise' here\nhint: did you mean 'device'\?"):
                getattr(each, call)(*given, devise="cpu")


def test_calls_show_the_options_that_they_take():
    options = set(inspect.signature(cer_gpu.EvaluationOptions).parameters)
    shown = {call: inspect.signature(getattr(cer_gpu.Query, call)).parameters for call in ("evaluate", "evaluator")}
    assert set(shown["evaluate"]) - {"self", "events"} < options
    assert {"sort", "output"} <= set(shown["evaluate"])
    assert set(shown["evaluator"]) - {"self"} < options
    assert {"position_column", "stages"} <= set(shown["evaluator"])
