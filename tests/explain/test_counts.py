"""Counts of an explanation: they follow the definitions, and an analysis finds the complex events of `evaluate`."""

import functools

import pyarrow as pa
import pytest
import reference as ref
import strategies
from cases import Case, CaseOfStreams

import cer_gpu
from cer_gpu.automaton.cea import ANY
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import names_of
from cer_gpu.explain.analysis import atomic_predicates, type_tests
from cer_gpu.stages import MeasuredStages


def as_reference(node):
    """Return a predicate or an expression of the package as one of the reference."""
    match node:
        case s.Literal():
            return ref.Const(node.value)
        case s.Attribute():
            return ref.Attr(".".join(names_of(node.name)))
        case s.Negative():
            return ref.Neg(as_reference(node.operand))
        case s.Arithmetic():
            return ref.Arith(node.op, as_reference(node.left), as_reference(node.right))
        case s.Comparison():
            return ref.Compare(node.op, as_reference(node.left), as_reference(node.right))
        case s.StringTest("LIKE"):
            return ref.Like(as_reference(node.operand), *node.strings)
        case s.StringTest("GLOB"):
            return ref.Glob(as_reference(node.operand), node.strings, node.nocase)
        case s.StringTest("CIDR"):
            return ref.Cidr(as_reference(node.operand), node.strings)
        case s.AnyElement():
            return ref.AnyOf(as_reference(node.element.list), as_reference(node.test))
        case s.Element():
            return ref.Element()
        case s.Membership():
            return ref.In(as_reference(node.operand), tuple(map(as_reference, node.values)))
        case s.Not():
            return ref.PredNot(as_reference(node.operand))
        case s.And():
            return functools.reduce(ref.PredAnd, map(as_reference, node.operands))
        case s.Or():
            return functools.reduce(ref.PredOr, map(as_reference, node.operands))
    raise TypeError(node)


def satisfies(guard, event):
    return (
        guard.event_type in (None, event[ref.TYPE])
        and guard.stream in (None, event.get(ref.STREAM))
        and (guard.predicate is None or ref.holds(as_reference(guard.predicate), event))
    )


def is_relevant(cea, event):
    """Return True if the event takes a transition that is more than waiting."""
    return any(
        t.guard == ANY or satisfies(cea.guards[t.guard], event) != t.negated
        for t in cea.transitions
        if not (t.guard == ANY and t.source == t.target and not t.selected)
    )


def assert_counts(query, events, facts):
    plan = query._plan
    for kind, guards in (
        ("types", type_tests(plan)),
        ("predicates", atomic_predicates(plan)),
        ("guards", plan.cea.guards),
    ):
        expected = [sum(satisfies(guard, event) for event in events) for guard in guards]
        assert [fact["n_events"] for fact in facts[kind]] == expected, kind
    relevant = sum(is_relevant(plan.cea, event) for event in events)
    assert facts["events"] == {"n": len(events), "n_relevant": relevant}


def assert_analysis(query, events, facts):
    found = facts["analysis"]
    assert found["n_events"] == facts["events"]["n"]
    assert found["n_relevant"] == facts["events"]["n_relevant"]
    assert found["n_matches"] == query.evaluate(events, threads=1).num_rows
    assert found["seconds"] == pytest.approx(sum(found["stages"].values()))
    assert all(seconds >= 0 for seconds in found["stages"].values())
    if found["determinised"] is None:
        assert facts["plan"]["engine"]["chosen"] == "stacks"
    else:
        states = set(range(len(facts["automaton"]["states"])))
        assert all(states.issuperset(inside) for inside in found["determinised"]["states"])


@strategies.property_test(0.5)
def test_counts_of_random_predicates_are_those_of_the_reference(data):
    case = Case(data, strategies.predicate_cases())
    assert_counts(case.compiled, case.events, case.compiled.explain(case.batches).to_dict())


@strategies.property_test(0.5)
def test_counts_of_random_queries_are_those_of_the_reference(data):
    case = Case(data, strategies.full_cases())
    assert_counts(case.compiled, case.events, case.compiled.explain(case.table).to_dict())
    facts = case.compiled.explain(iter(case.batches), analyze=True).to_dict()
    assert_counts(case.compiled, case.events, facts)
    assert_analysis(case.compiled, case.table, facts)


@strategies.property_test(0.25)
def test_counts_of_several_streams_are_those_of_the_reference(data):
    case = CaseOfStreams(data, strategies.cases_of_several_streams(strategies=("ALL", "NEXT")))
    facts = case.compiled.explain(case.tables, analyze=True).to_dict()
    assert_counts(case.compiled, case.events, facts)
    assert_analysis(case.compiled, case.tables, facts)


@strategies.property_test(0.25)
def test_counts_of_streams_without_a_type_column_are_those_of_the_reference(data):
    case = CaseOfStreams(data, strategies.cases_of_several_streams(typed=False), typed=False)
    assert_counts(case.compiled, case.events, case.compiled.explain(case.tables).to_dict())


def test_an_analysis_lists_the_stages_of_the_chosen_runtime():
    events = pa.table({"type": ["A", "B", "Z", "B"], "k": [1, 1, 1, 2]})

    def stages(query):
        return list(cer_gpu.compile(query).explain(events, analyze=True).to_dict()["analysis"]["stages"])

    common = ["decode", "predicates", "loop", "output", "rest"]
    assert stages("SELECT * FROM S WHERE A : B") == common
    assert stages("SELECT * FROM S WHERE A ; B") == [*common[:3], "listing", *common[3:]]
    assert stages("SELECT * FROM S WHERE A : B PARTITION BY [k]") == [*common[:2], "partitions", *common[2:]]


def test_a_nested_stage_stops_the_clock_of_the_outer_one(monkeypatch):
    now = iter([0.0, 1.0, 4.0, 9.0])
    monkeypatch.setattr("cer_gpu.stages.time.perf_counter", lambda: next(now))
    stages = MeasuredStages()
    with stages.stage("loop"), stages.stage("listing"):
        pass
    assert stages.seconds["loop"] == 1 + 5
    assert stages.seconds["listing"] == 3


def test_seventy_guards_are_counted_across_two_words():
    kinds = [f"T{i}" for i in range(70)]
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {' OR '.join(kinds)}")
    facts = query.explain(pa.table({"type": [*kinds, "T69", None, "other"]})).to_dict()
    assert [fact["n_events"] for fact in facts["guards"]] == [1] * 69 + [2]
    assert facts["events"] == {"n": 73, "n_relevant": 71}


def test_explain_raises_the_errors_of_evaluate():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[n > 1]", time_column="ts")
    with pytest.raises(cer_gpu.OptionError, match="no events to analyze"):
        query.explain(analyze=True)
    with pytest.raises(cer_gpu.QueryTypeError, match="no column 'n'"):
        query.explain(pa.table({"type": ["A"], "ts": [1]}))
    falling = pa.table({"type": ["A", "B"], "ts": [2, 1], "n": [1, 1]})
    with pytest.raises(cer_gpu.TimeOrderError, match="event 1"):
        query.explain(falling, analyze=True)
    assert query.explain(falling).to_dict()["events"]["n"] == 2


def test_an_empty_stream_counts_zero_events():
    query = cer_gpu.compile("SELECT * FROM S WHERE A : B")
    explanation = query.explain(pa.table({"type": pa.array([], pa.string())}), analyze=True)
    assert explanation.to_dict()["events"] == {"n": 0, "n_relevant": 0}
    assert "relevant       0\n" in str(explanation)


def test_a_query_with_having_is_measured():
    events = pa.table({"type": list("ABBAB")})
    query = cer_gpu.compile("SELECT COUNT(b) AS n FROM S WHERE A ; B+ AS b HAVING n > 1")
    assert query.explain(events, analyze=True).to_dict()["analysis"]["n_matches"] == query.evaluate(events).num_rows
