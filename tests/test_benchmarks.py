"""Benchmarks in a tiny size: they run to the end; their figures are for people, and not checked here."""

from __future__ import annotations

import importlib
import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import cer_gpu

pytestmark = pytest.mark.long("runs the benchmarks, each on a few events")

for package in ("duckdb", "matplotlib", "psutil", "rich"):
    pytest.importorskip(package)

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TINY = ("--events", "2000", "--repeat", "1")


def run(script: str, *arguments: str) -> str:
    """Return the output of a script."""
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> tuple[Path, str]:
    """Measure everything; return the folder of the results, and the output."""
    folder = tmp_path_factory.mktemp("results")
    options = ("--seconds", "0.01", "--one-process", "--long", "--save", "--results", str(folder))
    return folder, run("run.py", *TINY, *options)


def test_everything_is_measured_and_stored(results):
    folder, printed = results
    (kept,) = folder.glob("*.json")
    found = json.loads(kept.read_text(encoding="utf-8"))["results"]
    for title in ("Floors", "Sequences", "Stock market", "Partitions", "Memory", "Against peers", "How they grow"):
        assert found[title], title
        assert title in printed
    assert {row["workload"] for row in found["Stock market"]} == {f"Q{k}" for k in range(1, 8)}
    # the stress test of papers/001, section 8.2: about 20 million outputs over 2,000 events
    assert any(15e6 < row["matches"] < 25e6 for row in found["Matches listed per second"])
    assert len({row["workload"] for row in found["Joins"]}) == 15
    assert {row["workload"] for row in found["Joins against peers"]} < {row["workload"] for row in found["Joins"]}
    assert len({row["workload"] for row in found["Conjunctions"]}) == 8
    assert {row["answers at an end"] for row in found["Answers of conjunctions"]} == {1, 100, 10_000, 1_000_000}
    assert len({row["peer"] for row in found["Conjunctions against peers"]}) >= 2
    assert len(found["Memory of conjunctions"]) == 2
    assert all(row["why"] for row in found["Peers left out"])
    assert {"Flink SQL", "FlinkCEP"} <= {row["workload"] for row in found["Peers left out"]}  # no --flink was given
    first = found["GPU"][0]  # the name of the GPU, or the reason why there are no figures
    assert first["workload"].startswith("on ") or first["why"]


def test_the_same_results_give_the_same_tables_and_pictures(results):
    folder, _ = results
    (kept,) = folder.glob("*.json")
    assert run("report.py", str(kept)) == kept.with_suffix(".md").read_text(encoding="utf-8")
    pictures = {path.name: path.read_bytes() for path in folder.glob("*.svg")}
    assert len(pictures) == 6
    assert max(map(len, pictures.values())) < 60_000
    run("pictures.py", str(kept))
    assert {path.name: path.read_bytes() for path in folder.glob("*.svg")} == pictures


def test_a_measurement_is_compared_with_stored_results(results):
    folder, _ = results
    printed = run("run.py", *TINY, "--only", "events read", "--one-process", "--compare", "--results", str(folder))
    assert "Against the results of" in printed
    assert "now / kept" in printed


def test_a_measurement_of_some_families_keeps_the_stored_results_of_the_others(results, tmp_path):
    folder, _ = results
    (kept,) = (Path(shutil.copy(path, tmp_path)) for path in folder.glob("*.json"))
    before = json.loads(kept.read_text(encoding="utf-8"))
    run("run.py", "--events", "1000", "--repeat", "1", "--only", "floors", "--save", "--results", str(tmp_path))
    after = json.loads(kept.read_text(encoding="utf-8"))
    assert {row["events"] for row in after["results"]["Floors"]} == {1000}
    assert {row["events"] for row in before["results"]["Floors"]} == {2000}
    del before["results"]["Floors"], after["results"]["Floors"]
    assert after == before


def test_many_queries_find_at_once_what_they_find_one_by_one(tmp_path):
    options = ("--events", "20000", "--queries", "15", "--rare", "20", "--repeat", "1")
    options += ("--sysmon", str(tmp_path / "no file"))
    printed = run("queries.py", *options, "--save", "--results", str(tmp_path))
    (kept,) = tmp_path.glob("*-queries.json")
    found = json.loads(kept.read_text(encoding="utf-8"))["results"]
    assert [row["n"] for row in found["Many queries"]] == [10, 15, 20]
    assert all(row["matches"] > 0 for row in found["Many queries"][:2])
    assert "skipped: there is no file" in printed
    assert found["Queries left out"]


def test_pushes_are_measured_where_there_are_no_rules(tmp_path):
    few = ["--pushes", "20", "--open", "20,100000"]
    printed = run("live.py", "--rules", str(tmp_path / "no"), *few, "--save", "--results", str(tmp_path))
    (kept,) = tmp_path.glob("*-live.json")
    found = json.loads(kept.read_text(encoding="utf-8"))["results"]
    (row,) = found["Events pushed to an evaluator"]
    assert row["median, ms"] >= row["best, ms"] > 0
    (row,) = found["Memory of a set whose windows are all open"]
    assert row["rules"] == 20
    assert row["matches"] == 0
    assert "there are no rules" in printed


def test_the_first_run_is_measured_in_processes_of_its_own(tmp_path):
    run("first_run.py", "--repeat", "1", "--only", "import", "--save", "--results", str(tmp_path))
    (kept,) = tmp_path.glob("*-first-run.json")
    (row,) = json.loads(kept.read_text(encoding="utf-8"))["results"]["The first run"]
    assert row["empty cache, CPU s"] > 0
    assert row["functions compiled"] == row["compiled then"] == 0


def test_the_rules_fit_a_log_and_find_something():
    types = ["PROCESS", "NETWORK", "DNS", "EXIT", "ACCESS", "FILE", "IMAGE", "REG_SET", "REG_CREATE", "DELETE"]
    n, draw = 300, random.Random(5)
    texts = {name: draw.choices(["\\cmd.exe", "\\lsass.exe", ""], k=n) for name in ("image", "target")}
    texts |= {name: [r"c:\users\x.exe"] * n for name in ("file", "loaded")}
    log = pa.table(
        {
            "type": pa.array(draw.choices(types, k=n)).dictionary_encode(),
            "ts": pa.array([1_000_000 * i for i in range(n)], pa.timestamp("us")),
            "proc": draw.choices(["p0", "p1", None], k=n),
            "src": ["s"] * n,
            **texts,
            "port": pa.array(draw.choices([None, 80, 445, 6666], k=n), pa.int64()),
            "access": draw.choices([None, "0x1fffff"], k=n),
        }
    )
    files = (BENCHMARKS / "rules").glob("*.ceql")
    rules = {file.stem: cer_gpu.compile(file, time_column="ts", schema=log.schema) for file in files}
    assert len(rules) == 100
    begun_by_shell = [name for name in rules if name.startswith("shell_then")]  # all would load a minute of kernels
    found = {name: rules[name].evaluate(log, threads=1).num_rows for name in begun_by_shell}
    assert min(found.values()) > 0
    assert len(found) == 4


def test_one_evaluation_of_many_events_is_checked_by_arithmetic(tmp_path):
    tiny = ("--events", "60000", "--window", "1000", "--batch", "4096", "--save", "--results", str(tmp_path))
    run("reach.py", *tiny)
    run("reach.py", *tiny, "--first-position", str(2**32 - 30_000))
    at_0, moved = (
        json.loads(path.read_text(encoding="utf-8"))["results"]["One evaluation over many events"]
        for path in (next(tmp_path.glob("*-reach.json")), next(tmp_path.glob("*-reach-positions.json")))
    )
    for here, there in zip(at_0, moved, strict=True):
        assert here["matches"] == there["matches"] > 1000
        assert here["rows compared"] == there["rows compared"] > 100
        assert there["greatest position"] - here["greatest position"] == 2**32 - 30_000


def test_every_plan_of_a_join_finds_the_complex_events_of_the_query(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    peers = importlib.import_module("join_peers")
    pair, keys = "A AS a ; B AS b FILTER {} WITHIN 7 EVENTS", "A AS a ; B AS b ; C AS c FILTER {} WITHIN 50 EVENTS"
    trades, crimes = peers.trades(3_000), peers.crimes(6_000)
    few_keys = trades.set_column(2, "key", pc.bit_wise_and(trades["key"], 3))
    cases = [
        (trades, pair.format("b.x > a.x"), peers.pairs(7, "b.x > a.x")),
        (few_keys, keys.format("b.key = a.key AND c.key = b.key"), peers.equal(50)),
        (crimes, peers.TEXTS[peers.CRIMES], peers.at_one_place()),
    ]
    for table, text, plans in cases:
        text = text if "SELECT" in text else f"SELECT * FROM S WHERE {text}"
        found = cer_gpu.compile(text, time_column="ts" if "ts" in table.column_names else None).evaluate(table).num_rows
        assert found > 100
        question = peers.Question(peers.RARELY, 7, plans)
        assert {plan: peers.DuckDB().ask(question, table, plan)[1] for plan in plans} == dict.fromkeys(plans, found)


def test_every_way_to_a_conjunction_finds_the_same_answers(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    conjunctions, peers = (importlib.import_module(name) for name in ("conjunctions", "conjunction_peers"))
    table = conjunctions.visits(3_000)
    for name, smaller in (("id", 7), ("loc", 3)):
        table = table.set_column(table.column_names.index(name), name, pc.bit_wise_and(table[name], smaller))
    window = 60
    for name in (conjunctions.QUERY, conjunctions.ALL_OF):
        plans = peers.plans(name, window)
        question = peers.Question(name, window, plans, texts=conjunctions.TEXTS)
        found = question.query().evaluate(table).num_rows
        assert found > 100
        assert {plan: peers.DuckDB().ask(question, table, plan)[1] for plan in plans} == dict.fromkeys(plans, found)
        assert peers.Dictionaries().ask(question, table, "dictionaries")[1] == found
    for name in (conjunctions.ALL_OF, conjunctions.CHAIN):
        ways = conjunctions._ways(name, window)
        assert len({way.query().physical_plan().runtime for way in ways}) == len(ways)
        assert len({way.query().evaluate(table).num_rows for way in ways}) == 1


PAGE = BENCHMARKS.parent / "docs" / "explanation" / "benchmarks.md"


def test_the_tables_of_the_documentation_are_those_of_the_results(tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- table: ") + text.count("<!-- about -->") == text.count("<!-- end -->") == 9
    (kept,) = (BENCHMARKS / "results").glob("*-page.json")  # of one machine
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    run("report.py", str(kept), "--fill", str(page))
    assert page.read_text(encoding="utf-8") == text
    titles = json.loads(kept.read_text(encoding="utf-8"))["results"]
    assert set(re.findall("<!-- table: (.+?) -->", text)) == set(titles)


def test_all_kinds_of_question_find_the_same_from_memory_parquet_and_csv(tmp_path):
    run("kinds.py", "--events", "20000", "--repeat", "1", "--save", "--results", str(tmp_path))
    (kept,) = tmp_path.glob("*-kinds.json")
    results = json.loads(kept.read_text(encoding="utf-8"))["results"]
    assert len(results["Kinds of question"]) == 10
    assert all(
        row[f"{source}, million events/s"] > 0 for row in results["Kinds of question"] for source in ("CSV", "memory")
    )
    assert sum(row["matches"] > 0 for row in results["Kinds of question"]) >= 9


def test_one_command_stores_results_with_the_commit_and_fills_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- about -->\n<!-- end -->\n<!-- table: Events pushed -->\n<!-- end -->\n", encoding="utf-8")
    small = ["--events", "2000", "--pushes", "20", "--only", "pushed", "--rules", "none.zip"]
    run("page.py", *small, "--results", str(tmp_path), "--page", str(page))
    (kept,) = tmp_path.glob("*-page.json")
    about = json.loads(kept.read_text(encoding="utf-8"))["about"]
    assert about["command"].startswith("python benchmarks/page.py --events 2000")
    assert about["commit"]
    text = page.read_text(encoding="utf-8")
    assert f"commit {about['commit']}" in text
    assert "| one query | 1 |" in text


def test_a_table_without_rows_says_so(tmp_path):
    page, kept = tmp_path / "page.md", tmp_path / "kept.json"
    page.write_text("<!-- table: Peers left out -->\n\nold\n\n<!-- end -->\n", encoding="utf-8")
    kept.write_text(json.dumps({"results": {"Peers left out": []}}), encoding="utf-8")
    run("report.py", str(kept), "--fill", str(page))
    assert page.read_text(encoding="utf-8") == "<!-- table: Peers left out -->\n\nNone.\n\n<!-- end -->\n"


def test_sets_of_patterns_are_measured():
    lines = run("texts.py", "--texts", "500", "--repeat", "1").splitlines()
    assert [line.split()[0] for line in lines] == ["column", *["generated"] * 3]


def test_row_patterns_find_what_window_functions_find(tmp_path):
    run("row_patterns.py", "--events", "3000", "--repeat", "1", "--save", "--results", str(tmp_path))
    (kept,) = tmp_path.glob("*-row-patterns.json")
    found = json.loads(kept.read_text(encoding="utf-8"))["results"]
    rows = {row["workload"]: row for row in found["Row patterns"]}
    rare = {"no match: B C", "selectivity 0.0001: A B", "long quantifier: C{1000}"}
    assert {name for name, row in rows.items() if not row["matches"]} <= rare
    assert sum("window functions / ours" in row for row in rows.values()) == len(rows) - 6
    clause = any("DuckDB's clause / ours" in row for row in rows.values())
    assert clause or "does not take the clause" in found["Peers of row patterns left out"][0]["why"]


def test_queries_of_the_whole_language_are_counted_by_what_refuses_them():
    printed = run("refused.py", "--queries", "200")
    assert re.search(r"\d+ of 200 queries are refused", printed)
    assert "HAVING chooses among valuations" in printed
