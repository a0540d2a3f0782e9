"""Queries nested a thousand and ten thousand deep, in each language: refused with a caret, in stacks of any depth."""

import io
import pickle
from contextlib import redirect_stderr, redirect_stdout

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.cli import main
from cer_gpu.row_patterns.pattern import MAX_BRACKETS
from cer_gpu.sigma.rule_files import MAX_NESTED

EVENTS = pa.table({"type": ["A", "B"], "x": [1, 2], "s": ["a", "b"], "@timestamp": pa.array([1, 2], pa.timestamp("s"))})


def row_pattern(pattern="A", define="x > 1", measure="A.x"):
    clauses = f"ORDER BY x MEASURES {measure} AS y PATTERN ({pattern}) DEFINE A AS {define}"
    return f"SELECT * FROM e MATCH_RECOGNIZE ({clauses})"


def around(before, n, after, inner="x"):
    return before * n + inner + after * n


DEEP = {
    "CEQL: +": lambda n: f"SELECT * WHERE {around('(', n, ')+', 'A')}",
    "CEQL: NOT": lambda n: f"SELECT * WHERE A FILTER A[{around('NOT (', n, ')', 'x > 1')}]",
    "CEQL: a sum": lambda n: f"SELECT * WHERE A FILTER A[{around('(', n, ' + 1)')} > 1]",
    "CEQL: a function": lambda n: f"SELECT * WHERE A FILTER A[{around('lower(', n, ')', 's')} = 'a']",
    "rows: +": lambda n: row_pattern(around("(", n, ")+", "A")),
    "rows: |": lambda n: row_pattern(around("(A | ", n, ")", "B")),
    "rows: PERMUTE": lambda n: row_pattern(around("PERMUTE(A, ", n, ")", "B")),
    "rows: {- -}": lambda n: row_pattern(around("A {-", n, "-}", "B")),
    "rows: parentheses": lambda n: row_pattern(define=around("(", n, ")", "x > 1")),
    "rows: NOT": lambda n: row_pattern(define=around("NOT ", n, "", "x > 1")),
    "rows: a sign": lambda n: row_pattern(define=around("- ", n, "") + " > 1"),
    "rows: a sum": lambda n: row_pattern(define=" + ".join(["x"] * n) + " > 1"),
    "rows: CASE": lambda n: row_pattern(define=around("CASE WHEN x > 1 THEN ", n, " END") + " > 1"),
    "rows: PREV": lambda n: row_pattern(define=around("PREV(", n, ")") + " > 1"),
    "rows: a measure": lambda n: row_pattern(measure=around("(", n, ")", "A.x")),
    "EQL: not": lambda n: f"any where {around('not (', n, ')', 'x > 1')}",
    "EQL: a sum": lambda n: f"any where {around('(', n, ' + 1)')} > 1",
    "EQL: a function": lambda n: f"any where {around('concat(', n, ')', 's')} == null",
    "EQL: a regular expression": lambda n: f'any where s regex "{around("(", n, ")", "a")}"',
}


DEPTHS = [1_000, pytest.param(10_000, marks=pytest.mark.long("ten times as deep"))]


@pytest.mark.parametrize("n", DEPTHS)
@pytest.mark.parametrize("shape", DEEP)
def test_a_query_nested_deep_is_refused_with_a_caret(shape, n):
    with pytest.raises(cer_gpu.QueryError, match=r"nested more than \d+ levels deep") as raised:
        cer_gpu.compile(DEEP[shape](n)).evaluate(EVENTS)
    said = str(raised.value).splitlines()
    assert "^" in said[2]
    assert max(map(len, said)) < 300


def rule(condition, correlated="s"):
    return (
        f"title: t\nname: s\nlogsource: {{product: x}}\ndetection:\n  s: {{x: 1}}\n  condition: {condition}\n---\n"
        f"title: c\ncorrelation: {{type: temporal, rules: [s], group-by: [x], timespan: 5m, condition: {correlated}}}\n"
    )


@pytest.mark.parametrize("n", DEPTHS)
@pytest.mark.parametrize("deep", [("not ", ""), ("(", " and s)"), ("not (", ")")])
def test_a_rule_of_sigma_nested_deep_is_told_with_a_caret(deep, n):
    condition = around(deep[0], n, deep[1], "s")
    for given, name in ((rule(condition), "t"), (rule("s", condition), "c")):
        errors = dict(cer_gpu.sigma.load(given).errors)
        assert f"nested more than {MAX_NESTED} levels deep" in str(errors[name])
        assert "^" in str(errors[name]).splitlines()[2]


@pytest.mark.parametrize("name", ["rule.toml", "rule.yml", "rule.test.yml"])
def test_a_file_nested_deep_is_told_by_its_name(name, tmp_path):
    deep = around("[", 1_000, "]", "1")
    texts = {
        "rule.toml": f"a = {deep}",
        "rule.yml": f"title: rule.yml\nlogsource: {{product: x}}\ndetection:\n  a: {deep}\n  condition: a\n",
        "rule.test.yml": f"cases: {deep}",
    }
    (tmp_path / name).write_text(texts[name])
    with redirect_stderr(io.StringIO()) as said, redirect_stdout(said):
        assert main(["test" if name == "rule.test.yml" else "check", str(tmp_path / name)]) == 1
    assert name in said.getvalue()
    assert "is nested too deep" in said.getvalue()


def test_queries_within_the_bounds_need_not_all_of_the_stack():
    def in_a_deep_stack(frames, call):
        return in_a_deep_stack(frames - 1, call) if frames else call()

    n = MAX_BRACKETS
    for text in (
        row_pattern(around("(A | ", 90, ")", "B")),
        row_pattern(define=around("(", n, ")", "x > 1")),
        row_pattern(define=around("NOT ", n, "", "x > 1")),
        row_pattern(define=around("(", n, " + 1)") + " > 1"),
        row_pattern(define=around("ABS(", n, ")") + " > 1"),
    ):

        def all_stages(text=text):
            query = pickle.loads(pickle.dumps(cer_gpu.compile(text)))
            return query.evaluate(EVENTS).num_rows + bool(str(query.explain(EVENTS, detail="all")))

        assert in_a_deep_stack(300, all_stages)
    condition = around("not (", MAX_NESTED // 2, ")", "s")
    rules = in_a_deep_stack(200, lambda: cer_gpu.sigma.load(rule(condition, condition)))
    assert not rules.errors
    assert cer_gpu.compile_all(rules, time_column="@timestamp").evaluate(EVENTS)


@pytest.mark.long("conditions of tens of thousands of parts")
def test_long_conditions_of_rows_are_not_deep():
    for word, n_found in (("OR", 2), ("AND", 0)):
        condition = f" {word} ".join(f"x <> {i}" for i in range(3_000))
        assert cer_gpu.compile(row_pattern(define=condition)).evaluate(EVENTS).num_rows == n_found
    signs = """ORDER BY "(" MEASURES A."(" AS y PATTERN (A) DEFINE A AS "(" <> '((('"""
    events = pa.table({"(": [str(i) for i in range(4)]})
    assert cer_gpu.compile(f"SELECT * FROM e MATCH_RECOGNIZE ({signs})").evaluate(events).num_rows == 4


def test_a_row_pattern_with_too_many_places_is_refused_with_a_caret():
    with pytest.raises(cer_gpu.QueryTooLargeError, match="more than 2,000 places") as raised:
        cer_gpu.compile(row_pattern(" | ".join(f"A{i}" for i in range(10_000))))
    assert "^" in str(raised.value).splitlines()[2]
