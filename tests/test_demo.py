"""The demo, as ``make demo`` runs it: what it says of each query, on one screen, and the commands that it names."""

import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLIGHTS = ROOT / "examples" / "data" / "flights.parquet"
FOUND = {"late_again": 467, "cancellations": 85, "worse_and_worse": 1143}
RUN = r"  (?:first run |second run)  +(\d+\.\d\d) s, from the file to the result: +([\d,]+) events/s"


@pytest.fixture
def demo(monkeypatch):
    """The module of the demo."""
    pytest.importorskip("pyspark")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setenv("COLUMNS", "80")
    yield importlib.import_module("demo")
    del sys.modules["demo"]


def sections(text):
    """The sections of an output by their headings; the first one has none."""
    parts = re.split(r"^---- (.*?) -+$", "---- start --\n" + text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def n_lines(text, width=80):
    return sum(max(1, -(-len(line) // width)) for line in text.strip("\n").splitlines())


def check_section(text, query, n_found):
    """Check what is said of one query, and that it goes on one screen with its heading and a prompt below."""
    assert query in text
    assert f"\n{n_found:,} matches\n" in text
    runs = re.findall(RUN, text)
    assert len(runs) == 2
    for seconds, rate in runs:
        assert int(rate.replace(",", "")) * float(seconds) == pytest.approx(665_297, rel=0.5)  # of rounded seconds
    assert "  tailnum N" in text or "  origin EWR" in text
    assert n_lines(text) <= 22


def test_the_demo_compiles_first_and_shows_each_query_on_one_screen(demo, monkeypatch, capsys):
    monkeypatch.setattr(demo, "show_on_spark", lambda query: True)
    assert demo.main() == 0
    found = sections(capsys.readouterr().out)
    assert list(found) == ["start", *(f"queries/{name}.ceql" for name in FOUND), "now with a file of your own"]
    assert "665,297 events of flights from New York City, 2013-01-01 to 2014-01-01" in found["start"]
    assert re.findall(
        r"^  (\w+) +(?:\d+ loops compiled|none left to compile) +\d+\.\d s$", found["start"], re.MULTILINE
    ) == list(FOUND)
    for name, number in FOUND.items():
        query = (ROOT / "examples" / "queries" / f"{name}.ceql").read_text(encoding="utf-8").rstrip()
        check_section(found[f"queries/{name}.ceql"], query, number)


def test_other_rows_on_spark_are_a_failure(demo, monkeypatch, capsys):
    monkeypatch.setattr(demo, "show_on_spark", lambda query: False)
    assert demo.main() == 1
    assert "cer-gpu columns FILE" in capsys.readouterr().out


def test_the_commands_that_it_names_run(demo, capsys):
    from cer_gpu.cli import main

    text = demo.NEXT.replace("\\\n", "")
    commands = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("  .venv/bin/cer-gpu ")]
    assert [command[0] for command in commands] == ["columns", "run", "explain"]
    given = {"FILE": str(FLIGHTS), "TYPE": "type", "TIME": "ts"}
    for command in commands:
        query = "SELECT * FROM S WHERE DIVERTED ; CANCELLED WITHIN 1 HOUR"
        arguments = [query if "WHERE A ; B " in each else given.get(each, each) for each in command]
        assert main(arguments) == 0
    assert "matches" in capsys.readouterr().out
    assert all((ROOT / page).exists() for page in re.findall(r"docs/[\w/]+\.md", demo.NEXT))


@pytest.mark.parametrize(("width", "shown"), [(1, 1), (3, 1), (6, 2), (9, 3)])
def test_so_many_matches_are_shown_as_lines_are_free_and_at_least_one(width, shown, demo, capsys):
    found = demo.compile_query("late_again").evaluate(FLIGHTS, output="events", limit=5)
    assert {len(row["events"]) for row in found.to_pylist()[:3]} == {2}
    demo.show_matches(found, width)
    assert capsys.readouterr().out.count("  tailnum ") == shown


def test_a_bar_on_a_terminal_shows_the_query_and_the_loop(demo, monkeypatch, capsys):
    from cer_gpu.compile_progress import COMPILE_PROGRESS, CompileStep

    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    with demo.compiling(3) as begin:
        begin(1, "cancellations")
        COMPILE_PROGRESS.begin(CompileStep("find_neighbours", 7, 7, True))
        COMPILE_PROGRESS.go_on(5)
        COMPILE_PROGRESS.end()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert "1/3 compiling find_neighbours (once): 5 of 7 functions left" in shown


def test_the_readme_says_what_the_demo_does(demo):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = (line for line in readme.splitlines() if line.startswith("make demo "))
    assert "three queries" in line
    assert "twice" in line
    assert "Spark" in line
    assert len(demo.QUERIES) == 3
