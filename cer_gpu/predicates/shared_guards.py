"""Guards of many queries over one stream, each of which is evaluated once, over the events of its type alone.

A guard gives an ascending list of rows for each block; the relevant events of a query are the merge of the lists of its
guards, with the word of each row (`cer_gpu.predicates.guards`).  A query whose types do not occur in a block reads
nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.compaction import group_rows, merge_rows
from cer_gpu.columnar.columns import Block, Taken
from cer_gpu.columnar.dictionaries import PerDictionary
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.columnar.strings import StringCoder
from cer_gpu.predicates.binder import Binder
from cer_gpu.predicates.guards import INTERPRETED, BoundGuards, type_names
from cer_gpu.predicates.interpreter import rows_of
from cer_gpu.predicates.placement import CPU, Placement
from cer_gpu.predicates.symbols import Selected, SymbolTable
from cer_gpu.predicates.terms import Test
from cer_gpu.predicates.types_met import TypesMet

MOST_GUARDS = 16
"""Most guards of a query that shares them: its words have so many bits."""

Rows = npt.NDArray[np.int32]
NO_ROWS: Rows = read_only(np.empty(0, np.int32))
NO_WORDS = read_only(np.empty(0, np.uint16))


def may_share(bound: BoundGuards, *, negates: bool) -> bool:
    """Return True if the guards of a query may be shared: others need the words of all events, or columns of its own.

    Parameters
    ----------
    bound
    negates
        True if an event that satisfies no guard may be relevant.
    """
    return not negates and not bound.derived and bound.program is not None and bound.n_guards <= MOST_GUARDS


class SharedGuards:
    """Lists of the rows that satisfy the guards of many queries, block by block.

    Parameters
    ----------
    schema : pyarrow.Schema
    type_column
        Column of event types; None: all events have one type.
    stream_column
        Column of the streams of events; None: guards test no stream.
    """

    def __init__(self, schema: pa.Schema, type_column: str | None, stream_column: str | None) -> None:
        self.schema = schema
        self._type_column, self._stream_column = type_column, stream_column
        self._block: Block | None = None
        self._of_type: dict[str | None, _OfType] = {}
        self._found: dict[Guard, Rows] = {}
        self._groups = PerDictionary(self._groups_of)
        self._grouped = Scratch(np.int32)
        self._merged = [(Scratch(np.int32), Scratch(np.uint16)) for _ in range(2)]
        self.types: list[str | None] = []

    def words_for(self, bound: BoundGuards, types_met: TypesMet) -> SharedWords:
        """Return the view of one query, which must be allowed (`may_share`)."""
        for guard in bound.guards:
            if guard.event_type not in self._of_type:
                self._of_type[guard.event_type] = _OfType(self.schema)
                self._block, self._groups = None, PerDictionary(self._groups_of)
        return SharedWords(self, bound, types_met)

    def rows(self, guard: Guard, block: Block) -> Rows:
        """Return the rows of a block (int32, ascending) that satisfy a guard."""
        if block is not self._block:
            self._read(block)
        found = self._found.get(guard)
        if found is None:
            found = self._found[guard] = self._rows(guard, block)
        return found

    def _read(self, block: Block) -> None:
        """Group the rows of a block by their types."""
        self._block = block
        self._found.clear()
        if self._type_column is None:
            every = np.arange(block.n_rows, dtype=np.int32)
            for of_type in self._of_type.values():
                of_type.read(block, every)
            return
        coded = block.coded(self._type_column)
        groups = self._groups(coded.values).take(coded.codes)
        valid = block.valid(self._type_column)
        if valid is not None:
            groups[~valid] = -1
        begins = np.empty(len(self._of_type) + 1, np.int64)
        rows = self._grouped.empty(block.n_rows)
        group_rows(groups, begins, rows)
        for i, of_type in enumerate(self._of_type.values()):
            of_type.read(block, rows[begins[i] : begins[i + 1]])

    def _groups_of(self, values: pa.Array) -> npt.NDArray[np.int32]:
        numbers = {name: i for i, name in enumerate(self._of_type) if name is not None}
        assert self._type_column is not None
        self.types = type_names(values, self._type_column)
        return np.array([-1 if name is None else numbers.get(name, -1) for name in self.types], np.int32)

    def _rows(self, guard: Guard, block: Block) -> Rows:
        of_type = self._of_type[guard.event_type]
        kept: npt.NDArray[np.bool_] | bool = True
        if guard.stream is not None and self._stream_column is not None:
            streams = of_type.taken.coded(self._stream_column)
            named = np.array([name == guard.stream for name in streams.values.to_pylist()] or [False])
            kept = named[streams.codes]
        if guard.predicate is not None and len(of_type.rows):
            kept = kept & of_type.rows_of(guard)
        if isinstance(kept, np.ndarray):
            return of_type.rows[kept]
        return of_type.rows if kept else NO_ROWS

    def merge(self, lists: list[Rows]) -> tuple[Rows, npt.NDArray[np.uint16]]:
        """Return the rows of all lists, ascending, and for each the lists that hold it; valid until the next call."""
        n_all = sum(map(len, lists))
        rows, words = NO_ROWS, NO_WORDS
        for number, more in enumerate(lists):
            # the memory of the step before is read, so each step writes to the other
            scratch = self._merged[number % 2]
            merged, merged_words = scratch[0].empty(n_all), scratch[1].empty(n_all)
            n = merge_rows(rows, words, read_only(more), 1 << number, merged, merged_words)
            rows, words = read_only(merged[:n]), read_only(merged_words[:n])
        return rows, words


class _OfType:
    """The events of one type in a block, and the tests on them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._binder = Binder(schema, "")  # each predicate was bound before, by itself
        self._coders: dict[str, StringCoder] = {}
        self._tests: dict[Guard, Test] = {}
        self._taken: Taken | None = None
        self.rows = NO_ROWS

    def read(self, block: Block, rows: Rows) -> None:
        """Go on to another block."""
        self._block, self.rows, self._taken = block, rows, None

    @property
    def taken(self) -> Taken:
        """Columns of the events, taken at their first use."""
        if self._taken is None:
            self._taken = Taken(self._block, self.rows, self._coders)
        return self._taken

    def rows_of(self, guard: Guard) -> npt.NDArray[np.bool_] | bool:
        """Return the events that satisfy the predicate of a guard."""
        test = self._tests.get(guard)
        if test is None:
            assert guard.predicate is not None
            test = self._tests[guard] = self._binder.bind(guard.predicate)
        return rows_of(test, self._binder.inputs, self.taken)


class SharedWords:
    """View of one query on shared guards, in the place of its own (`cer_gpu.predicates.guards.GuardWords`)."""

    tier = INTERPRETED

    def __init__(self, shared: SharedGuards, bound: BoundGuards, types_met: TypesMet) -> None:
        self._shared = shared
        self._types: list[str | None] = []
        self.bound, self.types_met = bound, types_met
        self.placement = Placement(CPU, bound.program)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the guards read."""
        return self.bound.columns

    def ahead(self, blocks: Iterable[Block], symbols: SymbolTable) -> Iterator[Block]:
        """Yield blocks as they come."""
        yield from blocks

    def release(self) -> None:
        """Free nothing: there is no memory on a device."""

    def select(self, block: Block, symbols: SymbolTable) -> Selected:
        """Return symbols and rows (int32) of the relevant events of a block, valid until the next call."""
        lists = [self._shared.rows(guard, block) for guard in self.bound.guards]
        if self._types is not self._shared.types:
            self._types = self._shared.types
            self.types_met.add(self._types)
        if not any(map(len, lists)):
            return NO_ROWS, NO_ROWS
        rows, words = self._shared.merge(lists)
        if self.bound.dtype == np.uint8:
            words = words.astype(np.uint8)
        chosen, places = symbols.select(words)
        return chosen, rows if len(places) == len(rows) else rows[places]
