"""Sets of which some queries cannot be read, or do not fit the events: `errors="skip"`."""

import pickle

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.errors import CheckpointError, OptionError, QueryError, QuerySyntaxError, QueryTypeError
from cer_gpu.rules import Rule, compile_rules, load

EVENTS = pa.table({"type": ["A", "B", "A", "B"], "k": [[1], [2], [1], [1]], "n": [1, 2, 3, 4]})
GOOD = {"ab": "SELECT * FROM S WHERE A ; B", "n": "SELECT * FROM S WHERE A AS a FILTER a[n > 1]"}
MISFITS = {
    "no column": "SELECT * FROM S WHERE A AS a FILTER a[price > 1]",
    "a list as key": "SELECT * FROM S WHERE A ; B PARTITION BY [k]",
    "another type": "SELECT * FROM S WHERE A AS a FILTER a[n LIKE 'x']",
}
ALL = {"no column": MISFITS["no column"], **GOOD, **MISFITS}


def ends(found):
    return {name: table["end"].to_pylist() for name, table in found.items()}


def expected():
    return ends(cer_gpu.compile_all(GOOD).evaluate(EVENTS))


@pytest.mark.parametrize("n_more", [0, 70])
def test_queries_that_do_not_fit_the_events_are_left_out_and_named(n_more):
    more = {f"more {i}": f"SELECT * FROM S WHERE A AS a ; B FILTER a[n > {i}]" for i in range(n_more)}
    rules = cer_gpu.compile_all({**ALL, **more}, errors="skip")
    assert rules.skipped == {}
    found = ends(rules.evaluate(EVENTS))
    assert {name: found[name] for name in GOOD} == expected()
    assert list(found) == [name for name in {**ALL, **more} if name not in MISFITS]
    assert list(rules.skipped) == list(MISFITS)
    assert all(type(error) is QueryTypeError for error in rules.skipped.values())
    assert rules.skipped["no column"].message == "the events have no column 'price'"
    assert "PARTITION BY needs columns of plain values" in str(rules.skipped["a list as key"])


def test_every_call_leaves_them_out():
    rules = cer_gpu.compile_all(ALL, errors="skip")
    numbers = {name: len(rows) for name, rows in expected().items()}
    assert rules.count(EVENTS) == numbers
    assert rules.evaluate(EVENTS, threads=2).keys() == GOOD.keys()
    with rules.stream(EVENTS) as reader:
        table = reader.read_all()
    assert {name: table["query"].to_pylist().count(name) for name in GOOD} == numbers
    assert rules.output_schema(EVENTS.schema) == table.schema
    assert set(rules.columns(EVENTS.schema)) == {"type", "n"}


def test_an_evaluator_knows_them_from_the_first_schema_on():
    rules = cer_gpu.compile_all(ALL, errors="skip")
    evaluator = rules.evaluator()
    assert evaluator.skipped == {}
    evaluator.expect(EVENTS.schema)
    assert list(evaluator.skipped) == list(rules.skipped) == list(MISFITS)
    found = {name: [] for name in GOOD}
    for batch in EVENTS.to_batches(max_chunksize=1):
        for name, rows in evaluator.push(batch).items():
            found[name] += rows["end"].to_pylist()
        evaluator = rules.restore(evaluator.checkpoint())
        assert list(evaluator.skipped) == list(MISFITS)
    assert found == expected()
    with pytest.raises(QueryTypeError, match="query 'late'"):
        evaluator.add("late", MISFITS["no column"])
    with pytest.raises(CheckpointError):
        cer_gpu.compile_all(GOOD).restore(evaluator.checkpoint())


def test_an_evaluation_may_say_otherwise():
    with pytest.raises(QueryTypeError, match="query 'no column': the events have no column 'price'"):
        cer_gpu.compile_all(ALL, errors="skip").evaluate(EVENTS, errors="raise")
    rules = cer_gpu.compile_all(ALL)
    with pytest.raises(QueryTypeError, match="query 'no column'"):
        rules.evaluate(EVENTS)
    assert ends(rules.evaluate(EVENTS, errors="skip")) == expected()
    assert rules.evaluator(errors="skip").push(EVENTS.to_batches()[0]).keys() == GOOD.keys()
    with pytest.raises(OptionError, match="errors must be 'raise' or 'skip', got 'ignore'"):
        rules.evaluate(EVENTS, errors="ignore")
    with pytest.raises(OptionError, match="errors must be"):
        cer_gpu.compile_all(GOOD, errors="ignore")


def test_other_events_fit_other_queries():
    rules = cer_gpu.compile_all(ALL, errors="skip")
    assert "n" not in rules.evaluate(EVENTS.drop_columns("n"))
    assert "n" in rules.skipped
    assert "n" in rules.evaluate(EVENTS)
    assert "n" not in rules.skipped
    assert "no column" in rules.evaluate(EVENTS.rename_columns({"n": "price"}))


def test_queries_that_cannot_be_read_are_left_out_too():
    rules = cer_gpu.compile_all({**GOOD, "wrong": "SELECT * FROM S WHERE"}, errors="skip")
    assert {name: type(error) for name, error in rules.skipped.items()} == {"wrong": QuerySyntaxError}
    assert ends(rules.evaluate(EVENTS)) == expected()
    assert list(pickle.loads(pickle.dumps(rules)).skipped) == ["wrong"]
    assert list(cer_gpu.compile_all(ALL, schema=EVENTS.schema, errors="skip").skipped) == list(MISFITS)


@pytest.mark.parametrize("queries", [MISFITS, {"x": "SELECT", "y": "SELECT"}])
def test_the_first_error_is_raised_if_no_query_is_left(queries):
    with pytest.raises(QueryError, match=f"query {next(iter(queries))!r}: "):
        cer_gpu.compile_all(queries, errors="skip").evaluate(EVENTS)


def test_a_schema_that_changes_later_is_an_error():
    evaluator = cer_gpu.compile_all(GOOD, errors="skip").evaluator()
    evaluator.push(EVENTS.to_batches()[0])
    with pytest.raises(QueryTypeError, match="query 'n'"):
        evaluator.push(EVENTS.drop_columns("n").to_batches()[0])


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a", "a", "a"], ["a", "a (2)", "a (3)"]),
        (["a (2)", "a", "a"], ["a (2)", "a", "a (3)"]),
        (["a", "a", "a (2)"], ["a", "a (2)", "a (2) (2)"]),
    ],
)
def test_no_error_is_lost_where_rules_have_one_name(names, shown):
    errors = [OptionError(f"{place}") for place in range(len(names))]
    rule = Rule("good", GOOD["ab"])
    rules = compile_rules({"good": rule}, errors="skip", invalid_rules=list(zip(names, errors, strict=True)))
    assert list(rules.skipped) == shown
    assert list(rules.skipped.values()) == errors


def test_a_wrong_treatment_of_errors_is_told_before_any_rule_is_read(tmp_path):
    with pytest.raises(OptionError, match="errors must be"):
        load(tmp_path / "none", errors="maybe")
    with pytest.raises(OptionError, match="errors must be"):
        compile_rules({"wrong": Rule("wrong", "SELECT")}, errors="maybe", language="none")
