"""Notes on a query without errors that finds nothing, or other events than were meant; the rate of a run."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.cli import tally
from cer_gpu.parallel import range_threads as ranges

MISSPELT = "SELECT * FROM S WHERE LANDED ; DEPARTD"
NOTE = "no event has the type 'DEPARTD'; did you mean 'DEPARTED'?"
FLIGHTS = {
    "plain": pa.array(["LANDED", "DEPARTED", None, "LANDED"]),
    "dictionary": pa.array(["LANDED", "DEPARTED", None, "LANDED"]).dictionary_encode(),
}


def notes_of(err):
    return [line.removeprefix("note: ") for line in err.splitlines() if line.startswith("note: ")]


@pytest.fixture(params=FLIGHTS)
def flights(request):
    pq.write_table(pa.table({"type": FLIGHTS[request.param], "n": [1, 2, 3, 4]}), "flights.parquet")
    return "flights.parquet"


def test_run_names_a_type_that_never_occurs(cli, flights):
    code, out, err = cli("run", MISSPELT, flights)
    assert (code, out) == (0, "no matches\n")
    assert notes_of(err) == [NOTE]
    _, out, _ = cli("run", MISSPELT, flights, "--json")
    assert json.loads(out)["notes"] == [NOTE]


def test_a_type_that_occurs_is_not_noted(cli, flights):
    assert notes_of(cli("run", "SELECT * FROM S WHERE DEPARTED ; LANDED", flights)[2]) == []
    assert notes_of(cli("run", "SELECT * FROM S WHERE DEPARTED ; DEPARTED", flights)[2]) == []


def test_a_type_close_to_no_other_is_noted_with_all_types(cli, flights):
    _, _, err = cli("run", "SELECT * FROM S WHERE LANDED OR Q", flights)
    assert notes_of(err) == ["no event has the type 'Q'; there are 'DEPARTED', 'LANDED'"]


def test_events_that_were_not_read_have_no_notes(cli, flights):
    assert notes_of(cli("run", "SELECT * FROM S WHERE LANDED OR DEPARTD", flights, "--limit", 1)[2]) == []
    pq.write_table(pa.table({"type": pa.array([], pa.string())}), "none.parquet")
    assert notes_of(cli("run", MISSPELT, "none.parquet")[2]) == []


def test_without_a_type_column_there_is_no_note(cli, flights):
    assert notes_of(cli("run", "SELECT * FROM S WHERE S ; S", flights, "--no-type-column")[2]) == []


def test_explain_and_report_name_the_missing_type(cli, flights):
    _, out, _ = cli("explain", MISSPELT, "--events", flights)
    assert out.count(NOTE) == 1
    _, out, _ = cli("explain", MISSPELT, "--events", flights, "--json")
    assert json.loads(out)["notes"] == [NOTE]
    assert NOTE not in cli("explain", MISSPELT)[1]
    code, _, err = cli("report", MISSPELT, flights, "-o", "page.html")
    assert code == 0
    assert notes_of(err) == [NOTE]


def test_check_says_that_types_are_not_checked(cli, flights):
    code, out, _ = cli("check", MISSPELT, flights)
    assert code == 0
    assert out.endswith(
        "(no events were read: run the query to see whether there are events of type LANDED and DEPARTD)\n"
    )


@pytest.mark.parametrize("clauses", ["WITHIN 5 EVENTS", "PARTITION BY [n]"])
def test_threads_join_the_types_that_they_met(monkeypatch, clauses):
    """Each part of the stream has other types; together they have all but one."""
    monkeypatch.setattr(ranges, "RANGE_ROWS_IN_MEMORY", 8)
    monkeypatch.setattr(ranges, "SAMPLE_ROWS", 8)
    types = ["A"] * 50 + ["B"] * 50 + ["C"] * 50
    events = pa.table({"type": types, "n": [1] * 150})
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A ; B ; C ; DD {clauses}")
    evaluator, source = query.evaluator(), query._open_source(events)
    assert sum(found.num_rows for found in query._match_source(source, evaluator, 3)) == 0
    assert evaluator.notes == ["no event has the type 'DD'; there are 'A', 'B', 'C'"]


def test_a_restored_evaluator_has_no_notes():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A"]}))
    assert evaluator.notes == ["no event has the type 'B'; there are 'A'"]
    again = query.restore(evaluator.checkpoint())
    again.push(pa.record_batch({"type": ["B"]}))
    assert again.notes == []


def test_a_strategy_that_chooses_before_the_window_is_noted_without_results(cli, flights):
    query = "SELECT NEXT * FROM S WHERE LANDED ; DEPARTED ; LANDED {} EVENTS"
    note = "NEXT chooses before WITHIN is looked at: where its choice is longer than 2 EVENTS, that end has no match"
    assert notes_of(cli("run", query.format("THEN WITHIN 2"), flights)[2]) == [note]
    assert notes_of(cli("run", query.format("WITHIN 2"), flights)[2]) == []


# ---- rate -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evaluated", "said"),
    [
        ([0, 100, 200, 300], "3.00 s (2.00 s to start), 300 rows/s"),  # 100 rows in 2.33 s, then 200 in 0.67 s
        ([0, 100], "3.00 s"),
        ([0, 100, 150], "3.00 s"),
        ([0, 0, 0, 300], "3.00 s, 100 rows/s"),  # threads: ranges are counted at the end
    ],
)
def test_the_first_batch_is_left_out_of_the_rate(monkeypatch, evaluated, said):
    now = 0.0
    monkeypatch.setattr(tally.time, "perf_counter", lambda: now)
    pace = tally.Throughput()
    *before, n_events = evaluated
    for n in before:
        pace.before_a_batch(n)
        now = 7 / 3
    now = 3.0
    pace.finish(n_events)
    assert str(pace) == said
