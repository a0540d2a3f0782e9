"""Names in double quotes and in any alphabet, IS [NOT] DISTINCT FROM, and hints on forms of others."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import cer_gpu

EVENTS = pa.table(
    {
        "type": ["Add to Cart", "Größe", "浏览", "Größe"],
        "größe": [1, None, None, 3],
        "ts": pa.array(range(4), pa.timestamp("s")),
    }
)


def positions(text: str, **options) -> list:
    return cer_gpu.compile(text, **options).evaluate(EVENTS)["positions"].to_pylist()


def test_double_quotes_are_names_where_only_names_can_stand():
    wanted = [[0, 1], [0, 3]]
    for text in (
        '"Add to Cart" ; Größe',
        '`Add to Cart` ; "Größe"',
        '("Add to Cart" AS "the cart") ; Größe FILTER "the cart"[größe = 1]',
    ):
        assert positions(f"SELECT * WHERE {text}") == wanted
    assert positions('SELECT * FROM "my stream" WHERE "my stream">"Add to Cart" ; "Größe"') == wanted
    assert cer_gpu.compile('SELECT "Add to Cart"[größe] WHERE "Add to Cart" ; B').text


@pytest.mark.parametrize("test", ['a[name = "abc"]', 'a."x" = 1', 'a["größe" > 1]'])
def test_in_filters_they_are_neither(test):
    hint = "strings stand in single quotes: 'text'; names of columns in backquotes"
    with pytest.raises(cer_gpu.QuerySyntaxError, match=hint):
        cer_gpu.compile(f"SELECT * WHERE A AS a FILTER {test}")


def test_names_have_letters_of_any_alphabet():
    text = "SELECT * WHERE Größe AS été : 浏览 AS ж FILTER été[größe IS NULL] AND ж.größe IS NULL"
    assert positions(text) == [[1, 2]]
    assert positions("SELECT * WHERE 浏览", type_column="type") == [[2]]
    with pytest.raises(cer_gpu.QuerySyntaxError):
        cer_gpu.compile("SELECT * WHERE 2浏览")
    with pytest.raises(cer_gpu.QuerySyntaxError):
        cer_gpu.compile("SELECT * WHERE A ORÄ B")
    explained = cer_gpu.compile("SELECT * WHERE Größe AS été FILTER été[größe > 1]").explain()
    assert "`" not in "\n".join(explained.words)


VALUES = [None, 1, 2]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string()])
@pytest.mark.parametrize("between", [False, True])
def test_distinct_from_is_true_or_false_for_every_pair(kind, between):
    """NULL is not distinct from NULL, and distinct from all else; so it is under NOT, too."""
    pairs = list(itertools.product(VALUES, VALUES))
    values = [
        [None if v is None else (str(v) if pa.types.is_string(kind) else v) for v in column]
        for column in zip(*pairs, strict=True)
    ]
    rows = {"type": ["A"] * len(pairs), "x": pa.array(values[0], kind), "y": pa.array(values[1], kind)}
    events = pa.table(rows)
    if between:  # each pair as two events
        n = len(pairs)
        events = pa.table(
            {
                "type": ["A", "B"] * n,
                "k": [i // 2 for i in range(2 * n)],
                "x": pa.array([v for pair in zip(*values, strict=True) for v in pair], kind),
            }
        )
    for negated, distinct in itertools.product([False, True], repeat=2):
        word = "IS DISTINCT FROM" if distinct else "IS NOT DISTINCT FROM"
        wanted = [(a != b) == distinct for a, b in pairs]
        wanted = [not truth for truth in wanted] if negated else wanted
        if between:
            test = f"NOT (a.x {word} b.x)" if negated else f"a.x {word} b.x"
            found = cer_gpu.compile(f"SELECT * WHERE A AS a ; B AS b FILTER {test} PARTITION BY [k]").evaluate(events)
            got = [start // 2 for start in found["start"].to_pylist()]
        else:
            test = f"NOT x {word} y" if negated else f"x {word} y"
            got = cer_gpu.compile(f"SELECT * WHERE A AS a FILTER a[{test}]").evaluate(events)["start"].to_pylist()
        assert got == [i for i, truth in enumerate(wanted) if truth], (negated, distinct)


def test_distinct_from_a_literal():
    found = {
        "größe IS DISTINCT FROM 1": [1, 2, 3],
        "größe IS NOT DISTINCT FROM 1": [0],
        "1 IS NOT DISTINCT FROM größe": [0],
        "NOT größe IS DISTINCT FROM 3": [3],
    }
    for test, wanted in found.items():
        query = cer_gpu.compile(f"SELECT * FROM S WHERE S AS a FILTER a[{test}]", type_column=None)
        assert query.evaluate(EVENTS)["start"].to_pylist() == wanted, test


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT * WHERE A ; B WITHIN INTERVAL '1' HOUR", "write WITHIN 1 HOURS"),
        ("SELECT * WHERE A ; B WITHIN INTERVAL 30 minute", "write WITHIN 30 MINUTES"),
        ("SELECT * WHERE (A -> B) WITHIN 1 MINUTE -> C", r"stands in its brackets: \(A ; B WITHIN 5 MINUTES\) ; C"),
    ],
)
def test_forms_of_others_have_a_hint(text, hint):
    with pytest.raises(cer_gpu.QuerySyntaxError, match=hint):
        cer_gpu.compile(text)
    assert cer_gpu.compile("SELECT * WHERE (A -> B WITHIN 1 MINUTE) -> C", time_column="ts")


@pytest.mark.parametrize("lateness", ["5m", "5min", "5 MINUTES", "5 mins", "300s", "0.0833334 h"])
def test_a_lateness_of_five_minutes(lateness):
    times = [0, 301, 1, 602]
    late = pa.table({"type": ["A"] * 4, "ts": pa.array(times, pa.timestamp("s"))})
    query = cer_gpu.compile("SELECT * WHERE A", time_column="ts")
    assert query.evaluate(late, lateness=lateness).num_rows == 4
    late = late.set_column(1, "ts", pa.array([0, 302, 1, 602], pa.timestamp("s")))
    with pytest.raises(cer_gpu.TimeOrderError):
        query.evaluate(late, lateness=lateness)
