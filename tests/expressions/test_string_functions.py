"""Functions of several values of one event, over texts of every layout, against the reference."""

import random

import numpy as np
import pyarrow as pa
import pytest
import reference as ref
import reference_texts
import rendering
from hypothesis import strategies as st
from rest_strategies import text_conditions
from strategies import property_test

import cer_gpu
from cer_gpu.ceql import functions
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import path_of
from cer_gpu.ceql.traversal import mapped
from cer_gpu.columnar.columns import Block
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.derived import makers_of
from cer_gpu.expressions.operators import FUNCTIONS
from cer_gpu.expressions.string_functions import StringFunction, to_lower
from cer_gpu.expressions.targets import arrow
from cer_gpu.expressions.targets.numpy import rows_of

WORDS = ["", "a", "ab", "aba", "B", "É", "é", "İx", "Σσς", "K", "日本", "0x1F", "-12.5", "1e3", "7"]
WORDS += ["`.`", "it's", "\0\n"]
ELEMENT = ref.Element()
words = st.sampled_from(WORDS).map(ref.Const)
texts = st.sampled_from(["s", "t", "st.s"]).map(ref.Attr) | words
integers = st.sampled_from([-3, -1, 0, 1, 2, 5]).map(ref.Const) | st.sampled_from(["n", "small"]).map(ref.Attr)
numbers = integers | st.builds(ref.Arith, st.sampled_from("+-"), integers, integers)
TESTS = ["startswith", "endswith", "contains", "startswith~", "endswith~", "contains~"]


def texts_over(leaves):
    """Return expressions that are texts, with these among their operands."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner | numbers | st.just(ref.Attr("flag")), min_size=1, max_size=3).map(
                lambda operands: ref.Strings("concat", tuple(operands))
            ),
            st.builds(lambda *operands: ref.Strings("substring", operands), inner, numbers),
            st.builds(lambda *operands: ref.Strings("substring", operands), inner, numbers, lengths(inner)),
            st.builds(
                lambda name, *operands: ref.Strings(name, operands),
                st.sampled_from(["between", "between~"]), inner, inner, inner, st.booleans().map(ref.Const),
            ),
            st.builds(ref.Call, st.sampled_from(["lower", "upper"]), inner),
        ),
        max_leaves=4,
    )  # fmt: skip


def lengths(texts):
    return st.builds(lambda text, less: ref.Arith("-", ref.Call("length", text), less), texts, integers)


operators = st.sampled_from(["=", "<>", "<", ">="])


def conditions(values):
    """Return predicates with a function of such texts."""
    find = st.sampled_from(["indexof", "indexof~"])
    return st.one_of(
        st.builds(ref.Compare, operators, values, words),
        st.builds(ref.In, values, st.lists(words, min_size=1, max_size=2).map(tuple), st.booleans()),
        st.builds(ref.Glob, values, st.just(("*a*", "?")), st.booleans()),
        st.builds(
            lambda op, name, *operands, of: ref.Compare(op, ref.Strings(name, operands), of),
            operators, find, values, values, of=integers,
        ),
        st.builds(
            lambda op, name, *operands, of: ref.Compare(op, ref.Strings(name, operands), of),
            operators, find, values, values, integers, of=integers,
        ),
        st.builds(
            lambda op, name, *operands, of: ref.Compare(op, ref.Strings(name, operands), of),
            st.sampled_from("=<"), st.just("number"), values,
            st.sampled_from([8, 10, 16]).map(ref.Const), of=st.sampled_from([7, 31.0]).map(ref.Const),
        ),
        st.builds(
            lambda name, operands, held: ref.Compare("=", ref.Strings(name, tuple(operands)), ref.Const(held)),
            st.sampled_from(TESTS), st.lists(values, min_size=2, max_size=3), st.booleans(),
        ),
        st.builds(ref.IsNull, st.builds(lambda *of: ref.Strings("indexof", of), values, values), st.booleans()),
    )  # fmt: skip


of_elements = conditions(texts_over(texts | st.just(ELEMENT))).filter(
    lambda test: any(isinstance(each, ref.Element) for each in ref.descendants(test))
)
predicates = conditions(texts_over(texts)) | st.builds(ref.AnyOf, st.just(ref.Attr("ts")), of_elements)
some_text, some_number = st.none() | st.sampled_from(WORDS), st.none() | st.integers(-3, 5)
events = st.fixed_dictionaries(
    {
        "s": some_text,
        "t": some_text,
        "st": st.fixed_dictionaries({"s": some_text}),
        "n": some_number,
        "small": some_number,
        "flag": st.none() | st.booleans(),
        "ts": st.none() | st.lists(some_text, max_size=3),
    }
)
LAYOUTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


def node(expression):
    """Return an expression or predicate of the reference as one of the language of values."""
    match expression:
        case ref.Attr(name):
            return s.Attribute(path_of(name.split(".")))
        case ref.Element():
            return s.Element(s.Attribute("ts"))
        case ref.Const(value):
            return s.Literal(value, "" if isinstance(value, str | bool) else repr(value))
        case ref.Arith(op, left, right):
            return s.Arithmetic(op, node(left), node(right))
        case ref.Call(function, operand):
            return s.Call(function, (node(operand),))
        case ref.Strings(function, operands):
            return s.Call(function, tuple(map(node, operands)))
        case ref.Compare(op, left, right):
            return s.Comparison(op, node(left), node(right))
        case ref.In(operand, values, negated):
            found = s.Membership(node(operand), tuple(map(node, values)))
            return s.Not(found) if negated else found
        case ref.Glob(operand, patterns, nocase):
            return s.StringTest("GLOB", node(operand), tuple(map(s.Literal, patterns)), nocase)
        case ref.IsNull(operand, negated):
            return s.Not(s.IsNull(node(operand))) if negated else s.IsNull(node(operand))
        case ref.AnyOf(_, test):
            return s.AnyElement(node(test))
        case ref.PredAnd(left, right):
            return s.joined(s.And, (node(left), node(right)))
        case ref.PredOr(left, right):
            return s.joined(s.Or, (node(left), node(right)))
        case ref.PredNot(operand):
            return s.Not(node(operand))
    raise TypeError(expression)


def batches_of(stream, layout, cut):
    kinds = {
        "s": layout, "t": pa.string(), "st": pa.struct({"s": layout}), "n": pa.int64(), "small": pa.int8(),
        "flag": pa.bool_(), "ts": pa.list_(layout),
    }  # fmt: skip
    columns = [pa.array([event[name] for event in stream], kind) for name, kind in kinds.items()]
    whole = pa.RecordBatch.from_arrays(columns, schema=pa.schema(kinds))
    return [whole[:cut], whole[cut:]]


def rows_where(predicate, batches, negated):
    """Return the rows of batches, as blocks of one stream, for which a predicate is TRUE, or FALSE."""
    binder, coders, found = Binder(batches[0].schema, ""), {}, []
    test = binder.bind(predicate, negated)
    makers, inputs = makers_of(binder.derived), binder.inputs.fresh()
    for batch in batches:
        block = Block(batch, coders)
        block.derive(makers)
        found += np.broadcast_to(rows_of(test, inputs, block), (batch.num_rows,)).tolist()
    return found


@property_test(4)
def test_functions_of_texts_agree_with_the_reference(data):
    stream = data.draw(st.lists(events, min_size=1, max_size=8), label="events")
    predicate = data.draw(predicates, label="predicate")
    batches = batches_of(stream, data.draw(st.sampled_from(LAYOUTS)), data.draw(st.integers(0, len(stream))))
    truths = [ref.truth(predicate, event) for event in stream]
    assert rows_where(node(predicate), batches, False) == [each is True for each in truths]
    assert rows_where(node(predicate), batches, True) == [each is False for each in truths]


@property_test(2)
def test_functions_of_texts_are_evaluated_from_ceql(data):
    some = st.none() | st.sampled_from(["", "a", "ab", "Ab", "ba", "é"])
    types = {"type": pa.string(), "s": pa.string(), "t": pa.string(), "n": pa.int64(), "m": pa.int64()}
    rows = st.fixed_dictionaries({"s": some, "t": some, "n": some_number, "m": some_number})
    stream = [{"type": "A", **row} for row in data.draw(st.lists(rows, min_size=1, max_size=9))]
    predicate = data.draw(text_conditions(), label="predicate")
    query = ref.Query(ref.Filter(ref.EventType("A"), ref.Unary("A", predicate)))
    text = rendering.to_ceql(query, random.Random(data.draw(st.integers(0, 99))))
    table = pa.Table.from_pylist(stream, pa.schema(types))
    expected = [i for i, event in enumerate(stream) if ref.holds(predicate, event)]
    assert cer_gpu.compile(text, schema=table.schema).evaluate(table)["start"].to_pylist() == expected


@property_test()
def test_any_predicate_over_the_fields_of_one_element_is_a_test_of_it(data):
    """A list of structs: TRUE where one of them passes the whole test, not one for each part."""
    entries = st.fixed_dictionaries({"a": st.none() | st.integers(0, 2), "b": st.none() | st.sampled_from(["x", "yx"])})
    stream = data.draw(st.lists(st.none() | st.lists(st.none() | entries, max_size=3), min_size=1, max_size=6))
    parts = st.one_of(
        st.builds(ref.Compare, st.sampled_from("=<"), st.just(ref.Attr("a")), st.integers(0, 2).map(ref.Const)),
        st.builds(ref.Compare, st.just(">"), st.just(ref.Call("length", ref.Attr("b"))), st.just(ref.Const(1))),
        st.builds(ref.Glob, st.just(ref.Attr("b")), st.just(("*X",)), st.booleans()),
        st.builds(ref.IsNull, st.just(ref.Attr("b")), st.booleans()),
    )
    test = data.draw(
        st.recursive(
            parts,
            lambda each: (
                st.builds(ref.PredAnd, each, each) | st.builds(ref.PredOr, each, each) | st.builds(ref.PredNot, each)
            ),
            max_leaves=4,
        ),
        label="test",
    )
    entry = s.Attribute("entries")
    of_entry = s.AnyElement(node_of_entry(node(test), entry))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(stream, pa.list_(pa.struct({"a": pa.int64(), "b": pa.string()})))], names=["entries"]
    )
    for negated in (False, True):
        expected = []
        for entries_of_event in stream:
            truths = [ref.truth(test, each or {"a": None, "b": None}) for each in entries_of_event or ()]
            known = entries_of_event is not None
            expected.append(known and all(truth is False for truth in truths) if negated else True in truths)
        assert rows_where(of_entry, [batch], negated) == expected


def node_of_entry(test, entry):
    return mapped(test, s.Attribute, lambda attribute: s.Element(entry, (attribute.name,)))


# ---- single facts ----------------------------------------------------------------------------------------------------

VALUES = [
    (("substring", "powershell.exe", -4), ".exe"),
    (("substring", "powershell.exe", 0, -4), "powershell"),
    (("substring", "abc", 2, 1), ""),
    (("substring", "abc", -9, 9), "abc"),
    (("between", "a[b]c]d", "[", "]"), "b"),
    (("between", "a[b]c]d", "[", "]", True), "b]c"),
    (("between", "abc", "", "c"), "abc"),
    (("between", "abc", "c", "a"), ""),
    (("between~", "System Idle Process", "SYSTEM ", " PROCESS"), "Idle"),
    (("indexof", "abcabc", "c"), 2),
    (("indexof", "abcabc", "c", 3), 5),
    (("indexof", "abcabc", "c", -3), 2),
    (("indexof", "abcabc", "x"), None),
    (("indexof", "abc", "", 3), 3),
    (("indexof", "abc", "", 4), None),
    (("contains", "abc", ""), False),
    (("startswith", "abc", "x", "ab"), True),
    (("endswith", "", ""), True),
    (("number", "1337"), 1337.0),
    (("number", "0x32e"), 814.0),
    (("number", "32e", 16), 814.0),
    (("number", "-0x10", 16), -16.0),
    (("number", "1.5e3"), 1500.0),
    (("number", "12a"), None),
    (("number", "0x32e", 10), None),
    (("concat", "a", 1, True, 2.0, -1.5), "a1true2.0-1.5"),
]


@pytest.mark.parametrize(("call", "value"), VALUES, ids=str)
def test_a_call_of_constants_has_its_value(call, value):
    name, *operands = call
    literals = tuple(s.Literal(x, "" if isinstance(x, str | bool) else repr(x)) for x in operands)
    batch = pa.RecordBatch.from_pydict({"a": [1]})
    if value is None:
        assert rows_where(s.IsNull(s.Call(name, literals)), [batch], False) == [True]
        return
    expected = s.Literal(value, "" if isinstance(value, str | bool) else repr(value))
    assert rows_where(s.Comparison("=", s.Call(name, literals), expected), [batch], False) == [True]
    assert reference_texts.STRING_FUNCTIONS[name](*operands) == value


@pytest.mark.parametrize("text", [*WORDS, "ǅ", "ß", "ﬁ", "\N{KELVIN SIGN}"])
def test_small_letters_are_those_of_lower_and_of_one_character_each(text):
    of_arrow = arrow.operation("lower", pa.scalar(text)).as_py()
    assert to_lower(text) == of_arrow == reference_texts.small(text)
    assert len(to_lower(text)) == len(text)


def test_names_and_numbers_of_operands_are_those_of_ceql():
    records = {name: record for name, record in FUNCTIONS.items() if isinstance(record, StringFunction)}
    assert {name for name in FUNCTIONS if not name.endswith("~")} == set(functions.SCALAR)
    for name, record in records.items():
        if not name.endswith("~"):
            least, most = functions.SCALAR[name]
            assert (least, most) == (record.least, None if record.repeats else len(record.operands))
    assert set(functions.TESTS) == {name for name, record in records.items() if pa.types.is_boolean(record.type)}


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("startswith(s, 3)", "startswith takes a text there, and the number 3 is none"),
        ("substring(s, 'x') = 'y'", "substring takes a whole number there, and the string 'x' is none"),
        ("between(s, 'x', 'y', 1) = 'y'", "between takes TRUE or FALSE there"),
        ("concat(ts, 'x') = 'y'", "ts"),
    ],
)
def test_operands_of_wrong_types_are_refused_by_name(test, message):
    schema = pa.schema({"type": pa.string(), "s": pa.string(), "ts": pa.list_(pa.string())})
    with pytest.raises(cer_gpu.QueryTypeError, match=message):
        cer_gpu.compile(f"SELECT * FROM S WHERE A FILTER A[{test}]", schema=schema)


def test_measures_have_the_functions_of_texts():
    d = pa.array(["x", "y"]).dictionary_encode()
    table = pa.table({"type": ["A", "B"], "s": ["ab", "c"], "n": [1, None], "d": d})
    query = cer_gpu.compile(
        "SELECT concat(a.s, '-', b.s, a.n) AS c, substring(a.s, a.n) AS u, startswith(a.s, 'a') AS t, "
        "concat(a.d, b.n) AS n, number(concat('0x', a.n)) AS x FROM S WHERE A AS a ; B AS b HAVING contains(c, '-c')"
    )
    found = query.evaluate(table).select(["c", "u", "t", "n", "x"]).to_pylist()
    assert found == [{"c": "ab-c1", "u": "b", "t": True, "n": None, "x": 1.0}]


def test_a_function_is_called_once_for_each_distinct_combination(monkeypatch):
    seen = []
    record = FUNCTIONS["concat"]
    counted = {"concat": StringFunction(
        "concat", record.operands, 1, record.type, lambda *of: seen.append(of) or "".join(of), "", repeats=True
    )}  # fmt: skip
    monkeypatch.setattr("cer_gpu.expressions.derived._BY_NAME", counted)
    batch = pa.RecordBatch.from_pydict({"s": ["a", "b"] * 500, "t": ["x"] * 999 + ["y"]})
    both = s.Comparison("=", s.Call("concat", (s.Attribute("s"), s.Attribute("t"))), s.Literal("ax"))
    one = s.Comparison("=", s.Call("concat", (s.Attribute("s"), s.Literal("x"))), s.Literal("ax"))
    assert sum(rows_where(both, [batch], False)) == 500
    assert sorted(seen) == [("a", "x"), ("b", "x"), ("b", "y")]
    seen.clear()
    assert sum(rows_where(one, [batch[:700], batch[700:]], False)) == 500
    assert sorted(seen) == [("a", "x"), ("b", "x")]
