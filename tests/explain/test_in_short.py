"""A query in short, as a notebook shows it."""

import html
import re

import cer_gpu
from cer_gpu.explain.in_short import columns_named


def shown(query):
    return html.unescape(re.sub(r"<[^>]*>", "", query._repr_html_()))


def test_a_query_shows_text_meaning_columns_and_notes():
    text = "SELECT * FROM S WHERE A AS a ; B+ AS b FILTER a[x > '<i>'] AND b[y > 1] PARTITION BY [k] WITHIN 5 [n]"
    query = cer_gpu.compile(text, time_column="ts")
    whole = shown(query)
    assert text in whole
    assert "\n".join(query.explain().words) in whole
    assert "Columns: type, ts, n, k, x, y" in whole
    assert query.notes[0] in whole
    assert "<i>" not in query._repr_html_()


def test_columns_are_those_of_filters_between_events_measures_selections_and_heads():
    def columns(text, **options):
        return columns_named(cer_gpu.compile(text, **options)._plan)

    assert columns("SELECT a.v, SUM(b.w) AS s FROM S WHERE A AS a ; B AS b FILTER b.x > a.y HAVING s > 1") == [
        "type", "x", "y", "v", "w",
    ]  # fmt: skip
    assert columns("SELECT a[u] FROM S WHERE S AS a", type_column=None) == ["u"]
    assert columns("Q(who) <- A(k = who, l = it), B(k = who)") == ["type", "k", "l"]


def test_a_set_shows_each_query_under_its_name():
    queries = cer_gpu.compile_all({"<one>": "SELECT * FROM S WHERE A", "two": "SELECT * FROM S WHERE B"})
    whole = queries._repr_html_()
    assert whole.count("<details>") == 2
    assert "&lt;one&gt;" in whole
