"""Wrong queries, each with its whole error message: golden_errors/*.txt.

A file holds the query, a line ``---- <class of the error>`` with the options to compile it with, and the message.
All are compiled against SCHEMA unless the options say ``schema=none``. To write the messages of new files (an empty
message after the line), run pytest with CER_GPU_WRITE_GOLDEN=1, and read what was written.
"""

import os
from pathlib import Path

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.resolution.ceql import analyse

FOLDER = Path(__file__).parent / "golden_errors"
SCHEMA = pa.schema(
    {
        "type": pa.string(),
        "ts": pa.timestamp("ms"),
        "name": pa.string(),
        "price": pa.float64(),
        "volume": pa.int64(),
        "open": pa.bool_(),
        "tags": pa.list_(pa.string()),
        "place": pa.struct({"id": pa.int32(), "at": pa.struct({"lat": pa.float64(), "lon": pa.float64()})}),
        "stop.id": pa.int32(),
    }
)
FILES = sorted(FOLDER.glob("*.txt"))


def read(path):
    """Return the query, the class of the error, the options and the message."""
    query, rest = path.read_text(encoding="utf-8").split("\n---- ", 1)
    head, _, message = rest.partition("\n")
    error, *options = head.split()
    return query, error, dict(option.split("=") for option in options), message.removesuffix("\n")


def compile_options(options):
    schema = None if options.get("schema") == "none" else SCHEMA
    named = {key: value for key, value in options.items() if key != "schema"}
    return {"schema": schema, **{key: None if value == "none" else value for key, value in named.items()}}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_wrong_queries_get_their_messages(path):
    query, error_class, options, message = read(path)
    with pytest.raises(cer_gpu.QueryError) as caught:
        cer_gpu.compile(query, **compile_options(options))
    if not message and os.environ.get("CER_GPU_WRITE_GOLDEN"):
        head = " ".join([type(caught.value).__name__, *(f"{k}={v}" for k, v in options.items())])
        path.write_text(f"{query}\n---- {head}\n{caught.value}\n", encoding="utf-8")
        pytest.fail(f"wrote {path.name}; read it, and run again")
    assert str(caught.value) == message
    assert type(caught.value).__name__ == error_class


def test_enough_golden_files_are_found():
    assert len(FILES) >= 25


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_caret_stands_under_the_offending_text(path):
    query, _, options, _ = read(path)
    _, (error, *_) = analyse(query, **compile_options(options))
    if error.start is None:
        return
    assert 0 <= error.start <= len(query)
    lines = str(error).split("\n")
    at = next(i for i, line in enumerate(lines) if line.strip() and set(line.strip()) == {"^"})
    first, last = lines[at].index("^"), lines[at].rindex("^") + 1
    underlined = lines[at - 1][first:last]
    marked = query[error.start : error.end].split("\n")[0]
    assert underlined == marked or error.end is None or error.start == len(query)


def test_all_errors_of_a_query_are_reported_at_once():
    text = (
        "SELECT MAX z FROM S WHERE A AS x ; T>B FILTER y[a = 1] AND x[name LIKE '('] "
        "PARTITION BY [k], [k] WITHIN 1 HOUR CONSUME BY ANY"
    )
    query, errors = analyse(text)
    assert query is None
    assert [error.message for error in errors] == [
        "SELECT names 'z', which the formula does not define",
        "stream 'T' is not in FROM",
        "FILTER names 'y', which the formula does not define",
        "not a regular expression (RE2): missing ): (",
        "PARTITION BY has two keys named 'k'",
        "a length in DAYS, HOURS, MINUTES or SECONDS needs a time column",
    ]
    assert [error.start for error in errors] == sorted(error.start for error in errors)


def test_all_errors_against_a_schema_are_reported_at_once():
    text = "SELECT x[pricee, name] FROM S WHERE A AS x FILTER x[volum > 1] PARTITION BY [tags], [nmae] WITHIN 5 [name]"
    _, errors = analyse(text, schema=SCHEMA, type_column="typ")
    assert [error.message for error in errors] == [
        "the events have no column 'typ'",
        "the events have no column 'pricee'",
        "the events have no column 'volum'",
        "PARTITION BY needs columns of plain values, and 'tags' is list<item: string>",
        "the events have no column 'nmae'",
        "WITHIN needs a column of numbers or timestamps, and 'name' is string",
    ]


def test_an_error_has_its_text_place_and_hint():
    text = "SELECT * FROM S WHERE A AS buyer\nFILTER byer[a = 1]"
    with pytest.raises(cer_gpu.QueryError) as caught:
        cer_gpu.compile(text)
    error = caught.value
    assert (error.text, text[error.start : error.end], error.hint) == (text, "byer", "did you mean 'buyer'?")


def test_tabs_before_the_caret_are_kept():
    with pytest.raises(cer_gpu.QueryError) as caught:
        cer_gpu.compile("SELECT * FROM S\nWHERE\tA\t;; B")
    line, caret = str(caught.value).split("\n")[1:3]
    assert line.index(";; B") + 1 == caret.index("^")
    assert caret.count("\t") == 2


def test_a_text_without_quotes_beside_a_dictionary_gets_a_hint():
    schema = pa.schema({"type": pa.string(), "carrier": pa.dictionary(pa.int32(), pa.string())})
    _, (error,) = analyse("SELECT * FROM S WHERE A FILTER A[carrier IN {UA, 'AA'}]", schema=schema)
    assert error.hint == "for a string write 'UA'"
