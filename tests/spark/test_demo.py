"""The demo on Spark, and ``make demo-spark``: Spark is started once, and its rows are those of one process."""

import importlib
import re
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def modules(spark, monkeypatch):
    """The modules of both examples, with a session that goes on, and the number of times that it is asked for."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    demo = importlib.import_module("demo")
    starts = []
    monkeypatch.setattr(demo, "session", lambda: starts.append(1) or spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    yield demo, importlib.import_module("spark_flights"), starts
    for name in ("demo", "spark_flights"):
        del sys.modules[name]


def test_the_demo_shows_the_same_rows_on_spark(modules, capsys):
    demo, _, starts = modules
    query = demo.compile_query(demo.ON_SPARK)
    expected = demo.show("", lambda: query.evaluate(demo.FLIGHTS, output="events"))
    here = re.findall(r"^  tailnum .*$", capsys.readouterr().out, re.MULTILINE)
    assert demo.show_on_spark(query)
    text = capsys.readouterr().out
    assert starts == [1]
    assert f"{expected.num_rows} matches" in text
    assert text.count("events/s") == 2
    assert text.endswith("the same rows as in this process\n")
    shown = re.findall(r"^  tailnum .*$", text, re.MULTILINE)
    assert shown == here[: len(shown)] != []


def test_each_distribution_gives_the_rows_of_one_process(modules, capsys):
    _, spark_flights, starts = modules
    assert spark_flights.main() == 0
    text = capsys.readouterr().out
    assert starts == [1]
    assert re.findall(r"^distribution +(\w+): as asked$", text, re.MULTILINE) == ["key", "range", "broadcast"]
    assert text.count("the same rows as in this process") == 3
    assert text.count("from the file to the result") == 2
