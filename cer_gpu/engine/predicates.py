"""Guards of the automaton -> one bit vector for each event of a block: bit g is set where guard g holds.

papers: CORE, section 5.4.  The bits are those of guards (a type test and all the predicates on one event together),
not of single comparisons: fewer distinct vectors, and so fewer symbols.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.generated import generated
from cer_gpu.backend.generation import CHUNK
from cer_gpu.backend.terms import Program
from cer_gpu.engine.binding import Binder, column_type, columns_of
from cer_gpu.engine.columns import NOTHING, Block, is_string, kind_of
from cer_gpu.engine.dictionaries import PerDictionary
from cer_gpu.engine.inputs import CODES, read_only
from cer_gpu.engine.interpreter import rows_of
from cer_gpu.engine.symbols import Selected, SymbolTable, Words
from cer_gpu.errors import EventsError, QueryTypeError

TIER: str | None = os.environ.get("CER_GPU_PREDICATES")
"""How predicates are evaluated, whatever it costs: `INTERPRETED` or `COMPILED`; None: as pays."""
INTERPRETED, COMPILED = "interpreted", "compiled"


class GuardWords:
    """Evaluates all guards of a query over blocks of one schema.

    Parameters
    ----------
    guards
        Of the CEA; at least one.
    schema : pyarrow.Schema
    type_column
        The column of event types, or None where all events have one type.
    stream_column
        The column that says from which stream an event is, or None where guards test no stream.
    text
        The query, for error messages.

    Attributes
    ----------
    columns : list of str
        The columns that are read.
    tier : str
        How the last block was evaluated: `INTERPRETED` (NumPy, one operation at a time) or `COMPILED` (one pass).
    """

    def __init__(
        self,
        guards: tuple[Guard, ...],
        schema: pa.Schema,
        type_column: str | None,
        text: str,
        stream_column: str | None = None,
    ) -> None:
        self.n_guards = len(guards)
        self._guards = guards
        self._type_column = type_column
        self._stream_column = stream_column
        data_type = None if type_column is None else type_column_type(schema, type_column)
        binder = Binder(schema, text)
        bound = {g.predicate: binder.bind(g.predicate) for g in guards if g.predicate is not None}
        self._inputs = inputs = binder.inputs
        self._tests = [(i, bound[g.predicate]) for i, g in enumerate(guards) if g.predicate is not None]
        self._types = PerDictionary(self._type_words)
        self._streams = PerDictionary(self._stream_words)
        # the type test is the same for all events: there is one type, or no event has any
        self._constant: npt.NDArray[Any] | None = None
        no_type = data_type is not None and kind_of(data_type) == NOTHING
        if data_type is None or no_type:
            self._constant = self._pack([() if no_type else range(self.n_guards)])
        read = columns_of([g.predicate for g in guards if g.predicate is not None])
        named = [name for name in (type_column, stream_column) if name is not None]
        self.columns = list(dict.fromkeys([*named, *read]))
        self.tier = INTERPRETED
        types, streams = (None if n is None else inputs.column(n, CODES) for n in (type_column, stream_column))
        program = Program(self.n_guards, types, streams, tuple(self._tests))
        self._code = None if no_type else generated(program)
        constants = () if self._code is None else self._code.slots.constants
        self._constants = [read_only(np.array(inputs.constants[dtype], dtype)) for dtype in constants]
        self._allowed = np.empty(CHUNK, self.dtype)

    @property
    def dtype(self) -> npt.DTypeLike:
        """The type of a word: uint8 or uint16 where the guards fit, else uint64 (and then words are rows)."""
        return np.uint8 if self.n_guards <= 8 else np.uint16 if self.n_guards <= 16 else np.uint64

    @property
    def may_compile(self) -> bool:
        """Whether there is a compiled pass, where it pays."""
        return self._code is not None and TIER != INTERPRETED

    def select(self, block: Block, symbols: SymbolTable) -> Selected:
        """Return the symbols and rows (int32) of the relevant events of a block."""
        made = self._compiled(block)
        self.tier = INTERPRETED if made is None else COMPILED
        if made is None:
            return symbols.select(self.words(block))
        if self.dtype != np.uint64:
            return symbols.select_by(lambda *state: made(*state, self._allowed), block.n_rows)
        words = np.empty((block.n_rows, (self.n_guards + 63) // 64), np.uint64)
        made(words)
        return symbols.select(words)

    def _compiled(self, block: Block) -> Callable[..., Any] | None:
        """Return the compiled pass over a block, or None where there is none or it does not pay."""
        code, inputs, n = self._code, self._inputs, block.n_rows
        if code is None or not n or TIER == INTERPRETED:
            return None
        stored = [inputs.stored(column, block) for column in code.slots.columns]
        nullable = any(column.valid is not None for column in stored)
        run = code.run(nullable, n, at_once=TIER == COMPILED)
        if run is None:
            return None
        arguments: list[Any] = [column.values for column in stored]
        if nullable:
            arguments += [_all_valid(n) if column.valid is None else column.valid for column in stored]
        bits = [bit for column in stored for bit in (column.first_bit, column.first_valid)]
        arguments += [read_only(np.array(bits, np.int64)), *self._constants]
        if self._type_column is not None:
            arguments.append(read_only(self._types(block.stored_codes(self._type_column)[1])))
        if self._stream_column is not None:
            arguments.append(read_only(self._streams(block.stored_codes(self._stream_column)[1])))
        for slot in code.slots.tables:
            column, table = inputs.tables[slot]
            values = block.stored_codes(inputs.columns[column.slot][0])[1]
            arguments.append(read_only(table(values).view(np.uint8)))
        for slot in code.slots.given:
            rows = np.broadcast_to(inputs.given[slot](block), n)
            arguments.append(read_only(rows).view(np.uint8))
        return partial(run, n, *arguments)

    def words(self, block: Block) -> Words:
        """Return the bit vectors of a block.

        Returns
        -------
        uint8 or uint16 array, shape (n rows,), for at most 8 or 16 guards; otherwise uint64, shape (n rows,
        n words), bit g being bit g % 64 of word g // 64.
        """
        if self._constant is not None:
            words = np.repeat(self._constant, block.n_rows, axis=0)
        else:
            assert self._type_column is not None
            coded = block.coded(self._type_column)
            words = self._types(coded.values).take(coded.codes, axis=0)
            valid = block.valid(self._type_column)
            if valid is not None:
                words[~valid] = 0
        if self._stream_column is not None:
            streams = block.coded(self._stream_column)
            words &= self._streams(streams.values).take(streams.codes, axis=0)
        one = words.dtype.type(1)
        for guard, test in self._tests:
            word = words if words.ndim == 1 else words[:, guard // 64]
            bit = words.dtype.type(guard if words.ndim == 1 else guard % 64)
            rows = rows_of(test, self._inputs, block)
            if isinstance(rows, np.ndarray):
                word &= ~(np.logical_not(rows).astype(words.dtype) << bit)
            elif not rows:
                word &= ~(one << bit)
        return words

    def _type_words(self, values: pa.Array) -> npt.NDArray[Any]:
        by_type: dict[str | None, list[int]] = {}
        for i, guard in enumerate(self._guards):
            by_type.setdefault(guard.event_type, []).append(i)
        by_type.pop(None, None)
        try:
            return self._pack([by_type.get(value, []) for value in values.to_pylist()])
        except UnicodeDecodeError as error:
            raise EventsError(f"the type column {self._type_column!r} holds text that is not UTF-8: {error}") from None

    def _stream_words(self, values: pa.Array) -> npt.NDArray[Any]:
        return self._pack(
            [
                [i for i, guard in enumerate(self._guards) if guard.stream is None or guard.stream == value]
                for value in values.to_pylist()
            ]
        )

    def _pack(self, rows: Sequence[Collection[int]]) -> npt.NDArray[Any]:
        """Return one bit vector for each list of guards."""
        if self.dtype != np.uint64:
            return np.array([sum(1 << g for g in guards) for guards in rows], self.dtype)
        words = np.zeros((len(rows), (self.n_guards + 63) // 64), np.uint64)
        for row, guards in zip(words, rows, strict=True):
            for g in guards:
                row[g // 64] |= np.uint64(1 << g % 64)
        return words


@lru_cache(4)
def _all_valid(n_rows: int) -> npt.NDArray[np.uint8]:
    """Return bits that say that no row is NULL."""
    return read_only(np.full((n_rows + 7) // 8, 255, np.uint8))


def type_column_type(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of the column of event types after checking that it holds strings (or nothing at all)."""
    data_type = column_type(schema, name, None, None)
    if not is_string(data_type) and kind_of(data_type) != NOTHING:
        raise QueryTypeError(
            f"the type column {name!r} must hold strings, and is {data_type}",
            hint="name another: type_column=... (--type-column)",
        )
    return data_type
