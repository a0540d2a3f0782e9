"""Invariants that make listing fast: the tECS is time-ordered and 3-bounded (papers: CORE, section 5.1)."""

import random

import pyarrow as pa
import pytest
import reference as ref
import strategies
from cases import by_automaton
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rendering import to_ceql
from sizes import scaled

import cer_gpu
from cer_gpu.backend import tecs

FIXED = [
    "SELECT * FROM S WHERE A ; B+ ; C",
    "SELECT * FROM S WHERE (A ; B+)+ ; (A OR C)+",
    "SELECT * FROM S WHERE (A OR B)+ ; (B OR C)+ ; (A OR C)+ ; D",
    "SELECT B FROM S WHERE (A : B OR NOT(C))+ ; (B :+ OR A) ; C",
]


def check_lists(run):
    """Walk everything that the live union lists reach and return how many nodes that is."""
    mask = len(run._nodes) - 1
    floor = int(run._regs[tecs.FLOOR])
    seen = set()

    def walk(node):
        todo = [node]
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            position, onward, sibling, maximum = map(int, run._nodes[node & mask])
            unions, left = 0, node
            while run._nodes[left & mask, 0] == -1:  # plain unions on the way to a node that marks something
                unions, left = unions + 1, int(run._nodes[left & mask, 1])
            assert unions + (sibling >= floor and position >= 0) <= 3
            assert max(onward, sibling) < node  # older, which `collect_nodes` relies on
            if onward >= 0:
                assert run._nodes[onward & mask, 3] == maximum
                todo.append(onward)
            else:
                assert position == maximum
            if sibling >= floor:
                assert run._nodes[sibling & mask, 3] <= maximum
                todo.append(sibling)

    for slot in run._slot_of[run._slot_of >= 0]:
        pairs = run._slots[slot, tecs.PAIRS :].reshape(-1, 2)[: run._slots[slot, tecs.LENGTH]]
        maxima = pairs[:, 1].tolist()
        assert maxima[1:] == sorted(set(maxima[1:]), reverse=True)
        assert all(m <= maxima[0] for m in maxima)
        for node, maximum in pairs.tolist():
            assert run._nodes[node & mask, 3] == maximum
            assert run._nodes[node & mask, 0] >= 0
            walk(node)
    return len(seen)


def run_over(text, types):
    evaluator = by_automaton(cer_gpu.compile(text)).evaluator()
    for _ in evaluator.push_batches(pa.record_batch({"type": pa.array(types, pa.string())})):
        pass
    return evaluator.pipeline.runtime


@pytest.mark.parametrize("text", FIXED)
def test_the_tecs_of_fixed_queries_is_time_ordered_and_3_bounded(text):
    rng = random.Random(text)
    # LIMIT: the graph counts here, not the exponentially many matches in it
    run = run_over(text + " LIMIT 1", rng.choices("ABC", k=3000))
    assert check_lists(run) > 1000


@settings(max_examples=scaled(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.formulas(depth=4, pluses=3, conditions=st.nothing()), st.integers(0, 2**32))
def test_the_tecs_of_random_formulas_is_time_ordered_and_3_bounded(formula, seed):
    query = ref.Query(formula, limit=1, within=random.Random(seed).choice([None, ("events", 40)]))
    names = sorted({n.name for n in ref.descendants(formula) if isinstance(n, ref.EventType | ref.Not)})
    rng = random.Random(seed)
    check_lists(run_over(to_ceql(query, rng), rng.choices([*names, "other"], k=400)))
