"""Columns of LET, compared with the definitions: the same columns stored in the events give the same results."""

from __future__ import annotations

from dataclasses import replace

import arrow_streams
import past_strategies as past
import pyarrow as pa
import pytest
import reference as ref
import rest_strategies
import strategies
from answers import candidates_of, with_and_without_checkpoints
from cases import Case, assert_same, bound_rows_of, counts_of, plain, pushed, rows_of
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.errors import QuerySyntaxError, QueryTypeError
from cer_gpu.lints.linting import lint
from cer_gpu.report import write_report

RAW = "raw "
OUTPUTS = ("positions", "bindings", "count", "ends")
QUERIES = {
    "one event": strategies.full_cases(),
    "between events": past.cases("between events"),
    "looking back": past.cases("conditions"),
    "any clause": rest_strategies.full_cases(),
}


@st.composite
def definitions(draw, name, others, looks_back):
    """Draw the expression of a column, over its raw column and at times over columns of LET before it."""
    raw = ref.Attr(RAW + name)
    kinds = ["same", "same"]
    if name == "m":  # the only integers that are never near the ends of 64 bits
        kinds += ["sum", "negative", "twice"]
    elif name in strategies.STRING_COLUMNS:
        kinds += ["lower", "lower"]
    elif name == strategies.ORDER_COLUMN:
        kinds = ["later"]
    if looks_back and name != strategies.ORDER_COLUMN:
        kinds += ["before", "before"]
        kinds += ["over", "over"] if name in strategies.INT_COLUMNS else []
    match draw(st.sampled_from(kinds)):
        case "same":
            return raw
        case "sum":
            return ref.Arith("+", raw, ref.Const(draw(st.sampled_from([0, 1, 3]))))
        case "negative":
            return ref.Neg(raw)
        case "twice":
            return ref.Arith("*", raw, ref.Const(2))
        case "lower":
            return ref.Call("lower", raw)
        case "later":
            return ref.Arith("+", raw, ref.Const(1))
        case "before":
            return replace(raw, lag=draw(st.sampled_from([1, 1, 2])))
        case "over":
            named = draw(st.sampled_from([RAW + name, *others]))
            condition = ref.IsNull(ref.Attr(named), draw(st.booleans()))
            lengths = st.tuples(st.just("events"), past.lengths) | past.lengths.map(lambda n: ("time", 1000 * n))
            function = draw(st.sampled_from(["COUNT", "COUNT", "MAX"]))
            of = ref.Attr(RAW + name) if function == "MAX" else None
            return ref.Over(function, draw(st.sampled_from([*past.TYPES, None])), of, condition, draw(lengths))


class LetCase(Case):
    """A query whose columns are of LET, in part, and events that have other columns in their place."""

    def __init__(self, data, cases):
        super().__init__(data, cases, timestamps=True)

    def write(self, data, *, timed, typed=True):
        query, self.drawn = self.query, self.events
        keys = {name for names in query.partition_by for name in names}
        names = sorted(name for name in ref.attributes(query) if "." not in name)
        chosen = [name for name in names if data.draw(st.booleans(), label=f"LET {name}")]
        self.let = []
        for name in sorted(chosen, key=lambda name: name not in keys):
            of_lengths = name == strategies.ORDER_COLUMN
            looks_back = name not in keys and not of_lengths
            others = [other for other, _ in self.let] if looks_back else []
            self.let.append((name, data.draw(definitions(name, others, looks_back), label=name)))
        self.query = replace(query, let=tuple(self.let))
        self.renamed = {name: RAW + name for name in chosen}
        raw = [{self.renamed.get(name, name): value for name, value in event.items()} for event in self.drawn]
        self.events = ref.computed(self.query, raw)
        super().write(data, timed=timed, typed=typed)

    def table_of(self, cuts):
        table = arrow_streams.build_table(self.drawn, self.layout, cuts)
        return table.rename_columns([self.renamed.get(name, name) for name in table.column_names])

    @property
    def whole(self):
        return self.table_of([])

    @property
    def table(self):
        return self.table_of(self.cuts)

    @property
    def batches(self):
        batches = arrow_streams.build_batches(self.drawn, self.layout, self.cuts)
        return [each.rename_columns([self.renamed.get(n, n) for n in each.schema.names]) for each in batches]


def assert_rows(case, candidates, answer, output):
    if output == "count":
        assert counts_of(answer) == ref.counts_of(case.query, candidates)
        return
    if output == "ends":
        assert answer["end"].to_pylist() == [end for end, _ in ref.counts_of(case.query, candidates)]
        return
    found = bound_rows_of(answer, ref.bound_variables(case.query)) if output == "bindings" else rows_of(answer)
    if case.query.limit is None and case.query.strategy != "ANY":
        assert sorted(found) == candidates
    assert ref.is_choice(case.query, candidates, found)
    for names in case.query.partition_by:
        ends = [case.events[end] for end in answer["end"].to_pylist()]
        values = [[ref.attribute(event, name) for name in names] for event in ends]
        keys = [next(value for value in each if value is not None) for each in values]
        if not pa.types.is_temporal(answer[names[0]].type):
            assert plain(answer[names[0]].to_pylist()) == plain(keys)


@pytest.mark.parametrize("kind", QUERIES)
@strategies.property_test(0.3)
def test_columns_of_let_are_as_if_the_events_had_them(kind, data):
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case = LetCase(data, QUERIES[kind])
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_rows(case, candidates, answer, output)
    if case.query.limit is None and case.query.strategy != "ANY":
        assert_same(pushed(case.compiled, case.batches, output=output), answer)


@strategies.property_test(0.1)
def test_a_checkpoint_between_any_two_batches_changes_nothing(data):
    case = LetCase(data, QUERIES["looking back"])
    assert_same(*with_and_without_checkpoints(data, case, "positions"))


EVENTS = pa.table(
    {
        "type": ["A", "FAIL", "B", "A", "B", "B"],
        "ts": pa.array([k * 1_800_000 for k in range(6)], pa.timestamp("ms", "Europe/Berlin")),
        "x": [1, 2, 3, 4, 5, 6],
        "user": ["p", "q", "p", "q", "q", "p"],
    }
)


def rows(text, **options):
    return cer_gpu.compile(text, time_column="ts").evaluate(EVENTS, **options).to_pylist()


def test_columns_of_let_are_read_wherever_an_attribute_is():
    text = (
        "SELECT a.y, b.burst AS burst, MAX(b.y) FROM S LET y = x * 2, burst = COUNT(FAIL) OVER 1 HOUR, "
        "hour = trunc(ts, 'hour') WHERE A AS a ; B AS b FILTER b.hour = a.hour + 1 HOUR WITHIN 8 [y] HAVING burst = 1"
    )
    found = [(row["a.y"], row["burst"], row["MAX(b.y)"]) for row in rows(text)]
    assert found == [(2, 1, 6)]
    listed = rows("SELECT a[y] FROM S LET y = x * 2 WHERE A AS a PARTITION BY [y]", output="events")
    assert [(row["y"], row["events"]) for row in listed] == [(2, [{"y": 2}]), (8, [{"y": 8}])]


def test_queries_of_a_set_may_give_one_name_to_unlike_columns():
    texts = {name: f"SELECT a.y FROM S LET y = {made} WHERE A AS a" for name, made in (("p", "x * 2"), ("q", "LAG(x)"))}
    texts["r"] = "SELECT a.x FROM S WHERE A AS a"
    found = cer_gpu.QuerySet({name: cer_gpu.compile(text) for name, text in texts.items()}).evaluate(EVENTS)
    assert {name: found[name].column(found[name].num_columns - 1).to_pylist() for name in found} == {
        "p": [2, 8],
        "q": [None, 3],
        "r": [1, 4],
    }


def test_columns_that_nothing_reads_are_not_computed():
    query = cer_gpu.compile("SELECT * FROM S LET y = nowhere + 1, z = x WHERE A AS a")
    assert query.columns(EVENTS.schema) == ["type"]
    assert query.evaluate(EVENTS).num_rows == 2
    assert any("column 'y' of LET is not used" in str(each.error) for each in lint(query.syntax))


def test_events_without_a_column_of_let_are_as_with_null():
    text = "SELECT * FROM S LET y = nowhere + 1 WHERE A AS a FILTER a[y > 1 OR x > 1] PARTITION BY [{}]"
    query = cer_gpu.compile(text.format("user"), missing_fields="null")
    assert query.evaluate(EVENTS)["end"].to_pylist() == [3]
    assert cer_gpu.compile(text.format("y"), missing_fields="null").evaluate(EVENTS).num_rows == 0


def test_keys_of_let_are_not_distributed_by_spark():
    query = cer_gpu.compile("SELECT * FROM S LET y = x % 2 WHERE A AS a ; B AS b PARTITION BY [y] WITHIN 3 [x]")
    assert "column of LET" in query.distribution.tasks["key"]


def test_queries_with_let_are_checked_against_a_schema():
    text = "SELECT a.y FROM S LET y = x * 2, burst = COUNT(FAIL) OVER 1 HOUR WHERE A AS a PARTITION BY [{}]"
    compiled = cer_gpu.compile(text.format("y"), time_column="ts", schema=EVENTS.schema)
    assert compiled.evaluate(EVENTS)["a.y"].to_pylist() == [2, 8]
    with pytest.raises(QueryTypeError, match=r"no column 'yy'\n(?s:.*)did you mean 'y'"):
        cer_gpu.compile(text.format("yy"), time_column="ts", schema=EVENTS.schema)
    with pytest.raises(QueryTypeError, match="arithmetic needs numbers"):
        cer_gpu.compile(text.replace("x * 2", "user * 2").format("y"), time_column="ts", schema=EVENTS.schema)


def test_reports_show_columns_of_let(tmp_path):
    text = "SELECT a[y], b FROM S LET y = x - LAG(x), z = x % 2 WHERE A AS a ; B AS b PARTITION BY [z] WITHIN 2 HOURS"
    path = tmp_path / "report.html"
    write_report(cer_gpu.compile(text, time_column="ts"), EVENTS, path)
    page = path.read_text(encoding="utf-8")
    assert '"z"' in page
    assert "\\u0000" not in page
    assert "\0" not in page


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("y = 5", "reads no column"),
        ("y = x, y = x", "LET names 'y' twice"),
        ("y = z, z = x", "reads 'z' before it is defined"),
        ("y = y + 1", "reads itself"),
        ("y = SUM(x)", "aggregates several events"),
        ("y > 5", "expected a comparison"),
        ("y = LAST(a).x", "no variable"),
    ],
)
def test_other_definitions_are_refused(clause, message):
    with pytest.raises(QuerySyntaxError, match=message):
        cer_gpu.compile(f"SELECT * FROM S LET {clause} WHERE A AS a")


@pytest.mark.parametrize(
    ("clause", "key", "message"),
    [
        ("x = user", "user", "which the events have"),
        ("y = nowhere", "y", "no column 'nowhere'"),
        ("y = user + 1", "y", "arithmetic needs numbers"),
        ("y = COUNT(FAIL) OVER 1 HOUR", "y", "is itself read by these keys"),
    ],
)
def test_columns_that_do_not_fit_the_events_are_refused(clause, key, message):
    query = cer_gpu.compile(f"SELECT * FROM S LET {clause} WHERE A AS a PARTITION BY [{key}]", time_column="ts")
    with pytest.raises(QueryTypeError, match=message):
        query.evaluate(EVENTS)
