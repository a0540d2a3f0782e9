"""Tables as EVENTS and as OUT of the command line."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from written_tables import rows_of, use_catalogue

from cer_gpu.io.sources import open_events

AB = pa.table({"type": ["A", "B"], "x": [1, 2]})


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_are_read_and_appended_to(kind, here, cli, monkeypatch):
    name = f"delta:{here}/t" if kind == "delta" else "iceberg:cat.ns.t"
    if kind == "delta":
        write_deltalake(str(here / "t"), AB)
    else:
        use_catalogue(monkeypatch, here).create_table("ns.t", schema=AB.schema).append(AB)
    for _ in range(2):
        code, _, err = cli("run", "SELECT * WHERE A ; B", name, "-o", f"{name}_found")
        assert (code, f"-> {name}_found" in err) == (0, True)
    assert [row["positions"] for row in rows_of(open_events(f"{name}_found"))] == [[0, 1], [0, 1]]
    assert cli("run", "SELECT * WHERE A ; B", name)[0] == 0
    code, _, err = cli("run", "SELECT * WHERE A ; B", name, "-o", f"{name}_found", "--format", "csv")
    assert (code, "is a table" in err) == (2, True)
    code, _, err = cli("run", "SELECT * WHERE A ; B", "events.parquet", "-o", f"{name}")
    assert (code, "the table has no column 'start'" in err) == (1, True)


def test_other_commands_read_tables(here, cli):
    write_deltalake(str(here / "t"), AB)
    assert "type" in cli("columns", "delta:t")[1]
    assert cli("check", "SELECT * WHERE A AS a ; B FILTER a[x > 1]", "t")[0] == 0
    assert cli("check", "SELECT * WHERE A AS a ; B FILTER a[y > 1]", "t")[0] == 1
    assert cli("explain", "SELECT * WHERE A ; B", "--events", "delta:t@0")[0] == 0
    code, _, err = cli("report", "SELECT * WHERE A ; B", "delta:t", "-o", "r.html")
    assert (code, err) == (0, err)
    assert (here / "r.html").exists()
    code, _, err = cli("run", "SELECT * WHERE A ; B", "delta:t@9")
    assert (code, "there is no version 9; the newest is 0" in err) == (1, True)
