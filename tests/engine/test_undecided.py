"""Complex events that only the end of the input completes: reported, or held back; counted in a note."""

from __future__ import annotations

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.cli.group import main

CART = "SELECT * WHERE CART AS c ; !BUY PARTITION BY [user] WITHIN 30 MINUTES"
MINUTES = [0, 5, 10, 50, 55]
EVENTS = pa.table(
    {
        "type": ["CART", "CART", "BUY", "CART", "CART"],
        "user": ["a", "b", "b", "c", "a"],
        "ts": pa.array([60 * minute for minute in MINUTES], pa.timestamp("s")),
    }
)
NOTE = "2 matches are complete only because the input ends"


@pytest.fixture
def query():
    return cer_gpu.compile(CART, time_column="ts")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("output", ["positions", "bindings", "events", "rows"])
def test_carts_of_the_last_half_hour_are_not_abandoned_yet(query, threads, output):
    reported = query.evaluate(EVENTS, threads=threads, output=output)
    held = query.evaluate(EVENTS, threads=threads, output=output, undecided="hold")
    assert (reported.num_rows, held.num_rows) == (3, 1)
    assert held.equals(reported.slice(0, 1))


def test_counts_and_ends_leave_them_out_too(query):
    assert query.count(EVENTS) == 3
    assert query.count(EVENTS, undecided="hold") == 1
    assert query.evaluate(EVENTS, output="ends", undecided="hold").num_rows == 1


@pytest.mark.parametrize("undecided", ["report", "hold"])
def test_an_evaluator_says_how_many_there_are(query, undecided):
    evaluator = query.evaluator(undecided=undecided)
    (batch,) = EVENTS.to_batches()
    assert evaluator.push(batch).num_rows == 1
    assert not evaluator.notes
    assert evaluator.finish().num_rows == (2 if undecided == "report" else 0)
    assert evaluator.n_matches == (3 if undecided == "report" else 1)
    (note,) = evaluator.notes
    assert note.startswith(NOTE if undecided == "report" else "2 matches are held back")


def test_a_later_event_decides(query):
    later = pa.concat_tables(
        [EVENTS, pa.table({"type": ["X"], "user": ["z"], "ts": pa.array([6000], pa.timestamp("s"))})]
    )
    evaluator = query.evaluator(undecided="hold")
    assert evaluator.push(later.combine_chunks().to_batches()[0]).num_rows == 3
    assert evaluator.finish().num_rows == 0
    assert not evaluator.notes


def test_sets_hold_them_back_by_query():
    together = cer_gpu.compile_all({"carts": CART, "all": "SELECT * WHERE CART"}, time_column="ts")
    found = together.evaluate(EVENTS, undecided="hold")
    assert {name: rows.num_rows for name, rows in found.items()} == {"carts": 1, "all": 4}


def test_the_command_line_says_how_many(tmp_path, capsys):
    import pyarrow.parquet as pq

    pq.write_table(EVENTS, tmp_path / "e.parquet")
    run = ["run", CART, str(tmp_path / "e.parquet"), "--time-column", "ts", "--no-progress"]
    for options in ([], ["--threads", "2"]):
        assert main([*run, *options]) == 0
        assert f"note: {NOTE}" in capsys.readouterr().err
    assert main([*run, "--undecided", "hold"]) == 0
    said = capsys.readouterr()
    assert "1 match" in said.out
    assert "note: 2 matches are held back: no later event shows" in said.err
    with pytest.raises(cer_gpu.OptionError, match="undecided must be one of report, hold, got 'no'"):
        cer_gpu.EvaluationOptions(undecided="no")
