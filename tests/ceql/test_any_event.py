"""An event of any type, ``*`` in place of a type."""

from __future__ import annotations

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.predicates import guards

EVENTS = pa.table({"type": ["A", "B", None, "C", "A"], "x": [1, 2, 3, None, 5]})


def found(text, **options):
    return cer_gpu.compile(text, **options).evaluate(EVENTS)["positions"].to_pylist()


@pytest.mark.parametrize(
    ("formula", "positions"),
    [
        ("*", [[0], [1], [2], [3], [4]]),
        ("* AS e FILTER e[x > 2]", [[2], [4]]),
        ("S>* AS e FILTER e[x > 2]", [[2], [4]]),
        ("* FILTER `*`[x > 2]", [[2], [4]]),
        ("A : *", [[0, 1]]),
        ("A : * : * : C", [[0, 1, 2, 3]]),
        ("A ; !* ; B", [[0, 1]]),
        ("A ; !(* AS e FILTER e[x IS NULL]) ; *", [[0, 1], [0, 2], [0, 3]]),
        ("NOT(*)", []),
        ("NOT(* AS e FILTER e[x < 5]) ; A", [[4]]),
        ("C ALL *", [[0, 3], [1, 3], [2, 3], [3], [3, 4]]),
        ("(* AS a FILTER a[x = 2]) OR C", [[1], [3]]),
        ("A AS a ; * AS b FILTER b.x = a.x + 2", [[0, 2]]),
    ],
)
def test_an_event_of_any_type_stands_where_a_type_does(formula, positions):
    assert sorted(found(f"SELECT * FROM S WHERE {formula}")) == positions


def test_it_needs_no_column_of_types():
    text = "SELECT * FROM S WHERE * AS e FILTER e[x > 2]"
    assert found(text, type_column=None) == found(text) == [[2], [4]]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("S ; *", [(0, 1), (0, 2)]),
        ("* ; T", [(0, 1)]),
        ("T>* ; S", [(1, 2)]),
        ("S ; !* ; S", []),
        ("NOT(*) ; S", []),
        ("NOT(T>*) : S", []),
        ("T : NOT(T>*)", [(1, 2)]),
    ],
)
def test_it_is_of_every_stream_where_streams_are_the_types(formula, expected):
    """Rows 0 of S, 0 of T and 1 of S come in this order."""
    streams = {"S": pa.table({"ts": [0, 2], "x": [1, 2]}), "T": pa.table({"ts": [1], "x": [3]})}
    query = cer_gpu.compile(f"SELECT * FROM S, T WHERE {formula}", type_column=None, time_column="ts", time_unit="s")
    times = query.evaluate(streams).select(["start_time", "end_time"]).to_pylist()
    assert sorted(tuple(row.values()) for row in times) == expected


def test_backquotes_do_not_make_it_the_name_of_a_type():
    """A type of that name is told by a test of the column of types."""
    table = pa.table({"type": ["*", "A", "*", None], "x": [1, 2, 3, 4]})
    for text in ("*", "`*`", "S>`*`"):
        assert cer_gpu.compile(f"SELECT * FROM S WHERE {text}").evaluate(table)["end"].to_pylist() == [0, 1, 2, 3]
    of_type = cer_gpu.compile("SELECT * FROM S WHERE * AS e FILTER e[type = '*']")
    assert of_type.evaluate(table)["end"].to_pylist() == [0, 2]
    past = "SELECT * FROM S WHERE A FILTER A[COUNT({}) OVER 9 EVENTS = 2]"
    for text in ("*", "`*`"):
        assert cer_gpu.compile(past.format(text)).evaluate(table)["end"].to_pylist() == [1]
    answers = cer_gpu.compile("Q(x) <- `*`(x = x), A(x = x)").evaluate(table).to_pylist()
    assert [row["x"] for row in answers] == [2]


def test_signs_that_follow_each_other():
    assert found("SELECT * FROM S WHERE A : *? : C") == []
    assert found("SELECT * FROM S WHERE A : *{2} : C") == [[0, 1, 2, 3]]
    assert found("SELECT * FROM S WHERE A : *:{2} : C") == [[0, 1, 2, 3]]
    assert found("SELECT * FROM S WHERE B : * * : C") == [[1, 2, 3]]


def test_bindings_name_it_where_nothing_else_does():
    bare = cer_gpu.compile("SELECT * FROM S WHERE A : *").evaluate(EVENTS, output="bindings")
    assert bare.select(["A", "*"]).to_pylist() == [{"A": 0, "*": 1}]
    named = cer_gpu.compile("SELECT * FROM S WHERE A : * AS b").evaluate(EVENTS, output="bindings")
    assert named.column_names[-2:] == ["A", "b"]


def test_the_explanation_says_any_event():
    words = "\n".join(cer_gpu.compile("SELECT * FROM S WHERE A ; * AS b").explain().words)
    assert "any event (b)" in words
    assert "`*`" not in words


def test_the_compiled_pass_finds_events_without_a_type(monkeypatch):
    monkeypatch.setattr(guards, "TIER", guards.COMPILED)
    assert sorted(found("SELECT * FROM S WHERE *")) == [[0], [1], [2], [3], [4]]
    assert found("SELECT * FROM S WHERE NOT(*)") == []
