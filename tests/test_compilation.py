"""One kind of query: the table of languages, and what every compiled query answers."""

import re
from dataclasses import replace

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu import compilation
from cer_gpu.compilation import LANGUAGES, CompiledQuery, analyse_query, language_of

STATEMENT = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY x MEASURES LAST(x) AS y PATTERN (A+) DEFINE A AS x > 1)"
QUERIES = {
    "SELECT * FROM S WHERE A ; B": ("CEQL", False, "positions"),
    "Q(x) <- A(x=x), B(x=x)": ("CEQL", False, "positions"),
    "SELECT a.x, COUNT(*) FROM S WHERE A AS a HAVING a.x > 1": ("CEQL", False, "measures"),
    STATEMENT: ("MATCH_RECOGNIZE", True, "one row per match"),
    STATEMENT.replace("PATTERN", "ALL ROWS PER MATCH PATTERN"): ("MATCH_RECOGNIZE", True, "all rows per match"),
}
EVENTS = pa.table({"type": ["A", "B", "A"], "x": [1, 2, 3]})


@pytest.mark.parametrize("text", QUERIES)
def test_every_query_answers_the_protocol(text):
    query = cer_gpu.compile(text)
    assert isinstance(query, CompiledQuery)
    assert (query.language, query.reads_whole_table, query.default_output) == QUERIES[text]
    language = language_of(text)
    assert (language.name, language.reads_whole_table) == QUERIES[text][:2]
    assert query.text == text == query.syntax.text
    found = query.evaluate(EVENTS)
    assert found.schema == query.output_schema(EVENTS.schema)
    assert query.default_output in query.outputs
    with query.stream(EVENTS, limit=1) as reader:
        assert reader.read_all().num_rows == min(1, found.num_rows)
    n_results = found.num_rows if query.default_output != "all rows per match" else 2
    assert query.count(EVENTS) == n_results
    assert set(query.columns(EVENTS.schema)) <= {"type", "x"}
    assert query.explain().passes


def test_outputs_are_those_that_the_query_can_have():
    query = cer_gpu.compile("SELECT a.x FROM S WHERE A AS a HAVING a.x > 1")
    assert query.outputs == ("bindings", "measures", "rows")
    for name in query.outputs:
        query.evaluate(EVENTS, output=name)
    with pytest.raises(cer_gpu.OptionError, match="HAVING"):
        query.evaluate(EVENTS, output="count")


def test_a_statement_is_streamed_lazily():
    read = []

    def batches():
        read.append(1)
        yield EVENTS.to_batches()[0]

    reader = pa.RecordBatchReader.from_batches(EVENTS.schema, batches())
    with cer_gpu.compile(STATEMENT).stream(reader) as found:
        assert (read, found.schema.names) == ([], ["y"])
        assert found.read_all().to_pylist() == [{"y": 3}]


def test_a_language_comes_in_by_a_row_of_the_table(monkeypatch):
    ours = replace(LANGUAGES[-1], name="TQL", begins=re.compile("trace "), front_end="tests_of_a_language")
    front_end = type("module", (), {"analyse": staticmethod(lambda text, **options: (text.upper(), []))})
    monkeypatch.setitem(__import__("sys").modules, ours.front_end, front_end)
    monkeypatch.setattr(compilation, "LANGUAGES", (ours, *LANGUAGES))
    assert language_of("trace by x") is ours
    assert cer_gpu.compile("trace by x") == analyse_query("trace by x")[0] == "TRACE BY X"


def test_only_the_table_knows_languages():
    assert [each.name for each in LANGUAGES] == ["MATCH_RECOGNIZE", "EQL", "Sigma", "CEQL"]
    assert language_of(None).name == language_of("").name == "CEQL"
    query, (error,) = analyse_query(STATEMENT)
    assert query is None
    assert "MATCH_RECOGNIZE is no CEQL" in error.message
