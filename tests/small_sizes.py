"""Sizes inside the engine, made so small that short streams fill, move, drop and flush everything many times."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cer_gpu.columnar import clocks, dictionary_encoding
from cer_gpu.engine import contiguity, execution_group
from cer_gpu.expressions import side_columns, string_sets
from cer_gpu.expressions.globs import glob_sets
from cer_gpu.order import layouts, streams
from cer_gpu.output import retention
from cer_gpu.partition import key_index, partitions
from cer_gpu.predicates import symbol_table
from cer_gpu.runtime import (
    chain_counter,
    instances,
    joining,
    keyed_stacks,
    matches,
    run,
    stacks,
    window_choice,
)
from cer_gpu.runtime import deferred_events as intervals
from cer_gpu.runtime.pairs import PairJoin
from cer_gpu.runtime.parallel import conjunction_counter, products, reduction
from cer_gpu.runtime.progress import funnel
from cer_gpu.runtime.recent import graph_run as recent_graph
from cer_gpu.runtime.recent import run as recent

SMALL = (
    (execution_group, "BLOCK_ROWS", 7),
    (run, "INITIAL_SIZE", 4),
    (run, "INITIAL_PAIRS", 1),
    (run, "_NEAR", 1),
    (clocks, "_INITIAL_SIZE", 1),
    (stacks, "_INITIAL_SIZE", 2),
    (instances, "_INITIAL_SIZE", 2),
    (instances, "_INITIAL_DEPTH", 1),
    (instances, "PICKED", 3),
    (instances, "MAX_SCANNED", 16),
    (instances, "MAX_SCANNED_IF_FAR", 16),
    (instances, "PARTNERS", 2),
    (instances, "MIN_AHEAD", 1),
    (PairJoin, "least_size", 0),
    (conjunction_counter, "_INITIAL_SIZE", 2),
    (conjunction_counter, "_AHEAD", 4),
    (products, "_INITIAL_SIZE", 2),
    (products, "_INITIAL_DEPTH", 4),
    (contiguity, "FILTERED_FROM", 1),
    (contiguity, "_WORTHWHILE", 0),
    (reduction, "MIN_BUFFERED", 1),
    (reduction, "MAX_BUFFERED", 40),
    (reduction, "TRIED", 15),
    (reduction, "MAX_REMAINING", 1e9),
    (reduction, "MAX_REMAINING_STEPS", 1e9),
    (reduction, "MAX_REMAINING_COUNTED", 1e9),
    (reduction, "PAYS_FROM", -1),
    (reduction, "MIN_BITS", 1),
    (reduction, "MAX_BITS", 2),
    (recent, "_INITIAL_SIZE", 2),
    (recent, "_AHEAD", 4),
    (recent_graph, "_INITIAL_NODES", 2),
    (chain_counter, "_INITIAL_SIZE", 2),
    (window_choice, "_INITIAL_SIZE", 2),
    (keyed_stacks, "_INITIAL_SIZE", 2),
    (keyed_stacks, "GENTLE_FROM", 8),
    (keyed_stacks, "_SHRINK_FROM", 2),
    (keyed_stacks, "_SAMPLE", 2),
    (key_index, "SPARSE_BELOW", 128),
    (run, "REBASE_POSITION", 16),
    (run, "REBASE_NODE", 3000),
    (intervals, "PAYS_UP_TO", 1e9),
    (intervals, "MIN_EVENTS", 1),
    (matches, "OUTPUT_ROWS", 3),
    (partitions, "SWEEP_PARTITIONS_FROM", 2),
    (retention, "TRIM_FROM", 5),
    (dictionary_encoding, "_MAX_VALUES", 2),
    (side_columns, "SWEEP_FROM", 2),
    (string_sets, "TOGETHER_FROM", 0),
    (string_sets, "MAX_DICTIONARY_PARTS", 2),
    (glob_sets, "LAID_AT_ONCE", 4),
    (glob_sets, "MAX_PAIRS", 2),
    (symbol_table, "MAX_WORDS", 3),
    (funnel, "_INITIAL_SIZE", 2),
    (funnel, "_MAX_AT_ONCE", 2),
    (streams, "BATCH_ROWS", 3),
    (streams, "_CHUNK_ROWS", 2),
    (layouts, "MAX_VALUES", 3),
)


class _Work:
    """Work of a loop between two stops: one step at first, later a thousand, so that searches of many steps end."""

    def __init__(self) -> None:
        self._n_stops = 0

    def __int__(self) -> int:
        self._n_stops += 1
        return 1 if self._n_stops <= 5000 else 20_000


@contextmanager
def small_sizes() -> Iterator[None]:
    """Evaluate with small sizes; an evaluator made inside keeps some of them."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, size in SMALL:
            patch.setattr(module, name, size)
        patch.setattr(instances, "WORK", _Work())
        patch.setattr(joining, "PAIRS_AT_ONCE", _Work())
        yield
