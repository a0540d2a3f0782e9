"""Statements with MATCH_RECOGNIZE on the command line."""

import json

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import cer_gpu

DIPS = """SELECT * FROM trades MATCH_RECOGNIZE (
    PARTITION BY name ORDER BY ts
    MEASURES A.price AS high, LAST(B.price) AS low
    ONE ROW PER MATCH
    PATTERN (A B+ C+)
    DEFINE B AS price < PREV(price), C AS price > PREV(price)
)"""
TRADES = pa.table(
    {
        "name": ["x", "x", "x", "x", "y", "y", "y"],
        "ts": [1, 2, 3, 4, 1, 2, 3],
        "price": [100, 80, 90, 95, 50, 40, 60],
    }
)
FOUND = [{"name": "x", "high": 100, "low": 80}, {"name": "y", "high": 50, "low": 40}]


@pytest.fixture
def dips(here):
    """Write the statement and its table to files."""
    (here / "dips.sql").write_text(DIPS)
    pq.write_table(TRADES, "trades.parquet", row_group_size=3)
    csv.write_csv(TRADES, "trades.csv")


def test_a_statement_is_run_as_a_query_is(cli, dips):
    code, out, err = cli("run", "dips.sql", "trades.parquet")
    assert code == 0
    assert out.splitlines()[2].split() == ["x", "100", "80"]
    assert out.splitlines()[-1] == "2 matches"
    assert err.startswith("7 rows, 2 matches, ")
    code, out, _ = cli("run", DIPS, "trades=trades.csv", "-o", "-")
    assert (code, [json.loads(line) for line in out.splitlines()]) == (0, FOUND)
    code, out, _ = cli("run", "dips.sql", "trades.parquet", "-o", "found.parquet", "--limit", "1", "--json")
    facts = json.loads(out)
    assert (facts["output"], facts["n_rows"], facts["limit_reached"]) == ("one row per match", 1, True)
    assert pq.read_table("found.parquet").to_pylist() == FOUND[:1]


def test_all_rows_of_matches_are_shown_and_counted(cli, dips):
    every = DIPS.replace("ONE ROW", "ALL ROWS")
    code, out, err = cli("run", every, "trades.parquet")
    assert (code, out.splitlines()[-1]) == (0, "7 rows of matches")
    assert "7 rows, 7 rows of matches" in err
    code, out, _ = cli("run", every.replace("price < PREV", "price < 0 * PREV"), "trades.csv")
    assert (code, out) == (0, "no matches\n")


def test_files_that_give_texts_as_codes_and_as_texts_are_one_table(dips):
    more = pa.table({"name": ["z"], "ts": [1], "price": [7]})
    csv.write_csv(more, "more.csv")
    every = cer_gpu.compile("SELECT * FROM t MATCH_RECOGNIZE (ALL ROWS PER MATCH PATTERN (A+) DEFINE A AS price > 0)")
    found = every.evaluate(["trades.parquet", "more.csv"])
    assert found.equals(pa.concat_tables([TRADES, more]))


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        (["--time-column", "ts"], "--time-column is an option of CEQL, and QUERY is in MATCH_RECOGNIZE"),
        (["--sort"], "ORDER BY names the order of its rows"),
        (["--no-type-column"], "it knows no types of events"),
        (["--output", "count"], "ONE ROW PER MATCH or ALL ROWS PER MATCH tells its rows"),
        (["--threads", "2"], "leave it out"),
    ],
)
def test_options_of_ceql_are_refused(cli, dips, options, instead):
    code, _, err = cli("run", "dips.sql", "trades.csv", *options)
    assert code == 2
    assert instead in err


def test_the_tables_of_a_statement_are_one(cli, dips):
    code, _, err = cli("run", "dips.sql", "T=trades.csv")
    assert code == 1
    assert "the statement reads one table, 'trades', and got 'T'" in err


def test_a_statement_is_checked(cli, dips):
    assert cli("check", "dips.sql")[:2] == (0, "ok: the query has no errors\n")
    reads = "ok: the query fits trades.csv, and reads name, ts, price\n"
    assert cli("check", "dips.sql", "trades.csv")[:2] == (0, reads)
    code, _, err = cli("check", DIPS.replace("B.price", "B.prise"), "trades.csv")
    assert code == 1
    assert "no column 'prise'" in err
    assert "did you mean 'price'?" in err
    code, out, _ = cli("check", DIPS.replace("DEFINE", "DEFINED"), "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_a_statement_is_explained(cli, dips):
    code, out, _ = cli("explain", "dips.sql", "--all", "--dot", "places.dot", "--svg", "places.svg")
    assert code == 0
    for line in (
        "  Rows of trades with the same name form a partition, in the order of ts.",
        "  At each row, the preferred match of A B+ C+ that begins there is found.",
        "  Each row of the result is a match, with name, high, low.",
        "  B   price < PREV(price)   bit 0 of a row",
        "  B.2     → B.3, C.4",
        "  C.5     → C.5, the end",
    ):
        assert line in out.splitlines(), line
    with open("places.dot") as file:
        assert '2 -> 4 [label="2. price > PREV(price)\\n● C"]' in file.read()
    code, out, _ = cli("explain", "dips.sql", "--events", "trades.csv", "--json")
    assert [each["bit"] for each in json.loads(out)["conditions"]] == [None, 0, 1]
    code, out, _ = cli("explain", "dips.sql", "--passes")
    assert (code, out.splitlines()[2]) == (0, "conditions   bits of rows: B, C")
    code, _, err = cli("explain", "dips.sql", "--events", "trades.csv", "--analyze")
    assert code == 1
    assert "leave out analyze" in err


def test_reports_refuse_a_statement_with_a_hint(cli, dips, here):
    code, _, err = cli("report", "dips.sql", "trades.csv", "-o", "page.html")
    assert code == 1
    assert "MATCH_RECOGNIZE is no CEQL" in err
    assert "hint: cer_gpu.compile(text).evaluate(events), or cer-gpu run" in err


def test_a_folder_holds_statements_beside_queries(cli, dips, here):
    (here / "rules").mkdir()
    (here / "rules" / "dips.ceql").write_text(DIPS)
    (here / "rules" / "all.ceql").write_text("SELECT * FROM S WHERE S")
    code, out, _ = cli("run", "--queries", "rules", "trades.csv", "--no-type-column", "--json")
    alone = json.loads(cli("run", "dips.sql", "trades.csv", "--json")[1])
    assert code == 0
    found = json.loads(out)["queries"]
    assert found["dips"]["n_rows"] == alone["n_rows"] > 0
    assert found["all"]["n_rows"] == alone["n_events"]


def test_a_notebook_shows_words_places_and_details():
    words, picture = DIPS.replace("(A B+ C+)", "(^A* {- B -} C)"), "Places of a row pattern of 4 states"
    html = cer_gpu.compile(words)._repr_html_()
    assert picture in html
    assert "the preferred match of ^A* {- B -} C that begins there is found." in html
    assert "start of a partition" in html
