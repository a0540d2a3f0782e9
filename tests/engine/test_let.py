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
            function = draw(st.sampled_from(["COUNT", "COUNT", "MAX"]))
            of = ref.Attr(RAW + name) if function == "MAX" else None
            return ref.Over(function, draw(st.sampled_from([*past.TYPES, None])), of, condition, draw(past.extents))


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
        keys = [next(event[name] for name in names if event[name] is not None) for event in ends]
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
