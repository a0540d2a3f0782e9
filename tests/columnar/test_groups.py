"""Rows of a block by their groups, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sizes import seeds

from cer_gpu.columnar import groups as module
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.groups import Groups, OfGroup, Picked


def block_of(rng, n):
    words = pa.array(rng.choice(["ab", "cd", "ef", None], n).tolist(), pa.string())
    flags = pa.array(rng.choice([True, False, None], n).tolist(), pa.bool_())
    return Block(
        pa.record_batch(
            {
                "small": pa.array(rng.integers(-9, 9, n), pa.int8()),
                "medium": pa.array(rng.integers(0, 99, n), pa.uint16()),
                "days": pa.array(rng.integers(0, 99, n), pa.int32()).cast(pa.date32()),
                "floats": pa.array(rng.random(n), pa.float32()),
                "holes": pa.array([int(x) if x else None for x in rng.integers(0, 4, n)], pa.int64()),
                "flags": flags,
                "texts": words,
                "codes": words.dictionary_encode(),
            }
        )
    )


@pytest.mark.parametrize("sparse", [0, 1 << 30])
@pytest.mark.parametrize("seed", seeds(10))
def test_rows_and_values_are_ordered_by_group_as_in_python(seed, sparse, monkeypatch):
    monkeypatch.setattr(module, "SPARSE", sparse)
    rng = np.random.default_rng(seed)
    groups = Groups()
    for _ in range(3):
        n, n_groups = int(rng.integers(0, 50)), int(rng.integers(1, 5))
        numbers = rng.integers(-1, n_groups, n).astype(np.int32)
        groups.read(numbers, n_groups)
        lists = [np.flatnonzero(numbers == g) for g in range(n_groups)]
        assert [groups.rows[groups.places(g)].tolist() for g in range(n_groups)] == [each.tolist() for each in lists]
        for dtype in (np.int8, np.bool_, np.uint16, np.int32, np.int64, np.float64):
            values = rng.integers(0, 2, n).astype(dtype)
            ordered = groups.order(values)
            assert ordered.dtype == values.dtype
            assert ordered.tolist() == values[np.concatenate(lists)].tolist()
            assert groups.order(values) is ordered
        block = block_of(rng, n)
        for number, rows in enumerate(lists):
            group = OfGroup(block, groups, number, {})
            expected = Block(block.batch.take(pa.array(rows)))
            assert group.n_rows == len(rows)
            for name in block.batch.schema.names:
                assert group.column(name).equals(expected.column(name))
                valid = [block.valid(name), group.valid(name)]
                assert (valid[0] is None) == (valid[1] is None)
                kept = slice(None) if valid[1] is None else valid[1]
                assert valid[1] is None or valid[1].tolist() == valid[0][rows].tolist()
                if name in ("texts", "codes"):
                    coded = group.coded(name)
                    texts = np.array(coded.values.to_pylist() or [""])[coded.codes]
                    assert texts[kept].tolist() == [text for text in expected.column(name).to_pylist() if text]
                else:
                    assert group.numbers(name).dtype == expected.numbers(name).dtype
                    assert group.numbers(name)[kept].tolist() == expected.numbers(name)[kept].tolist()


def test_values_of_picked_events_are_read_at_their_places():
    groups = Groups()
    groups.read(np.array([1, 0, -1, 1, 0], np.int32), 2)
    rows, places = np.array([0, 1, 3], np.int32), np.array([2, 0, 3], np.int32)
    values = np.array([10, 11, 12, 13, 14])
    symbols = np.ones(3, np.int32)
    for picked in (Picked(symbols, rows), Picked(symbols, rows, places, groups)):
        for some, kept in ((picked, [0, 1, 2]), (picked.at(np.array([0, 2])), [0, 2])):
            where, found = some.within(values)
            assert found[where].tolist() == values[rows[kept]].tolist()
