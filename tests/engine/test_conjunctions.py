"""ALL and conjunctive queries by hand, and random conjunctive queries compared with the definition.

Random formulas with ALL are among those of test_whole_language.py and test_properties.py.
"""

from __future__ import annotations

import random
from dataclasses import fields, replace

import arrow_streams
import conjunction_strategies as conjunctions
import conjunctive_rendering
import pyarrow as pa
import pytest
import reference as ref
import reference_conjunctive as cq
import rendering
import strategies
from cases import Case, assert_same, bound_rows_of, by_instances, counts_of, plain, pushed, rows_of, sorted_rows
from hypothesis import assume, note
from hypothesis import strategies as st
from small_sizes import small_sizes

import cer_gpu

OUTPUTS = ("positions", "bindings", "events", "count", "ends")


# ---------------------------------------------------------------------------------------------------- by hand

ALL = [
    ("A ALL B", "ACBA", None, [(0, 2, (0, 2)), (2, 3, (2, 3))]),
    ("A ALL B ALL C", "CBA", None, [(0, 2, (0, 1, 2))]),
    ("A ALL A", "AA", None, [(0, 0, (0,)), (0, 1, (0, 1)), (1, 1, (1,))]),
    ("(A ; B) ALL (B ; C)", "ABC", None, [(0, 2, (0, 1, 2))]),
    ("(A ; C) ALL (B ; B)", "ABCB", None, [(0, 3, (0, 1, 2, 3))]),
    ("(A : C) ALL B", "ACB", None, [(0, 2, (0, 1, 2))]),
    ("(A : C) ALL B", "ABC", None, []),
    ("(A ALL B) ; C", "BCAC", None, [(0, 3, (0, 2, 3))]),
    ("A : (B ALL C)", "ACABC", None, [(0, 3, (0, 1, 3)), (2, 4, (2, 3, 4))]),
    ("(A ALL B)+", "ABA", None, [(0, 1, (0, 1)), (1, 2, (1, 2))]),
    ("A+ ALL B", "AAB", None, [(0, 2, (0, 1, 2)), (0, 2, (0, 2)), (1, 2, (1, 2))]),
    ("NOT (A) ALL B", "BCA", None, [(0, 0, (0,)), (0, 1, (0,))]),
    ("A ALL B FILTER A.n = B.n", "ABBA", [1, 1, 2, 2], [(0, 1, (0, 1)), (2, 3, (2, 3))]),
    ("A ALL B FILTER A.n < B.n", "ABBA", [1, 1, 2, 2], [(0, 2, (0, 2))]),
    ("A ; (B ALL (C FILTER C.n = A.n))", "ABCC", [1, 5, 2, 1], [(0, 3, (0, 1, 3))]),
]


@pytest.mark.parametrize(("formula", "types", "n", "expected"), ALL)
def test_all_has_its_meaning(formula, types, n, expected):
    table = pa.table({"type": list(types), "n": n or [0] * len(types)})
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {formula}")
    assert sorted(rows_of(query.evaluate(table))) == expected
    assert query.evaluate(table, output="ends")["end"].to_pylist() == sorted({end for _, end, _ in expected})


@pytest.mark.parametrize("formula", ["(A ; B) ALL C", "(A OR B) ALL C", "A ALL B", "A ALL A"])
@pytest.mark.parametrize("n", [0, 1, 3, 6])
def test_ends_in_windows_of_few_events_are_those_of_the_rows(formula, n):
    table = pa.table({"type": list("ABCABCAABCBA")})
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {formula} WITHIN {n} EVENTS")
    expected = sorted({end for _, end, _ in rows_of(query.evaluate(table))})
    assert query.evaluate(table, output="ends")["end"].to_pylist() == expected
    assert by_instances(query).evaluate(table, output="ends")["end"].to_pylist() == expected


# papers: PCEA, example stream S0
S0 = pa.table(
    {
        "type": ["S", "T", "R", "S", "T", "R", "S", "T"],
        "a": [2, 2, 1, 2, 1, 2, 4, 1],
        "b": [11, None, 10, 11, None, 11, 13, None],
    }
)
Q0 = "Q0(x, y) <- T(a = x), S(a = x, b = y), R(a = x, b = y)"


def test_the_query_of_the_paper_has_its_answers():
    query = cer_gpu.compile(Q0)
    heads = {"x": [2, 2], "y": [11, 11]}
    spans = {"start": [0, 1], "end": [5, 5], "positions": [[0, 1, 5], [1, 3, 5]]}
    answer = query.evaluate(S0)
    assert answer.column_names == ["start", "end", "positions", "x", "y"]
    assert by_start(answer).to_pydict() == spans | heads
    atoms = {"T": [1, 1], "S": [0, 3], "R": [5, 5]}
    assert by_start(query.evaluate(S0, output="bindings")).to_pydict() == spans | heads | atoms
    assert query.evaluate(S0, output="count").to_pydict() == {"end": [5], "count": [2]}
    assert query.evaluate(S0, output="ends").to_pydict() == {"end": [5]}


def by_start(table):
    return table.sort_by("start")


def test_columns_of_relations_name_arguments_by_position():
    relations = {"T": ["a"], "S": ["a", "b"], "R": ["a", "b"]}
    query = cer_gpu.compile("Q0(x, y) <- T(x), S(x, y), R(x, y)", relations=relations)
    assert_same(query.evaluate(S0), cer_gpu.compile(Q0).evaluate(S0))


@pytest.mark.parametrize(("n", "starts"), [(5, [0, 1]), (4, [1]), (3, [])])
def test_the_window_begins_with_the_first_event(n, starts):
    answer = cer_gpu.compile(f"{Q0} WITHIN {n} EVENTS").evaluate(S0)
    assert sorted(answer["start"].to_pylist()) == starts


def test_atoms_of_one_type_may_have_the_same_event():
    table = pa.table({"type": ["T", "T"], "a": [1, 1]})
    answer = cer_gpu.compile("Q(x) <- T(a = x), T(a = x)").evaluate(table, output="bindings")
    assert answer.column_names == ["start", "end", "positions", "x", "T", "T_2"]
    found = zip(answer["T"].to_pylist(), answer["T_2"].to_pylist(), strict=True)
    assert sorted(found) == [(one, other) for one in (0, 1) for other in (0, 1)]


def test_heads_keep_the_types_of_their_columns():
    types = {"n": pa.int16(), "s": pa.string(), "v": pa.float32(), "d": pa.date32()}
    values = {"n": [1, None], "s": ["a", None], "v": [0.5, None], "d": [15706, None]}
    table = pa.table({"type": ["A", "A"], **{name: pa.array(values[name], types[name]) for name in types}})
    answer = cer_gpu.compile("Q(a, b, c, e) <- A(n = a, s = b, v = c, d = e)").evaluate(table)
    for column, name in zip("abce", types, strict=True):
        assert answer[column].to_pylist() == table[name].to_pylist()
        assert answer.schema.field(column).type == types[name]


# ------------------------------------------------------------------------------------- random conjunctive queries


class ConjunctiveCase(Case):
    """A conjunctive query and one stream; the arguments of its atoms are by name or by position."""

    def __init__(self, data: st.DataObject, cases: st.SearchStrategy) -> None:
        self.conjunctive, events = data.draw(cases, label="conjunctive case")
        super().__init__(data, st.just((cq.query(self.conjunctive), events)))

    def write(self, data, *, timed, typed=True):
        spelling = data.draw(st.integers(0, 2**16), label="spelling")
        by_position = not any("." in name for name in self.query.named) and data.draw(
            st.booleans(), label="by position"
        )
        self.relations = self.columns_of_types() if by_position else None
        rng = random.Random(spelling) if spelling else None
        self.text = conjunctive_rendering.to_text(self.conjunctive, rng, self.relations)
        note(f"plainly: {conjunctive_rendering.to_text(self.conjunctive)}")
        note(f"as text: {self.text}")
        self.time_column = ref.TIME if timed else None
        self.compiled = self.compile()

    def columns_of_types(self):
        found = {}
        for atom in self.conjunctive.atoms:
            found.setdefault(atom.type, {}).update(dict.fromkeys(sorted(name for name, _ in atom.terms)))
        return {type_: list(names) for type_, names in found.items()}

    def compile(self):
        time_unit = self.layout.time_unit if self.time_column else None
        return cer_gpu.compile(self.text, time_column=self.time_column, time_unit=time_unit, relations=self.relations)


def assert_columns(case, answer, output):
    """Check the names of the columns: those of any query, then the head, then the atoms or the events."""
    answer.validate(full=True)
    spans = {"count": ["end", "count"], "ends": ["end"]}.get(output, ["start", "end", "positions"])
    of_ends = output in ("count", "ends")
    times = (["end_time"] if of_ends else ["start_time", "end_time"]) if case.time_column else []
    keys = [names[0] for names in case.conjunctive.partition_by]
    head = [] if of_ends else [*case.conjunctive.head]
    more = {"bindings": [*case.conjunctive.names], "events": ["events"]}.get(output, [])
    assert answer.column_names == [*spans, *times, *keys, *head, *more]
    ends = answer["end"].to_pylist()
    assert ends == sorted(ends)


def head_rows_of(case, table):
    """Return the rows of "positions" as the reference writes them."""
    heads = [plain(table[name].to_pylist()) for name in case.conjunctive.head]
    return [(*row, tuple(column[k] for column in heads)) for k, row in enumerate(rows_of(table))]


def assert_right(case, answer, output, long=False):
    """Check that the answer is that of the definition, or one of those that LIMIT allows."""
    assert_columns(case, answer, output)
    if output in ("count", "ends"):
        counts = ref.counts_of(case.query, case.candidates(ref.bindings_long if long else ref.bindings))
        assert answer["end"].to_pylist() == [end for end, _ in counts]
        assert output == "ends" or counts_of(answer) == counts
        return
    if output == "bindings":
        candidates = case.candidates(ref.bindings_long if long else ref.bindings)
        found = bound_rows_of(answer, case.conjunctive.names)
    else:
        candidates = case.candidates(ref.head_rows_long if long else ref.head_rows)
        found = head_rows_of(case, answer)
    if case.conjunctive.limit is None:
        assert len(found) == len(candidates)
    assert ref.is_choice(case.query, candidates, found)
    if output == "bindings":
        expected = [ref.headed(case.query, case.events, row) for row in found]
        assert head_rows_of(case, answer) == expected
    if output == "events":
        rows = case.whole.to_pylist()
        for events, positions in zip(answer["events"].to_pylist(), answer["positions"].to_pylist(), strict=True):
            assert plain(events) == plain([rows[p] for p in positions])


@pytest.mark.parametrize("output", OUTPUTS)
@strategies.property_test(0.4)
def test_answers_are_those_of_the_reference_in_any_cut(output, data):
    limits = data.draw(st.booleans(), label="limits")
    case = ConjunctiveCase(data, conjunctions.conjunctive_cases(limits=limits))
    case.candidates(ref.bindings)  # discards examples that are too large
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, answer, output)
    assert_same(pushed(case.compiled, case.batches, output=output), answer)
    others = data.draw(strategies.cuts(len(case.events)), label="other cuts")
    batches = arrow_streams.build_batches(case.events, case.layout, others)
    assert_same(pushed(case.compiled, batches, output=output), answer)


@strategies.property_test(0.3)
def test_bindings_are_the_t_homomorphisms(data):
    """The second kind of brute force knows nothing of ALL."""
    case = ConjunctiveCase(data, conjunctions.conjunctive_cases())
    answer = case.compiled.evaluate(case.table, output="bindings")
    assert sorted(bound_rows_of(answer, case.conjunctive.names)) == cq.bindings(case.conjunctive, case.events)
    answer = case.compiled.evaluate(case.table)
    assert sorted(head_rows_of(case, answer), key=repr) == cq.answers(case.conjunctive, case.events)


@strategies.property_test(0.3)
def test_conjunctive_queries_without_self_joins_are_those_of_all(data):
    case = ConjunctiveCase(data, conjunctions.conjunctive_cases())
    names, types = case.conjunctive.names, [atom.type for atom in case.conjunctive.atoms]
    assume(len({*types}) == len(types))
    query = replace(case.query, formula=defining(case.query.formula), select=names, head=None)
    options = {"time_column": case.time_column, "time_unit": case.layout.time_unit if case.time_column else None}
    same = cer_gpu.compile(rendering.to_ceql(query), **options)
    expected = same.evaluate(case.table, output="bindings")
    answer = case.compiled.evaluate(case.table, output="bindings")
    assert sorted(bound_rows_of(answer, names)) == sorted(bound_rows_of(expected, names))


def defining(formula):
    """Return the formula with types that define variables of their names."""
    if isinstance(formula, ref.EventType):
        return replace(formula, defines=True)
    parts = {field.name: getattr(formula, field.name) for field in fields(formula)}
    return replace(formula, **{name: defining(part) for name, part in parts.items() if isinstance(part, ref.Formula)})


@strategies.property_test(0.3)
def test_a_stream_with_checkpoints_gives_the_uninterrupted_table(data):
    case = ConjunctiveCase(data, conjunctions.conjunctive_cases(limits=data.draw(st.booleans(), label="limits")))
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    answer = case.compiled.evaluate(case.table, output=output)
    assert_same(with_checkpoints(case, output), answer)


def with_checkpoints(case, output):
    """Return the results of an evaluation that goes on in a new evaluator before each batch."""
    evaluator, found = case.compiled.evaluator(output=output), []
    for batch in case.batches:
        evaluator = case.compile().restore(evaluator.checkpoint())
        found.append(evaluator.push(batch))
    evaluator = case.compile().restore(evaluator.checkpoint())
    return pa.Table.from_batches([*found, evaluator.finish()])


@strategies.property_test(0.3)
def test_small_buffers_change_no_result(data):
    case = ConjunctiveCase(data, conjunctions.conjunctive_cases(limits=data.draw(st.booleans(), label="limits")))
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case.candidates(ref.bindings)
    answer = case.compiled.evaluate(case.table, output=output)
    with small_sizes():
        assert_same(case.compiled.evaluate(case.table, output=output), answer)
        assert_same(with_checkpoints(case, output), answer)
    assert_right(case, answer, output)


@strategies.property_test(0.3)
def test_shares_make_up_the_whole(data):
    case = ConjunctiveCase(data, conjunctions.conjunctive_cases())
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    n = data.draw(st.integers(1, 4), label="shares")
    whole = case.compiled.evaluate(case.table, output=output)
    parts = [case.compiled.evaluate(case.table, output=output, shard=(k, n)) for k in range(n)]
    assert sorted_rows(*parts) == sorted_rows(whole)
    for part in parts:
        assert part["end"].to_pylist() == sorted(part["end"].to_pylist())


@strategies.property_test(0.2)
def test_threads_find_the_same_rows(data):
    case = ConjunctiveCase(data, conjunctions.conjunctive_cases())
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    answer = case.compiled.evaluate(case.table, output=output)
    threaded = case.compiled.evaluate(case.whole, output=output, threads=3)
    assert threaded.schema == answer.schema
    assert sorted_rows(threaded) == sorted_rows(answer)
    assert threaded["end"].to_pylist() == answer["end"].to_pylist()


@strategies.property_test(0.3)
def test_long_streams_give_the_reference(data):
    """Keys and partitions come and go, and windows pass, many times over."""
    limits = data.draw(st.booleans(), label="limits")
    case = ConjunctiveCase(data, conjunctions.long_conjunctive_cases(limits=limits))
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case.candidates(ref.bindings_long)  # discards examples that are too large
    with small_sizes():
        answer = case.compiled.evaluate(case.table, output=output)
        assert_same(with_checkpoints(case, output), answer)
    assert_right(case, answer, output, long=True)


@pytest.mark.parametrize("text", ["Q() <- A(m = _), B(n = 1)", "Q() <- A(m = x), B(n = 1)"])
def test_events_must_have_attributes_that_nothing_compares(text):
    with pytest.raises(cer_gpu.QueryTypeError, match="no column 'm'"):
        cer_gpu.compile(text).evaluate(pa.table({"type": ["A", "B"], "n": [1, 1]}))


def test_null_is_no_term():
    with pytest.raises(cer_gpu.QueryError, match="NULL is no term"):
        cer_gpu.compile("Q() <- A(n = NULL), B(n = NULL)")
