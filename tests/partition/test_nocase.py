"""Keys and distinct values whose letter case does not matter: as over a column of small letters."""

import random

import pyarrow as pa
import pytest
from sizes import seeds

import cer_gpu
from cer_gpu.errors import QueryTypeError

NAMES = ("ann", "Ann", "ANN", "bob", "Bob", "É", "é", None)
QUERIES = (
    "SELECT * FROM S WHERE A ; B PARTITION BY [{key}] WITHIN 9 EVENTS",
    "SELECT * FROM S WHERE A ; B PARTITION BY [{key}], [n] WITHIN 9 SECONDS",
    "SELECT RECENT * FROM S WHERE A ; B ; A PARTITION BY [{key}]",
    "SELECT MAX * FROM S WHERE A+ ; B PARTITION BY [{key}] WITHIN 9 SECONDS",
    "SELECT * FROM S WHERE A ; !B PARTITION BY [{key}] WITHIN 3 SECONDS",
    "SELECT * FROM S WHERE A AS a FILTER a[COUNT(*) OVER 9 SECONDS >= 2] PARTITION BY [{key}]",
    "SELECT * FROM S WHERE A AS a FILTER a[COUNT(*) OVER 9 SECONDS PARTITION BY [{key}] >= 2]",
    "SELECT * FROM S WHERE A AS a FILTER a[COUNT(*) OVER 9 SECONDS PARTITION BY [{key} FILTER n = 1, other] >= 2]",
    "SELECT * FROM S WHERE A AS a FILTER a[COUNT(DISTINCT *.{key} FILTER n = 1) OVER 9 SECONDS >= 2]",
    "SELECT * FROM S WHERE A AS a FILTER a[COUNT(DISTINCT B.{key}) OVER 9 EVENTS >= 2] PARTITION BY [n]",
    "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.n > a.n PARTITION BY [{key}] WITHIN 9 EVENTS",
)


def events_of(rnd, n):
    names = [rnd.choice(NAMES) for _ in range(n)]
    small = [None if name is None else name.lower() for name in names]
    return pa.table(
        {
            "type": rnd.choices("AAB", k=n),
            "name": names,
            "small": small,
            "other": rnd.choices(["ann", "x"], k=n),
            "n": rnd.choices([1, 2], k=n),
            "ts": pa.array(sorted(rnd.choices(range(n), k=n)), pa.timestamp("s")),
        }
    )


def positions(found):
    return sorted(found["positions"].to_pylist())


@pytest.mark.long("forty combinations of keys")
@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
@pytest.mark.parametrize("seed", seeds(2))
def test_letter_case_does_not_matter(text, kind, seed):
    rnd = random.Random(seed)
    events = events_of(rnd, 60)
    is_coded = pa.types.is_dictionary(kind)
    names = events["name"].dictionary_encode() if is_coded else events["name"].cast(kind)
    cast = events.set_column(1, "name", names)
    query = cer_gpu.compile(text.format(key="name NOCASE"), time_column="ts")
    expected = positions(cer_gpu.compile(text.format(key="small"), time_column="ts").evaluate(events))
    assert positions(query.evaluate(cast)) == expected
    assert positions(query.evaluate(cast, threads=2)) == expected
    evaluator, found, begin = query.evaluator(), [], 0
    while begin < cast.num_rows:
        n = rnd.randint(1, 9)
        for batch in cast.slice(begin, n).combine_chunks().to_batches():
            found.append(evaluator.push(batch))
        begin += n
        evaluator = query.restore(evaluator.checkpoint())
    found.append(evaluator.finish())
    assert positions(pa.Table.from_batches(found).select(["positions"])) == expected
    both = cer_gpu.compile_all({"nocase": query.text, "cased": text.format(key="name")}, time_column="ts")
    tables = both.evaluate(cast)
    assert positions(tables["nocase"]) == expected
    assert positions(tables["cased"]) == positions(both["cased"].evaluate(cast))


def test_a_key_is_shown_as_the_event_has_it():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [name NOCASE]")
    found = query.evaluate(pa.table({"type": ["A", "B"], "name": ["ann", "Ann"]}))
    assert found.select(["positions", "name"]).to_pylist() == [{"positions": [0, 1], "name": "Ann"}]
    assert "the same name NOCASE" in str(query.explain())
    assert query.distribution.why_not_keys is None
    assert "ignore letter case" in query.distribution.why_not_key_tasks


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM S WHERE A PARTITION BY [n NOCASE]",
        "SELECT * FROM S WHERE A AS a FILTER a[COUNT(DISTINCT A.n NOCASE) OVER 9 EVENTS > 1]",
    ],
)
def test_nocase_is_of_strings(text):
    with pytest.raises(QueryTypeError, match="NOCASE is of strings, and"):
        cer_gpu.compile(text).evaluate(pa.table({"type": ["A"], "n": [1]}))
