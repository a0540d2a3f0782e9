"""Samples: for each key the first choice of different events, one for each filter, in the order of keys."""

import itertools
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import scaled

import cer_gpu
from cer_gpu.engine.pending_samples import first_choice
from cer_gpu.errors import QueryError

CONDITIONS = {
    "x == 1": lambda e: e["x"] == 1,
    "x > 0": lambda e: e["x"] is not None and e["x"] > 0,
    "x == 2": lambda e: e["x"] == 2,
    "true": lambda e: True,
}


def samples(terms, keys, rows):
    """For each key, in their order, the first choice of different events in the order of the filters."""
    groups = {}
    for i, row in enumerate(rows):
        key = tuple(row[name] for name, _ in keys)
        if all(value is not None or nullable for value, (_, nullable) in zip(key, keys, strict=True)):
            groups.setdefault(key, []).append(i)
    found = {}
    for key in sorted(groups, key=lambda key: [(value is not None, value or 0) for value in key]):
        hits = [
            [
                i
                for i in groups[key]
                if category in ("any", rows[i]["event.category"]) and CONDITIONS[condition](rows[i])
            ]
            for category, condition in terms
        ]
        choices = [chosen for chosen in itertools.product(*hits) if len(set(chosen)) == len(terms)]
        if choices:
            found[key] = choices[0]
    return found


@settings(max_examples=scaled(60), deadline=None)
@given(st.integers(0, 2**32))
def test_samples_are_the_first_choices_of_different_events(seed):
    rnd = random.Random(seed)
    terms = [
        (rnd.choice(["any", "file", "process"]), rnd.choice(list(CONDITIONS))) for _ in range(rnd.choice([2, 2, 3]))
    ]
    keys = rnd.choice([[("k", False)], [("k", True)], [("k", False), ("m", True)]])
    text = f"sample by {', '.join(('?' if nullable else '') + name for name, nullable in keys)} "
    text += " ".join(f"[{category} where {condition}]" for category, condition in terms)
    rows = [
        {
            "event.category": rnd.choice(["file", "process", "other"]),
            "x": rnd.choice([None, 0, 1, 2]),
            "k": rnd.choice([None, 1, 2, 3]),
            "m": rnd.choice([None, "a"]),
        }
        for _ in range(rnd.choice([4, 25]))
    ]
    schema = pa.schema({"event.category": pa.string(), "x": pa.int64(), "k": pa.int64(), "m": pa.string()})
    table = pa.Table.from_pylist(rows, schema)
    table = table.append_column("@timestamp", pa.array(range(len(rows)), pa.timestamp("s")))
    query = cer_gpu.compile(text, language="eql")
    expected = samples(terms, keys, rows)
    found = query.evaluate(table, output="bindings").to_pylist()
    names = [f"step{n}" for n in range(1, len(terms) + 1)]
    chosen = [(tuple(row[name] for name, _ in keys), tuple(row[name] for name in names)) for row in found]
    assert chosen == list(expected.items())
    evaluator = query.evaluator(output="bindings")
    pieces = []
    for batch in table.to_batches(max_chunksize=rnd.randint(1, 9)):
        pieces.append(evaluator.push(batch))
        evaluator = query.restore(evaluator.checkpoint())
    pieces.append(evaluator.finish())
    assert pa.Table.from_batches(pieces).to_pylist() == found
    assert query.evaluate(table, output="bindings", threads=2).to_pylist() == found


def test_a_sample_has_keys():
    with pytest.raises(QueryError, match="fields that its events share"):
        cer_gpu.compile("sample [any where true] [any where true]", language="eql")


@pytest.mark.parametrize("n", range(5))
def test_the_first_choice_is_that_of_all_choices_in_their_order(n):
    rnd = random.Random(n)
    for _ in range(300):
        candidates = [sorted(rnd.sample(range(6), rnd.randint(0, 5))) for _ in range(rnd.randint(1, 5))]
        different = [each for each in itertools.product(*candidates) if len(set(each)) == len(each)]
        found = first_choice(candidates)
        assert (None if found is None else tuple(own[i] for own, i in zip(candidates, found, strict=True))) == (
            different[0] if different else None
        )


def test_many_filters_of_too_few_events_have_no_choice():
    assert first_choice([list(range(40))] * 41) is None
    assert first_choice([list(range(41))] * 41) == list(range(41))


def test_an_event_is_in_the_sample_of_each_element_of_a_list():
    events = pa.table(
        {
            "event.category": ["file", "process", "file", "process"],
            "@timestamp": pa.array(range(4), pa.timestamp("s")),
            "tags": [["b", "a", "b"], ["a"], [], ["b", None]],
        }
    )
    query = cer_gpu.compile("sample by tags [file where true] [process where true]", language="eql")
    found = query.evaluate(events, output="bindings").to_pylist()
    assert [(row["tags"], row["step1"], row["step2"]) for row in found] == [("a", 0, 1), ("b", 0, 3)]


def test_samples_of_unlike_keys_show_those_of_their_first_filter():
    events = pa.table(
        {
            "event.category": ["process", "file", "file"],
            "@timestamp": pa.array(range(3), pa.timestamp("s")),
            "host": [None, 7, 8],
            "target": [7.0, None, None],
        }
    )
    query = cer_gpu.compile("sample [file where true] by host [process where true] by target", language="eql")
    (row,) = query.evaluate(events).to_pylist()
    assert (row["positions"], row["host"]) == ([0, 1], 7)
    assert query.key_names == ("host",)


def test_samples_are_known_at_the_end_and_survive_a_checkpoint():
    def batch(category, key):
        times = pa.array([0], pa.timestamp("s"))
        return pa.record_batch({"event.category": [category], "@timestamp": times, "k": [key]})

    query = cer_gpu.compile("sample by k [any where true] [file where true]", language="eql")
    evaluator = query.evaluator()
    for event in (batch("file", "b"), batch("process", "b"), batch("file", "a"), batch("file", "a")):
        assert evaluator.push(event).num_rows == 0
        evaluator = query.restore(evaluator.checkpoint())
    # the first event of "b" is the only one of the second filter
    assert [row["positions"] for row in evaluator.finish().to_pylist()] == [[2, 3], [0, 1]]


def test_a_sample_of_many_filters_is_refused_with_a_caret_and_at_once():
    with pytest.raises(QueryError, match=r"at most 62 filters, and this one 1,000(?s:.*)\^\^\^"):
        cer_gpu.compile("sample by k " + "[any where true] " * 1_000, language="eql")
    assert cer_gpu.compile("sample by k " + "[any where true] " * 62, language="eql")
