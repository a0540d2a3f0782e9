"""Content of a report: all complex events or a bounded, even sample of them, and nothing that a browser executes."""

import datetime
import itertools
import re
from html import unescape

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from report.pages import HOSTILE, TRADES, about, all_held, between_of, held, rows_of, unpacked

import cer_gpu
from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.report import counted, listed_matches, match_measures, match_rows, write_report
from cer_gpu.report.listed_matches import Sample, fingerprints
from cer_gpu.report.match_rows import in_one_format, packed

QUERY = "SELECT * FROM S WHERE SELL AS s ; BUY AS b"


@pytest.fixture
def page(tmp_path):
    """Write a report, and return its content."""

    def make(text=QUERY, events=TRADES, *, time_column=None, time_unit=None, **options):
        query = cer_gpu.compile(text, time_column=time_column, time_unit=time_unit)
        report = write_report(query, events, tmp_path / "report.html", **options)
        made = held(tmp_path / "report.html")
        assert report.n_bytes == (tmp_path / "report.html").stat().st_size
        assert (report.n_events, report.n_matches) == (made["n_events"], made["n_matches"])
        assert [path.name for path in tmp_path.glob(".*")] == []
        return made

    return make


def test_a_page_holds_every_complex_event_and_its_rows(page):
    made = page(time_column="ts")
    found = cer_gpu.compile(QUERY, time_column="ts").evaluate(TRADES, output="bindings").to_pylist()
    assert (made["n_events"], made["n_matches"], made["step"], made["rows"]["step"]) == (6, 5, 1, 1)
    matches = {name: unpacked(numbers) for name, numbers in made["matches"].items()}
    assert matches["start"] == [row["start"] for row in found]
    assert matches["span"] == [row["end"] - row["start"] for row in found]
    epoch = datetime.datetime(1970, 1, 1)
    assert matches["from"] == [(row["start_time"] - epoch).total_seconds() * 1000 for row in found]
    assert matches["length"] == [(r["end_time"] - r["start_time"]).total_seconds() * 1000 for r in found]
    assert matches["n"] == [2] * 5
    names = [column["name"] for column in made["rows"]["columns"]]
    assert names == TRADES.column_names
    for number, row in enumerate(found):
        shown = rows_of(made, number)
        assert [position for position, *_ in shown] == row["positions"]
        assert [role for _, role, *_ in shown] == ["s", "b"]
        assert [values[1] for _, _, *values in shown] == TRADES["name"].take(row["positions"]).to_pylist()
    first = rows_of(made, 0)
    assert first[0][2:] == ("SELL", "MSFT", "101.0", HOSTILE, "1970-01-01 00:00:00")
    assert rows_of(made, 1)[1][5] == "x" * 120  # cut to 120 characters
    assert rows_of(made, 1)[0][5] is None


def test_positions_are_the_axis_where_there_is_no_time(page):
    made = page()
    assert made["axis"] == {"kind": "position", "unit": "", "origin": "0"}
    assert unpacked(made["matches"]["from"]) == unpacked(made["matches"]["start"]) == [0, 2, 0, 2, 0]


@pytest.mark.parametrize(
    ("times", "unit", "axis", "start", "length"),
    [
        (pa.array([7, 9], pa.timestamp("s")), None, ("moment", "", "7000"), 0, 2000),
        (pa.array([7, 9], pa.timestamp("ms", "Europe/Paris")), None, ("moment", "Z", "7"), 0, 2),
        (pa.array([7_500, 9_000], pa.timestamp("us")), None, ("moment", "", "7"), 0.5, 1.5),
        (pa.array([-1, 1_999_999], pa.timestamp("ns")), None, ("moment", "", "-1"), 0.999999, 2),
        (pa.array([1, 3], pa.date32()), None, ("moment", "", "86400000"), 0, 2 * 86_400_000),
        (pa.array([86_400_000, 2 * 86_400_000], pa.date64()), None, ("moment", "", "86400000"), 0, 86_400_000),
        (pa.array([5, 6], pa.duration("s")), None, ("duration", "", "5000"), 0, 1000),
        (pa.array([5, 6], pa.int32()), "us", ("number", "us", "5"), 0, 1),
        (pa.array([-(2**63), 2**63 - 1], pa.int64()), None, ("number", "", str(-(2**63))), 0, float(2**64 - 1)),
        (pa.array([2**64 - 2, 2**64 - 1], pa.uint64()), None, ("number", "", str(2**64 - 2)), 0, 1),
    ],
    ids=str,
)
def test_the_axis_has_the_kind_and_unit_of_the_time_column(page, times, unit, axis, start, length):
    events = pa.table({"type": ["SELL", "BUY"], "t": times})
    made = page(events=events, time_column="t", time_unit=unit)
    assert (made["axis"]["kind"], made["axis"]["unit"], made["axis"]["origin"]) == axis
    assert unpacked(made["matches"]["from"]) == [pytest.approx(start)]
    assert unpacked(made["matches"]["length"]) == [length]


def test_no_text_of_data_or_query_is_markup(tmp_path):
    query = cer_gpu.compile(f"SELECT * FROM S WHERE SELL FILTER SELL[note = '{HOSTILE.replace(chr(39), chr(39) * 2)}']")
    path = tmp_path / "report.html"
    write_report(query, TRADES.rename_columns(["type", HOSTILE, "price", "note", "ts"]), path, title=HOSTILE)
    text = path.read_text(encoding="utf-8")
    assert len(re.findall("<script", text)) == len(re.findall("</script>", text)) == 2
    assert (
        unescape(re.search("<h1>(.*?)</h1>", text)[1])
        == unescape(re.search("<title>(.*?)</title>", text)[1])
        == HOSTILE
    )
    made = held(path)
    assert made["query"] == query.text
    assert made["strategies"] == list(STRATEGIES)  # keywords, which the page sets off
    assert made["rows"]["columns"][1]["name"] == HOSTILE
    assert rows_of(made, 0)[0][5] == HOSTILE
    assert not re.search(r"https?:|\bsrc=|@import|url\(", text)


def test_partitions_are_counted_and_named(page):
    made = page(QUERY + " PARTITION BY [name]")
    assert made["keys"] == ["name"]
    assert (made["labels"], unpacked(made["counts"]), made["n_partitions"]) == (["MSFT", "INTC"], [2, 1], 2)
    assert unpacked(made["matches"]["partition"]) == [0, 1, 0]


def test_partitions_whose_names_read_alike_are_two(page):
    events = pa.table({"type": ["A"] * 3, "x": ["1, 2", "1", "1"], "y": ["3", "2, 3", "2, 3"]})
    made = page("SELECT * FROM S WHERE A PARTITION BY [x], [y]", events)
    assert (made["labels"], unpacked(made["counts"])) == (["1, 2, 3", "1, 2, 3"], [2, 1])


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("SELECT s FROM S WHERE (SELL ; BUY) AS s", [["s"], ["s"]]),
        ("SELECT a, b FROM S WHERE (SELL AS a OR SELL AS b)", [["a or b"]]),
        ("SELECT ANY s, b FROM S WHERE SELL AS s : BUY AS b", [["s"], ["b"]]),
        ("SELECT * FROM S WHERE SELL AS s : BUY AS b LIMIT 1", [["s"], ["b"]]),
        ("SELECT MAX s, b FROM S WHERE SELL AS s ; (BUY AS b)+ : SELL", [["s"], ["b"]]),
    ],
)
def test_rows_have_the_variables_that_hold_them_as_roles(page, text, roles):
    assert [[role] for _, role, *_ in rows_of(page(text), 0)][:2] == roles


def test_a_query_that_keeps_nothing_has_no_rows(page):
    made = page("SELECT NONE FROM S WHERE SELL ; BUY")
    assert (made["n_matches"], unpacked(made["matches"]["n"]), rows_of(made, 0)) == (5, [0] * 5, [])


def test_a_page_without_complex_events_has_no_rows(page):
    made = page("SELECT * FROM S WHERE BUY FILTER BUY[price > 1000]")
    assert (made["n_events"], made["n_matches"], "rows" in made) == (6, 0, False)


def test_a_page_of_an_empty_stream_counts_zero_events(page):
    assert page(events=TRADES.slice(0, 0))["n_events"] == 0


def test_only_selected_attributes_are_shown(page):
    made = page("SELECT s[price], b[price, name] FROM S WHERE SELL AS s ; BUY AS b")
    assert [column["name"] for column in made["rows"]["columns"]] == ["price", "name"]


def test_variables_are_left_out_where_their_names_are_taken(page):
    made = page("SELECT * FROM S WHERE SELL AS start ; BUY")
    assert made["rows"]["role_names"] == [""]
    assert [position for position, *_ in rows_of(made, 0)] == [0, 1]


@pytest.mark.parametrize("kind", ["parquet", "csv", "reader", "iterable", "dataset", "mapping"])
def test_every_kind_of_events_gives_the_same_page(page, tmp_path, kind):
    events = TRADES.select(["type", "name", "ts"])
    expected = page(events=events, time_column="ts")["rows"]["columns"][1]
    text = QUERY
    match kind:
        case "parquet":
            pq.write_table(events, tmp_path / "events.parquet")
            events = str(tmp_path / "events.parquet")
        case "csv":
            import pyarrow.csv as pa_csv

            pa_csv.write_csv(events, tmp_path / "events.csv")
            events = [tmp_path / "events.csv"]
        case "reader":
            events = events.to_reader(2)
        case "iterable":
            events = iter(events.to_batches(2))
        case "dataset":
            import pyarrow.dataset as pa_dataset

            events = pa_dataset.dataset(events)
        case "mapping":
            events = {"S": events.to_reader(2)}
    made = page(text, events, time_column="ts")
    assert made["n_matches"] == 5
    assert made["rows"]["columns"][1] == expected


def test_events_are_sorted_on_request(page):
    backwards = TRADES.take(list(range(5, -1, -1)))
    with pytest.raises(cer_gpu.TimeOrderError):
        page(QUERY, backwards, time_column="ts")
    made = page(QUERY, backwards, time_column="ts", sort=True)
    assert {row[3] for row in rows_of(made, 0)} == {"MSFT"}


# ---- bounds ---------------------------------------------------------------------------------------------------------


def test_too_many_complex_events_are_sampled_evenly(page, monkeypatch):
    monkeypatch.setattr(listed_matches, "MAX_DRAWN", 100)
    monkeypatch.setattr(listed_matches, "MAX_REFERENCES", 90)
    events = pa.table({"type": ["A", "B"] * 500, "k": pa.array(np.arange(1000) // 2 % 7)})
    made = page("SELECT * FROM S WHERE A : B PARTITION BY [k]", events)
    assert (made["n_matches"], made["step"], made["rows"]["step"]) == (500, 8, 32)
    numbers = [n for n in range(500) if n % 8 == 0]
    assert unpacked(made["matches"]["start"]) == [2 * n for n in numbers]
    assert sum(unpacked(made["counts"])) == 500  # of all complex events, not of the sample
    assert [row[:2] for row in rows_of(made, 64)] == [(128, "A"), (129, "B")]


@pytest.mark.parametrize("end", ["", " PARTITION BY [k]", " WITHIN 100 EVENTS LIMIT 300"])
def test_of_more_complex_events_than_can_be_listed_some_of_each_end_are(page, monkeypatch, end):
    """Their weights add up to the exact number at each end, and the partitions have their exact counts."""
    text = "SELECT * FROM S WHERE A AS a ; B ; C" + end
    events = pa.table({"type": ["A", "B", "C"] * 100, "k": pa.array([0, 1, 1, 1, 0, 0] * 50)})
    found = cer_gpu.compile(text).evaluate(events)
    monkeypatch.setattr(counted, "MAX_LISTED", 1000)
    told = []
    made = page(text, events, on_message=told.append)
    assert (made["n_events"], made["n_matches"]) == (300, found.num_rows)
    most = made["most_at_an_end"]
    assert told == [f"{found.num_rows:,} matches: the page has at most {most} per end event"]
    matches = {name: unpacked(numbers) for name, numbers in made["matches"].items()}
    all_of = {(row["start"], row["end"]) for row in found.to_pylist()}
    drawn = [(start, start + span) for start, span in zip(matches["start"], matches["span"], strict=True)]
    assert len(drawn) == made["n_listed"] <= 1000
    assert set(drawn) <= all_of
    weights = dict.fromkeys(found["end"].to_pylist(), 0.0)
    for (_, last), weight in zip(drawn, matches["stands_for"], strict=True):
        weights[last] += weight
    counts = cer_gpu.compile(text).evaluate(events, output="count").to_pylist()
    assert weights == pytest.approx({row["end"]: row["count"] for row in counts})
    if "k" in found.column_names:
        each = dict(zip(made["labels"], unpacked(made["counts"]), strict=True))
        assert each == {str(k): found["k"].to_pylist().count(k) for k in (0, 1)}
    assert [role for _, role, *_ in rows_of(made, 0)] == ["a", "B", "C"]


def test_a_count_beyond_64_bits_is_told_as_more(page, tmp_path):
    events = pa.table({"type": ["A"] * 100})
    told = []
    made = page("SELECT * FROM S WHERE A+", events, on_message=told.append)
    assert (made["n_matches"], made["found"], made["n_listed"]) == (None, "more than 9.2e18", 100)
    assert told == ["more than 9.2e18 matches: the page has at most 1 per end event"]
    assert unpacked(made["matches"]["stands_for"]) == [1] * 100


def test_measures_of_too_many_matches_are_those_of_the_listed(page, monkeypatch):
    monkeypatch.setattr(counted, "MAX_LISTED", 40)
    text = "SELECT a.n AS one, b.n AS other FROM S WHERE A AS a ; A AS b"
    made = page(text, pa.table({"type": ["A"] * 20, "n": range(20)}))
    assert (made["n_matches"], made["n_listed"]) == (190, 37)
    check_measures_lie_beside_their_matches(made)


def check_measures_lie_beside_their_matches(made):
    """Check that the measures "one" and "other", numbers of rows, are those of the first and the last event."""
    measured, matches = measured_values(made), made["matches"]
    assert [float(n) for n in measured["one"]] == unpacked(matches["start"])
    ends = np.add(unpacked(matches["start"]), unpacked(matches["span"]))
    assert [float(n) for n in measured["other"]] == ends.tolist()


def test_queries_that_cannot_be_counted_are_listed(page, monkeypatch):
    monkeypatch.setattr(counted, "MAX_LISTED", 1)
    text = "SELECT b.price - s.price AS gain FROM S WHERE SELL AS s ; BUY AS b HAVING gain > 0"
    assert page(text)["n_matches"] == cer_gpu.compile(text).evaluate(TRADES).num_rows == 1


def test_a_page_of_several_queries_has_what_each_has_alone(page, tmp_path):
    rules = {
        "one": QUERY,
        "none": "SELECT * FROM S WHERE BUYS",
        "two": QUERY + " PARTITION BY [name]",
        "gain": "SELECT b.price - s.price AS gain FROM S WHERE SELL AS s ; BUY AS b HAVING gain > 0",
    }
    report = write_report(cer_gpu.compile_all(rules, time_column="ts"), TRADES, tmp_path / "all.html")
    assert report.of == {"one": 5, "none": 0, "two": 3, "gain": 1}
    assert (report.n_events, report.n_matches) == (6, 9)
    assert "none: no event has the type 'BUYS'; did you mean 'BUY'?" in report.notes
    for each in all_held(tmp_path / "all.html"):
        alone = page(rules[each["name"]], time_column="ts")
        assert {**each, "name": ""} == alone


def test_several_queries_share_the_room_of_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(listed_matches, "MAX_DRAWN", 100)
    events = pa.table({"type": ["A"] * 80})
    rules = {"a": "SELECT * FROM S WHERE A", "b": "SELECT * FROM S WHERE A", "c": "SELECT * FROM S WHERE C"}
    write_report(cer_gpu.compile_all(rules), events, tmp_path / "all.html")
    assert [each["step"] for each in all_held(tmp_path / "all.html")] == [2, 2, 1]


def test_a_query_that_overflows_leaves_the_counts_of_the_others(tmp_path):
    rules = {"many": "SELECT * FROM S WHERE A+", "few": "SELECT * FROM S WHERE A"}
    report = write_report(cer_gpu.compile_all(rules), pa.table({"type": ["A"] * 100}), tmp_path / "all.html")
    assert (report.of, report.n_matches) == ({"many": None, "few": 100}, None)


def test_long_complex_events_columns_and_values_are_cut(page, monkeypatch):
    events = pa.table({"type": ["A"] * 300} | {f"c{i}": ["y" * 1000] * 300 for i in range(50)})
    made = page("SELECT STRICT * FROM S WHERE A:+ PARTITION BY [c0] WITHIN 298 EVENTS", events)
    assert made["rows"]["most"] == 200
    assert made["rows"]["n_columns"] == 51
    assert len(made["rows"]["columns"]) == 40
    assert made["labels"] == ["y" * 80]


def test_rows_are_fewer_where_their_values_are_long(page, monkeypatch):
    monkeypatch.setattr(match_rows, "MAX_ROW_BYTES", 20_000)
    events = pa.table({"type": ["A"] * 1000, "s": [f"{i:0100}" for i in range(1000)]})
    made = page("SELECT * FROM S WHERE A", events)
    assert (made["step"], made["rows"]["step"]) == (1, 8)
    assert rows_of(made, 16) == [(16, "A", "A", f"{16:0100}")]
    assert sum(len(value) for column in made["rows"]["columns"] for value in column["values"]) < 20_000


def test_a_sample_does_not_depend_on_the_batches():
    rows = pa.table({"number": np.arange(1000)})
    weights = np.arange(1000) % 5 + 1

    def sampled(*cuts):
        sample = Sample(400)
        for low, high in itertools.pairwise([0, *cuts, 1000]):
            sample.add(rows.slice(low, high - low), weights[low:high])
        return sample.rows()["number"].to_pylist()

    assert sampled() == sampled(1) == sampled(*range(1, 1000, 7)) == list(range(0, 1000, 8))


def test_fingerprints_tell_complex_events_apart():
    found = cer_gpu.compile("SELECT * FROM S WHERE A+").evaluate(pa.table({"type": ["A"] * 12}))
    prints = fingerprints(found)
    assert len(set(prints.tolist())) == found.num_rows == 4095
    pieces = [fingerprints(batch) for batch in found.slice(3).to_batches(max_chunksize=100)]
    assert np.concatenate(pieces).tolist() == prints[3:].tolist()


@pytest.mark.parametrize(
    "values", [[], [0], [0, 255], [256, 3], [1000, 60_000, 0], [2**32, 1], [2**53 - 1], [2**60], [-5, 5], [0.5, 1]]
)
def test_unpacked_numbers_equal_the_packed_ones(values):
    assert unpacked(packed(np.array(values))) == values


# ---- the file -------------------------------------------------------------------------------------------------------


def test_no_partial_page_is_left(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("before")
    query = cer_gpu.compile(QUERY, time_column="ts")
    with pytest.raises(cer_gpu.TimeOrderError):
        write_report(query, TRADES.take([5, 0]), path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("given", [str, lambda path: path, lambda path: [path], lambda path: {"S": [str(path)]}])
def test_events_are_not_overwritten(tmp_path, given):
    path = tmp_path / "events.parquet"
    pq.write_table(TRADES, path)
    with pytest.raises(cer_gpu.OptionError, match="is an input"):
        write_report(cer_gpu.compile(QUERY), given(path), path)
    with pytest.raises(cer_gpu.OptionError, match="is an input"):
        write_report(cer_gpu.compile(QUERY), TRADES, path, inputs=[str(path)])


def measured_values(page):
    """Return the measures of each complex event on a page, by name."""
    columns = page["measures"]["columns"]
    return {column["name"]: [column["values"][int(code)] for code in unpacked(column["codes"])] for column in columns}


def test_each_complex_event_has_its_measures(page):
    text = "SELECT b.price - s.price AS gain, LAST(b).ts AS at FROM S WHERE SELL AS s ; BUY AS b"
    rows = cer_gpu.compile(text, time_column="ts").evaluate(TRADES).to_pylist()
    made = page(text, time_column="ts")
    assert [column["is_number"] for column in made["measures"]["columns"]] == [True, False]
    measured = measured_values(made)
    assert [gain and float(gain) for gain in measured["gain"]] == [row["gain"] for row in rows]
    assert measured["at"] == [str(row["at"]) for row in rows]
    assert "measures" not in page()


def test_measures_lie_beside_the_complex_event_that_they_are_of(page, monkeypatch):
    monkeypatch.setattr(listed_matches, "MAX_DRAWN", 20)
    rng = np.random.default_rng(3)
    events = pa.table({"type": rng.choice(["A", "B", "C"], 200), "n": np.arange(200), "k": rng.integers(0, 4, 200)})
    made = page(
        "SELECT FIRST(a).n AS one, c.n AS other FROM S WHERE A AS a ; B ; C AS c PARTITION BY [k] WITHIN 8 EVENTS",
        events,
    )
    assert made["step"] > 1
    check_measures_lie_beside_their_matches(made)


def test_sorted_events_have_the_positions_of_the_input_and_the_measures_of_each_match(page):
    rng = np.random.default_rng(4)
    columns = {"type": rng.choice(["A", "B"], 300), "n": np.arange(300), "k": rng.integers(0, 4, 300)}
    events = pa.table(columns | {"t": pa.array(rng.permutation(300), pa.timestamp("s"))})
    text = "SELECT a.n AS one, b.n AS other FROM S WHERE A AS a : B AS b PARTITION BY [k]"
    made = page(text, events, time_column="t", sort=True)
    check_measures_lie_beside_their_matches(made)
    found = cer_gpu.compile(text, time_column="t").evaluate(events, output="positions", sort=True)
    assert unpacked(made["matches"]["start"]) == found["start"].to_pylist()
    assert [position for position, *_ in rows_of(made, 0)] == found["positions"][0].as_py()


def test_measures_without_room_are_left_out(page, monkeypatch):
    monkeypatch.setattr(match_measures, "MAX_MEASURED_BYTES", 40)
    made = page("SELECT b.name AS name, b.note AS note FROM S WHERE SELL AS s ; BUY AS b")
    assert ([*measured_values(made)], made["measures"]["n_columns"]) == (["name"], 2)


@pytest.mark.parametrize("chosen", ["", " LIMIT 2"])
def test_measures_of_several_valuations_are_those_of_the_first(page, chosen):
    text = "SELECT a.price AS one, b.price AS other FROM S WHERE (SELL AS a OR SELL AS b) ; BUY" + chosen
    made = page(text)
    assert made["measures"]["several"]
    query, expected = cer_gpu.compile(text.removesuffix(chosen)), {}
    rows = query.evaluate(TRADES, output="measures").to_pylist()
    for binding, row in zip(query.evaluate(TRADES, output="bindings").to_pylist(), rows, strict=True):
        expected.setdefault(tuple(binding["positions"]), (row["one"], row["other"]))
    found = cer_gpu.compile(text).evaluate(TRADES, output="positions").to_pylist()
    measured = zip(measured_values(made)["one"], measured_values(made)["other"], strict=True)
    drawn = [tuple(value and float(value) for value in row) for row in measured]
    assert drawn == [expected[tuple(row["positions"])] for row in found]


def test_measures_whose_match_is_unknown_are_left_out(page):
    text = "SELECT start.price AS one, b.price AS other FROM S WHERE (SELL AS start OR SELL AS b)"
    assert page(text)["measures"] == {"columns": [], "n_columns": 2, "several": True}


def test_a_page_has_the_query_in_words_and_all_notes(page):
    text = "SELECT NEXT * FROM S WHERE SELL AS s ; BYU THEN WITHIN 5 EVENTS"
    made = page(text)
    assert made["words"] == cer_gpu.compile(text).explain().words
    assert made["notes"] == [*cer_gpu.compile(text).notes, "no event has the type 'BYU'; did you mean 'BUY'?"]
    assert len(made["notes"]) == 2


def test_titles_name_the_query_and_the_file_and_a_detail_the_paths(tmp_path):
    (tmp_path / "events").mkdir()
    pq.write_table(TRADES, tmp_path / "events" / "trades.parquet")
    given = str(tmp_path / "events" / "trades.parquet")
    path = tmp_path / "report.html"

    def title(query, events, **options):
        write_report(query, events, path, **options)
        return unescape(re.search("<title>(.*?)</title>", path.read_text())[1])

    query = cer_gpu.compile("SELECT *  -- all\nFROM S\nWHERE SELL")
    assert title(query, TRADES) == "SELECT * FROM S WHERE SELL"
    assert title(query, given) == "SELECT * FROM S WHERE SELL in trades.parquet"
    assert title(query, [given, given], inputs=["rules/late.ceql"]) == "late.ceql in trades.parquet and 1 more"
    assert about(path) == {"query": ["rules/late.ceql"], "events": [given, given]}
    assert title(query, TRADES, events_from=["-"]) == "SELECT * FROM S WHERE SELL in standard input"
    rules = cer_gpu.compile_all({"a": "SELECT * FROM S WHERE SELL", "b": "SELECT * FROM S WHERE BUY"})
    assert title(rules, given, inputs=["rules/a.ceql", "rules/b.ceql"]) == "rules in trades.parquet"
    assert title(rules, TRADES) == "2 queries"
    long = cer_gpu.compile("SELECT * FROM S WHERE SELL" + " ; BUY" * 30)
    assert title(long, TRADES) == "SELECT * FROM S WHERE SELL ; BUY ; BUY ; BUY ; \u2026"


# ---- times and rows between -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "digits", "expected"),
    [
        (["2013-07-12T18:04:00.000", None], 0, ["2013-07-12 18:04:00", None]),
        (["2013-07-12T18:04:00.120Z"], 3, ["2013-07-12 18:04:00.120Z"]),
        (["2013-07-12T18:04:00"], 3, ["2013-07-12 18:04:00.000"]),
        (["-2013-07-12T18:04:00.123456000"], 6, ["-2013-07-12 18:04:00.123456"]),
    ],
)
def test_times_of_a_column_have_one_format(texts, digits, expected):
    assert in_one_format(texts, digits) == expected


@pytest.mark.parametrize(
    ("times", "digits", "shown"),
    [
        (pa.array([0, 60_000], pa.timestamp("ms")), 0, ["1970-01-01 00:00:00", "1970-01-01 00:01:00"]),
        (pa.array([0, 60_001], pa.timestamp("ms")), 3, ["1970-01-01 00:00:00.000", "1970-01-01 00:01:00.001"]),
        (pa.array([0, 1000], pa.timestamp("ns")), 6, ["1970-01-01 00:00:00.000000", "1970-01-01 00:00:00.000001"]),
        (pa.array([0, 1], pa.timestamp("s", "Europe/Paris")), 0, ["1970-01-01 00:00:00Z", "1970-01-01 00:00:01Z"]),
        (pa.array([0, 1], pa.date32()), -1, ["1970-01-01", "1970-01-02"]),
    ],
    ids=str,
)
def test_times_have_the_precision_of_the_data(page, times, digits, shown):
    made = page(events=pa.table({"type": ["SELL", "BUY"], "t": times}), time_column="t")
    assert made["axis"]["digits"] == digits
    assert made["rows"]["columns"][1]["values"] == shown
    assert made["axis"]["zone"] == (getattr(times.type, "tz", None) or "")


def test_numbers_are_told_from_texts(page):
    assert [column["is_number"] for column in page()["rows"]["columns"]] == [False, False, True, False, False]


def rows_between(text, events, types, most=10**9):
    """Return the rows between of each complex event, from the definition."""
    query = cer_gpu.compile(text)
    keys = [names[0] for names in query.partition_keys]
    rows = events.to_pylist()
    made = []
    for found in query.evaluate(events, output="positions").to_pylist():
        between = [
            at
            for at in range(found["start"] + 1, found["end"])
            if at not in found["positions"]
            and (all(rows[at][key] == found[key] for key in keys) if keys else rows[at]["type"] in types)
        ]
        made.append(between[:most])
    return made


@pytest.mark.parametrize("end", ["PARTITION BY [k]", "PARTITION BY [k], [j] WITHIN 20 EVENTS", "WITHIN 20 EVENTS"])
@pytest.mark.parametrize("batch", [7, 1000])
def test_a_page_has_the_rows_between(page, end, batch):
    rng = np.random.default_rng(5)
    n = 150
    columns = {"type": rng.choice(["A", "B", "C", "D"], n), "k": rng.integers(0, 5, n), "j": rng.choice(["x", "y"], n)}
    events = pa.table(columns)
    text = f"SELECT * FROM S WHERE A ; B ; C {end}"
    expected = rows_between(text, events, "ABC")
    made = page(text, pa.Table.from_batches(events.to_batches(batch)))
    assert made["rows"]["most_between"] == 50 > max(map(len, expected)) > 0
    assert [between_of(made, i) for i in range(made["n_matches"])] == [(each, False) for each in expected]


def test_the_rows_between_are_bounded(page, monkeypatch):
    monkeypatch.setattr(match_rows, "MAX_BETWEEN_OF_ONE", 3)
    events = pa.table({"type": ["A", "C", "C", "C", "C", "B", "A", "C", "B"]})
    made = page("SELECT * FROM S WHERE (A OR C) ; B FILTER B[type = 'B']", events)
    expected = rows_between("SELECT * FROM S WHERE (A OR C) ; B", events, "ABC")
    held_here = [(each[:3], len(each) > 3) for each in expected]
    assert [between_of(made, i) for i in range(made["n_matches"])] == held_here
    assert made["rows"]["cuts_between"]
    monkeypatch.setattr(match_rows, "MAX_ROW_BYTES", 10)
    assert page("SELECT * FROM S WHERE A ; B", events)["rows"]["most_between"] == 0


def test_rows_behind_the_last_that_is_kept_here_are_not_between(page, monkeypatch):
    monkeypatch.setattr(listed_matches, "MAX_ROWS_OF_ONE", 2)
    made = page("SELECT STRICT * FROM S WHERE A : B : C", pa.table({"type": ["A", "B", "C"]}))
    assert between_of(made, 0) == ([], False)
