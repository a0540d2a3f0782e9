"""Partitions of shares of the keys, against those of all keys."""

import random

import numpy as np
import pyarrow as pa
import pytest
from sizes import seeds

from cer_gpu.backend.partitions import distribute_events
from cer_gpu.columnar.memory import read_only
from cer_gpu.partition.partitions import DistributedPartitions, Partitions, partitions_of

KINDS = [pa.int64(), pa.float64(), pa.string(), pa.large_binary(), pa.decimal128(30, 2)]


def random_key(rng, kind, n):
    values = [None if rng.random() < 0.1 else rng.randint(0, 20) for _ in range(n)]
    if pa.types.is_string(kind) or pa.types.is_large_binary(kind):
        array = pa.array([None if v is None else f"{v} " * v for v in values]).cast(kind)
        return array.dictionary_encode() if pa.types.is_string(kind) and rng.random() < 0.5 else array
    return pa.array(values).cast(kind)


@pytest.mark.parametrize("seed", seeds(30))
def test_every_event_is_in_one_share_and_keeps_its_number(seed):
    rng = random.Random(seed)
    types, every, n_shares = rng.choices(KINDS, k=rng.randint(1, 2)), rng.random() < 0.5, rng.randint(2, 4)
    whole = Partitions(types, every=every, numbered=True)
    shares = [partitions_of(types, (k, n_shares), every=every, numbered=True) for k in range(n_shares)]
    assert all(isinstance(share, DistributedPartitions) for share in shares)
    met: list[dict[int, int]] = [{} for _ in shares]  # partition of the whole by that of a share
    for _ in range(4):
        n = rng.randint(0, 50)
        keys = [random_key(rng, kind, n) for kind in types]
        rows = np.flatnonzero([rng.random() < 0.5 for _ in range(n)]).astype(np.int32)
        symbols = rows + 7
        expected = [np.copy(each) for each in whole.assign(keys, symbols, rows)]
        found = [[np.copy(each) for each in share.assign(keys, symbols, rows)] for share in shares]
        for names, (_, own, partitions, _) in zip(met, found, strict=True):
            of_whole = dict(zip(expected[1].tolist(), expected[2].tolist(), strict=True))
            for row, partition in zip(own.tolist(), partitions.tolist(), strict=True):
                assert names.setdefault(partition, of_whole[row]) == of_whole[row]
        order = np.argsort(np.concatenate([each[1] for each in found]), kind="stable")
        for column in (0, 1, 3):
            assert np.concatenate([each[column] for each in found])[order].tolist() == expected[column].tolist()
    named = [partition for names in met for partition in names.values()]
    assert len(named) == len(set(named)) == whole.n


def test_the_share_of_a_text_does_not_depend_on_its_layout():
    texts = pa.array([f"key {i % 60}" for i in range(300)])
    rows = np.arange(300, dtype=np.int32)
    layouts = [texts, texts.cast(pa.large_string()), texts.dictionary_encode(), texts[::-1].dictionary_encode()[::-1]]
    found = [
        DistributedPartitions([pa.string()], (1, 3), every=every, numbered=False)
        .assign([layout], rows, rows)[1]
        .tolist()
        for layout in layouts
        for every in (True, False)
    ]
    assert 0 < len(found[0]) < 300
    assert all(each == found[0] for each in found)


def mixed(words):
    """Return the hash of a key, in plain Python."""
    found = 0
    for word in words:
        found = (found ^ word) * 0x9E3779B97F4A7C15 % 2**64
        found ^= found >> 32
    return found


@pytest.mark.parametrize("seed", seeds(10))
def test_events_are_dealt_as_in_plain_python(seed):
    rng = random.Random(seed)
    n_keys, n, width, n_shares = rng.randint(1, 9), rng.randint(0, 40), rng.randint(1, 3), rng.randint(1, 4)
    share = rng.randrange(n_shares)
    codes = [rng.randrange(n_keys) for _ in range(n)]
    words = [[rng.getrandbits(64) for _ in range(width)] for _ in range(n_keys)]
    mine = [(mixed(words[code]) >> 32) * n_shares >> 32 == share for code in codes]
    relevant = [row for row in range(n) if rng.random() < 0.5]
    for coded in (True, False):
        given = words if coded else [words[code] for code in codes]
        own, before = np.zeros(n + 1, np.int32), np.zeros(n + 1, np.int32)
        table = read_only(np.array(given, np.uint64).reshape(-1, width))
        kept, places = (np.zeros(len(relevant) + 1, np.int32) for _ in range(2))
        rows = read_only(np.array(relevant, np.int32))
        of_events = read_only(np.array(codes if coded else [], np.int32))
        n_own, n_kept = distribute_events(table, of_events, rows, share, n_shares, own, before, kept, places)
        assert own[:n_own].tolist() == [row for row in range(n) if mine[row]]
        assert before.tolist() == [sum(mine[:row]) for row in range(n + 1)]
        chosen = [j for j, row in enumerate(relevant) if mine[row]]
        assert kept[:n_kept].tolist() == chosen
        assert places[:n_kept].tolist() == [sum(mine[: relevant[j]]) for j in chosen]
