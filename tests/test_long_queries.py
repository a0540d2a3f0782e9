"""Queries that are too large are refused before what they are too large for is built."""

import resource
import subprocess
import sys
import time

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.automaton.determinize import MAX_STATES
from cer_gpu.expressions import relations

EVENTS = pa.table({"type": ["A"] * 6_000})


@pytest.mark.long("compiles queries of 40 kB")
@pytest.mark.parametrize("strategy", ["", "MAX"])
@pytest.mark.parametrize("sign", [":", ";", "->"])
def test_a_match_of_too_many_events_is_refused_before_any_event(sign, strategy):
    query = cer_gpu.compile(f"SELECT {strategy} * FROM S WHERE " + f" {sign} ".join(["A"] * 10_000))
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(cer_gpu.QueryTooLargeError, match=f"at most {MAX_STATES} states"):
        query.evaluate(EVENTS)
    assert time.process_time() - begun < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB


@pytest.mark.long("a process of its own")
def test_a_long_match_is_no_reason_to_refuse_a_shorter_one():
    code = (
        "import cer_gpu, pyarrow as pa; text = 'SELECT * FROM S WHERE (' + ' ; '.join(['A'] * 5000) + ') OR B'; "
        "print(len(cer_gpu.compile(text).evaluate(pa.table({'type': ['B', 'A', 'B']}))))"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "2\n"


def test_a_sample_of_many_events_is_refused_at_the_first_pair_that_may_be_one():
    text = "sample by host " + " ".join(["[A where x > 1]"] * 400)
    begun = time.process_time()
    with pytest.raises(cer_gpu.QueryTooLargeError, match="has at most 62 filters, and this one 400"):
        cer_gpu.compile(text, language="eql")
    assert time.process_time() - begun < 3


def test_filters_between_events_are_refused_at_the_first_column_too_many(monkeypatch):
    """Of 2,500 filters over 6,000 columns, most of 15 seconds went to those that came after."""
    n_filters, numbered = 300, []
    text = "SELECT * FROM S WHERE A AS a ; B AS b FILTER " + " AND ".join(f"a.x = b.c{i}" for i in range(n_filters))
    fields = [("type", pa.string()), ("x", pa.int64()), *((f"c{i}", pa.int64()) for i in range(n_filters))]
    number = relations.RelationBinder.column_number
    monkeypatch.setattr(
        relations.RelationBinder, "column_number", lambda self, column: numbered.append(column) or number(self, column)
    )
    with pytest.raises(cer_gpu.QueryTooLargeError, match="join predicates read more than 63 different"):
        cer_gpu.compile(text, schema=pa.schema(fields))
    own_errors = 2 * n_filters  # each is bound by itself first, for the errors of its types
    assert len(numbered) <= own_errors + relations.MAX_COLUMNS + 1


def test_as_many_columns_as_filters_may_read_are_no_reason_to_refuse_them():
    n = relations.MAX_COLUMNS - 1
    text = "SELECT * FROM S WHERE A AS a ; B AS b FILTER " + " AND ".join(f"a.x = b.c{i}" for i in range(n))
    fields = [("type", pa.string()), ("x", pa.int64()), *((f"c{i}", pa.int64()) for i in range(n))]
    events = pa.table([pa.array(["A", "B"]), *([pa.array([1, 1], pa.int64())] * (n + 1))], schema=pa.schema(fields))
    assert len(cer_gpu.compile(text).evaluate(events)) == 1
    assert len(cer_gpu.compile(text.replace("=", "<=")).evaluate(events)) == 1
    for sign in ("=", "<="):
        wider = cer_gpu.compile(f"{text} AND a.x = b.y".replace("=", sign))
        with pytest.raises(cer_gpu.QueryTooLargeError, match="more than 63 different expressions"):
            wider.evaluate(events.append_column("y", pa.array([1, 1], pa.int64())))
