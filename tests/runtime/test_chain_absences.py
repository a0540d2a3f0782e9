"""Counts and absences in chains: the stacks and the counter find what brute force finds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from chain_cases import expected, random_events, random_steps
from sizes import scaled, seeds
from small_sizes import small_sizes

from cer_gpu.automaton.chain import Chain
from cer_gpu.automaton.encoding import (
    CONSUME_ANY,
    CONSUME_NONE,
    CONSUME_PARTITION,
    COUNT_WINDOW,
    GLOBAL_WINDOW,
    NO_WINDOW,
)
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.registry import make_runtime

CONSUME = {"NONE": CONSUME_NONE, "ANY": CONSUME_ANY, "PARTITION": CONSUME_PARTITION}


class BaseEvaluator:
    """One evaluation of a chain by a runtime, in pieces, some of them from a snapshot on."""

    def __init__(self, name, steps, events, length, *, consume="NONE", limit=0, counted=False):
        self.name, self.steps, self.length, self.counted = name, steps, length, counted
        keyed = name == "keyed_stacks"
        window = NO_WINDOW if length is None else COUNT_WINDOW if counted else GLOBAL_WINDOW
        consumed = CONSUME[consume] if keyed or consume == "NONE" else CONSUME_PARTITION
        self.options = RunOptions(
            window=window,
            partitioned=keyed,
            timed=True,
            limit=limit,
            consume=consumed,
            labelled=name != "chain_counter",
        )
        self.events = self._relevant(events, keyed)
        self.runtime = self._made()

    def _made(self):
        self.chain = Chain(self.steps)
        length = None if self.length is None else np.uint64(self.length)
        made = make_runtime(self.name, self.chain, self.options, length)
        if self.name == "keyed_stacks":
            made.reserve_partitions(8)
        return made

    def _relevant(self, events, keyed):
        chain = Chain(self.steps)
        numbers, ordinals, words = Counter(), [], []
        for event in events:
            ordinals.append(numbers[event.key])
            numbers[event.key] += 1
            words.append(event.word)
        self.words = list(dict.fromkeys(words))
        symbols = np.array([chain.symbol(word) for word in words], np.int32)
        kept = np.flatnonzero(symbols)
        clocks = np.array(ordinals if self.counted else [event.clock for event in events], np.uint64)
        none = np.empty(0, np.int64)
        keys = np.array([event.key for event in events] if keyed else [], np.int32)
        return RelevantEvents(
            symbols[kept], kept, none, 10 * kept, keys[kept] if keyed else keys,
            np.array(ordinals, np.int64)[kept] if keyed else none, none, clocks[kept],
            np.empty((len(kept), 0), np.int64),
        )  # fmt: skip

    def found(self, rng):
        for word in self.words:
            self.chain.symbol(word)
        pieces, begin, n = [], 0, len(self.events.symbols)
        while begin < n:
            end = begin + rng.randint(1, 9)
            pieces += [self._rows(piece) for piece in self.runtime.feed(self.events.at(slice(begin, end)))]
            pieces.append(self._rows(self.runtime.flush()))
            begin = end
            if rng.random() < 0.3:
                snapshot, numbers = self.runtime.snapshot(), self.chain.snapshot()
                kept = {name: np.array(value) for name, value in snapshot.items()}
                self.runtime = self._made()
                self.chain.restore(numbers)
                self.runtime.restore(kept)
        return [row for piece in pieces for row in piece]

    def _rows(self, found):
        if self.name == "chain_counter":
            return list(zip(found.ends.tolist(), found.counts.tolist(), strict=True))
        rows = []
        for i, (begin, end) in enumerate(zip(found.offsets[:-1], found.offsets[1:], strict=True)):
            marks = tuple((found.marks[begin:end] - 1).tolist())
            rows.append((*found.spans[:, i].tolist(), tuple(found.positions[begin:end].tolist()), marks))
            assert found.times[:, i].tolist() == (10 * found.spans[:, i]).tolist()
        return rows


def case(seed, *, keyed=False):
    rng = random.Random(seed)
    steps = random_steps(rng)
    length = rng.choice([None, 0, 3, 8, 15, 30])
    n_keys = rng.choice([1, 2, 3]) if keyed else 1
    events = random_events(rng, rng.randint(0, 13 if length is None else 20 if length > 8 else 40) * n_keys, n_keys)
    consume = rng.choice(["NONE", "NONE", "NONE", "ANY", "PARTITION"])
    return rng, steps, events, length, consume


@pytest.mark.long("compiles the listing of stacks for three absences, which few patterns have")
@pytest.mark.parametrize("seed", seeds(scaled(60)))
@pytest.mark.parametrize("name", ["stacks", "keyed_stacks"])
def test_stacks_list_what_brute_force_finds(name, seed):
    keyed = name == "keyed_stacks"
    rng, steps, events, length, consume = case(seed, keyed=keyed)
    counted = keyed and rng.random() < 0.4
    rows = expected(steps, events, length, consume, counted)
    limit = rng.choice([0, 0, 0, 1, 3])
    with small_sizes():
        options = {"consume": consume, "limit": limit, "counted": counted}
        found = BaseEvaluator(name, steps, events, length, **options).found(rng)
    assert [row[1] for row in found] == sorted(row[1] for row in found)
    if limit:
        assert not Counter(found) - Counter(rows)
        ends = Counter(row[1] for row in rows)
        assert Counter(row[1] for row in found) == {end: min(n, limit) for end, n in ends.items()}
    else:
        assert sorted(found) == sorted(rows)


@pytest.mark.parametrize("seed", seeds(scaled(60)))
def test_the_counter_counts_what_brute_force_finds(seed):
    rng, steps, events, length, consume = case(seed)
    steps = tuple(replace(step, neighbour=False) for step in steps)
    rows = expected(steps, events, length, consume)
    with small_sizes():
        found = BaseEvaluator("chain_counter", steps, events, length, consume=consume).found(rng)
    assert found == sorted(Counter(row[1] for row in rows).items())
