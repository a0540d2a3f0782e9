"""Tests of texts against the reference: GLOB, LIKE and CIDR, of random patterns and values."""

import ipaddress
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import reference as ref
import reference_predicates
import rendering
from glob_strategies import globs, is_pattern, values
from hypothesis import strategies as st
from strategies import property_test

import cer_gpu
from cer_gpu.ceql.patterns import STRING_TESTS
from cer_gpu.expressions import string_tests
from cer_gpu.expressions.string_tests import STRING_MATCHERS


def answers(predicate, column):
    """Return the positions of the texts for which the engine finds a predicate TRUE."""
    text = rendering.to_ceql(ref.Query(ref.Filter(ref.EventType("A"), ref.Unary("A", predicate))), random.Random(0))
    events = pa.table(
        {"type": pa.chunked_array([["A"] * len(part) for part in column.chunks], pa.string()), "s": column}
    )
    return cer_gpu.compile(text).evaluate(events)["start"].to_pylist()


def check(predicate, known, kind, cut):
    """Compare a predicate, and its negation, with the reference, on a column of two chunks behind an offset."""
    whole = pa.array(["noise", *known], pa.string())
    whole = whole.dictionary_encode() if pa.types.is_dictionary(kind) else whole.cast(kind)
    column = pa.chunked_array([whole[1 : 1 + cut], whole[1 + cut :]])
    for tested in (predicate, ref.PredNot(predicate)):
        expected = [i for i, value in enumerate(known) if ref.holds(tested, {"s": value})]
        assert answers(tested, column) == expected


KINDS = st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
S = ref.Attr("s")


@property_test()
def test_globs_are_those_of_the_reference(data):
    patterns = tuple(data.draw(st.lists(globs.filter(is_pattern), min_size=1, max_size=4), label="patterns"))
    known = data.draw(st.lists(values | st.sampled_from(patterns) | st.none(), min_size=1, max_size=12), label="values")
    predicate = ref.Glob(S, patterns, data.draw(st.booleans(), label="nocase"))
    check(predicate, known, data.draw(KINDS), data.draw(st.integers(0, len(known))))


addresses = st.builds(str, st.ip_addresses()) | st.builds(
    lambda n: str(ipaddress.ip_address(n)), st.sampled_from([0x0A000000, 0x0A0000FF, 0x0A000100, 0xFFFFFFFF, 0])
)
networks = st.builds(
    lambda address, bits: str(ipaddress.ip_network(f"{address}/{bits}", strict=False)), addresses, st.integers(0, 32)
)
no_addresses = st.sampled_from(
    ["", "foo", "10.0.0", "10.0.0.256", "010.0.0.1", "10.0.0.1 ", "10.0.0.1\n", "::g", ":", "1::2::3", "\u0661.0.0.1"]
)
other_addresses = st.sampled_from(["fe80::1%eth0", "::ffff:10.0.0.1", "FE80::A", "0:0::0:1", "::1.2.3.4"])


@property_test()
def test_addresses_lie_in_the_networks_of_the_reference(data):
    of = tuple(data.draw(st.lists(networks, min_size=1, max_size=4), label="networks"))
    inside = st.sampled_from(of).flatmap(lambda text: st.builds(str, st.ip_addresses(network=text)))
    one = addresses | inside | no_addresses | other_addresses | st.none()
    known = data.draw(st.lists(one, min_size=1, max_size=12), label="values")
    check(ref.Cidr(S, of), known, data.draw(KINDS), data.draw(st.integers(0, len(known))))


def test_every_test_of_texts_has_an_answer():
    assert STRING_MATCHERS.keys() == STRING_TESTS.keys()


def test_many_patterns_are_few_regular_expressions(monkeypatch):
    patterns = [f"*x{i}?" for i in range(5000)] + [f"y{i}" for i in range(5000)]
    n_matched = []
    matches = string_tests._match_regex
    monkeypatch.setattr(
        string_tests, "_match_regex", lambda *given, **named: n_matched.append(1) or matches(*given, **named)
    )
    answer = STRING_MATCHERS["GLOB"](patterns, False)
    found = answer(pa.array(["ax4999b", "y4999", "y5000", "x1", None]))
    assert found.to_pylist() == [True, True, False, False, None]
    assert len(n_matched) < 20


def test_each_distinct_text_is_tested_once(monkeypatch):
    tested = []
    matches = string_tests._match_regex
    monkeypatch.setattr(
        string_tests, "_match_regex", lambda array, **named: tested.append(len(array)) or matches(array, **named)
    )
    table = pa.table({"type": ["A"] * 9000, "s": ["ab", "b", "c"] * 3000})
    query = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[s GLOB 'a?']")
    assert len(query.evaluate(table)) == 3000
    assert sum(tested) <= 3


@pytest.mark.parametrize(
    ("pattern", "text", "nocase", "expected"),
    [
        ("C:\\*", "C:\\windows", False, True),
        ("c:\\*", "C:\\windows", False, False),
        ("c:\\*", "C:\\windows", True, True),
        ("a", "ab", False, False),
        ("a?", "a\n", False, True),
        ("[]a]", "]", False, True),
        ("[!]a]", "b", False, True),
        ("[a-]", "-", False, True),
        ("[[]*[]]", "[x]", False, True),
        ("[a-z]", "K", True, True),
        ("[!a-z]", "K", True, False),
        ("STRASSE", "straße", True, False),
    ],
)
def test_globs_mean_what_the_page_says(pattern, text, nocase, expected):
    assert reference_predicates.glob_matches(pattern, text, nocase) is expected
    assert STRING_MATCHERS["GLOB"]([pattern], nocase)(pa.array([text])).to_pylist() == [expected]


@pytest.mark.parametrize("pattern", [".{3,}", "(?i).{8,}", ".{3,4}", "(?s).{12,}", ".{0,}"])
def test_a_run_of_characters_is_found_as_by_its_regular_expression(pattern):
    column = pa.array(["", "a" * 2, None, "a" * 8, "ab\n" * 4, "é" * 3, "é" * 4 + "x" * 12, "\n\n\n"])
    found = STRING_MATCHERS["LIKE"]([pattern], False)(column)
    assert found.equals(pc.match_substring_regex(column, pattern))
