"""Names of files that are not UTF-8: such files are read and written as any other, and shown escaped."""

import gzip
import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.io.sources import open_events
from cer_gpu.order.sorting import sort_source

pytestmark = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names of files are UTF-8 here")

ODD = os.fsdecode(b"\xff")
EVENTS = pa.table({"type": ["A", "B"], "x": [1, 2]})
QUERY = "SELECT * FROM S WHERE A ; B"
CSV = "type,x\nA,1\nB,2\n"


def write_arrow(path):
    with open(path, "wb") as file, pa.ipc.new_file(file, EVENTS.schema) as writer:
        writer.write_table(EVENTS)


def write_parquet(path):
    with open(path, "wb") as file:
        pq.write_table(EVENTS, file)


def write_text(path, text=CSV):
    with open(path, "w") as file:
        file.write(text)


def write_gzip(path):
    with gzip.open(path, "wt") as file:
        file.write(CSV)


WRITERS = {
    "parquet": write_parquet,
    "arrow": write_arrow,
    "csv": write_text,
    "csv.gz": write_gzip,
    "jsonl": lambda path: write_text(path, '{"type": "A", "x": 1}\n{"type": "B", "x": 2}\n'),
}


@pytest.fixture
def folder(tmp_path):
    """A folder with one file of a name in UTF-8, and one of another."""
    (tmp_path / "in").mkdir()
    write_text("in/a.csv")
    write_text(f"in/{ODD}.csv")
    return "in"


@pytest.mark.parametrize("ending", WRITERS)
def test_a_file_of_each_format_is_read(cli, ending):
    WRITERS[ending](f"{ODD}.{ending}")
    for events in (f"{ODD}.{ending}", f"{ODD}*", f"file://{os.getcwd()}/%FF.{ending}", f"./{ODD}.{ending}"):
        code, out, err = cli("run", QUERY, events, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["n_rows"] == 1
    assert cli("columns", f"{ODD}.{ending}")[0] == 0
    assert cer_gpu.compile(QUERY).evaluate(f"{ODD}.{ending}").num_rows == 1


def test_the_folder_of_such_a_file_is_read(cli, folder):
    for command in (["run", QUERY], ["check", f"{QUERY} WITHIN 9 EVENTS"], ["columns"]):
        assert cli(*command, folder)[0] == 0
    assert json.loads(cli("run", QUERY, folder, "--json")[1])["n_events"] == 4
    write_text(f"in/{ODD}.csv", "type,x\nA,1,2\n")
    code, _, err = cli("run", QUERY, folder)
    assert code == 1
    assert err.startswith("error: in/\\udcff.csv: ")


def test_such_a_folder_tells_a_column_escaped(cli):
    os.makedirs(f"d{ODD}/k={ODD}")
    write_text(f"d{ODD}/k={ODD}/a.csv")
    code, out, _ = cli("columns", f"d{ODD}", "--json")
    assert code == 0
    assert "\\udcff" in json.loads(out)["columns"][2]["values"]


def test_a_file_that_is_not_there_is_named_escaped(cli):
    write_text(f"{ODD}.csv")
    code, _, err = cli("run", QUERY, f"{ODD}.csw")
    assert code == 1
    assert err == "error: \\udcff.csw: no such file\nhint: did you mean '\\udcff.csv'?\n"


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "jsonl"])
def test_results_are_written_to_such_a_name(cli, folder, ending):
    code, _, err = cli("run", QUERY, folder, "-o", f"{ODD}.{ending}")
    assert code == 0
    assert err.endswith(f"-> \\udcff.{ending}\n")
    assert os.listdir(b".").count(b"\xff." + ending.encode()) == 1
    code, _, err = cli("run", QUERY, f"in/{ODD}.csv", "-o", f"in/{ODD}.csv")
    assert code == 1
    assert "is an input" in err


def test_pages_and_pictures_have_such_names(cli, folder):
    assert cli("report", QUERY, f"in/{ODD}.csv", "-o", f"{ODD}.html")[0] == 0
    assert cli("explain", QUERY, "--svg", f"{ODD}.svg")[0] == 0
    for ending in ("html", "svg"):
        with open(f"{ODD}.{ending}", encoding="utf-8") as file:
            file.read()


@pytest.mark.parametrize("out", ["out", f"out{ODD}", f"out{ODD}.jsonl"])
def test_live_runs_read_and_write_such_names_once(cli, folder, out):
    args = ["run", QUERY, "--follow", folder, "--settle", "0", "--once", "-o", out, "--json"]
    for n_files in (2, 0):
        code, told, err = cli(*args)
        assert (code, err) == (0, "")
        assert json.loads(told)["n_files"] == n_files


def test_a_rule_of_such_a_name_has_its_escaped_name(cli, folder):
    os.mkdir("rules")
    write_text(f"rules/{ODD}.ceql", QUERY)
    write_text("rules/\\udcff.ceql", "SELECT * FROM S WHERE A")  # the same name, escaped
    code, out, _ = cli("run", "--queries", "rules", "in/a.csv", "--json")
    assert code == 0
    assert len(json.loads(out)["queries"]) == 2
    for target in ("found.parquet", "found.jsonl"):
        assert cli("run", "--queries", "rules", "in/a.csv", "-o", target)[0] == 0
    assert cli("run", "--queries", "rules", "in/a.csv")[0] == 0
    assert cli("report", "--queries", "rules", "in/a.csv", "-o", "page.html")[0] == 0
    assert pq.read_table("found.parquet").num_rows == 2


def test_tables_of_such_names_are_refused_in_words(cli, folder):
    pytest.importorskip("deltalake")
    for args in (["run", QUERY, f"delta:x{ODD}"], ["run", QUERY, folder, "-o", f"delta:x{ODD}"]):
        code, _, err = cli(*args)
        assert code == 1
        assert err.startswith("error: delta:x\\udcff: ")


def test_events_are_sorted_in_such_a_temporary_folder(folder, tmp_path, monkeypatch):
    os.mkdir(f"tmp{ODD}")
    monkeypatch.setattr("tempfile.tempdir", os.path.abspath(f"tmp{ODD}"))
    n = 1 << 16
    events = pa.table({"type": ["A", "B"] * n, "x": range(2 * n, 0, -1)})
    source = sort_source(open_events(events), "x", memory=1 << 16)
    assert pa.Table.from_batches(source.batches(["x"]))["x"].to_pylist() == list(range(1, 2 * n + 1))
    assert not os.listdir(f"tmp{ODD}")
