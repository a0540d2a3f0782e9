"""Problems with their places, completions, words on a query, and what is known of events, without an editor."""

import doctest
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cer_gpu.cli import main
from cer_gpu.editing import completing, event_schema, server
from cer_gpu.editing.completing import completions
from cer_gpu.editing.event_schema import EventSchema, arrow_type_of, events_named, read_event_schema
from cer_gpu.editing.event_schema import problems as problems_of
from cer_gpu.editing.server import hover_text
from cer_gpu.errors import OptionError

SCHEMA = pa.schema(
    {
        "type": pa.dictionary(pa.int32(), pa.string()),
        "price": pa.float64(),
        "st": pa.struct({"left": pa.int64(), "inner": pa.struct({"deep": pa.string()})}),
        "odd name": pa.int32(),
        "process.name": pa.string(),
        "@timestamp": pa.timestamp("us", "UTC"),
    }
)
KNOWN = EventSchema(SCHEMA, ("SELL", "BUY"))


@pytest.mark.parametrize("module", [completing, event_schema, server])
def test_examples_print_what_they_say(module):
    assert doctest.testmod(module).failed == 0


def offered(text, language=None):
    """The completions at the sign | of a text."""
    before, _, after = text.partition("|")
    return [each.text for each in completions(before + after, len(before), KNOWN, language)]


def test_the_parser_tells_the_words():
    assert offered("SEL|") == ["SELECT"]
    assert offered("SELECT * |") == ["FROM", "LET", "WHERE"]
    assert offered("SELECT * FROM S WHERE A WITHIN 5 |") == ["DAYS", "EVENTS", "HOURS", "MINUTES", "SECONDS"]
    assert offered("SELECT * FROM S WHERE A CONSUME BY |") == ["ANY", "NONE", "PARTITION"]
    assert "FILTER" in offered("SELECT * ;; WHERE A |")  # wrong already: all words
    assert offered("SELECT * FROM S WHERE A AS a FILTER a[price > 3 | ] WITHIN 5 EVENTS")[:2] == ["AND", "OR"]


def test_columns_stand_in_brackets_and_behind_dots():
    columns = ["type", "price", "st", "`odd name`", "`process.name`", "`@timestamp`"]
    assert offered("SELECT * FROM S WHERE A AS a FILTER a[|")[:6] == columns
    assert offered("SELECT * FROM S WHERE A AS a FILTER a.|") == columns
    assert offered("SELECT * FROM S LET total = price * 2 WHERE A AS a FILTER a.to|") == ["total"]
    assert {"price", "date", "LAG", "COUNT"} <= set(offered("SELECT * FROM S LET total = |"))
    assert offered("SELECT * FROM S WHERE A AS a FILTER FIRST(a).pri|") == ["price"]
    assert offered("SELECT * FROM S WHERE A AS a FILTER a.st.|") == ["left", "inner"]
    assert offered("SELECT * FROM S WHERE A AS a FILTER a[st.inner.|") == ["deep"]
    assert offered("SELECT * FROM S WHERE A PARTITION BY [|") == columns
    assert offered("SELECT * FROM S WHERE A AS a FILTER a[odd|") == ["`odd name`"]


def test_types_variables_and_functions_stand_where_they_may():
    assert offered("SELECT * FROM S WHERE |")[:2] == ["SELL", "BUY"]
    assert offered("SELECT * FROM S WHERE SELL AS high ; BUY AS low FILTER |")[:4] == ["high", "low", "SELL", "BUY"]
    assert offered("SELECT COU| FROM S WHERE A AS x")[0] == "COUNT"
    assert offered("SELECT * FROM S WHERE A AS |") == []
    assert offered("SELECT * FROM |") == []


def test_nothing_stands_in_comments_and_strings():
    for text in ("SELECT * -- FR|", "SELECT * /* FR|", "SELECT * FROM S WHERE A FILTER A[name = 'pr|"):
        assert offered(text) == []
    assert offered("/* 'a */ SELECT * -- 'b\nFR|") == ["FROM"]
    assert offered("SELECT * FROM S WHERE A FILTER A[name = 'it''s [' AND pr|")[0] == "price"


def test_other_languages_complete_columns_and_their_words():
    assert offered("sequence by process.name [any where |")[:2] == ["type", "price"]
    assert "until" in offered("sequence [a where true] [b where true] |", "eql")
    assert offered("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS pri|") == ["price"]


def test_problems_are_errors_and_warnings_at_their_places():
    text = "SELECT * FROM S\nWHERE A AS a ; B FILTER a[prise > 1] AND c[price > 2]"
    found = problems_of(text, SCHEMA)
    assert [text[each.start : each.end] for each in found] == ["prise", "c"]
    assert found[0].message.endswith("hint: did you mean 'price'?")
    assert not any(each.is_warning for each in found)
    (window,) = problems_of("SELECT * FROM S WHERE A ; B")
    assert window.is_warning
    assert problems_of(" \n") == []
    (early,) = problems_of("SELECT * FROM S WHERE (A\n")
    assert (early.start, early.end) == (24, 24)
    (missing,) = problems_of("SELECT * FROM S WHERE A WITHIN 5 MINUTES", SCHEMA, {"time_column": "tz"})
    assert "tz" in missing.message
    rows = "SELECT * FROM t MATCH_RECOGNIZE (MEASURES A.price AS p PATTERN (A) DEFINE A AS price > 1)"
    assert problems_of(rows, SCHEMA) == []
    (of_eql,) = problems_of("any where prise > 1", SCHEMA, {"language": "eql", "type_column": "type"})
    assert "prise" in of_eql.message


def test_words_on_a_query_and_on_a_column():
    text = "SELECT * FROM S WHERE A AS a FILTER a[st.left > 1 AND `odd name` = 2]"
    shown = hover_text(text, text.index("left") + 1, KNOWN)
    assert shown.startswith("column `st.left`: int64\n\n```text\nLook in S for:\n  an A event (a) with st.left > 1")
    assert hover_text(text, text.index("odd"), KNOWN).startswith("column `odd name`: int32\n")
    assert hover_text(text, 2, KNOWN).startswith("```text\nLook in S for:")
    assert hover_text("SELECT price ;;", 9, KNOWN) == "column `price`: double"
    assert hover_text("", 0, KNOWN) is None
    wild = EventSchema(pa.schema({"a\x1b[31m": pa.int64()}))
    assert "\x1b" not in hover_text("SELECT `a\x1b[31m` x", 9, wild)


TYPES = [
    pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(),
    pa.date32(), pa.timestamp("ns"), pa.timestamp("us", "Europe/Zurich"), pa.time64("us"), pa.duration("ms"),
    pa.decimal128(18, 3), pa.list_(pa.list_(pa.int64())),
    pa.struct({"a": pa.list_(pa.string()), "b": pa.decimal128(9, 2)}),
    pa.struct({"a": pa.struct({"b": pa.timestamp("s", "UTC")})}), pa.large_list(pa.string()),
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_types_are_read_as_they_are_shown(kind):
    assert arrow_type_of(str(kind)) == kind


def test_a_schema_file_is_what_the_command_columns_prints(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    events = pa.table({"type": ["SELL", "BUY", "SELL"], "st": [{"p": 1.5}] * 3, "tags": [["a"]] * 3})
    pq.write_table(events, "events.parquet")
    assert main(["columns", "events.parquet", "--type-column", "type", "--json"]) == 0
    (tmp_path / "events.schema.json").write_text(capsys.readouterr().out)
    found = read_event_schema("events.schema.json")
    assert found.schema.equals(read_event_schema("events.parquet").schema)
    assert found.types == ("SELL", "BUY")


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("[", "expected JSON"),
        (json.dumps({"columns": [{"name": "a"}]}), 'expected {"columns"'),
        (
            json.dumps({"columns": [{"name": "a", "type": "number"}]}),
            "'a': expected an Arrow type, got 'number'",
        ),
        (None, "cannot be read"),
    ],
)
def test_schema_files_that_are_none_are_told(tmp_path, written, told):
    path = tmp_path / "x.schema.json"
    if written is not None:
        path.write_text(written)
    with pytest.raises(OptionError, match=r"x\.schema\.json: ") as raised:
        read_event_schema(path)
    assert told in str(raised.value)


def test_a_comment_before_the_query_names_its_events():
    assert events_named("-- late\n\n  -- events: a b.parquet \r\nSELECT") == "a b.parquet"
    assert events_named("// events: x/*.parquet\nany where true") == "x/*.parquet"
    assert events_named("SELECT * -- events: a\nFROM S") is None
