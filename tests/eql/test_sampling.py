"""Samples: for each key that has different events for all filters one choice of them, the first that is complete."""

import itertools
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import scaled

import cer_gpu
from cer_gpu.errors import QueryError

CONDITIONS = {
    "x == 1": lambda e: e["x"] == 1,
    "x > 0": lambda e: e["x"] is not None and e["x"] > 0,
    "x == 2": lambda e: e["x"] == 2,
    "true": lambda e: True,
}


def samples(terms, keys, rows):
    """For each key the least end of a choice of different events, and all choices that end there."""
    groups = {}
    for i, row in enumerate(rows):
        key = tuple(row[name] for name, _ in keys)
        if all(value is not None or nullable for value, (_, nullable) in zip(key, keys, strict=True)):
            groups.setdefault(key, []).append(i)
    found = {}
    for key, own in groups.items():
        hits = [
            [i for i in own if category in ("any", rows[i]["event.category"]) and CONDITIONS[condition](rows[i])]
            for category, condition in terms
        ]
        choices = [chosen for chosen in itertools.product(*hits) if len(set(chosen)) == len(terms)]
        if choices:
            end = min(map(max, choices))
            found[key] = {chosen for chosen in choices if max(chosen) == end}
    return found


@settings(max_examples=scaled(60), deadline=None)
@given(st.integers(0, 2**32))
def test_samples_are_the_first_choice_of_different_events(seed):
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
    chosen = {tuple(row[name] for name, _ in keys): tuple(row[name] for name in names) for row in found}
    assert len(chosen) == len(found)
    assert chosen.keys() == expected.keys()
    assert all(choice in expected[key] for key, choice in chosen.items())
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


@pytest.mark.long("reads many events")
def test_a_sample_of_many_events_is_refused_with_a_caret_and_at_once():
    with pytest.raises(QueryError, match=r"may take the same event has at most 12, and this one 1,000(?s:.*)\^\^\^"):
        cer_gpu.compile("sample by k " + "[any where true] " * 1_000, language="eql")
    different = "".join(f"[c{i} where true] " for i in range(40))
    assert cer_gpu.compile(f"sample by k {different}", language="eql")
