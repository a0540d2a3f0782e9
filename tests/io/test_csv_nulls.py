"""Fields of CSV that are NULL: the empty one in every column, and others as pyarrow takes them by the same options."""

from __future__ import annotations

import itertools
import random
from io import BytesIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import cer_gpu
from cer_gpu.io.csv_files import empty_as_null
from cer_gpu.io.sinks import open_sink
from cer_gpu.io.source import Source
from cer_gpu.io.sources import open_events, open_standard_input

TEXT = 'type,name,n,quoted\nA,NA,NA,"NA"\nB,null,1,"2"\nA,,,""\nB,"",2,"4"\nA,-,nan,"-"\nB,word,4,"NaN"\n'
NAMES = ["type", "name", "n", "quoted"]
OPTIONS = [
    {"null_values": texts, "strings_can_be_null": strings, "quoted_strings_can_be_null": quoted}
    for texts, strings, quoted in itertools.product([None, [""], ["-", "NA"], []], [False, True], [False, True])
]


def rows_of(source: Source) -> list[dict]:
    return pa.Table.from_batches(source.batches(NAMES)).to_pylist()


class Pipe(BytesIO):
    """Standard input."""

    def isatty(self) -> bool:
        return False


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(TEXT)
    return path


def wanted_rows(path, options: dict) -> list[dict]:
    """Return the rows as pyarrow reads them, with NULL for the empty field of a column of text."""
    null_values, quoted = options.get("null_values"), options.get("quoted_strings_can_be_null", True)
    own = {**options, "strings_can_be_null": options.get("strings_can_be_null", False) or not quoted}
    rows = pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(**own)).to_pylist()
    if not quoted or (null_values is not None and "" not in null_values):
        return rows  # by pyarrow's own option, or the empty field is not among them
    return [{name: None if value == "" else value for name, value in row.items()} for row in rows]


def test_an_empty_field_is_null_in_every_column(path):
    """By default, ``NA`` is NULL among numbers, and a text among texts; nothing is NULL in both."""
    assert rows_of(open_events(path)) == wanted_rows(path, {})
    assert [row["name"] for row in rows_of(open_events(path))] == ["NA", "null", None, None, "-", "word"]
    for options in OPTIONS:
        files, wanted = cer_gpu.Files(path, **options), wanted_rows(path, options)
        assert rows_of(open_events(files)) == wanted, options
        assert rows_of(open_standard_input(Pipe(TEXT.encode()), files.options())) == wanted, options


def test_an_empty_field_may_be_the_empty_text(path):
    files = cer_gpu.Files(path, empty_is_text=True)
    assert rows_of(open_events(files)) == pa_csv.read_csv(path).to_pylist()
    assert [row["name"] for row in rows_of(open_events(files))] == ["NA", "null", "", "", "-", "word"]
    with pytest.raises(cer_gpu.OptionError, match="empty_is_text excludes strings_can_be_null"):
        cer_gpu.Files(path, empty_is_text=True, strings_can_be_null=True)


def test_events_without_a_key_belong_to_no_substream(tmp_path):
    """All visits without a user are no visitor."""
    path = tmp_path / "shop.csv"
    path.write_text("type,user\nA,\nB,\nA,x\nB,x\nA,\nB,\n")
    query = cer_gpu.compile("SELECT * WHERE A ; B PARTITION BY [user]")
    assert query.evaluate(path)["positions"].to_pylist() == [[2, 3]]
    assert query.evaluate(cer_gpu.Files(path, empty_is_text=True)).num_rows == 4


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 1000])
def test_empty_texts_become_null_wherever_they_are(n):
    rng = random.Random(n)
    texts = [rng.choice(["", "a", "long", None]) for _ in range(n)]
    for array in (
        pa.array(texts, pa.string()),
        pa.array(["x", *texts], pa.string())[1:],
        pa.array(texts, pa.large_string()),
    ):
        assert empty_as_null(array).to_pylist() == [text or None for text in texts]


def test_results_that_are_written_as_csv_read_back_with_their_nulls(tmp_path):
    found = pa.table({"type": ["A", "B", "C"], "name": [None, "", "NA"], "n": [None, 1, 2]})
    query = cer_gpu.compile("SELECT * WHERE (A OR B OR C) AS x")
    path = tmp_path / "found.csv"
    with open_sink(path, found.schema) as sink:
        sink.write(found.to_batches()[0])
    kept = cer_gpu.Files(path, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)
    assert pa.Table.from_batches(open_events(kept).batches(found.column_names)).equals(found)
    assert query.evaluate(kept).num_rows == query.evaluate([kept.paths]).num_rows == 3


def test_the_command_line_takes_the_same_options(path, capsys):
    from cer_gpu.cli.group import main

    def names(*options: str) -> list[str]:
        query = "SELECT * WHERE (A OR B) AS x FILTER x[name IS NULL]"
        assert main(["run", query, str(path), "--no-progress", "-o", "-", "--format", "csv", *options]) == 0
        return [line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]]

    assert names() == ["2", "3"]
    assert names("--empty-is-text") == []
    assert names("--strings-can-be-null") == ["0", "1", "2", "3"]
    assert names("--strings-can-be-null", "--no-quoted-strings-can-be-null") == ["0", "1", "2"]
    assert names("--strings-can-be-null", "--null-values", "-,word") == ["4", "5"]
    assert names("--strings-can-be-null", "--null-values", "") == ["2", "3"]


def test_texts_of_null_are_a_list():
    with pytest.raises(cer_gpu.OptionError, match="null_values must be a list of texts"):
        cer_gpu.Files("events.csv", null_values="NA")
