"""YAML of rules, document by document: places of errors, integers as they are written."""

import pytest

pytest.importorskip("sigma", reason="pySigma is an extra")

import pyarrow as pa

import cer_gpu
import cer_gpu.sigma
from cer_gpu.sigma.rule_files import UnreadDocument, read_documents

RULE = "title: %s\nlogsource: {product: x}\ndetection: {s: {%s}, condition: s}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n---\nb: [\n---\nc: 1\n", "document 2, line 3: while parsing a flow node"),
        ("a: 1\n---\nb: 1\nb: 2\n", "document 2, line 4: the key 'b' stands twice in a map"),
        ("---\n? [a]\n: b\n", "document 1, line 2: expected a plain key, found a list or a map"),
        ("a: 2026-13-45\n", "document 1, line 1: month must be in 1..12"),
        ("---\n---\na: 'x\n...\n---\nb: 1\n", "document 1, line 3: while scanning a quoted scalar"),
        ("a: &x 1\n---\nb: *x\n", "document 2, line 3: found undefined alias"),
        ("a: 1\n\n---\n\tb: 1\n", "document 2, line 4: "),
        ("a: \0\n", "document 1, line 1: unacceptable character"),
    ],
)
def test_a_document_that_is_no_yaml_is_named_with_its_line(text, said):
    found = [str(each.error) for each in read_documents(text) if isinstance(each, UnreadDocument)]
    assert [error[: len(said)] for error in found] == [said]


def test_other_documents_of_the_file_are_read():
    text = "---\n".join([RULE % ("One", "a: 1"), "title: [\n", RULE % ("Two", "a: 2"), RULE % ("Three", "a: 3, a: 4")])
    rules = cer_gpu.sigma.load(text)
    assert list(rules) == ["One", "Two"]
    assert [str(error).partition(":")[0] for _, error in rules.errors] == ["document 2, line 5", "document 4, line 13"]


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**64 - 1])
def test_integers_are_exact(number):
    kind = pa.uint64() if number > 2**63 else pa.int64()
    near = [number - 1, number]
    events = pa.table({"n": pa.array(near, kind), "s": list(map(str, near))})
    tests = {"n": 1, "n|gte": 1, "n|lt": 0, "n|neq": 0, "s": 1, "s|neq": 0}
    written = "---\n".join(RULE % (key, f"{key}: {number}") for key in tests)
    rules = cer_gpu.sigma.load(written)
    found = cer_gpu.compile_all(rules).evaluate(events, output="ends")
    assert {name: rows["end"].to_pylist() for name, rows in found.items()} == {key: [n] for key, n in tests.items()}
    several = cer_gpu.sigma.load(RULE % ("r", f"n: [{number}, 7]"))
    assert cer_gpu.compile(several["r"]).evaluate(events)["end"].to_pylist() == [1]


def test_bounds_of_correlations_are_exact():
    text = RULE.replace("title", "name: a\ntitle") % ("A", "a: 1")
    of = "correlation: {type: value_sum, rules: [a], timespan: 1m, condition: {gte: 9007199254740993, field: n}}"
    rules = cer_gpu.sigma.load(f"{text}---\ntitle: Sum\n{of}")
    assert ">= 9007199254740993" in rules["Sum"]
    events = pa.table({"a": [1, 1], "n": [2**53, 1], "ts": pa.array([0, 1], pa.timestamp("s"))})
    assert cer_gpu.compile(rules["Sum"], time_column="ts").evaluate(events)["end"].to_pylist() == [1]
    events = events.set_column(1, "n", pa.array([2**53 - 1, 1]))
    assert cer_gpu.compile(rules["Sum"], time_column="ts").evaluate(events)["end"].to_pylist() == []


@pytest.mark.parametrize(
    ("key", "written", "found"),
    [
        ("a|fieldref", "lower(string(a)) = lower(string(b))", [0, 1]),
        ("a|cased|fieldref", "string(a) = string(b)", [0]),
        ("a|cased|fieldref|startswith", "startswith(string(a), string(b))", [0, 2]),
        ("a|cased|fieldref|neq", "NOT string(a) = string(b) OR a IS NULL OR b IS NULL", [1, 2]),
    ],
)
def test_cased_before_fieldref_minds_the_case(key, written, found):
    events = pa.table({"a": ["x", "X", "xy"], "b": ["x", "x", "x"]})
    text = cer_gpu.sigma.load(RULE % ("r", f"{key}: b"))["r"]
    assert written in text
    assert cer_gpu.compile(text).evaluate(events)["end"].to_pylist() == found
    renamed = cer_gpu.sigma.load(RULE % ("r", f"{key}: c"), columns={"c": "b"})["r"]
    assert cer_gpu.compile(renamed).evaluate(events)["end"].to_pylist() == found
