"""Which processes descend from marked ones, compared with the definition, in any cut of a stream."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
import strategies
from cases import sorted_rows
from hypothesis import strategies as st
from reference_past import descends
from written_nodes import compiled_with

import cer_gpu
from cer_gpu.ceql import syntax as s
from cer_gpu.columnar import dictionary_encoding

IDS = ("id", "parent")
ROOT = s.Comparison("=", s.Attribute("p"), s.Literal(True))
NODES = {
    "of_p": s.descends(s.Name("P"), ROOT, IDS),
    "of_any": s.descends(None, None, IDS),
    "of_type": s.descends(s.Name("Q"), None, IDS),
}
MARKS = {
    "of_p": lambda event: event["type"] == "P" and event["p"],
    "of_any": lambda event: True,
    "of_type": lambda event: event["type"] == "Q",
}


def random_events(rng, n, ids):
    names = [*ids, None]
    return [
        {"type": rng.choice("PPQ"), "id": rng.choice(names), "parent": rng.choice(names), "p": rng.random() < 0.15}
        | {"k": rng.randrange(3)}
        for _ in range(n)
    ]


LAYOUTS = {
    "texts": pa.string(),
    "large texts": pa.large_string(),
    "views": pa.string_view(),
    "a dictionary": pa.dictionary(pa.int8(), pa.string()),
    "numbers": pa.uint16(),
    "numbers in a dictionary": pa.dictionary(pa.int32(), pa.int64()),
}


def column_of(values, kind):
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(plain):
        values = [None if value is None else int(value) for value in values]
    array = pa.array(values, plain)
    return array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array


TEXTS = pa.string(), pa.string()


def table_of(events, kinds=TEXTS):
    columns = {name: [event[name] for event in events] for name in events[0]} if events else {}
    given = dict(zip(IDS, kinds, strict=True))
    return pa.table({n: column_of(v, given[n]) if n in given else pa.array(v) for n, v in columns.items()})


def expected_of(node, events):
    return [descends(events, i, event["id"], IDS, MARKS[node]) for i, event in enumerate(events)]


def ends_of(query, table, cuts=()):
    stream, found = query.evaluator(output="ends"), []
    for begin, end in zip([0, *cuts], [*cuts, len(table)], strict=True):
        for batch in table.slice(begin, end - begin).combine_chunks().to_batches():
            found += stream.push(batch)["end"].to_pylist()
    return found + stream.finish()["end"].to_pylist()


@pytest.mark.parametrize("layout", LAYOUTS)
@strategies.property_test(0.1)
def test_descents_are_those_of_the_definition_in_any_cut(layout, data):
    rng = random.Random(data.draw(st.integers(0, 2**32), label="seed"))
    n, node = rng.choice([1, 4, 12, 25]), rng.choice(list(NODES))
    events = random_events(rng, n, rng.choice(["123", "123456789"]))
    kind = LAYOUTS[layout]
    numbers = not pa.types.is_dictionary(kind) and pa.types.is_integer(kind)
    other = rng.choice([kind, pa.int64() if numbers else kind])
    query = compiled_with(NODES, f"SELECT * FROM S WHERE (P OR Q) AS x FILTER x[{node} = TRUE]")
    cuts = sorted(rng.sample(range(1, n), min(n - 1, rng.choice([0, 1, 5]))))
    expected = expected_of(node, events)
    assert ends_of(query, table_of(events, (kind, other)), cuts) == [i for i, holds in enumerate(expected) if holds]
    against = compiled_with(NODES, f"SELECT * FROM S WHERE (P OR Q) AS x FILTER x[NOT({node} = TRUE)]")
    assert ends_of(against, table_of(events, (kind, other)), cuts) == [
        i for i, holds in enumerate(expected) if not holds
    ]


PATTERN = "P AS x ; Q AS y FILTER x[of_p = TRUE] AND y.k = x.k AND (y.of_any = TRUE OR x.of_type = TRUE)"


def test_checkpoints_and_codes_that_are_forgotten_change_nothing(monkeypatch):
    monkeypatch.setattr(dictionary_encoding, "_MAX_VALUES", 8)
    rng = random.Random(7)
    events = random_events(rng, 300, [str(n) for n in range(150)])
    query = compiled_with(NODES, "SELECT * FROM S WHERE (P OR Q) AS x FILTER x[of_p = TRUE]")
    expected = [i for i, holds in enumerate(expected_of("of_p", events)) if holds]
    assert len(expected) > 10
    for kind in (pa.string(), LAYOUTS["a dictionary"].value_type, LAYOUTS["numbers"]):
        stream, found = query.evaluator(output="ends"), []
        for batch in table_of(events, (kind, kind)).to_batches(max_chunksize=17):
            found += stream.push(batch)["end"].to_pylist()
            stream = query.restore(stream.checkpoint())
        assert found + stream.finish()["end"].to_pylist() == expected


def test_columns_stand_beside_others_in_patterns_and_between_events():
    rng = random.Random(3)
    events = random_events(rng, 60, "123456")
    truth = {node: expected_of(node, events) for node in NODES}
    expected = [
        [i, j]
        for j, later in enumerate(events)
        for i, earlier in enumerate(events[:j])
        if (earlier["type"], later["type"], earlier["k"]) == ("P", "Q", later["k"])
        and truth["of_p"][i]
        and (truth["of_any"][j] or truth["of_type"][i])
    ]
    for partition in ("", " PARTITION BY [k]"):
        query = compiled_with(NODES, f"SELECT * FROM S WHERE {PATTERN}{partition}")
        assert sorted(query.evaluate(table_of(events))["positions"].to_pylist()) == sorted(expected)
        assert len(expected) > 5


def test_threads_share_keys_and_tasks_do_not():
    rng = random.Random(4)
    events = random_events(rng, 3000, [str(n) for n in range(400)])
    query = compiled_with(
        NODES, "SELECT * FROM S WHERE P AS x ; Q FILTER x[of_p = TRUE] PARTITION BY [k] WITHIN 9 EVENTS"
    )
    distribution = query.physical_plan().distribution
    assert distribution.threads == "key"
    assert distribution.tasks["key"] == "the ancestors of a process may have other keys"
    assert distribution.tasks["broadcast"] is None
    one, three = (query.evaluate(table_of(events), threads=threads) for threads in (1, 3))
    assert one.num_rows > 50
    assert sorted_rows(one) == sorted_rows(three)
    ranges = compiled_with(NODES, "SELECT * FROM S WHERE P AS x ; Q FILTER x[of_p = TRUE] WITHIN 9 EVENTS")
    assert ranges.physical_plan().distribution.why_not_ranges == "ancestors of a process may lie before the range"


def test_no_ids_are_no_descent():
    events = random_events(random.Random(1), 5, "12")
    table = table_of(events).set_column(1, "id", pa.nulls(5))
    query = compiled_with(NODES, "SELECT * FROM S WHERE (P OR Q) AS x FILTER x[of_any = TRUE]")
    assert query.evaluate(table).num_rows == 0


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ((pa.float64(), pa.float64()), "ids of processes are texts or whole numbers, and column 'id' is a double"),
        ((pa.string(), pa.int64()), "'id' texts and 'parent' numbers are"),
        ((pa.duration("s"), pa.int64()), "column 'id' is a duration"),
    ],
)
def test_columns_of_other_types_are_refused(kinds, message):
    events = random_events(random.Random(1), 5, "12")
    table = table_of(events, (pa.string(), pa.int64()))
    for name, kind in zip(IDS, kinds, strict=True):
        place = table.column_names.index(name)
        table = table.set_column(place, name, table[name].cast(pa.int64()).cast(kind))
    query = compiled_with(NODES, "SELECT * FROM S WHERE P AS x FILTER x[of_p = TRUE]")
    with pytest.raises(cer_gpu.QueryTypeError, match=message):
        query.evaluate(table)


def test_ancestors_of_ancestors_are_refused():
    inner = s.descends(s.Name("P"), NODES["of_type"], IDS)
    query = compiled_with({"nested": inner}, "SELECT * FROM S WHERE P AS x FILTER x[nested = TRUE]")
    with pytest.raises(cer_gpu.QueryTypeError, match="not tested for ancestors"):
        query.evaluate(table_of(random_events(random.Random(1), 5, "12")))


def test_words_tell_what_is_asked():
    query = compiled_with(NODES, "SELECT * FROM S WHERE P AS x FILTER x[of_p = TRUE]")
    told = str(query.explain())
    assert "DESCENDANT(P FILTER p = TRUE)" in told
    assert "an ancestor of the event's process (by id and parent) had one of the P events with p = TRUE before" in told


def test_a_set_of_queries_gives_what_each_gives():
    table = table_of(random_events(random.Random(5), 200, "123456789"))
    queries = {
        node: compiled_with(NODES, f"SELECT * FROM S WHERE (P OR Q) AS x FILTER x[{node} = TRUE]") for node in NODES
    }
    found = cer_gpu.QuerySet(queries).evaluate(table)
    for name, query in queries.items():
        assert sorted_rows(found[name]) == sorted_rows(query.evaluate(table))
