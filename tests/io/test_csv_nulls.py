"""Fields of CSV that are NULL: those that pyarrow takes for NULL by the same options, in every way of reading."""

from __future__ import annotations

import itertools
from io import BytesIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import cer_gpu
from cer_gpu.io.sinks import open_sink
from cer_gpu.io.source import Source
from cer_gpu.io.sources import open_events
from cer_gpu.io.standard_input import open_standard_input

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


def test_null_is_what_pyarrow_takes_for_it(path):
    """By default, ``NA`` and nothing are NULL among numbers, and texts among texts."""
    assert rows_of(open_events(path)) == pa_csv.read_csv(path).to_pylist()
    assert [row["name"] for row in rows_of(open_events(path))] == ["NA", "null", "", "", "-", "word"]
    for options in OPTIONS:
        wanted = pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(**options)).to_pylist()
        files = cer_gpu.Files(path, **options)
        assert rows_of(open_events(files)) == wanted, options
        assert rows_of(open_events({"S": files}["S"])) == wanted
        assert rows_of(open_standard_input(Pipe(TEXT.encode()), files.nulls())) == wanted, options


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

    assert names() == []
    assert names("--strings-can-be-null") == ["0", "1", "2", "3"]
    assert names("--strings-can-be-null", "--no-quoted-strings-can-be-null") == ["0", "1", "2"]
    assert names("--strings-can-be-null", "--null-values", "-,word") == ["4", "5"]
    assert names("--strings-can-be-null", "--null-values", "") == ["2", "3"]


def test_texts_of_null_are_a_list():
    with pytest.raises(cer_gpu.OptionError, match="null_values must be a list of texts"):
        cer_gpu.Files("events.csv", null_values="NA")
