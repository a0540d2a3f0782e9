"""Conditions of DEFINE over the row itself and rows before and after it: one symbol for each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.dictionary_encoding import DictionaryEncoder
from cer_gpu.columnar.fields import attribute_type, column_type
from cer_gpu.errors import QueryTooLargeError
from cer_gpu.expressions.derived import makers_of
from cer_gpu.predicates.guards import BoundGuards, GuardEvaluator
from cer_gpu.predicates.placement import CUDA, Placement
from cer_gpu.row_patterns.leaves import Null, RowLeaf, RowValue
from cer_gpu.row_patterns.ordering import OrderedRows
from cer_gpu.row_patterns.program import RowProgram
from cer_gpu.row_patterns.row_matching import Searching, Skip
from cer_gpu.row_patterns.searching import BoundSearch, Searched

CONDITION_ROWS = 1 << 15
"""Rows whose conditions are evaluated at once, so that their temporaries stay in the cache."""
DEVICE_ROWS = 1 << 20
"""Rows whose conditions a GPU evaluates at once."""
MAX_DIRECT = 10
"""Maximum number of conditions whose results, as bits, are the symbol of a row; else combinations are numbered."""
MAX_CONDITIONS = 63
MAX_PATTERN_SYMBOLS = 1 << 16
"""Maximum number of combinations of results, as a row has one in 16 bits."""


@dataclass(frozen=True)
class Conditions:
    """Conditions of the variables of a statement.

    Attributes
    ----------
    predicates : dict from str to Predicate
        By variable, over attributes named as `around` are; a variable without one holds for every row.
    around : dict from str to RowValue or Null
        Values of the row and of rows before and after it.
    searched : Searched or None
        The parts that read other rows of the match, or None if there are none.
    """

    predicates: Mapping[str, s.Predicate]
    around: Mapping[str, RowValue | Null]
    searched: Searched | None = None

    @property
    def leaves(self) -> dict[str, RowLeaf]:
        """All leaves of the conditions."""
        return {**self.around, **(self.searched.leaves if self.searched else {})}

    def bind(self, schema: pa.Schema, text: str) -> BoundConditions:
        """Bind them to the schema of the rows.

        Raises
        ------
        QueryTypeError
            When a column is unknown, or types do not go together.
        """
        fields = {}
        for name, leaf in self.around.items():
            if isinstance(leaf, Null):
                fields[name] = pa.field(name, pa.null())
                continue
            column_type(schema, leaf.column, text, _span_of(self.predicates, name))  # for its error
            fields[name] = pa.field(name, attribute_type(schema, leaf.column))
        guards = tuple(Guard(None, predicate) for predicate in self.predicates.values())
        bound = BoundGuards(guards, pa.schema(list(fields.values())), None, text) if guards else None
        search = None if self.searched is None else self.searched.bind(schema, text)
        return BoundConditions(self.around, list(self.predicates), bound, search)


def _span_of(predicates: Mapping[str, s.Predicate], name: str) -> s.Span:
    """Return the place of the condition that names a leaf."""
    for predicate in predicates.values():
        for attribute in s.attributes(predicate):
            if attribute.name == name:
                return attribute.span
    return (0, 0)


class BoundConditions:
    """Conditions bound to a schema; created by `Conditions.bind`."""

    def __init__(
        self,
        leaves: Mapping[str, RowValue | Null],
        variables: list[str],
        guards: BoundGuards | None,
        search: BoundSearch | None,
    ) -> None:
        self._leaves, self._variables, self._guards, self._search = leaves, variables, guards, search

    def search(self, rows: OrderedRows, program: RowProgram, skip: Skip) -> Searching | None:
        """Return the search over some rows; None if no condition reads other rows of the match."""
        return None if self._search is None else self._search.over(rows, program, skip)

    def symbols(
        self, rows: OrderedRows, device: str
    ) -> tuple[npt.NDArray[np.uint16], dict[str, npt.NDArray[np.bool_]]]:
        """Return the symbol of each row, and for each variable the symbols of the rows that satisfy its condition.

        Parameters
        ----------
        rows
        device
            "cpu", "cuda" or "auto".

        Returns
        -------
        symbols : uint16, shape (n rows,)
        satisfies : dict from str to bool, shape (n symbols,)
        """
        n = rows.batch.num_rows
        direct = len(self._variables) <= MAX_DIRECT
        words = np.zeros(n, np.uint16 if direct else np.int64)
        if self._guards is not None:
            evaluation, begin = GuardEvaluator(self._guards, device), 0
            try:
                for block, block_words in evaluation.all_words(self._blocks(rows, evaluation.placement)):
                    words[begin : begin + block.n_rows] = block_words[:, 0] if block_words.ndim == 2 else block_words
                    begin += block.n_rows
            finally:
                evaluation.release()
        if direct:
            combinations = np.arange(1 << len(self._variables))
            symbols = words.astype(np.uint16, copy=False)
        else:
            encoded = pc.dictionary_encode(pa.array(words))
            combinations, symbols = encoded.dictionary.to_numpy(), encoded.indices.to_numpy().astype(np.uint16)
            if len(combinations) > MAX_PATTERN_SYMBOLS:
                raise QueryTooLargeError(
                    f"the conditions of DEFINE have more than {MAX_PATTERN_SYMBOLS:,} combinations here"
                )
        return symbols, {v: (combinations >> bit & 1).astype(np.bool_) for bit, v in enumerate(self._variables)}

    def _blocks(self, rows: OrderedRows, placement: Placement) -> Iterator[Block]:
        """Yield blocks of the rows, with the values of rows before and after each."""
        assert self._guards is not None
        shifts = _Shifts(rows)
        makers = makers_of(self._guards.derived)
        coders: dict[str, DictionaryEncoder] = {}
        begin, n = 0, rows.batch.num_rows
        while begin < n:
            end = min(n, begin + (DEVICE_ROWS if placement.device == CUDA else CONDITION_ROWS))
            block = Block(rows.batch.slice(begin, end - begin), coders)
            for name, leaf in self._leaves.items():
                block.put(name, shifts.column(leaf, begin, end))
            block.derive(makers)
            yield block
            begin = end


class _Shifts:
    """Columns of the rows at an offset in their partitions, block by block."""

    def __init__(self, rows: OrderedRows) -> None:
        self._rows = rows

    def column(self, leaf: RowValue | Null, begin: int, end: int) -> pa.Array:
        """Return a column for the rows from `begin` to `end`; NULL where the partition has no row so far away."""
        if isinstance(leaf, Null):
            return pa.nulls(end - begin)
        values = self._rows.batch.column(leaf.column)
        if pa.types.is_dictionary(values.type):
            codes = self._shifted(values.indices, leaf.offset, begin, end)
            return pa.DictionaryArray.from_arrays(codes, values.dictionary, ordered=values.type.ordered)
        return self._shifted(values, leaf.offset, begin, end)

    def _shifted(self, values: pa.Array, offset: int, begin: int, end: int) -> pa.Array:
        k = max(-len(values), min(len(values), offset))
        if k == 0:
            return values.slice(begin, end - begin)
        low, high = max(0, begin + k), min(len(values), end + k)
        n_before, n_after = min(end - begin, max(0, -(begin + k))), min(end - begin, max(0, end + k - len(values)))
        shifted = values.slice(low, max(0, high - low))
        if n_before or n_after:
            shifted = pa.concat_arrays([pa.nulls(n_before, values.type), shifted, pa.nulls(n_after, values.type)])
        outside = self._outside(begin, end, k)
        return pc.if_else(pa.array(outside), pa.scalar(None, values.type), shifted) if outside is not None else shifted

    def _outside(self, begin: int, end: int, k: int) -> npt.NDArray[np.bool_] | None:
        """Return which rows have no row `k` further in their partition, those at the ends of all rows apart."""
        ends = self._rows.ends
        # borders between partitions, near enough to the block
        low, high = np.searchsorted(ends, (begin - abs(k), end + abs(k)))
        borders = ends[low:high]
        borders = borders[borders < self._rows.batch.num_rows]
        if not len(borders):
            return None
        outside = np.zeros(end - begin, np.bool_)
        steps = np.arange(0, -k) if k < 0 else np.arange(-k, 0)
        for step in steps if len(steps) <= len(borders) else ():
            at = borders + step - begin
            outside[at[(at >= 0) & (at < end - begin)]] = True
        if len(steps) > len(borders):
            for border in borders:
                span = slice(max(0, border + int(steps[0]) - begin), max(0, border + int(steps[-1]) + 1 - begin))
                outside[span] = True
        return outside
