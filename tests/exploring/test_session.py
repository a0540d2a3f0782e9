"""The protocol of a session: what a page gets for what it sends, and that the newest question wins."""

import contextlib
import queue
import re
import shlex
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from report.pages import HOSTILE, rows_of

import cer_gpu
from cer_gpu.cli import main
from cer_gpu.exploring import session as sessions
from cer_gpu.exploring.samples import ExploredEvents
from cer_gpu.exploring.session import Session, next_size, offset_of_utf16, smaller, utf16_length
from cer_gpu.rules import Rule

ROOT = Path(__file__).parents[2]
N = 3000
EVENTS = pa.table(
    {
        "type": ["A", "B", "C"] * (N // 3),
        "key": [f"k{i // 3 % 50}" for i in range(N)],
        "x": [i % 7 for i in range(N)],
        "ts": pa.array([i * 1000 for i in range(N)], pa.timestamp("ms")),
    }
)
QUERY = "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x > a.x PARTITION BY [key] WITHIN 1 MINUTES"


def matches(text, events, **options):
    return cer_gpu.compile(text, time_column="ts", **options).evaluate(events)


def test_a_greeting_names_columns_and_the_only_times_are_taken(page):
    opened = page(EVENTS)
    opened.ask("hello")
    hello = opened.until("hello")
    assert hello["columns"][0] == ["type", "string"]
    assert hello["time_column"] == "ts"
    assert hello["names"] == []
    assert opened.until("loading")["n_events"] in (0, N)


def test_a_text_gets_counts_a_page_its_meaning_and_its_funnel(page):
    opened = page(EVENTS)
    results = opened.results(text=QUERY)
    n = matches(QUERY, EVENTS).num_rows
    assert results["counted"]["n_matches"] == results["page"]["page"]["n_matches"] == n
    assert results["counted"]["keys"] == ["key"]
    assert results["sample"]["sample"] == "all 3,000 events"
    assert "why_not" in opened.results(text=QUERY.replace("A AS a ; B AS b", "A AS a ALL B AS b"))["funnel"]
    chain = QUERY.replace("b.x > a.x", "b[x > 3]")
    funnel = opened.results(text=chain)["funnel"]
    assert funnel["starts"][0]["n"] == N // 3
    assert funnel["starts"][1]["n"] == len(set(matches(chain, EVENTS)["start"].to_pylist()))
    assert funnel["names"] == ["key"]
    checked = results.get("checked") or opened.until("checked")
    assert checked["problems"] == []
    assert "an A event (a)" in "\n".join(checked["sections"][0][1])


@pytest.mark.parametrize("n", [1000, 2000])
def test_a_sample_of_the_last_events_reports_positions_of_the_input(page, n):
    opened = page(EVENTS)
    opened.session._n_sample = n
    opened.session._explored.load()
    question = opened.ask("text", text=QUERY)
    sample, content = opened.until("sample", question), opened.until("page", question)["page"]
    assert sample["sample"] == f"the last {n:,} of 3,000 events"
    expected = matches(QUERY, EVENTS.slice(N - n)).to_pylist()
    assert content["n_matches"] == len(expected)
    first = [p + N - n for p in expected[0]["positions"]]
    assert [row[0] for row in rows_of(content, 0)] == first
    assert [row[1] for row in rows_of(content, 0)] == ["a", "b"]


def test_a_sample_of_whole_keys_has_their_matches_of_all_events(page):
    opened = page(EVENTS)
    opened.session._n_sample = 1000
    opened.session._explored.load()
    question = opened.ask("text", text=QUERY, whole_keys=True)
    sample, content = opened.until("sample", question), opened.until("page", question)["page"]
    assert sample["sample"] == "16 of 50 keys with all of their 960 events"
    of_keys = matches(QUERY, EVENTS).group_by("key").aggregate([("start", "count")]).to_pylist()
    counts = {row["key"]: row["start_count"] for row in of_keys}
    assert content["n_matches"] == sum(counts[label] for label in content["labels"])
    assert 0 < content["n_partitions"] <= 16
    text = QUERY.replace("PARTITION BY [key]", "")
    question = opened.ask("text", text=text, whole_keys=True)
    assert opened.until("sample", question)["remark"] == "the query has no PARTITION BY"


def test_a_run_is_over_all_events_with_progress(page):
    opened = page(EVENTS)
    opened.session._n_sample = 1000
    results = opened.results("run", text=QUERY)
    assert results["sample"]["is_whole"]
    assert results["page"]["page"]["n_matches"] == matches(QUERY, EVENTS).num_rows
    assert results["progress"]["of"] == N


def test_events_out_of_order_are_sorted_and_keep_their_positions(page):
    mixed = EVENTS.take(pa.array([*range(1, N, 2), *range(0, N, 2)]))
    opened = page(mixed)
    content = opened.results(text=QUERY)["page"]["page"]
    expected = cer_gpu.compile(QUERY, time_column="ts").evaluate(mixed, sort=True)
    assert content["n_matches"] == expected.num_rows
    assert [row[0] for row in rows_of(content, 0)] == expected["positions"][0].as_py()


def test_problems_have_places_in_units_of_javascript(page):
    text = "/* \U0001f4c8 */ SELECT * FROM S WHERE A AS a FILTER b[x > 1]"
    opened = page(EVENTS)
    results = opened.results(text=text)
    checked = results.get("checked") or opened.until("checked")
    (problem,) = [each for each in checked["problems"] if not each["is_warning"]]
    assert problem["start"] == text.index("b[x") + 1
    assert problem["end"] == problem["start"] + 1
    assert "page" not in results
    assert utf16_length("\U0001f4c8a") == 3
    assert [offset_of_utf16("\U0001f4c8a", n) for n in range(4)] == [0, 1, 1, 2]


def test_completions_are_of_types_columns_and_values(page):
    opened = page(EVENTS)
    opened.results(text=QUERY)
    cases = {"SELECT * FROM S WHERE ": "A", "SELECT * FROM S WHERE A AS a FILTER a[k": "key"}
    cases["SELECT * FROM S WHERE A AS a FILTER a[key = 'k4"] = "k4"
    for text, expected in cases.items():
        question = opened.ask("complete", text=text, at=len(text))
        items = opened.until("completions", question)["items"]
        assert expected in [each[0] for each in items], text


def test_the_newest_question_wins_and_an_older_one_is_stopped(page):
    opened = page(EVENTS)
    opened.results(text=QUERY)
    slow = "SELECT MAX * FROM S WHERE A+ ; B+ ; C+"
    first = opened.ask("run", text=slow)
    opened.until("sample", first)
    second = opened.ask("text", text=QUERY)
    opened.until("answered", second)
    assert not [each for each in opened.received if each["kind"] == "page" and each.get("id") == first]


def test_a_question_that_arrives_after_a_newer_one_is_dropped(page):
    opened = page(EVENTS)
    opened.results(text=QUERY)
    opened.session.receive({"kind": "text", "id": 9, "text": QUERY})
    opened.session.receive({"kind": "text", "id": 8, "text": "SELECT * FROM S WHERE C"})
    opened.until("answered", 9)
    opened.session.receive({"kind": "text", "id": 10, "text": QUERY})
    opened.until("answered", 10)
    assert not [each for each in opened.received if each.get("id") == 8]


def test_a_stop_ends_a_long_run(page):
    opened = page(EVENTS)
    opened.results(text=QUERY)
    question = opened.ask(
        "run", text="SELECT * FROM S WHERE A AS a ; B AS b ; C AS c ; A AS d FILTER d.x > a.x + b.x + c.x"
    )
    opened.until("sample", question)
    began = time.monotonic()
    opened.ask("stop")
    opened.until("stopped", question)
    assert time.monotonic() - began < 10
    assert opened.results(text=QUERY)["page"]["page"]["n_matches"] > 0


def test_an_evaluation_that_does_not_stop_is_left_behind(monkeypatch, page):
    monkeypatch.setattr(sessions, "_STUCK", 0.05)
    opened = page(EVENTS)
    opened.results(text=QUERY)
    usual = Session._over_all
    monkeypatch.setattr(Session, "_over_all", lambda *args: time.sleep(3))
    opened.ask("run", text=QUERY)
    time.sleep(0.05)
    monkeypatch.setattr(Session, "_over_all", usual)
    began = time.monotonic()
    opened.results(text=QUERY)
    assert time.monotonic() - began < 2.5


def test_matches_without_end_are_counted_and_sampled(page):
    opened = page(EVENTS)
    results = opened.results(text="SELECT * FROM S WHERE A ; B+ ; C")
    content = results["page"]["page"]
    assert content["n_matches"] is None or content["n_matches"] > 10**9
    assert 0 < content["n_listed"] <= 40_000
    limited = opened.results(text="SELECT a.x FROM S WHERE A AS a ; B AS b ; C AS c HAVING a.x >= 0")["page"]["page"]
    assert limited["reached_limit"]
    assert limited["found"].endswith("or more")


def test_rows_of_match_recognize_are_shown(page):
    opened = page(EVENTS)
    text = (
        "SELECT * FROM e MATCH_RECOGNIZE (PARTITION BY key ORDER BY ts MEASURES FIRST(A.x) AS first "
        "PATTERN (A B) DEFINE B AS x > PREV(x))"
    )
    rows = opened.results(text=text)["rows"]
    expected = cer_gpu.compile(text).evaluate(EVENTS)
    assert rows["n_rows"] == expected.num_rows
    assert rows["names"] == expected.column_names
    assert rows["rows"][0] == [str(value) for value in expected.slice(0, 1).to_pylist()[0].values()]


def test_errors_of_the_evaluation_are_reported(page):
    events = EVENTS.set_column(3, "n", pa.array([5, *range(1, N)]))
    opened = page(events, time_column="n")
    question = opened.ask("text", text="SELECT * FROM S WHERE A ; B WITHIN 5 [n]")
    assert "5" in opened.until("failed", question)["message"]
    opened.session.receive({"kind": "columns", "type_column": "type", "time_column": None})
    assert opened.until("hello")["time_column"] is None
    assert opened.results(text="SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS")["page"]["page"]["n_matches"] > 0


def test_rules_are_counted_and_near_misses_are_reported(page):
    rules = {
        "often": Rule("often", "SELECT * FROM S WHERE A : B"),
        "never": Rule("never", "SELECT * FROM S WHERE A AS a ; B AS b ; C AS c FILTER c[x > 100]"),
        "wrong": Rule("wrong", "SELECT * FROM S WHERE A AS a FILTER a[no_such = 1]"),
        HOSTILE: Rule(HOSTILE, "SELECT * FROM S WHERE X", level="high"),
    }
    opened = page(EVENTS, rules=rules)
    results = opened.results("rules")
    assert results["rules"]["counts"] == {"often": 1000, "never": 0, HOSTILE: 0}
    assert list(results["rules"]["wrong"]) == ["wrong"]
    assert results["rules"]["near"]["never"] | {"stopped": 0} == {
        "step": 2,
        "of": 3,
        "n": 1000,
        "name": "b",
        "stopped": 0,
    }
    opened.ask("rule", name="never")
    assert opened.until("rule")["query"] == rules["never"].text
    opened.ask("rule", name="no such rule")


def test_near_misses_of_rules_of_one_event_name_the_condition_that_fails(page):
    rules = {
        "far": Rule("far", "SELECT * FROM S WHERE A AS a FILTER a[x > 100 AND key = 'no such']"),
        "value": Rule("value", "SELECT * FROM S WHERE A AS a FILTER a[x > 100] AND a[key = 'k7']"),
        "type": Rule("type", "SELECT * FROM S WHERE D AS d FILTER d[x = 3 AND key = 'k7']"),
        "two": Rule("two", "SELECT * FROM S WHERE A AS a FILTER a[n = 0 AND key = 'k1']"),
        "one": Rule("one", "SELECT * FROM S WHERE D"),
    }
    events = EVENTS.append_column("n", pa.array(range(N)))
    near = page(events, rules=rules, time_column="ts").results("rules")["rules"]["near"]
    of_key = [row for row in events.to_pylist() if row["key"] == "k7"]
    value = {"condition": "x > 100", "n": sum(row["type"] == "A" for row in of_key), "others": 0}
    first = next(row for row in of_key if row["type"] == "A")
    assert near["value"] == value | {"is_limited": False, "values": [["x", str(first["x"])]]}
    of_x = [row for row in of_key if row["x"] == 3]
    assert near["type"]["condition"] == "type = D"
    assert near["type"]["n"] == len(of_x)
    assert near["type"]["values"] == [["type", of_x[0]["type"]]]
    n_k1 = sum(row["type"] == "A" and row["key"] == "k1" for row in events.to_pylist())
    assert (near["two"]["condition"], near["two"]["n"], near["two"]["others"]) == ("n = 0", n_k1, 1)
    assert "far" not in near
    assert "one" not in near


COMMANDS = [
    line
    for block in re.findall(
        r"```sh\n(.*?)```", (ROOT / "docs/guides/explore.md").read_text(encoding="utf-8"), re.DOTALL
    )
    for line in block.splitlines()
    if "--query" in line
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_guide_open_a_query_without_problems(command, monkeypatch):
    program, *arguments = shlex.split(command)
    assert program == "cer-gpu"
    opened, messages = [], queue.Queue()

    @contextlib.contextmanager
    def serving(make, title, port):
        opened.append((make(messages.put), title))
        yield "http://127.0.0.1/"

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("cer_gpu.exploring.app.serving", serving)
    monkeypatch.setattr(
        "cer_gpu.cli.explore.threading", SimpleNamespace(Event=lambda: SimpleNamespace(wait=lambda: None))
    )
    assert main([*arguments, "--no-open"]) == 0
    ((session, title),) = opened
    assert title == Path(arguments[1]).name
    try:
        monkeypatch.setattr(
            session, "_evaluator", SimpleNamespace(put=lambda message: None, close=lambda: None, join=lambda n: None)
        )
        session._greet({})
        query = messages.get(timeout=60)["query"]
        session.receive({"kind": "text", "id": 1, "text": query})
        checked = messages.get(timeout=60)
        assert checked["problems"] == []
        assert checked["sections"]
    finally:
        session.close()


def test_without_a_query_the_types_keys_and_times_of_the_sample_are_shown(page):
    opened = page(EVENTS)
    overview = opened.results(text=" ")["overview"]
    assert overview["types"] == [["A", "A", 1000], ["B", "B", 1000], ["C", "C", 1000]]
    assert overview["n_types"] == 3
    assert [each for each in overview["columns"] if each["name"] == "key"] == [
        {"name": "key", "n": 50, "values": [["k0", 60], ["k1", 60], ["k2", 60], ["k3", 60], ["k4", 60]]}
    ]
    assert overview["span"] == ["1970-01-01T00:00:00", "1970-01-01T00:49:59"]
    assert overview["sample"] == "all 3,000 events"
    odd = pa.table({"type": ["a b", None, "SELECT"], "x": [1, 2, 3]})
    types = page(odd).results(text="")["overview"]["types"]
    assert types == [["a b", "`a b`", 1], ["SELECT", types[1][1], 1]]
    for _, name, _ in types:
        assert cer_gpu.compile(f"SELECT * FROM events WHERE {name}").evaluate(odd).num_rows == 1


def test_copies_evaluate_to_the_same(page):
    opened = page(EVENTS)
    results = opened.results(text=QUERY)
    checked = results.get("checked") or opened.until("checked")
    copies = checked["copies"]
    names = {"events": EVENTS}
    exec(copies["python"]["text"], names)
    assert names["matches"].num_rows == results["page"]["page"]["n_matches"]
    assert copies["sql"]["why_not"].startswith("`;` finds every later event")
    results = opened.results(text=QUERY.replace(" ; ", " : "))
    sql = cer_gpu.compile((results.get("checked") or opened.until("checked"))["copies"]["sql"]["text"])
    assert sql.evaluate(EVENTS).num_rows == 2 * results["page"]["page"]["n_matches"] > 0
    assert copies["command"] == {"text": None, "why_not": "the events are in memory: write them to a file first"}


def test_a_sample_that_takes_too_long_is_made_smaller_once(monkeypatch, page):
    monkeypatch.setattr(sessions, "_TOO_LONG", 0.0)
    opened = page(EVENTS)
    question = opened.ask("text", text=QUERY)
    opened.until("answered", question)
    samples = [each["sample"] for each in opened.received if each["kind"] == "sample"]
    assert samples[-1] == "the last 1,000 of 3,000 events"
    assert opened.session._n_sample <= 5000


def test_sizes_of_samples_follow_the_time_that_they_take():
    assert next_size(1_000_000, 1_000_000, 0.1) == 1_000_000
    assert next_size(1_000_000, 1_000_000, 0.3) == 200_000
    assert next_size(1000, 1000, 0.001) == 5000
    assert next_size(300, 1000, 0.001) == 1000
    assert next_size(1000, 1000, 10.0) == 1000
    assert smaller(1_000_000, 8) == 100_000
    assert smaller(1000, 8) == 1000


def test_many_events_leave_the_last_in_memory_and_a_run_reads_all(monkeypatch, page, tmp_path):
    import pyarrow.parquet as pq

    from cer_gpu.exploring import samples

    pq.write_table(EVENTS, tmp_path / "events.parquet", row_group_size=500)
    monkeypatch.setattr(samples, "_MAX_LOADED_BYTES", 10_000)
    monkeypatch.setattr(samples, "SAMPLE_EVENTS", 1000)
    opened = page(str(tmp_path / "events.parquet"))
    results = opened.results(text=QUERY)
    assert results["sample"]["sample"] == "the last 1,000 of 3,000 events"
    assert rows_of(results["page"]["page"], 0)[0][0] >= 2000
    assert opened.results("run", text=QUERY)["page"]["page"]["n_matches"] == matches(QUERY, EVENTS).num_rows


def test_an_unknown_column_of_times_is_an_error_before_anything_is_read():
    with pytest.raises(cer_gpu.CerError, match="no_such"):
        ExploredEvents(EVENTS, time_column="no_such")
