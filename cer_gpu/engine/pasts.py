"""Columns of aggregates over the past (``OVER``) and of descent, made for all events before predicates are evaluated.

A column is made in one pass over each block: what leaves a window is taken out, and what comes is added, so that the
cost does not depend on the length of the window.  Results do not depend on how the stream is cut into blocks: sums are
exact, so that they are those of the values in the window alone (`cer_gpu.backend.past.exact`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32
from cer_gpu.columnar.clocks import ordered
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.memory import read_only
from cer_gpu.engine.past_columns import DescentState, DistinctState, PastState, RisesState, new_state
from cer_gpu.expressions.derived import is_descent
from cer_gpu.partition.dealt import partitions_of
from cer_gpu.partition.partitions import PartitionKeys
from cer_gpu.planning.pasts import BoundPasts
from cer_gpu.predicates.guards import BoundGuards, GuardWords
from cer_gpu.predicates.shared_guards import SharedGuards, may_share

_WITH_TEXTS = DescentState | DistinctState
"""States that number texts."""
_NO_EVENTS = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint64)


class _Chosen:
    """Tests of the events that aggregates are of, in common with other queries of a set where that is possible."""

    def __init__(self, bound: BoundGuards, shared: SharedGuards | None) -> None:
        self._bound = bound
        self._shared = shared if shared is not None and may_share(bound, negates=False) else None
        if self._shared is not None:
            self._shared.know(bound)
        else:
            self._words = GuardWords(bound)

    def of(self, block: Block) -> Callable[[int], Bools]:
        """Return a function of the number of a guard that returns which events of a block satisfy it."""
        if self._shared is not None:
            shared, guards = self._shared, self._bound.guards
            return lambda number: shared.chosen(guards[number], block)
        words = self._words.words(block)
        return lambda number: _has_bit(words, number)


class Pasts:
    """Columns of aggregates over the past over the blocks of a stream.

    Parameters
    ----------
    bound
    keys
        Keys of PARTITION BY; None: there are none.
    types
        Types of the keys.
    deal
        (k, n): events of share k of n of the keys only; the others get any values.
    shared
        Guards of the set that the query stands in; None: it stands alone.
    """

    def __init__(
        self,
        bound: BoundPasts,
        keys: PartitionKeys | None,
        types: list[pa.DataType],
        deal: tuple[int, int] | None = None,
        shared: SharedGuards | None = None,
    ) -> None:
        self._types = types
        self._partitions = None if keys is None else partitions_of(types, deal, every=True, numbered=True)
        self._n_events = 0
        self._states: list[PastState | DescentState | RisesState] = []
        for column in bound.columns:
            if column not in bound.reaches:
                self._states.append(DescentState(column) if is_descent(column) else RisesState(column))
                continue
            reach = bound.reaches[column]
            clock = np.dtype(np.float64 if isinstance(reach.length, np.float64) else np.uint64)
            self._states.append(new_state(column, clock, reach.column is not None or keys is None))
        self.rebind(bound, keys, shared)

    def rebind(self, bound: BoundPasts, keys: PartitionKeys | None, shared: SharedGuards | None = None) -> None:
        """Go on with the same columns of batches of another schema.

        Raises
        ------
        EventsError
            When the values kept so far are of another type.
        """
        self._bound, self._keys = bound, keys
        self._tests = [_Chosen(guards, shared) for guards in bound.tests]
        for state, column in zip(self._states, bound.columns, strict=True):
            state.rebind(column)

    @property
    def _n_keys(self) -> int:
        return 1 if self._partitions is None else self._partitions.n

    def add_to(self, block: Block) -> None:
        """Make the columns of the next block."""
        rows, keys, ordinals = self._substreams(block) if self._bound.of_substreams else _NO_EVENTS
        answers: dict[int, Callable[[int], Bools]] = {}  # a test may read columns that are made before it is asked

        def satisfied(place: tuple[int, int] | None) -> Bools:
            if place is None:
                return np.ones(block.n_rows, np.bool_)
            test, guard = place
            if test not in answers:
                answers[test] = self._tests[test].of(block)
            return answers[test](guard)

        clocks: dict[str | None, Array] = {None: ordinals}
        for state, (column, names) in zip(self._states, self._bound.columns.items(), strict=True):
            chosen = satisfied(self._bound.test[column])
            if isinstance(state, RisesState):
                made = state.make(rows, keys, self._n_keys, chosen, satisfied(self._bound.condition[column]))
            elif isinstance(state, DescentState):
                made = state.make(block, chosen)
                for name in names:
                    block.source.put(name, made)  # for the guards that queries share
            else:
                reach = self._bound.reaches[column]
                if reach.column not in clocks:
                    assert reach.column is not None
                    of_rows = ordered(block.numbers(reach.column))
                    clocks[reach.column] = of_rows if len(rows) == block.n_rows else of_rows[rows]
                made = state.make(block, rows, keys, self._n_keys, clocks[reach.column], reach.length, chosen)
            for name in names:
                block.put(name, made)
        self._n_events += block.n_rows

    def _substreams(self, block: Block) -> tuple[Int32, Int32, Array]:
        """Return the events that have a key, their keys, and the place of each in its substream."""
        rows = np.arange(block.n_rows, dtype=np.int32)
        if self._partitions is None:
            ordinals = np.arange(self._n_events, self._n_events + block.n_rows, dtype=np.uint64)
            return rows, np.zeros(block.n_rows, np.int32), ordinals
        assert self._keys is not None
        _, rows, keys, places = self._partitions.assign(self._keys.arrays(block.batch, self._types), rows, rows)
        return rows, keys, places.view(np.uint64)

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[int, pa.Array], dict[int, pa.Array]]:
        """Return the state: arrays, the values of keys that are texts, and the texts that are counted."""
        arrays: dict[str, Any] = {"n_events": np.array([self._n_events])}
        of_keys: dict[int, pa.Array] = {}
        if self._partitions is not None:
            found, of_keys = self._partitions.snapshot()
            arrays |= {f"keys.{name}": array for name, array in found.items()}
        for i, state in enumerate(self._states):
            arrays |= {f"{i}.{name}": array for name, array in state.snapshot(self._n_keys).items()}
        counted = {i: each.texts() for i, each in enumerate(self._states) if isinstance(each, _WITH_TEXTS)}
        return arrays, of_keys, counted

    def restore(self, arrays: dict[str, Any], texts: dict[int, pa.Array], counted: dict[int, pa.Array]) -> None:
        """Go on from a snapshot."""
        self._n_events = int(arrays["n_events"][0])
        if self._partitions is not None:
            self._partitions.restore({n: arrays[f"keys.{n}"] for n in ("keys", "counts")}, texts)
        for i, state in enumerate(self._states):
            own = f"{i}."
            state.restore({name[len(own) :]: array for name, array in arrays.items() if name.startswith(own)})
            if isinstance(state, _WITH_TEXTS):
                state.restore_texts(counted[i])


def _has_bit(words: Array, bit: int) -> Bools:
    """Return which words have a bit (`GuardWords.words`)."""
    word = words if words.ndim == 1 else words[:, bit // 64]
    found: Bools = read_only((word >> word.dtype.type(bit % 64)) & word.dtype.type(1)).astype(np.bool_)
    return found
