"""Events that come partition by partition: one lookup for a run of equal keys, and the ids of plain Python."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from sizes import seeds

import cer_gpu
from cer_gpu.partition.partitions import Partitions

TYPES = {
    "number": [pa.int64(), pa.int32(), pa.int16()],
    "name": [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())],
    "price": [pa.float64(), pa.float32()],
}
"""Columns, and the types that each has in some batches."""


def runs_of_keys(rng: random.Random, n: int) -> list[tuple[object, ...]]:
    """Return keys of three columns, in runs of random lengths, some without a value."""
    rows: list[tuple[object, ...]] = []
    while len(rows) < n:
        number = rng.choice([None, *range(rng.choice([3, 60]))])
        # neighbouring runs often differ in one column alone
        key = (number, rng.choice(["x", "y", None, "z"]), rng.choice([0.5, 1.5, None, 2.5]))
        rows += [key] * rng.choice([1, 1, 2, 5, 40])
    return rows[:n]


def plain_ids(keys, relevant, numbers, *, every, numbered):
    """Return rows, ids and ordinals as a dictionary gives them; `numbers` has [id, count] by key, and grows."""
    found = []
    for row, (key, matters) in enumerate(zip(keys, relevant, strict=True)):
        if None in key or not (matters or (every and key in numbers)):
            continue
        known = numbers.setdefault(key, [len(numbers), 0])
        if matters:
            found.append((row, known[0], known[1] if numbered else None))
        known[1] += 1
    return found


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("seed", seeds(60))
def test_runs_get_the_ids_of_their_keys(seed, large):
    """For any cut into batches, also amid a run, and any types of the columns in them."""
    rng = random.Random(seed)
    columns = rng.sample(list(TYPES), rng.randint(1, 3))
    every = rng.random() < 0.7
    numbered = every and rng.random() < 0.7
    schema = pa.schema([("type", pa.string()), *((name, kinds[0]) for name, kinds in TYPES.items())])
    brackets = ", ".join(f"[{name}]" for name in columns)
    keys = cer_gpu.compile(f"SELECT * FROM S WHERE A : B PARTITION BY {brackets}")._bind(schema).keys
    rows = runs_of_keys(rng, 600 if large else 60)
    partitions = Partitions(keys.types, every=every, numbered=numbered)
    if large:
        partitions._resize(2048)  # prefetches, as of large tables
    numbers: dict[tuple[object, ...], list[int]] = {}
    begin = 0
    while begin < len(rows):
        batch = rows[begin : begin + rng.choice([1, 7, 50, 300])]
        begin += len(batch)
        relevant = [rng.random() < 0.5 for _ in batch]
        arrays = {
            name: pa.array([row[i] for row in batch], kinds[0]).cast(rng.choice(kinds))
            for i, (name, kinds) in enumerate(TYPES.items())
        }
        record = pa.record_batch({"type": ["A"] * len(batch), **arrays})
        at = np.flatnonzero(relevant).astype(np.int32)
        symbols, read, ids, ordinals = partitions.assign(keys.arrays(record, keys.types), at + 1, at)
        wanted = [tuple(row[list(TYPES).index(name)] for name in columns) for row in batch]
        expected = plain_ids(wanted, relevant, numbers, every=every, numbered=numbered)
        assert symbols.tolist() == [row + 1 for row, _, _ in expected]
        found = zip(read.tolist(), ids.tolist(), ordinals.tolist() if numbered else [None] * len(read), strict=True)
        assert list(found) == expected
    assert partitions.n == len(numbers)
