"""Events of one time, in the order of further columns."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest
from sizes import seeds

import cer_gpu
from cer_gpu.cli.group import main
from cer_gpu.cli.shared_options import with_sort

TIME = pa.timestamp("us")


def rows(seed: int, n: int = 60) -> list[dict]:
    rng = random.Random(seed)
    return [
        {
            "type": rng.choice("AB"),
            "ts": rng.randrange(8),
            "seq": rng.choice([None, *range(5)]),
            "name": rng.choice(["x", "y", None]),
            "i": i,
        }
        for i in range(n)
    ]


def as_table(events: list[dict]) -> pa.Table:
    schema = pa.schema({"type": pa.string(), "ts": TIME, "seq": pa.int64(), "name": pa.string(), "i": pa.int64()})
    return pa.Table.from_pylist(events, schema)


@pytest.mark.parametrize("seed", seeds(25))
@pytest.mark.parametrize("names", [["seq"], ["seq", "name"], ["name", "seq"]])
def test_events_of_one_time_are_in_the_order_of_further_columns(seed, names):
    """Python's sort tells the order; positions are those of the input; any cut into batches gives the same."""
    events = rows(seed)

    def key(event: dict) -> list:
        return [event["ts"], *((event[name] is None, "" if event[name] is None else event[name]) for name in names)]

    ordered = sorted(events, key=key)
    query = cer_gpu.compile("SELECT * WHERE (A OR B) AS x ; (A OR B) AS y WITHIN 2 EVENTS", time_column="ts")
    consecutive = cer_gpu.compile("SELECT x, y WHERE (A OR B) AS x : (A OR B) AS y", time_column="ts")
    wanted = [[a["i"], b["i"]] for a, b in itertools.pairwise(ordered)]
    table = as_table(events)
    cut = random.Random(seed).randrange(1, 9)
    for given in (table, iter(table.to_batches(max_chunksize=cut))):
        assert consecutive.evaluate(given, sort=["ts", *names])["positions"].to_pylist() == wanted
    assert query.evaluate(table, sort="ts").equals(query.evaluate(table, sort=True))


def test_fields_of_structs_and_texts_as_codes_order_ties():
    events = pa.table(
        {
            "type": ["A", "B"],
            "ts": pa.array([0, 0], TIME),
            "s": [{"n": 2}, {"n": 1}],
            "code": pa.array(["b", "a"]).dictionary_encode(),
        }
    )
    query = cer_gpu.compile("SELECT * WHERE B ; A", time_column="ts")
    for names in (["ts", "s.n"], ("ts", "code")):
        assert query.evaluate(events, sort=names)["positions"].to_pylist() == [[1, 0]]
    assert query.evaluate(events, sort=True).num_rows == 0


def test_wrong_columns_are_refused():
    query = cer_gpu.compile("SELECT * WHERE A", time_column="ts")
    table = as_table(rows(0))
    with pytest.raises(cer_gpu.OptionError, match=r"sort begins with the time column 'ts', got \['seq'\]"):
        query.evaluate(table, sort=["seq"])
    with pytest.raises(cer_gpu.QueryTypeError, match="no column 'sequence'"):
        query.evaluate(table, sort=["ts", "sequence"])


def test_the_command_line_takes_columns_behind_sort(tmp_path, capsys):
    assert with_sort(["--sort", "ts,seq", "x"]) == ["--sort=ts,seq", "x"]
    assert with_sort(["q", "--sort", "e.csv", "--sort"]) == ["q", "--sort=", "e.csv", "--sort="]
    (tmp_path / "e.csv").write_text("type,ts,seq\nA,2024-03-01 05:00:00,2\nB,2024-03-01 05:00:00,1\n")
    run = ["run", "SELECT * WHERE B ; A", str(tmp_path / "e.csv"), "--time-column", "ts", "--no-progress"]
    for sort, n in (["--sort", "ts,seq"], "1 match"), (["--sort"], "no matches"):
        assert main([*run, *sort]) == 0
        assert n in capsys.readouterr().out
